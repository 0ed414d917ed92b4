//! Tests that limits and ladders count what was carried out, and nothing else.

use rstest::rstest;
use serde_json::{Value, json};

use super::{LOW, alone, counters, monitored, reasons};
use crate::tests::bench::{Loop, at, demo, spec, up_and_down};
use ganglion_api::closed_loop::LoopMode;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::execution::ExecutionStatus;

const CALM: [(&str, &str); 2] = [("cpu", "20"), ("memory", "60")];

fn budget_left(this: &Loop) -> Option<i32> {
    this.decision.limits.as_ref().and_then(|limits| limits.budget_left)
}

fn approve(this: &mut Loop) {
    this.approval = this.decision.chosen.as_ref().and_then(|chosen| chosen.digest.clone());
}

#[rstest]
#[case(json!({"budget": {"max": 1, "per": "2h"}}))]
#[case(json!({"dwell": "2h"}))]
fn a_proposal_that_is_withdrawn_uses_no_limit(#[case] policy: Value) {
    let mut this = Loop::new("fast", demo(policy));
    this.spec.mode = LoopMode::Approve;
    for second in 0..3 {
        this.push(at(10 * second), &LOW);
        assert_eq!(this.messages().1, "Propose to react to cpu");
        assert!(budget_left(&this).is_none_or(|left| left == 1), "a proposal uses nothing");
        this.push(at(10 * second + 5), &CALM);
    }
    this.push(at(100), &LOW);
    approve(&mut this);
    this.push(at(101), &LOW);
    assert_eq!((this.effects.len(), this.decision.seq), (1, 4));
    assert!(matches!(reasons(&this)[0].1, LoopReason::Budget | LoopReason::Dwell), "what was carried out counts");
}

#[test]
fn proposals_that_are_withdrawn_are_no_oscillation() {
    let mut this = up_and_down(json!({"oscillation": {"reversals": 1, "per": "1h", "then": "Freeze"}}));
    this.spec.mode = LoopMode::Approve;
    for (second, load) in (0..).zip(["95", "50", "5", "50", "95", "50", "5"]) {
        this.push(at(second), &[("load", load)]);
    }
    assert_eq!((this.messages().1, this.decision.seq), ("Propose to react to load", 4));
}

#[rstest]
#[case(json!({"budget": {"max": 1, "per": "2h"}}), LoopReason::Budget)]
#[case(json!({"dwell": "2h"}), LoopReason::Dwell)]
fn a_dry_run_keeps_the_limits_and_uses_none(#[case] policy: Value, #[case] reason: LoopReason) {
    let mut this = Loop::new("fast", demo(policy));
    this.spec.mode = LoopMode::DryRun;
    this.push(at(0), &LOW);
    this.push(at(1), &LOW);
    assert_eq!((this.decision.seq, reasons(&this)[0]), (1, ("cpu", reason)), "as in mode Auto");
    this.crash();
    this.spec.mode = LoopMode::Auto;
    this.push(at(2), &LOW);
    assert_eq!((this.effects.len(), this.messages().1), (1, "React to cpu"));
    this.push(at(3), &LOW);
    this.spec.mode = LoopMode::DryRun;
    this.push(at(4), &LOW);
    assert_eq!((this.effects.len(), reasons(&this)[0]), (1, ("cpu", reason)), "the action that was carried out counts");
}

/// A loop whose second rung follows if the first one had no effect for 90 s.
fn laddered(mode: LoopMode) -> Loop {
    let mut this = Loop::new(
        "fast",
        spec(json!({
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [{"name": "cpu", "source": {"push": {}}, "low": {"raise": "5"}}],
            "actions": [{"when": {"metric": "cpu", "side": "Low"}, "settle": "90s", "ladder": [
                {"scale": {"by": 1, "max": 9}}, {"scale": {"by": 2, "max": 9}},
            ]}],
        })),
    );
    this.spec.mode = mode;
    this
}

#[test]
fn a_dry_run_does_not_climb_a_ladder() {
    let mut this = laddered(LoopMode::DryRun);
    this.push(at(0), &[("cpu", "2")]);
    this.push(at(90), &[("cpu", "2")]);
    assert_eq!(this.decision.history.last().unwrap().rung, 1);
    this.spec.mode = LoopMode::Auto;
    this.push(at(91), &[("cpu", "2")]);
    assert_eq!((this.effects.len(), this.replicas), (1, 4), "the first rung, without waiting for an effect of nothing");
}

#[test]
fn a_proposal_that_is_withdrawn_does_not_climb_a_ladder() {
    let mut this = laddered(LoopMode::Approve);
    this.push(at(0), &[("cpu", "2")]);
    this.spec.mode = LoopMode::Auto;
    this.push(at(1), &[("cpu", "2")]);
    assert_eq!((this.effects.len(), this.replicas), (1, 4));
}

#[test]
fn a_settle_begins_when_the_action_is_carried_out() {
    let mut this = laddered(LoopMode::Approve);
    this.push(at(0), &[("cpu", "2")]);
    approve(&mut this);
    this.push(at(200), &[("cpu", "2")]);
    assert_eq!((this.replicas, reasons(&this)), (4, vec![("cpu", LoopReason::Settling)]));
    this.push(at(290), &[("cpu", "2")]);
    assert_eq!(this.decision.history.last().unwrap().rung, 1);
}

#[rstest]
#[case::refused("Failed", json!(null), true)]
#[case::perhaps_in_part("Failed", json!({"seq": 1, "at": "2026-11-18T11:06:40.000000Z"}), false)]
#[case::withdrawn("Overtaken", json!(null), true)]
#[case::changed_back("Overtaken", json!({"seq": 1, "at": "2026-11-18T11:06:40.000000Z"}), false)]
#[case::perhaps("Lost", json!({"seq": 1, "at": "2026-11-18T11:06:40.000000Z"}), false)]
fn a_decision_counts_if_it_changed_something(#[case] state: &str, #[case] carried_out: Value, #[case] is_free: bool) {
    let mut this = monitored(0);
    this.spec.policy = Some(serde_json::from_value(json!({"budget": {"max": 1, "per": "10m"}})).unwrap());
    let execution = |value: Value| -> ExecutionStatus { serde_json::from_value(value).unwrap() };
    alone(&mut this, &execution(json!({"seq": 0})), "exe", 0);
    this.monitoring.tag.as_mut().unwrap().sequence += 1;
    this.monitoring.values.iter_mut().for_each(|reading| reading.at = crate::common::micro_time(at(1)));
    let ended = json!({"seq": 1, "state": state, "since": "2026-11-18T11:06:40.000000Z", "carriedOut": carried_out});
    alone(&mut this, &execution(ended), "exe", 2);
    assert_eq!(this.decision.seq == 2, is_free, "{:?}", this.decision.rejected);
}

/// New replicas may match at any time, so the ladder pauses for a minute only.
#[test]
fn a_move_that_found_no_replica_gives_way_to_the_next_rung() {
    let moved = json!({"workloadAction": {"move": {"to": {"nodeName": "b"}}}});
    let scaled = json!({"scale": {"by": 1, "max": 9}});
    let execution = |value: Value| -> ExecutionStatus { serde_json::from_value(value).unwrap() };
    let ended = execution(json!({"seq": 1, "state": "Limited", "since": "2026-11-18T11:06:40.000000Z"}));
    let after = |ladder: Value, second: i64| {
        let mut this = monitored(0);
        let actions = json!([{"when": {"metric": "cpu", "side": "Low"}, "ladder": ladder}]);
        this.spec.actions = serde_json::from_value(actions).unwrap();
        alone(&mut this, &execution(json!({"seq": 0})), "exe", 0);
        this.monitoring.tag.as_mut().unwrap().sequence += 1;
        this.monitoring.values.iter_mut().for_each(|reading| reading.at = crate::common::micro_time(at(second)));
        alone(&mut this, &ended, "exe", second);
        (this.decision.seq, this.decision.history.last().unwrap().rung, counters(&this, "cpu").2)
    };
    assert_eq!(after(json!([moved, scaled]), 1), (2, 1, 1), "the next rung");
    assert_eq!(after(json!([moved]), 59), (1, 0, 2), "no rung is left");
    assert_eq!(after(json!([moved]), 60), (2, 0, 1), "the same rung again");
}

/// A loop that tunes this one raises no rank because of dry runs.
#[test]
fn a_dry_run_serves_nothing() {
    let mut this = Loop::new("fast", demo(json!({})));
    this.spec.mode = LoopMode::DryRun;
    for second in 0..3 {
        this.push(at(second), &LOW);
    }
    assert_eq!((counters(&this, "cpu"), this.decision.seq), ((3, 0, 0), 3));
    assert!(this.decision.counters.iter().all(|counter| counter.last_served.is_none()));
    this.spec.mode = LoopMode::Auto;
    this.push(at(3), &LOW);
    assert_eq!(counters(&this, "cpu"), (4, 1, 0));
}
