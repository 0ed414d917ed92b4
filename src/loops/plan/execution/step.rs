//! Chooses the next step of an execution: nothing, begin a decision, or resume a claim.

use super::types::{ExecutionContext, ExecutionStep};
use super::{begin, end, resume};
use crate::proposal;
use ganglion_api::decision::Chosen;

/// Returns the next step.
pub fn next_step(context: &ExecutionContext) -> ExecutionStep {
    if let Some(claim) = &context.status.claim {
        return resume::resume(context, claim);
    }
    let Some(last) = context.status.seq else { return end::first(context) };
    let Some(chosen) = context.chosen.filter(|chosen| is_due(context, chosen, last)) else {
        return ExecutionStep::Nothing;
    };
    if context.spec.paused {
        return ExecutionStep::Nothing;
    }
    if let Some(why) = &context.spec.blocked {
        return end::blocked(context, why);
    }
    if !proposal::may_be_carried_out(chosen, &context.spec.target, context.spec.approve.as_deref()) {
        return ExecutionStep::Nothing;
    }
    match context.seen {
        None => ExecutionStep::ReadTarget,
        Some(seen) => begin::begin(context, chosen, seen),
    }
}

/// Whether the decision is open, addressed to this Execution, and not begun.
fn is_due(context: &ExecutionContext, chosen: &Chosen, last: i64) -> bool {
    chosen.outcome.is_none() && chosen.executor == context.uid && chosen.seq > last
}
