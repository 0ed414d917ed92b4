//! The next step of an execution.

use super::types::{ExecutionContext, ExecutionStep};
use super::{begin, end, resume};
use crate::api::closed_loop::LoopMode;
use crate::api::decision::Chosen;

/// What to do next.
#[must_use]
pub fn next_step(job: &ExecutionContext) -> ExecutionStep {
    if let Some(claim) = &job.status.claim {
        return resume::resume(job, claim);
    }
    let Some(last) = job.status.seq else { return end::first(job) };
    let Some(chosen) = job.chosen.filter(|chosen| is_due(job, chosen, last)) else { return ExecutionStep::Nothing };
    if job.spec.paused {
        return ExecutionStep::Nothing;
    }
    if let Some(why) = &job.spec.blocked {
        return end::blocked(job, why);
    }
    match chosen.mode {
        LoopMode::Auto => {}
        LoopMode::Approve if job.spec.approve == Some(chosen.seq) => {}
        LoopMode::Approve | LoopMode::DryRun | LoopMode::Paused => return ExecutionStep::Nothing,
    }
    match job.seen {
        None => ExecutionStep::Look,
        Some(seen) => begin::begin(job, chosen, seen),
    }
}

/// Whether the decision is this Execution's, open, and not taken up yet.
fn is_due(job: &ExecutionContext, chosen: &Chosen, last: i64) -> bool {
    chosen.outcome.is_none() && chosen.executor == job.uid && chosen.seq > last
}
