//! A Decision or an Execution that was deleted and created again.

use rstest::rstest;
use serde_json::json;

use super::{alone, counters, monitored, reasons};
use crate::tests::bench::at;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::Outcome;
use ganglion_api::execution::{CarriedOut, ExecutionState, ExecutionStatus};

#[test]
fn nothing_is_decided_for_an_execution_that_is_not_there() {
    let mut this = monitored(0);
    alone(&mut this, &ExecutionStatus::default(), "exe", 0);
    assert_eq!(reasons(&this)[0], ("cpu", LoopReason::NoExecutor));
}

#[test]
fn a_decision_made_anew_goes_on_with_the_numbers() {
    let mut this = monitored(0);
    let execution = ExecutionStatus { seq: Some(17), ..ExecutionStatus::default() };
    alone(&mut this, &execution, "exe", 0);
    assert_eq!(this.decision.seq, 18);
}

/// The last decision may have changed nothing; then the last action was an earlier one.
#[rstest]
#[case(ExecutionState::Done)]
#[case(ExecutionState::Limited)]
#[case(ExecutionState::Failed)]
#[case(ExecutionState::Overtaken)]
#[case(ExecutionState::Lost)]
fn a_decision_made_anew_keeps_the_dwell(#[case] state: ExecutionState) {
    let mut this = monitored(0);
    this.spec.policy = Some(serde_json::from_value(json!({"dwell": "60s"})).unwrap());
    let since = Some(crate::common::micro_time(at(-1)));
    let carried_out = Some(CarriedOut { seq: 16, at: crate::common::micro_time(at(-30)) });
    let mut execution =
        ExecutionStatus { seq: Some(17), state: Some(state), since, carried_out, ..ExecutionStatus::default() };
    alone(&mut this, &execution, "exe", 0);
    assert_eq!((this.decision.seq, reasons(&this)[0]), (17, ("cpu", LoopReason::Dwell)));
    alone(&mut this, &execution, "exe", 30);
    assert_eq!(this.decision.seq, 18);
    let mut this = monitored(0);
    this.spec.policy = Some(serde_json::from_value(json!({"dwell": "60s"})).unwrap());
    execution.carried_out = None;
    alone(&mut this, &execution, "exe", 0);
    assert_eq!(this.decision.seq == 18, state != ExecutionState::Done, "a loop that changed nothing has no dwell");
}

#[test]
fn an_execution_made_anew_leaves_the_old_decision_lost() {
    let mut this = monitored(0);
    let execution = ExecutionStatus { seq: Some(0), ..ExecutionStatus::default() };
    alone(&mut this, &execution, "exe", 0);
    assert_eq!(this.decision.chosen.as_ref().unwrap().outcome, None);
    alone(&mut this, &execution, "another", 1);
    assert_eq!(this.decision.chosen.as_ref().unwrap().outcome, Some(Outcome::Lost));
    assert_eq!(counters(&this, "cpu").1, 0);
}

#[test]
fn what_was_taken_back_while_it_was_taken_up_stands_after_all() {
    let mut this = monitored(0);
    let idle = ExecutionStatus { seq: Some(0), ..ExecutionStatus::default() };
    alone(&mut this, &idle, "exe", 0);
    this.spec.mode = serde_json::from_value(json!("DryRun")).unwrap();
    alone(&mut this, &idle, "exe", 1);
    assert_eq!(this.decision.chosen.as_ref().unwrap().outcome, Some(Outcome::Withdrawn));
    let claimed = ExecutionStatus { seq: Some(1), state: Some(ExecutionState::Claimed), ..ExecutionStatus::default() };
    alone(&mut this, &claimed, "exe", 2);
    assert_eq!(this.decision.chosen.as_ref().unwrap().outcome, None);
    let done = ExecutionStatus { state: Some(ExecutionState::Done), ..claimed };
    alone(&mut this, &done, "exe", 3);
    assert_eq!(this.decision.chosen.as_ref().unwrap().outcome, Some(Outcome::Served));
    assert_eq!(counters(&this, "cpu").1, 1);
    alone(&mut this, &done, "exe", 4);
    assert_eq!(counters(&this, "cpu").1, 1, "counted once");
}

#[test]
fn the_same_sample_is_decided_on_once() {
    let mut this = monitored(0);
    let idle = ExecutionStatus { seq: Some(0), ..ExecutionStatus::default() };
    for second in 0..5 {
        alone(&mut this, &idle, "exe", second);
    }
    assert_eq!((this.decision.seq, counters(&this, "cpu").0), (1, 1));
}
