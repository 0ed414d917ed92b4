//! Tests of time-based rejections: they expire without a new sample, as long as the values are not stale.

use rstest::rstest;
use serde_json::{Value, json};

use crate::monitoring::MonitoringRules;
use crate::tests::bench::{Loop, at, demo};
use ganglion_api::closed_loop::reasons::LoopReason;

const LOW: [(&str, &str); 2] = [("cpu", "2"), ("memory", "40")];

fn reasons(this: &Loop) -> Vec<LoopReason> {
    this.decision.rejected.iter().map(|one| one.reason).collect()
}

/// The demo's loop, with values that are valid for this long.
fn known_for(policy: Value, after: &str) -> Loop {
    let mut spec = demo(policy);
    for metric in &mut spec.metrics {
        metric.missing = serde_json::from_value(json!({"after": after})).unwrap();
    }
    Loop::new("fast", spec)
}

#[rstest]
#[case(json!({"dwell": "60s"}), LoopReason::Dwell, 60)]
#[case(json!({"budget": {"max": 1, "per": "90s"}}), LoopReason::Budget, 90)]
#[case(json!({"limits": [{"name": "noon", "during": [{"cron": "0 11 * * *", "duration": "1h"}], "dwell": "70s"}]}), LoopReason::Dwell, 70)]
fn a_standing_alarm_is_served_when_what_holds_it_ends(
    #[case] policy: Value,
    #[case] reason: LoopReason,
    #[case] end: i64,
) {
    let mut this = known_for(policy, "1h");
    this.push(at(0), &LOW);
    assert_eq!(this.again, None, "an alarm that was served waits for the next sample");
    this.push(at(1), &LOW);
    assert_eq!((reasons(&this), this.again), (vec![reason; 2], Some(at(end))));
    this.wait(at(end - 1));
    assert_eq!(this.effects.len(), 1);
    let wanted = this.decision.counters[0].wanted;
    this.wait(at(end));
    assert_eq!((this.effects.len(), this.decision.counters[0].wanted), (2, wanted + 1));
    for second in end..end * 5 {
        this.wait(at(second));
    }
    assert_eq!(this.effects.len(), 2, "one action per sample");
    assert_eq!(this.again, None);
}

#[rstest]
// It is 11:06:40.
#[case("0 12 * * *", "12:00 UTC", 3200)]
#[case("0 6 * * *", "06:00 UTC", 68_000)]
#[case("0 12 21 * *", "2026-11-21 12:00 UTC", 3 * 86_400 + 3200)]
fn a_standing_alarm_is_served_when_its_window_opens(#[case] cron: &str, #[case] opens: &str, #[case] end: i64) {
    let mut this = known_for(json!({}), "200h");
    let window = json!([{"cron": cron, "duration": "1h"}, {"cron": "0 0 1 1 *", "duration": "1h"}]);
    this.spec.actions.as_mut().unwrap()[0].during = Some(serde_json::from_value(window).unwrap());
    this.push(at(0), &LOW[..1]);
    assert_eq!((reasons(&this), this.again), (vec![LoopReason::OutsideWindow], Some(at(end))));
    assert_eq!(this.decision.rejected[0].message, format!("outside its window; opens {opens}"));
    this.wait(at(end - 1));
    assert_eq!(this.effects.len(), 0);
    this.wait(at(end));
    assert_eq!((this.effects.len(), this.again), (1, None));
}

#[rstest]
#[case(json!({"budget": {"max": 0, "per": "1h"}}), "all 0 actions of the budget are used until 2026-11-18T12:00:00Z (limit noon)")]
#[case(json!({"dwell": "5h"}), "dwell: no action before 2026-11-18T12:00:00Z (limit noon)")]
fn a_standing_alarm_is_served_when_the_window_of_a_limit_closes(#[case] limit: Value, #[case] message: &str) {
    let mut limit = limit;
    limit["name"] = json!("noon");
    limit["during"] = json!([{"cron": "0 11 * * *", "duration": "1h"}, {"cron": "30 11 * * *", "duration": "10m"}]);
    let mut this = known_for(json!({"limits": [limit]}), "9h");
    this.push(at(-900), &LOW[..1]);
    assert_eq!(this.effects.len(), 1);
    this.push(at(0), &LOW[..1]);
    assert_eq!((this.decision.rejected[0].message.as_str(), this.again), (message, Some(at(3200))));
    this.wait(at(3199));
    assert_eq!(this.effects.len(), 1);
    this.wait(at(3200));
    assert_eq!((this.effects.len(), this.again), (2, None));
}

#[test]
fn what_is_stale_by_then_is_not_served() {
    let mut this = known_for(json!({"dwell": "60s"}), "45s");
    this.push(at(0), &LOW);
    this.push(at(1), &LOW);
    this.wait(at(60));
    assert_eq!(this.effects.len(), 1);
    assert_eq!((reasons(&this), this.again), (vec![LoopReason::UnknownValue; 2], None));
}

#[test]
fn a_restart_forgets_nobody_who_waits() {
    let mut this = known_for(json!({"dwell": "60s"}), "1h");
    this.push(at(0), &LOW);
    this.push(at(1), &LOW);
    this.crash();
    this.wait(at(59));
    assert_eq!((this.effects.len(), this.again), (1, Some(at(60))));
    this.wait(at(60));
    assert_eq!(this.effects.len(), 2);
}

#[test]
fn a_dwell_that_is_taken_back_holds_nobody_any_more() {
    let mut this = known_for(json!({"dwell": "1h"}), "1h");
    this.push(at(0), &LOW);
    this.push(at(1), &LOW);
    this.spec.policy.as_mut().unwrap().dwell = None;
    this.wait(at(2));
    assert_eq!(this.effects.len(), 2);
}

#[test]
fn a_settle_ends_by_itself() {
    let mut this = known_for(json!({}), "1h");
    this.spec.actions.as_mut().unwrap()[0].settle = Some("90s".into());
    this.push(at(0), &LOW[..1]);
    this.push(at(1), &LOW[..1]);
    assert_eq!((reasons(&this), this.again), (vec![LoopReason::Settling], Some(at(90))));
    this.wait(at(90));
    assert_eq!(this.effects.len(), 2);
}

#[test]
fn what_holds_an_alarm_back_next_is_said_when_the_first_is_over() {
    let mut this = known_for(json!({"budget": {"max": 1, "per": "150s"}}), "1h");
    this.spec.actions.as_mut().unwrap()[0].settle = Some("90s".into());
    this.push(at(0), &LOW[..1]);
    this.push(at(1), &LOW[..1]);
    assert_eq!((reasons(&this), this.again), (vec![LoopReason::Settling], Some(at(90))));
    let (writes, counters) = (this.writes, this.decision.counters.clone());
    for second in [89, 90, 91] {
        this.wait(at(second));
    }
    assert_eq!((reasons(&this), this.again), (vec![LoopReason::Budget], Some(at(150))));
    let message = this.decision.message.clone().unwrap();
    assert!(message.starts_with("Hold cpu: all 1 actions of the budget"), "{message}");
    assert_eq!(this.writes, writes + 1, "one edge, one write");
    assert_eq!(this.decision.counters, counters, "a sample is counted once");
    this.crash();
    this.wait(at(92));
    assert_eq!(this.writes, writes + 1, "after a restart, the status already shows it");
}

#[test]
fn who_was_served_is_not_served_again_when_another_is_held_back_by_something_else() {
    // The window of memory's action closes at 20 s, before its settle ends.
    let mut this = known_for(json!({"rank": ["memory", "cpu"]}), "1h");
    let window = json!([{"cron": "6 11 * * *", "duration": "1m"}]);
    let actions = this.spec.actions.as_mut().unwrap();
    let memory = actions.iter_mut().find(|action| action.when.is_about("memory")).unwrap();
    memory.settle = Some("90s".into());
    memory.during = Some(serde_json::from_value(window).unwrap());
    this.push(at(0), &LOW[1..]);
    this.push(at(1), &LOW);
    assert_eq!((this.effects.len(), reasons(&this)), (2, vec![LoopReason::Settling]));
    this.wait(at(2));
    assert_eq!(reasons(&this), [LoopReason::Settling]);
    for second in [20, 90] {
        this.wait(at(second));
        assert_eq!((this.effects.len(), reasons(&this)), (2, vec![LoopReason::OutsideWindow]));
    }
    assert_eq!(this.decision.message.as_deref(), Some("React to cpu"));
}

#[test]
fn a_hold_for_time_ends_by_itself() {
    let mut this = known_for(json!({}), "1h");
    this.spec.metrics[0].low.as_mut().unwrap().for_ = Some("30s".into());
    this.push(at(0), &LOW[..1]);
    let watch = MonitoringRules::parse(&this.children(at(0)).monitoring).unwrap();
    assert_eq!(watch.next_change(&this.monitoring, at(1)), Some(at(30)));
    this.wait(at(29));
    assert_eq!(this.effects.len(), 0);
    this.wait(at(30));
    assert_eq!((this.effects.len(), this.monitoring.pending.len()), (1, 0));
}
