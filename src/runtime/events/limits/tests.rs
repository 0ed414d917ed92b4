//! Limits in virtual time.

use proptest::prelude::*;

use super::*;

const TENANT: NewEvent<'static> =
    NewEvent { object: "web", tenant: "shop", is_shared: false, occurrence: None, text: "scaled" };

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000 + seconds)
}

fn is_sent(admission: &EventAdmission) -> bool {
    matches!(admission, EventAdmission::New { .. } | EventAdmission::Repeated { .. })
}

#[test]
fn ten_in_a_minute_and_the_next_one_says_how_many_were_left_out() {
    let mut limits = EventLimits::default();
    let texts: Vec<String> = (0..22).map(|number| format!("scaled to {number}")).collect();
    let sent: Vec<bool> =
        texts.iter().map(|text| is_sent(&limits.admit(&NewEvent { text, ..TENANT }, at(0)))).collect();
    assert_eq!(sent.iter().filter(|sent| **sent).count(), PER_MINUTE);
    assert_eq!(sent.iter().position(|sent| !sent), Some(PER_MINUTE), "the first ones are sent");
    assert_eq!(limits.admit(&TENANT, at(59)), EventAdmission::LeftOut);
    let later = limits.admit(&TENANT, at(61));
    assert!(matches!(later, EventAdmission::New { left_out: 13, .. }), "{later:?}");
    let next = limits.admit(&NewEvent { text: "another", ..TENANT }, at(62));
    assert!(matches!(next, EventAdmission::New { left_out: 0, .. }), "counted once: {next:?}");
}

#[test]
fn other_objects_are_not_limited_by_it() {
    let mut limits = EventLimits::default();
    for _ in 0..30 {
        limits.admit(&TENANT, at(0));
    }
    assert!(is_sent(&limits.admit(&NewEvent { object: "db", ..TENANT }, at(0))));
}

#[test]
fn one_namespace_leaves_half_of_a_shared_object_to_others() {
    let mut limits = EventLimits::default();
    let node = NewEvent { object: "node", is_shared: true, ..TENANT };
    let sent = (0..30).filter(|_| is_sent(&limits.admit(&node, at(0)))).count();
    assert_eq!(sent, PER_MINUTE_EACH);
    assert!(is_sent(&limits.admit(&NewEvent { tenant: "bank", ..node }, at(1))));
}

#[test]
fn the_same_event_again_has_a_count_and_another_one_in_between_ends_the_series() {
    let mut limits = EventLimits::default();
    let stale = NewEvent { occurrence: Some("1"), text: "stale", ..TENANT };
    assert_eq!(limits.admit(&stale, at(0)), EventAdmission::New { at: at(0), occurrence: "1".into(), left_out: 0 });
    assert_eq!(limits.admit(&stale, at(1)), EventAdmission::Known);
    let again = NewEvent { occurrence: Some("2"), ..stale };
    assert_eq!(limits.admit(&again, at(2)), EventAdmission::Repeated { at: at(2), first: "1".into(), count: 2 });
    assert_eq!(limits.admit(&again, at(3)), EventAdmission::Known);
    let fresh = NewEvent { occurrence: Some("3"), text: "fresh", ..TENANT };
    assert!(matches!(limits.admit(&fresh, at(4)), EventAdmission::New { .. }));
    let stale = NewEvent { occurrence: Some("4"), ..stale };
    assert!(matches!(limits.admit(&stale, at(5)), EventAdmission::New { .. }), "the order of the story is kept");
    let late = NewEvent { occurrence: Some("5"), ..stale };
    assert!(matches!(limits.admit(&late, at(5 + 360)), EventAdmission::New { .. }));
}

#[test]
fn two_events_of_one_write_are_two_events() {
    let mut limits = EventLimits::default();
    let ready = NewEvent { occurrence: Some("7"), text: "not ready", ..TENANT };
    assert!(is_sent(&limits.admit(&ready, at(0))));
    assert!(is_sent(&limits.admit(&NewEvent { text: "no data", ..ready }, at(0))));
}

#[test]
fn a_clock_that_is_set_back_does_not_silence_an_object() {
    let mut limits = EventLimits::default();
    for _ in 0..20 {
        limits.admit(&TENANT, at(0));
    }
    assert!(is_sent(&limits.admit(&TENANT, at(-3600))));
}

#[test]
fn memory_is_bounded_and_fair() {
    let mut limits = EventLimits::default();
    let objects: Vec<String> = (0..2 * OBJECTS).map(|number| number.to_string()).collect();
    for object in &objects {
        limits.admit(&NewEvent { object, ..TENANT }, at(0));
    }
    assert_eq!(limits.objects.len(), OBJECTS_EACH);
    assert!(is_sent(&limits.admit(&NewEvent { object: "db", tenant: "bank", ..TENANT }, at(0))));
    assert_eq!(limits.admit(&NewEvent { object: "new", ..TENANT }, at(59)), EventAdmission::LeftOut);
    assert!(is_sent(&limits.admit(&NewEvent { object: "new", ..TENANT }, at(61))), "idle objects are forgotten");
    assert!(limits.objects.len() <= 2, "{}", limits.objects.len());
    assert_eq!(limits.counts.count("shop"), 1);
}

proptest! {
    #[test]
    fn never_more_than_ten_a_minute_in_order_and_all_are_counted(
        events in prop::collection::vec((0_i64..20_000, 0_usize..3, 0_usize..4, 0_usize..2), 1..400),
    ) {
        let (objects, texts, tenants) = (["a", "b", "c"], ["w", "x", "y", "z"], ["s", "t"]);
        let mut limits = EventLimits::default();
        let mut now = at(0);
        let mut sent: HashMap<&str, Vec<(Timestamp, &str)>> = HashMap::new();
        let (mut out, mut reported): (HashMap<&str, u32>, HashMap<&str, u32>) = (HashMap::new(), HashMap::new());
        for (pause, object, text, tenant) in events {
            now += SignedDuration::from_millis(pause);
            let (object, tenant) = (objects[object], tenants[tenant]);
            let event = NewEvent { object, tenant, is_shared: object == "c", occurrence: None, text: texts[text] };
            match limits.admit(&event, now) {
                EventAdmission::New { at, left_out, .. } => {
                    *reported.entry(object).or_default() += left_out;
                    sent.entry(object).or_default().push((at, tenant));
                    prop_assert_eq!(reported.get(object), Some(&out.get(object).copied().unwrap_or(0)));
                }
                EventAdmission::Repeated { at, count, .. } => {
                    prop_assert!(count >= 2);
                    sent.entry(object).or_default().push((at, tenant));
                }
                EventAdmission::LeftOut => *out.entry(object).or_default() += 1,
                EventAdmission::Known => prop_assert!(false, "each of these events happened at another time"),
            }
        }
        for (object, times) in sent {
            prop_assert!(times.windows(2).all(|pair| pair[0].0 < pair[1].0), "{object}: {times:?}");
            for (index, (last, tenant)) in times.iter().enumerate() {
                let minute = || times[..=index].iter().filter(|(at, _)| is_within(*at, *last, MINUTE));
                prop_assert!(minute().count() <= PER_MINUTE);
                prop_assert!(object != "c" || minute().filter(|(_, one)| one == tenant).count() <= PER_MINUTE_EACH);
            }
        }
    }
}
