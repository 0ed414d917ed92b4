//! What is asked and when, by tables and by random orders of events.

use std::collections::HashSet;

use proptest::prelude::*;
use rstest::rstest;

use super::super::UsageScale;
use super::*;

const ROOM: Room = Room { rows: 1000, batches: 100 };

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn key(model: usize, inlet: i32) -> CurveKey {
    let model = format!("http://s{model}/v2/models/m/infer").into();
    CurveKey::new(model, UsageScale::Percent, 8.0, f64::from(inlet), 0.0).expect("a key")
}

fn keys(model: usize, count: i32) -> Vec<CurveKey> {
    (0..count).map(|inlet| key(model, inlet)).collect()
}

fn good(batch: &CurveBatch) -> Vec<Option<f64>> {
    batch.rows().map(|row| Some(row.usage + row.inlet_celsius)).collect()
}

fn cache() -> CurveCache {
    CurveCache::new(CurveRules::default())
}

/// Asks for all keys until nothing is due, and answers at once.
fn fill(cache: &mut CurveCache, keys: &[CurveKey], now: Timestamp) {
    loop {
        let batches = cache.wanted(keys, now, ROOM);
        if batches.is_empty() {
            break;
        }
        batches.iter().for_each(|batch| cache.answered(batch, &good(batch), now));
    }
}

fn state(lookup: CurveLookup<'_>) -> &str {
    match lookup {
        CurveLookup::Fresh(_) => "fresh",
        CurveLookup::Old(_) => "old",
        CurveLookup::Missing => "missing",
        CurveLookup::Failed(reason) => reason,
    }
}

#[test]
fn a_batch_is_of_one_model_and_has_so_many_rows() {
    let (mut cache, all) = (cache(), [keys(0, 100), keys(1, 3)].concat());
    let batches = cache.wanted(&all, second(0), ROOM);
    let sizes: Vec<_> = batches.iter().map(|batch| (batch.keys().len(), batch.rows().count())).collect();
    assert_eq!(sizes, [(47, 987), (3, 63)]);
    assert!(batches.iter().all(|batch| batch.keys().iter().all(|key| key.model() == batch.model())));
    assert_eq!(cache.wanted(&all, second(1), ROOM), [], "both are under way");
    cache.answered(&batches[1], &good(&batches[1]), second(1));
    assert_eq!(cache.wanted(&all, second(1), ROOM), [], "one is under way, one has all");
    cache.answered(&batches[0], &good(&batches[0]), second(2));
    assert_eq!(cache.wanted(&all, second(2), ROOM)[0].keys().len(), 47);
}

#[rstest]
#[case(Room { rows: 20, batches: 9 }, &[])]
#[case(Room { rows: 21, batches: 9 }, &[1, 1, 1])]
#[case(Room { rows: 42, batches: 2 }, &[2, 2])]
#[case(Room { rows: 1000, batches: 0 }, &[])]
fn room_is_kept(#[case] room: Room, #[case] sizes: &[usize]) {
    let (mut cache, all) = (cache(), [keys(0, 5), keys(1, 5), keys(2, 5)].concat());
    let batches = cache.wanted(&all, second(0), room);
    assert_eq!(batches.iter().map(|batch| batch.keys().len()).collect::<Vec<_>>(), sizes);
    let more = Room { batches: room.batches + 1, ..room };
    assert!(cache.wanted(&all, second(0), more).len() <= 1, "those under way count");
}

#[test]
fn rows_and_predictions_are_in_one_order() {
    let (mut cache, all) = (cache(), keys(0, 5));
    fill(&mut cache, &all, second(0));
    for (inlet, key) in (0..).zip(&all) {
        let CurveLookup::Fresh(curve) = cache.get(key, second(1)) else { panic!("a fresh curve") };
        assert_eq!(curve.watts(62.5), Some(62.5 + f64::from(inlet)));
    }
}

#[rstest]
#[case(1800, "fresh")]
#[case(1801, "old")]
#[case(3600, "old")]
#[case(3601, "missing")]
fn curves_grow_old(#[case] age: i64, #[case] expected: &str) {
    let (mut cache, all) = (cache(), keys(0, 1));
    fill(&mut cache, &all, second(0));
    assert_eq!(state(cache.get(&all[0], second(age))), expected);
    let due = cache.wanted(&all, second(age), ROOM);
    assert_eq!(due.len(), usize::from(expected != "fresh"));
    assert_eq!(state(cache.get(&all[0], second(age))), expected, "it stays until the answer is there");
    for batch in due {
        cache.failed(&batch, "down", second(age));
        let expected = if expected == "old" { "old" } else { "down" };
        assert_eq!(state(cache.get(&all[0], second(age))), expected, "an old curve is good after a failure, too");
    }
}

#[test]
fn failures_are_repeated_ever_more_seldom() {
    let (mut cache, all) = (cache(), keys(0, 1));
    let (mut now, mut pauses) = (0, Vec::new());
    for _ in 0..40 {
        let asked = (now..).find_map(|at| Some((at, cache.wanted(&all, second(at), ROOM).pop()?)));
        let (at, batch) = asked.expect("it is asked again");
        cache.failed(&batch, "down", second(at));
        assert_eq!(cache.get(&all[0], second(at)), CurveLookup::Failed("down"));
        pauses.push(at - now);
        now = at;
    }
    assert_eq!(pauses[..8], [0, 15, 30, 60, 120, 240, 300, 300]);
    assert_eq!(pauses[39], 300);
    fill(&mut cache, &all, second(now + 300));
    assert_eq!(state(cache.get(&all[0], second(now + 300))), "fresh");
    let batch = cache.wanted(&all, second(now + 3000), ROOM).pop().expect("a batch");
    cache.failed(&batch, "down", second(now + 3000));
    assert_eq!(cache.wanted(&all, second(now + 3015), ROOM).len(), 1, "a success ends the row of failures");
}

#[test]
fn a_failure_holds_back_its_model_only_and_its_keys_are_last() {
    let (mut cache, all) = (cache(), [keys(0, 60), keys(1, 1)].concat());
    let batches = cache.wanted(&all, second(0), ROOM);
    cache.failed(&batches[0], "down", second(0));
    cache.answered(&batches[1], &good(&batches[1]), second(0));
    assert_eq!(cache.wanted(&all, second(14), ROOM), []);
    assert_eq!(state(cache.get(&all[59], second(14))), "down", "for those that were not asked, too");
    let batch = cache.wanted(&all, second(15), ROOM).pop().expect("a batch");
    assert_eq!(batch.keys()[..13], all[47..60]);
    cache.answered(&batch, &good(&batch), second(15));
    let batch = cache.wanted(&all, second(15), ROOM).pop().expect("a batch");
    assert_eq!((batch.keys().len(), &batch.keys()[0]), (13, &all[34]), "the other failed ones, without a pause");
}

#[test]
fn missing_curves_are_first() {
    let (mut cache, old) = (cache(), keys(0, 60));
    fill(&mut cache, &old, second(0));
    let other = keys(1, 1);
    fill(&mut cache, &other, second(1));
    let new = key(0, 100);
    let all = [old, other, vec![new.clone()]].concat();
    let batches = cache.wanted(&all, second(2000), Room { batches: 1, ..ROOM });
    assert_eq!((batches.len(), &batches[0].keys()[0]), (1, &new));
}

/// Whoever was asked before whom: missing curves, then old ones, then servers that failed.
#[test]
fn what_does_not_work_is_last() {
    let (mut cache, failed, old, new) = (cache(), keys(0, 60), keys(1, 1), keys(2, 2));
    let batch = cache.wanted(&failed, second(0), ROOM).pop().expect("a batch");
    cache.failed(&batch, "down", second(0));
    fill(&mut cache, &old, second(0));
    fill(&mut cache, &new[..1], second(0));
    let all = [failed, old, new].concat();
    let asked = [1, 2, 3].map(|batches| cache.wanted(&all, second(2000), Room { batches, ..ROOM }));
    let models: Vec<_> = asked.iter().flatten().map(CurveBatch::model).collect();
    assert_eq!(models, [key(2, 0).model(), key(1, 0).model(), key(0, 0).model()]);
}

#[test]
fn the_model_that_waited_longest_is_first() {
    let (mut cache, all) = (cache(), [keys(0, 100), keys(1, 100), keys(2, 100)].concat());
    let mut order = Vec::new();
    for _ in 0..6 {
        let batch = cache.wanted(&all, second(0), Room { batches: 1, ..ROOM }).pop().expect("a batch");
        order.push(batch.model().to_string());
        cache.answered(&batch, &good(&batch), second(0));
    }
    assert_eq!(order.iter().collect::<HashSet<_>>().len(), 3);
    assert_eq!(order[..3], order[3..]);
}

#[test]
fn a_key_without_any_point_fails_alone() {
    let (mut cache, all) = (cache(), keys(0, 2));
    let batch = cache.wanted(&all, second(0), ROOM).pop().expect("a batch");
    let mut watts = good(&batch);
    watts[..POINTS].fill(None);
    cache.answered(&batch, &watts, second(0));
    assert_eq!([0, 1].map(|at| state(cache.get(&all[at], second(0)))), [NO_POINT, "fresh"]);
    assert_eq!(cache.wanted(&all, second(14), ROOM), []);
    assert_eq!(cache.wanted(&all, second(15), ROOM)[0].keys(), &all[..1]);
}

#[test]
fn an_answer_of_another_length_is_nobodys() {
    let (mut cache, all) = (cache(), keys(0, 2));
    let batch = cache.wanted(&all, second(0), ROOM).pop().expect("a batch");
    cache.answered(&batch, &good(&batch)[1..], second(0));
    assert_eq!([0, 1].map(|at| state(cache.get(&all[at], second(0)))), [OTHER_COUNT; 2]);
}

#[test]
fn a_batch_without_an_answer_is_given_up() {
    let (mut cache, all) = (cache(), keys(0, 1));
    let first = cache.wanted(&all, second(0), ROOM).pop().expect("a batch");
    assert_eq!(cache.wanted(&all, second(120), ROOM), []);
    assert_eq!(cache.wanted(&all, second(121), ROOM), [], "that is a failure, too");
    assert_eq!(state(cache.get(&all[0], second(121))), NO_ANSWER);
    let again = cache.wanted(&all, second(136), ROOM).pop().expect("a batch");
    cache.failed(&first, "late", second(137));
    assert_eq!(state(cache.get(&all[0], second(137))), NO_ANSWER, "the first is not waited for any more");
    assert_eq!(cache.wanted(&all, second(137), ROOM), [], "but the second is");
    cache.answered(&again, &good(&again), second(138));
    cache.failed(&again, "twice", second(138));
    assert_eq!(state(cache.get(&all[0], second(138))), "fresh");
}

#[test]
fn what_nobody_wants_is_forgotten() {
    let (mut cache, all) = (cache(), keys(0, 2));
    fill(&mut cache, &all, second(0));
    cache.wanted(&all[..1], second(3600), Room { rows: 0, ..ROOM });
    assert_eq!(cache.len(), 2);
    cache.wanted(&all[..1], second(3601), Room { rows: 0, ..ROOM });
    assert_eq!(cache.len(), 1);
    cache.wanted(&[], second(7202), ROOM);
    assert!(cache.is_empty() && cache.models.is_empty());
}

#[test]
fn an_answer_for_what_was_forgotten_is_dropped() {
    let (mut cache, all) = (cache(), keys(0, 1));
    cache.rules.unused = SignedDuration::from_secs(10);
    let batch = cache.wanted(&all, second(0), ROOM).pop().expect("a batch");
    cache.wanted(&[], second(11), ROOM);
    cache.answered(&batch, &good(&batch), second(12));
    assert!(cache.is_empty());
}

#[test]
fn the_least_recently_wanted_make_room_and_those_in_use_stay() {
    let mut cache = CurveCache::new(CurveRules { most: 3, ..CurveRules::default() });
    let all = keys(0, 6);
    for (at, key) in (0..).zip(&all[..3]) {
        fill(&mut cache, std::slice::from_ref(key), second(at));
    }
    let states = |cache: &CurveCache| all.iter().map(|key| cache.entries.contains_key(key)).collect::<Vec<_>>();
    cache.wanted(&[all[0].clone(), all[3].clone()], second(3), ROOM);
    assert_eq!(states(&cache), [true, false, true, true, false, false]);
    assert_eq!(cache.refused(), 0);
    cache.wanted(&all[2..], second(4), ROOM);
    assert_eq!(states(&cache), [false, false, true, true, true, false]);
    assert_eq!(cache.refused(), 1);
    cache.wanted(&all[3..], second(4), ROOM);
    assert_eq!((states(&cache), cache.refused()), (vec![false, false, false, true, true, true], 0));
}

/// What happens to a cache.
#[derive(Clone, Debug)]
enum Event {
    Want(u64, Room),
    Answer(usize, Vec<bool>),
    Fail(usize),
    Pass(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (any::<u64>(), 0..200_usize, 0..4_usize).prop_map(|(keys, rows, batches)| Event::Want(keys, Room { rows, batches })),
        3 => (0..4_usize, prop::collection::vec(any::<bool>(), 1..9)).prop_map(|(at, good)| Event::Answer(at, good)),
        1 => (0..4_usize).prop_map(Event::Fail),
        2 => prop_oneof![0..30_i64, 0..4000_i64].prop_map(Event::Pass),
    ]
}

/// Which of 40 keys of four models are in use.
fn chosen(bits: u64) -> Vec<CurveKey> {
    let all = (0..40).filter(|at| bits >> at & 1 == 1);
    all.map(|at: i32| key(usize::try_from(at % 4).expect("a model"), at / 4)).collect()
}

proptest! {
    #[test]
    fn in_any_order_of_events_the_bounds_hold(events in prop::collection::vec(event(), 1..80), most in 1..50_usize) {
        let rules = CurveRules { most, ..CurveRules::default() };
        let (mut cache, mut now, mut under_way) = (CurveCache::new(rules), 0, Vec::<(CurveBatch, i64)>::new());
        for event in events {
            match event {
                Event::Want(bits, room) => {
                    let in_use = chosen(bits);
                    let fresh: Vec<_> = in_use.iter().filter(|key| state(cache.get(key, second(now))) == "fresh").cloned().collect();
                    let batches = cache.wanted(&in_use, second(now), room);
                    prop_assert!(cache.len() <= most);
                    under_way.retain(|(_, since)| now - since <= 120);
                    prop_assert!(batches.len() + under_way.len() <= room.batches.max(under_way.len()));
                    for batch in batches {
                        prop_assert!(!batch.keys().is_empty() && batch.rows().count() <= room.rows);
                        for key in batch.keys() {
                            prop_assert!(key.model() == batch.model() && in_use.contains(key) && !fresh.contains(key));
                            prop_assert!(!under_way.iter().any(|(other, _)| other.keys().contains(key)), "asked twice");
                        }
                        prop_assert_eq!(batch.keys().iter().collect::<HashSet<_>>().len(), batch.keys().len());
                        under_way.push((batch, now));
                    }
                    prop_assert!(in_use.len() <= most || cache.refused() > 0);
                    prop_assert!(in_use.len() > most || cache.refused() == 0);
                }
                Event::Answer(at, good) if at < under_way.len() => {
                    let (batch, since) = under_way.remove(at);
                    let watts: Vec<_> = (0..batch.rows().count()).map(|row| good[row / POINTS % good.len()].then_some(5.0)).collect();
                    cache.answered(&batch, &watts, second(now));
                    for (at, key) in batch.keys().iter().enumerate().filter(|_| now - since <= 120) {
                        let expected = if good[at % good.len()] { "fresh" } else { NO_POINT };
                        let found = state(cache.get(key, second(now)));
                        let kept = cache.entries.contains_key(key);
                        prop_assert!(!kept || found == expected || (found == "old" && expected != "fresh"), "{found} {expected}");
                    }
                }
                Event::Fail(at) if at < under_way.len() => {
                    let (batch, _) = under_way.remove(at);
                    cache.failed(&batch, "down", second(now));
                }
                Event::Answer(..) | Event::Fail(_) => {}
                Event::Pass(seconds) => now += seconds,
            }
            prop_assert!(cache.len() <= most);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Servers that are down, slow or lose requests, and keys without a prediction, keep no key from being asked.
    #[test]
    fn every_key_in_use_is_asked(
        bits in any::<u64>(), room in (84..400_usize, 1..4_usize).prop_map(|(rows, batches)| Room { rows, batches }),
        outcomes in prop::collection::vec(0..4_u8, 4), none in any::<u64>(),
    ) {
        let (mut cache, in_use, none) = (cache(), chosen(bits), chosen(none));
        let mut under_way = Vec::<CurveBatch>::new();
        let mut asked = BTreeMap::<CurveKey, i64>::new();
        for tick in 0..720 {
            let now = tick * 10;
            for batch in std::mem::take(&mut under_way) {
                let model = usize::from(batch.model().as_bytes()[8] - b'0');
                match outcomes[model] {
                    0 | 1 => {
                        let watts = batch.keys().iter().flat_map(|key| [(!none.contains(key)).then_some(1.0); POINTS]);
                        cache.answered(&batch, &watts.collect::<Vec<_>>(), second(now));
                    }
                    2 => cache.failed(&batch, "down", second(now)),
                    _ => {}
                }
            }
            under_way = cache.wanted(&in_use, second(now), room);
            for key in under_way.iter().flat_map(CurveBatch::keys) {
                asked.insert(key.clone(), now);
            }
            if tick > 360 {
                for key in &in_use {
                    let last = asked.get(key).copied();
                    prop_assert!(last.is_some_and(|last| now - last <= 3600), "{key:?} was asked at {last:?}, now {now}");
                }
            }
        }
    }
}
