//! Tests of the limits of a policy, and of the actions that are stored for them.

use jiff::SignedDuration;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use crate::common::micro_time;
use crate::decision::limits::PolicyLimits;
use crate::tests::bench::{Loop, at, demo, up_and_down};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::{Act, Direction};

const DIRECTIONS: [Direction; 3] = [Direction::Raise, Direction::Lower, Direction::Neither];

fn acts(list: &[(i64, usize, bool)]) -> Vec<Act> {
    let mut time = 0;
    let act = |(seq, (gap, direction, other)): (usize, &(i64, usize, bool))| {
        time += gap;
        let dimension = if *other { "app/memory" } else { "replicas" };
        Act {
            seq: i64::try_from(seq).unwrap(),
            at: micro_time(at(time)),
            dry_run: false,
            direction: DIRECTIONS[direction % DIRECTIONS.len()],
            dimension: dimension.to_owned(),
        }
    };
    list.iter().enumerate().map(act).collect()
}

fn limits(dwell: i64, max: i64, per: i64, reversals: i64, calm: i64) -> PolicyLimits {
    let policy = json!({
        "dwell": format!("{dwell}s"),
        "budget": {"max": max, "per": format!("{per}s")},
        "oscillation": {"reversals": reversals, "per": format!("{calm}s"), "then": "Freeze"},
    });
    PolicyLimits::parse(&serde_json::from_value(policy).unwrap()).unwrap()
}

proptest! {
    /// Removing actions never changes a later result of the limits.
    #[test]
    fn what_is_forgotten_is_not_missed(
        list in prop::collection::vec((0_i64..60, 0_usize..3, any::<bool>()), 0..30),
        (dwell, max, per, reversals, calm) in (0_i64..90, 1_i64..6, 1_i64..200, 1_i64..4, 1_i64..200),
        wait in 0_i64..100, more in 0_i64..200,
    ) {
        let limits = limits(dwell, max, per, reversals, calm);
        let all = acts(&list);
        let now = all.last().map_or(at(0), |last| last.at.0) + SignedDuration::from_secs(wait);
        let mut kept = all.clone();
        limits.forget(&mut kept, now);
        let then = now + SignedDuration::from_secs(more);
        for direction in DIRECTIONS {
            prop_assert_eq!(limits.rejection(&kept, direction, then), limits.rejection(&all, direction, then));
        }
        prop_assert_eq!(limits.state(&kept, then), limits.state(&all, then));
    }
}

#[test]
fn a_loop_without_limits_keeps_the_last_two_actions_and_the_last_of_each_dimension() {
    let on_memory = [(0, 0, true), (5, 1, true)];
    let on_replicas = [(5, 0, false); 10];
    let mut kept = acts(&[&on_memory[..], &on_replicas].concat());
    PolicyLimits::default().forget(&mut kept, at(100));
    assert_eq!(kept.iter().map(|act| act.seq).collect::<Vec<i64>>(), [1, 10, 11]);
}

const LOW: [(&str, &str); 2] = [("cpu", "2"), ("memory", "40")];

fn reasons(this: &Loop) -> Vec<(&str, LoopReason)> {
    this.decision.rejected.iter().map(|one| (one.when.alarms()[0].metric.as_str(), one.reason)).collect()
}

#[test]
fn the_budget_is_kept() {
    let mut this = Loop::new("fast", demo(json!({"budget": {"max": 3, "per": "10m"}})));
    for second in 0..599 {
        this.push(at(second), &LOW);
    }
    assert_eq!(this.effects.len(), 3);
    assert_eq!(reasons(&this)[0], ("cpu", LoopReason::Budget));
    assert_eq!(this.decision.limits.as_ref().and_then(|limits| limits.budget_left), Some(0));
    this.push(at(600), &LOW);
    assert_eq!(this.effects.len(), 4);
}

#[test]
fn a_limit_holds_at_its_time_only() {
    // The bench's time 0 is a Wednesday, 11:06:40 UTC.
    let limits = json!({"limits": [{
        "name": "quiet",
        "during": [{"cron": "0 11 * * *", "duration": "1h"}],
        "budget": {"max": 0, "per": "1h"},
    }]});
    let mut this = Loop::new("fast", demo(limits));
    this.push(at(0), &LOW);
    assert_eq!(this.effects.len(), 0);
    assert!(this.messages().1.contains("(limit quiet)"), "{}", this.messages().1);
    this.push(at(3600), &LOW);
    assert_eq!(this.effects.len(), 1);
}

#[rstest]
#[case("Damp", LoopReason::Damped, 5)]
#[case("Freeze", LoopReason::Frozen, 4)]
fn a_loop_that_undoes_itself_is_calmed(#[case] then: &str, #[case] reason: LoopReason, #[case] effects: usize) {
    let mut this = up_and_down(json!({"oscillation": {"reversals": 3, "per": "15m", "then": then}}));
    for (second, value) in (0..).zip(["95", "5", "95", "5", "95", "5"]) {
        this.push(at(second), &[("load", value)]);
    }
    // Up, down, up, down: three reversals. If it is damped, raising continues.
    assert_eq!(this.effects.len(), effects);
    assert_eq!(reasons(&this), [("load", reason)]);
    this.push(at(2 * 900), &[("load", "5")]);
    assert_eq!(this.effects.len(), effects + 1, "reversals expire");
}

/// Acts five times without a limit, one second apart; then a limit is added.
#[rstest]
#[case(json!({"dwell": "10s"}), LoopReason::Dwell, 14)]
#[case(json!({"budget": {"max": 3, "per": "10s"}}), LoopReason::Budget, 12)]
#[case(json!({"oscillation": {"reversals": 3, "per": "10s", "then": "Freeze"}}), LoopReason::Frozen, 12)]
fn a_limit_that_is_added_counts_what_was_done_before(
    #[case] policy: Value,
    #[case] reason: LoopReason,
    #[case] free: i64,
) {
    let mut this = up_and_down(json!({}));
    for (second, value) in (0..).zip(["95", "5", "95", "5", "95"]) {
        this.push(at(second), &[("load", value)]);
    }
    assert_eq!((this.effects.len(), this.decision.acts.len()), (5, 2), "only the needed actions are stored");
    this.spec.policy = Some(serde_json::from_value(policy).unwrap());
    for second in 5..free {
        this.push(at(second), &[("load", "5")]);
        assert_eq!(reasons(&this), [("load", reason)]);
    }
    this.push(at(free), &[("load", "5")]);
    assert_eq!(this.effects.len(), 6);
}

#[test]
fn an_action_that_came_to_nothing_does_not_count_for_a_limit_that_is_added() {
    let mut this = up_and_down(json!({}));
    this.replicas = 9;
    this.push(at(0), &[("load", "95")]);
    assert_eq!(this.status_at(at(0)).reason, Some(LoopReason::Limited));
    this.spec.policy = Some(serde_json::from_value(json!({"dwell": "1m"})).unwrap());
    this.push(at(1), &[("load", "5")]);
    assert_eq!(this.replicas, 8);
}

/// A loop that scales up, and patches the replicas at their own path down, oscillates as one that only scales.
#[rstest]
#[case::known(Some("spec.size"), true)]
#[case::another_field(None, false)]
fn a_patch_of_the_replicas_is_a_reversal_wherever_they_are(#[case] path: Option<&str>, #[case] is_damped: bool) {
    let mut this = up_and_down(json!({"oscillation": {"reversals": 1, "per": "1h", "then": "Freeze"}}));
    let patch = json!([{"patch": {"path": "spec['size']", "by": "-1", "min": "1", "max": "9"}}]);
    this.spec.actions.as_mut().unwrap()[1].ladder = serde_json::from_value(patch).unwrap();
    for (second, value) in (0..).zip(["95", "5", "95"]) {
        // The path becomes known after the first action.
        this.replicas_path = path.filter(|_| second > 0).map(str::to_owned);
        this.push(at(second), &[("load", value)]);
    }
    assert_eq!(this.effects.len(), if is_damped { 2 } else { 3 });
    assert_eq!(reasons(&this).first().map(|one| one.1), is_damped.then_some(LoopReason::Frozen));
}
