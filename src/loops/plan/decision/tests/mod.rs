//! Tests of the second stage, and the helpers that they share.

mod carried_out;
mod combined;
mod decide;
mod limits;
mod lowering;
mod measured_once;
mod recreated;
mod release;

use serde_json::json;

use crate::decision::{DecisionInput, DecisionRules, Executor};
use crate::tests::bench::{Loop, at, demo};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::execution::ExecutionStatus;

const LOW: [(&str, &str); 2] = [("cpu", "2"), ("memory", "40")];

fn reasons(this: &Loop) -> Vec<(&str, LoopReason)> {
    this.decision.rejected.iter().map(|one| (one.when.alarms()[0].metric.as_str(), one.reason)).collect()
}

fn counters(this: &Loop, metric: &str) -> (i64, i64, i64) {
    let decision = this.status_at(at(0));
    let counter = decision.counters.iter().find(|counter| counter.metric == metric).unwrap();
    (counter.wanted, counter.served, counter.limited)
}

/// Runs only the decision stage, with this status of the Execution.
fn alone(this: &mut Loop, execution: &ExecutionStatus, uid: &str, second: i64) {
    let children = this.children(at(second));
    let rules = DecisionRules::parse(&children.decision).unwrap();
    let input = DecisionInput {
        monitoring: &this.monitoring,
        executor: Some(Executor { uid, target: &this.spec.target, status: execution }),
        written: &this.decision,
        generation: 1,
        term: "term",
        now: at(second),
    };
    this.decision = rules.decide(&this.decision, input).status;
}

fn monitored(second: i64) -> Loop {
    let mut this = Loop::new("fast", demo(json!({})));
    this.push(at(second), &LOW);
    this.decision = ganglion_api::decision::DecisionStatus::default();
    this
}
