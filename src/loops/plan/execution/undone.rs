//! Detects that somebody else undoes the changes of this loop. After three times within ten minutes the loop stops and
//! names the other one.

use jiff::SignedDuration;

use super::types::{ExecutionContext, ObjectVersion, TargetState};
use crate::common::{elapsed, micro_time};
use crate::rung;
use ganglion_api::decision::Chosen;
use ganglion_api::execution::{ExecutionStatus, Left, Undone};
use ganglion_core::quantity;

/// The number of undone changes that stops the loop.
const MOST: usize = 3;

/// The period in which they are counted.
const WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// The status with a change that was undone since the last step; old entries are removed.
pub fn with_reverts(context: &ExecutionContext, chosen: &Chosen, seen: &TargetState) -> ExecutionStatus {
    let mut status = context.status.clone();
    status.undone.retain(|undone| elapsed(&undone.at, context.now) < WITHIN);
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
        let surplus = status.undone.len().saturating_sub(MOST);
        status.undone.drain(..surplus);
    }
    status
}

/// Whether the value went back at least a part of the way; without numbers, whether it is another one.
fn is_reverted(left: &Left, now: &str) -> bool {
    let number = |text: &str| quantity::number(text.trim_matches('"')).ok();
    match (number(&left.before), number(&left.after), number(now)) {
        (Some(before), Some(after), Some(now)) if after > before => now < after,
        (Some(_), Some(after), Some(now)) => now > after,
        _ => now != left.after,
    }
}

/// Why the loop stops, if enough changes were undone.
pub fn conflict(status: &ExecutionStatus, target: &str) -> Option<String> {
    let last = status.undone.last().filter(|_| status.undone.len() >= MOST)?;
    Some(format!(
        "{} undid what this loop did to {target} {MOST} times within ten minutes: have it leave the field alone, or take away \
         this loop's rung",
        last.by
    ))
}
