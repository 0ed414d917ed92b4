//! Detects that somebody else undoes the changes of this loop. After three undone changes within ten minutes, the loop
//! stops and names the other field manager.

use super::types::{ExecutionContext, ObjectVersion, TargetState};
use crate::common::micro_time;
use crate::rung;
use ganglion_api::decision::Chosen;
use ganglion_api::execution::{ExecutionStatus, Left, Undone};
use ganglion_core::{contest, quantity};

/// Returns the status with the change that was undone since the last step, if any, and without old entries.
pub fn with_reverts(context: &ExecutionContext, chosen: &Chosen, seen: &TargetState) -> ExecutionStatus {
    let mut status = context.status.clone();
    status.undone.retain(|undone| contest::is_recent(undone.at.0, context.now));
    let dimension = rung::dimension(&chosen.action);
    let Some(left) = status.left.take_if(|left| left.dimension == dimension) else { return status };
    let (thing, now) = match seen {
        TargetState::Scale(thing, replicas) => (thing, replicas.to_string()),
        TargetState::Field(thing, value) => (thing, value.as_ref().map(ToString::to_string).unwrap_or_default()),
        _ => return status,
    };
    if let ObjectVersion { written_by: Some(by), .. } = thing
        && is_reverted(&left, &now)
    {
        status.undone.push(Undone { at: micro_time(context.now), by: by.clone() });
        let surplus = status.undone.len().saturating_sub(contest::MAX_REVERTS);
        status.undone.drain(..surplus);
    }
    status
}

/// Whether the value went back at least part of the way. Without numbers: whether the value differs.
fn is_reverted(left: &Left, now: &str) -> bool {
    let number = |text: &str| quantity::number(text.trim_matches('"')).ok();
    match (number(&left.before), number(&left.after), number(now)) {
        (Some(before), Some(after), Some(now)) if after > before => now < after,
        (Some(_), Some(after), Some(now)) => now > after,
        _ => now != left.after,
    }
}

/// Returns why the loop stops, if enough changes were undone.
pub fn conflict(status: &ExecutionStatus, target: &str) -> Option<String> {
    let last = status.undone.last().filter(|_| contest::is_lost(status.undone.len()))?;
    Some(format!(
        "{} undid what this loop did to {target} {}: configure it to leave the field alone, or remove this loop's rung",
        last.by,
        contest::HOW_OFTEN
    ))
}
