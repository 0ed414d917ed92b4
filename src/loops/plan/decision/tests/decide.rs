//! Tests of decisions: the chosen alarm, the reasons of rejected ones, and the state that is stored.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use rstest::rstest;
use serde_json::{Value, json};

use super::{LOW, alone, counters, monitored, reasons};
use crate::decision::{DecisionInput, DecisionRules, Executor};
use crate::tests::bench::{Loop, at, demo, spec, up_and_down};
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::when::{Alarm, When};
use ganglion_api::decision::{COUNTERS_LIMIT, Outcome, Repetitions};
use ganglion_api::execution::{ExecutionState, ExecutionStatus};

#[test]
fn what_was_passed_over_and_why_is_said() {
    let mut this = Loop::new("fast", demo(json!({"rank": ["memory"]})));
    this.push(at(0), &LOW);
    assert_eq!(this.messages().1, "React to memory");
    assert_eq!(reasons(&this), [("cpu", LoopReason::Outranked)]);
    assert_eq!(counters(&this, "cpu"), (1, 0, 0));
    assert_eq!(counters(&this, "memory"), (1, 1, 0));
    let entry = &this.status_at(at(0)).history[0];
    assert_eq!((entry.outcome, entry.effect.as_deref()), (Some(Outcome::Served), Some("3 -> 4")));
    assert_eq!(entry.action, "scale by 1, at most 1000");
}

#[test]
fn the_dwell_is_kept_and_counts_as_limited() {
    let mut this = Loop::new("fast", demo(json!({"dwell": "60s"})));
    for second in 0..60 {
        this.push(at(second), &LOW);
    }
    assert_eq!(this.effects.len(), 1);
    assert_eq!(reasons(&this), [("cpu", LoopReason::Dwell), ("memory", LoopReason::Dwell)]);
    assert!(this.messages().1.starts_with("Hold cpu: dwell: no action before"));
    assert_eq!(counters(&this, "cpu"), (60, 1, 59));
    this.push(at(60), &LOW);
    assert_eq!(this.effects.len(), 2);
}

#[test]
fn a_held_loop_writes_only_edges() {
    let mut this = Loop::new("fast", demo(json!({"dwell": "1h"})));
    this.push(at(0), &LOW);
    this.push(at(1), &LOW);
    let writes = this.writes;
    for second in 2..200 {
        this.push(at(second), &LOW);
    }
    assert_eq!(this.writes - writes, 198, "while the alarm is raised, each sample is written, and nothing else");
}

#[test]
fn an_acting_iteration_writes_four_times() {
    let mut this = Loop::new("fast", demo(json!({})));
    this.push(at(0), &LOW);
    let writes = this.writes;
    this.push(at(1), &LOW);
    assert_eq!(this.writes - writes, 4, "the sample, the choice, the claim, and its end");
}

#[test]
fn what_became_of_a_choice_is_written_with_the_next_or_after_a_while() {
    let mut this = Loop::new("fast", demo(json!({})));
    this.push(at(0), &LOW);
    assert_eq!(this.stored.1.chosen.as_ref().unwrap().outcome, None);
    assert_eq!(this.status_at(at(0)).history[0].effect.as_deref(), Some("3 -> 4"));
    this.push(at(1), &LOW);
    assert_eq!(this.stored.1.history[0].outcome, Some(Outcome::Served));
    let calm = [("cpu", "20"), ("memory", "60")];
    this.push(at(2), &calm);
    let (writes, status) = (this.writes, this.status_at(at(2)));
    // A restart causes no further write, and the same status.
    this.crash();
    for second in 3..301 {
        this.push(at(second), &calm);
        assert_eq!((&this.status_at(at(second)).counters, &this.decision.acts), (&status.counters, &status.acts));
    }
    assert_eq!(this.writes, writes);
    for second in 301..303 {
        this.push(at(second), &calm);
    }
    assert_eq!(this.stored.1.chosen.as_ref().unwrap().outcome, Some(Outcome::Served));
}

#[test]
fn the_counters_of_metrics_that_are_renamed_are_bounded() {
    let mut this = Loop::new("fast", demo(json!({"rank": ["cpu", "memory"]})));
    this.push(at(0), &LOW);
    for round in 1..40 {
        let name = format!("cpu{round}");
        this.spec.metrics[0].name.clone_from(&name);
        this.spec.actions.as_mut().unwrap()[0].when = When::One(Alarm { metric: name.clone(), side: Side::Low });
        this.push(at(round), &[(&name, "2"), ("memory", "40")]);
    }
    let names: Vec<&str> = this.decision.counters.iter().map(|counter| counter.metric.as_str()).collect();
    assert_eq!((names.len(), names[0], names[1], names[31]), (COUNTERS_LIMIT, "memory", "cpu9", "cpu39"));
}

#[test]
fn an_action_outside_its_window_waits_and_the_next_one_goes() {
    let mut spec = demo(json!({}));
    let window = serde_json::from_value(json!([{"cron": "0 12 * * *", "duration": "1h"}])).unwrap();
    spec.actions.as_mut().unwrap()[0].during = Some(window);
    let mut this = Loop::new("fast", spec);
    this.push(at(0), &LOW);
    assert_eq!(this.messages().1, "React to memory");
    assert_eq!(reasons(&this), [("cpu", LoopReason::OutsideWindow)]);
}

fn laddered() -> Loop {
    Loop::new(
        "fast",
        spec(json!({
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [{"name": "cpu", "source": {"push": {}}, "low": {"raise": "5"}}],
            "actions": [{"when": {"metric": "cpu", "side": "Low"}, "settle": "90s", "ladder": [
                {"scale": {"by": 1, "max": 4}},
                {"scale": {"by": 2, "max": 9}},
                {"scale": {"by": 3, "max": 20}},
            ]}],
        })),
    )
}

#[test]
fn a_ladder_is_climbed_when_a_rung_had_no_effect() {
    let mut this = laddered();
    this.push(at(0), &[("cpu", "2")]);
    this.push(at(89), &[("cpu", "2")]);
    assert_eq!(reasons(&this), [("cpu", LoopReason::Settling)]);
    assert_eq!(counters(&this, "cpu").2, 0, "waiting for an effect does not count as limited");
    this.push(at(90), &[("cpu", "2")]);
    assert_eq!(this.replicas, 6, "no effect: the second rung");
    this.push(at(180), &[("cpu", "3")]);
    assert_eq!(this.replicas, 8, "it helped: the same rung");
    this.push(at(200), &[("cpu", "9")]);
    this.push(at(201), &[("cpu", "2")]);
    assert_eq!(this.decision.history.last().unwrap().rung, 0, "the alarm was cleared: the ladder starts again");
}

#[test]
fn a_rung_that_is_exhausted_gives_way_and_counts_as_limited() {
    let mut this = laddered();
    this.replicas = 4;
    this.push(at(0), &[("cpu", "2")]);
    assert_eq!(this.status_at(at(0)).history[0].outcome, Some(Outcome::Limited));
    assert_eq!(this.execution.message.as_deref(), Some("it is at 4, and max is 4"));
    assert_eq!(counters(&this, "cpu"), (1, 0, 1));
    this.push(at(1), &[("cpu", "2")]);
    assert_eq!(this.replicas, 6, "an action without an effect starts no dwell");
}

#[test]
fn a_ladder_without_a_rung_left_is_tried_again_later() {
    let mut this = laddered();
    this.replicas = 20;
    for second in 0..4 {
        this.push(at(second), &[("cpu", "2")]);
    }
    assert_eq!(reasons(&this), [("cpu", LoopReason::Exhausted)]);
    this.replicas = 2;
    this.push(at(400), &[("cpu", "2")]);
    assert_eq!(this.replicas, 3);
}

/// Sets the ladder of the loop's only action.
fn correct(this: &mut Loop, ladder: Value) {
    this.spec.actions.as_mut().unwrap()[0].ladder = serde_json::from_value(ladder).unwrap();
}

#[test]
fn a_corrected_ladder_does_not_wait_for_the_pause_of_the_faulty_one() {
    let mut this = laddered();
    this.replicas = 20;
    for second in 0..4 {
        this.push(at(second), &[("cpu", "2")]);
    }
    assert_eq!(reasons(&this), [("cpu", LoopReason::Exhausted)]);
    let decided = this.decision.clone();
    correct(&mut this, json!([{"scale": {"by": 1, "max": 30}}]));
    this.push(at(4), &[("cpu", "2")]);
    assert_eq!(this.replicas, 21);
    // The process ended before it had recorded the outcome.
    this.replicas = 20;
    this.decision = decided;
    this.decision.chosen.as_mut().unwrap().outcome = None;
    this.execution.seq = Some(this.decision.seq);
    this.execution.state = Some(ExecutionState::Limited);
    this.push(at(10), &[("cpu", "2")]);
    assert_eq!(this.replicas, 21);
}

#[test]
fn the_effect_of_an_action_is_awaited_for_the_settle_time_of_the_corrected_ladder() {
    let mut this = laddered();
    this.push(at(0), &[("cpu", "2")]);
    this.push(at(1), &[("cpu", "2")]);
    assert_eq!(this.replicas, 4);
    this.spec.actions.as_mut().unwrap()[0].settle = Some("10s".into());
    this.push(at(2), &[("cpu", "2")]);
    assert_eq!(reasons(&this), [("cpu", LoopReason::Settling)]);
    this.push(at(11), &[("cpu", "2")]);
    assert_eq!(this.replicas, 4, "the new settle time counts from the correction");
    this.push(at(12), &[("cpu", "2")]);
    assert_eq!(this.execution.state, Some(ExecutionState::Limited), "it starts again at the first rung");
}

#[test]
fn a_ladder_keeps_its_pause_if_something_else_is_changed() {
    let mut this = laddered();
    this.replicas = 20;
    for second in 0..4 {
        this.push(at(second), &[("cpu", "2")]);
    }
    this.spec.policy = serde_json::from_value(json!({"historyLimit": 20})).unwrap();
    this.push(at(4), &[("cpu", "2")]);
    assert_eq!(reasons(&this), [("cpu", LoopReason::Exhausted)]);
}

#[test]
fn a_sample_from_before_the_end_of_the_last_decision_is_not_decided_about() {
    let mut this = monitored(0);
    let mut execution = ExecutionStatus { seq: Some(0), ..ExecutionStatus::default() };
    alone(&mut this, &execution, "exe", 0);
    // The sample came while the decision was being carried out. A process that starts after its end has no other
    // sample.
    this.monitoring.tag.as_mut().unwrap().sequence += 1;
    this.monitoring.valid_until = None;
    (execution.seq, execution.state, execution.since) = (Some(1), Some(ExecutionState::Done), Some(MicroTime(at(50))));
    alone(&mut this, &execution, "exe", 100);
    assert_eq!(this.decision.seq, 1);
    let held = "Hold cpu: it was measured before decision 1 took effect";
    assert_eq!(this.decision.message.as_deref(), Some(held));
    this.monitoring.tag.as_mut().unwrap().sequence += 1;
    this.monitoring.values[0].at = MicroTime(at(60));
    alone(&mut this, &execution, "exe", 100);
    assert_eq!(this.decision.seq, 2);
}

#[test]
fn nothing_is_decided_on_what_may_be_over() {
    let mut this = monitored(0);
    let execution = ExecutionStatus { seq: Some(0), ..ExecutionStatus::default() };
    let until = this.monitoring.valid_until.clone().expect("an alarm stands").0;
    let second = until.as_second() - at(0).as_second();
    alone(&mut this, &execution, "exe", second + 1);
    assert_eq!(this.decision.seq, 0);
    alone(&mut this, &execution, "exe", second - 1);
    assert_eq!(this.decision.seq, 1);
}

#[test]
fn a_decision_of_another_leader_is_confirmed_or_taken_back() {
    let mut this = monitored(0);
    let execution = ExecutionStatus { seq: Some(0), ..ExecutionStatus::default() };
    alone(&mut this, &execution, "exe", 0);
    assert_eq!(this.decision.term.as_deref(), Some("term"));
    this.decision.term = Some("another".into());
    let before = this.decision.clone();
    this.monitoring.term = Some("another".into());
    alone(&mut this, &execution, "exe", 1);
    assert_eq!(this.decision.term.as_deref(), Some("another"), "monitoring has not written in this term yet");
    this.monitoring.term = Some("term".into());
    alone(&mut this, &execution, "exe", 1);
    assert_eq!((this.decision.term.as_deref(), this.decision.seq), (Some("term"), before.seq));
    assert_eq!(this.decision.chosen.as_ref().unwrap().outcome, None);
    this.decision = before;
    this.monitoring.alarms.clear();
    this.monitoring.tag.as_mut().unwrap().sequence += 1;
    alone(&mut this, &execution, "exe", 1);
    assert_eq!(this.decision.chosen.as_ref().unwrap().outcome, Some(Outcome::Withdrawn));
}

#[test]
fn what_failed_is_not_tried_again_at_once() {
    let mut this = monitored(0);
    let mut execution = ExecutionStatus { seq: Some(0), ..ExecutionStatus::default() };
    alone(&mut this, &execution, "exe", 0);
    execution.seq = Some(1);
    execution.state = Some(ExecutionState::Failed);
    let again = |this: &mut Loop, execution: &ExecutionStatus, second| {
        this.monitoring.tag.as_mut().unwrap().sequence += 1;
        this.monitoring.valid_until = None;
        alone(this, execution, "exe", second);
        this.decision.seq
    };
    assert_eq!(again(&mut this, &execution, 1), 2, "memory is next");
    execution.seq = Some(2);
    execution.state = Some(ExecutionState::Overtaken);
    assert_eq!(again(&mut this, &execution, 2), 3, "an overtaken decision is tried again at once");
    assert_eq!(this.decision.chosen.as_ref().unwrap().metric, "memory");
    execution.seq = Some(3);
    assert_eq!(again(&mut this, &execution, 61), 4);
    assert_eq!(this.decision.chosen.as_ref().unwrap().metric, "cpu", "after a minute");
}

#[test]
fn a_blocked_loop_decides_nothing_and_says_why() {
    let mut this = monitored(0);
    let mut spec = this.children(at(0)).decision;
    spec.blocked = Some("HorizontalPodAutoscaler web acts on replicas".into());
    let idle = ExecutionStatus { seq: Some(0), ..ExecutionStatus::default() };
    let executor = Some(Executor { uid: "exe", target: &this.spec.target, status: &idle });
    let input = DecisionInput {
        monitoring: &this.monitoring,
        executor,
        written: &this.decision,
        generation: 1,
        term: "term",
        now: at(0),
    };
    this.decision = DecisionRules::parse(&spec).unwrap().decide(&this.decision, input).status;
    assert_eq!(reasons(&this)[0], ("cpu", LoopReason::Blocked));
    assert_eq!((this.decision.seq, counters(&this, "cpu")), (0, (1, 0, 0)));
}

#[test]
fn a_dry_run_says_what_it_would_do_and_does_nothing() {
    let mut spec = demo(json!({}));
    spec.mode = serde_json::from_value(json!("DryRun")).unwrap();
    let mut this = Loop::new("fast", spec);
    this.push(at(0), &LOW);
    assert_eq!(this.messages().1, "Would react to cpu");
    assert_eq!(this.decision.history[0].outcome, Some(Outcome::DryRun));
    assert!(this.effects.is_empty());
}

/// Otherwise the history would hold nothing but the last decision, many times.
#[test]
fn equal_dry_runs_in_a_row_are_one_line_of_the_history() {
    let mut spec = demo(json!({}));
    spec.mode = serde_json::from_value(json!("DryRun")).unwrap();
    let mut this = Loop::new("fast", spec);
    for second in 0..3 {
        this.push(at(second), &LOW);
    }
    let only = |this: &Loop| match this.decision.history.as_slice() {
        [entry] => (entry.seq, entry.at.clone(), entry.repeated.clone()),
        entries => panic!("{entries:?}"),
    };
    let repeated = Repetitions { times: 3, since: MicroTime(at(0)) };
    assert_eq!(only(&this), (3, MicroTime(at(2)), Some(repeated)));
    this.push(at(3), &[("cpu", "8"), ("memory", "40")]);
    let entries = &this.decision.history;
    assert_eq!((entries.len(), entries[1].when.subject().as_str(), entries[1].repeated.is_none()), (2, "memory", true));
}

#[test]
fn a_proposal_waits_for_its_approval() {
    let mut spec = demo(json!({}));
    spec.mode = serde_json::from_value(json!("Approve")).unwrap();
    let mut this = Loop::new("fast", spec);
    this.push(at(0), &LOW);
    assert_eq!(this.messages().1, "Propose to react to cpu");
    this.push(at(1), &LOW);
    assert_eq!(reasons(&this)[0], ("cpu", LoopReason::AwaitsApproval));
    this.approval = Some("1".into());
    this.push(at(2), &LOW);
    assert!(this.effects.is_empty(), "the number of the decision is not an approval");
    this.approval = this.decision.chosen.as_ref().and_then(|chosen| chosen.digest.clone());
    this.push(at(3), &LOW);
    assert_eq!((this.effects.len(), this.decision.history.len()), (1, 1));
    this.push(at(4), &LOW);
    this.push(at(5), &LOW);
    assert_eq!((this.effects.len(), this.decision.history.len()), (1, 2), "each proposal needs its own approval");
}

#[test]
fn a_proposal_whose_alarm_is_over_is_taken_back() {
    let mut spec = demo(json!({}));
    spec.mode = serde_json::from_value(json!("Approve")).unwrap();
    let mut this = Loop::new("fast", spec);
    this.push(at(0), &LOW);
    this.push(at(1), &[("cpu", "20"), ("memory", "60")]);
    assert_eq!(this.decision.history[0].outcome, Some(Outcome::Withdrawn));
    this.approval = this.decision.chosen.as_ref().and_then(|chosen| chosen.digest.clone());
    this.push(at(2), &[("cpu", "20"), ("memory", "60")]);
    assert!(this.effects.is_empty(), "the approval came too late");
}

#[test]
fn a_paused_loop_does_nothing() {
    let mut spec = demo(json!({}));
    spec.mode = serde_json::from_value(json!("Paused")).unwrap();
    let mut this = Loop::new("fast", spec);
    this.push(at(0), &LOW);
    assert_eq!(this.messages(), ("Paused", "Paused"));
    assert!(this.effects.is_empty());
    this.spec.mode = serde_json::from_value(json!("Auto")).unwrap();
    this.push(at(1), &LOW);
    assert_eq!(this.effects.len(), 1);
}

#[rstest]
#[case(json!({"select": "Weighted", "weights": {"cpu": "1", "memory": "1"}}), "cpu")] // 0.6 and 0.2 beyond
#[case(json!({"select": "Weighted", "weights": {"cpu": "1", "memory": "4"}}), "memory")]
#[case(json!({"select": "Weighted", "weights": {"cpu": "1", "memory": "3"}, "rank": ["memory"]}), "memory")] // a tie
#[case(json!({"select": "Expression", "expression": "metric.name == \"memory\" ? 2 : 1"}), "memory")]
#[case(json!({"select": "Expression", "expression": "metric.value"}), "memory")]
#[case(json!({"select": "Expression", "expression": "metric.rank == 0 ? 0.0 : metric.excess"}), "memory")]
#[case(json!({"select": "Expression", "expression": "1"}), "cpu")]
fn selects(#[case] policy: Value, #[case] expected: &str) {
    let mut this = Loop::new("fast", demo(policy));
    this.push(at(0), &LOW);
    assert_eq!(this.messages().1, format!("React to {expected}"));
}

#[test]
fn an_expression_that_gives_nothing_lets_nothing_through() {
    let mut this = Loop::new("fast", demo(json!({"select": "Expression", "expression": "1 / metric.rank"})));
    this.push(at(0), &LOW);
    assert_eq!(this.messages().1, "React to memory");
    assert_eq!(reasons(&this), [("cpu", LoopReason::NotSelected)]);
}

#[test]
fn an_unknown_value_lowers_nothing() {
    let mut this = up_and_down(json!({}));
    let missing = json!({"after": "45s", "then": "Assume", "value": "0"});
    this.spec.metrics[0].missing = serde_json::from_value(missing).unwrap();
    this.push(at(0), &[("load", "50")]);
    this.push(at(60), &[("load", "n/a")]);
    assert_eq!(this.messages().0, "Low load");
    assert_eq!(reasons(&this), [("load", LoopReason::UnknownValue)]);
    this.spec.metrics[0].missing =
        serde_json::from_value(json!({"after": "45s", "then": "Assume", "value": "99"})).unwrap();
    this.push(at(120), &[("load", "n/a")]);
    assert_eq!(this.messages().1, "React to load", "raising is safe");
}

/// A decision that waited for an approval, or for the next leader, is made again: its reasons may have passed.
#[rstest]
#[case::as_before(json!({}), None)]
#[case::its_window_has_closed(json!({"closed": true}), Some(Outcome::Withdrawn))]
#[case::its_own_value_is_unknown(json!({"held": true}), Some(Outcome::Withdrawn))]
#[case::another_value_is_unknown(json!({"unknown": true}), Some(Outcome::Withdrawn))]
fn a_decision_that_has_not_begun_is_made_again(
    #[case] change: Value,
    #[case] outcome: Option<Outcome>,
    #[values("Auto", "Approve")] mode: &str,
) {
    let lowering = json!({
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [
            {"name": "cpu", "source": {"push": {}}, "low": {"raise": "5"}},
            {"name": "memory", "source": {"push": {}}, "high": {"raise": "90"}},
        ],
        "actions": [
            {"when": {"metric": "cpu", "side": "Low"}, "ladder": [{"scale": {"by": -1, "min": 1}}]},
            {"when": {"metric": "memory", "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 9}}]},
        ],
    });
    let mut this = Loop::new("fast", spec(lowering));
    this.spec.mode = serde_json::from_value(json!(mode)).unwrap();
    this.push(at(0), &[("cpu", "2"), ("memory", "50")]);
    this.decision = ganglion_api::decision::DecisionStatus::default();
    let execution = ExecutionStatus { seq: Some(0), ..ExecutionStatus::default() };
    alone(&mut this, &execution, "exe", 0);
    assert_eq!(this.decision.seq, 1, "{:?}", this.decision.message);
    // Another leader has made it.
    this.decision.term = Some("another".into());
    this.monitoring.valid_until = None;
    if change["closed"] == true {
        let window = json!([{"cron": "0 0 1 1 *", "duration": "1h"}]);
        this.spec.actions.as_mut().unwrap()[0].during = serde_json::from_value(window).unwrap();
    }
    if change["held"] == true {
        this.monitoring.alarms[0].held = true;
    }
    if change["unknown"] == true {
        let unknown = json!({"metric": "memory", "since": at(0), "message": "503"});
        this.monitoring.unknown.push(serde_json::from_value(unknown).unwrap());
    }
    alone(&mut this, &execution, "exe", 7200);
    assert_eq!(this.decision.chosen.as_ref().unwrap().outcome, outcome, "{:?}", this.decision.message);
    assert_eq!(this.decision.term.as_deref(), Some("term"));
}
