//! Detects that somebody else undoes the changes of this loop: after three undone changes in a row, the loop stops and
//! names the other field manager.
//!
//! When a decision begins, the field is compared with the last change of the loop. If it went back, at least in part,
//! the change was undone, no matter how long ago it was made: who sets the field back slowly is in the way like one who
//! does so at once. The row ends when a change is found in place an hour or more after it was made, or when the loop
//! itself wants the other direction. After a conflict, the loop tries once more after an hour, or when the field was
//! last written by somebody else than the one who undid the changes. If that change is undone as well, it stops again.

use jiff::{SignedDuration, Timestamp};

use super::resize;
use super::texts::target_text;
use super::types::{ExecutionContext, ObjectVersion, PodResources, ResizeTarget, TargetState};
use crate::common::{elapsed, later, micro_time};
use crate::rung;
use ganglion_api::closed_loop::action::Resize;
use ganglion_api::decision::{Chosen, Direction};
use ganglion_api::execution::{ExecutionStatus, LastChange, UNDONE_LIMIT, Undone};
use ganglion_core::{contest, quantity};

/// Time after which a change that is still in place has stayed, and after which an undone one is not news any more.
const STAY: SignedDuration = SignedDuration::from_hours(1);

/// Time after which the loop tries once more.
const PAUSE: SignedDuration = SignedDuration::from_hours(1);

/// A field with changes in a row that somebody else has undone, the last one within the last hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoneField<'a> {
    pub dimension: &'a str,
    /// Field manager that undid the last change.
    pub by: &'a str,
    /// Number of undone changes in a row.
    pub row: usize,
    /// Time at which the last undone change is not news any more. The row goes on.
    pub until: Timestamp,
}

/// Returns the fields whose changes were undone within the last hour, the field that was undone last first.
pub fn undone_fields(undone: &[Undone], now: Timestamp) -> Vec<UndoneField<'_>> {
    let mut fields: Vec<UndoneField<'_>> = Vec::new();
    for one in undone.iter().rev() {
        match fields.iter_mut().find(|field| field.dimension == one.dimension) {
            Some(field) => field.row += 1,
            None => fields.push(UndoneField {
                dimension: &one.dimension,
                by: &one.by,
                row: 1,
                until: later(one.at.0, STAY),
            }),
        }
    }
    fields.retain(|field| field.until > now);
    fields
}

/// Returns the status with the change of this field that was undone since the last decision, if any; without the row of
/// the field if the change stayed.
pub fn with_reverts(context: &ExecutionContext, chosen: &Chosen, seen: &TargetState) -> ExecutionStatus {
    let mut status = context.status.clone();
    let dimension = seen.dimension(&chosen.action);
    let Some((thing, now)) = field(chosen, seen) else { return status };
    let Some(last) = status.last_changes.iter().find(|last| last.dimension == dimension) else { return status };
    if !now.is_some_and(|now| is_reverted(last, &now)) {
        let is_old = last.at.as_ref().is_some_and(|at| elapsed(at, context.now) >= STAY);
        if is_old || turns(last, rung::direction(&chosen.action)) {
            status.undone.retain(|undone| undone.dimension != dimension);
        }
        return status;
    }
    status.last_changes.retain(|last| last.dimension != dimension);
    if let Some(by) = &thing.written_by {
        let row = status.undone.iter().filter(|undone| undone.dimension == dimension).count();
        let first = status.undone.iter().position(|undone| undone.dimension == dimension);
        if let Some(first) = first.filter(|_| contest::is_lost(row)) {
            status.undone.remove(first);
        }
        status.undone.push(Undone { at: micro_time(context.now), by: by.clone(), dimension });
        let surplus = status.undone.len().saturating_sub(UNDONE_LIMIT);
        status.undone.drain(..surplus);
    }
    status
}

/// Whether the loop wants the other direction than that of its last change.
fn turns(last: &LastChange, direction: Direction) -> bool {
    match (number(&last.before), number(&last.after), direction) {
        (Some(before), Some(after), Direction::Raise) => after < before,
        (Some(before), Some(after), Direction::Lower) => after > before,
        (_, _, Direction::Neither) | (None, _, _) | (_, None, _) => false,
    }
}

fn number(text: &str) -> Option<f64> {
    quantity::number(text.trim_matches('"')).ok()
}

/// The object and the value of the field that others may change back. No value: nobody has changed it back.
fn field<'a>(chosen: &Chosen, seen: &'a TargetState) -> Option<(&'a ObjectVersion, Option<String>)> {
    match seen {
        TargetState::Scale(thing, replicas) | TargetState::Workload(thing, replicas) => {
            Some((thing, Some(replicas.to_string())))
        }
        TargetState::Field(thing, value) => {
            Some((thing, Some(value.as_ref().map(ToString::to_string).unwrap_or_default())))
        }
        TargetState::Resources(seen) => resources(chosen.action.resize.as_ref()?, seen),
        TargetState::WorkloadAction(_)
        | TargetState::Loop(_)
        | TargetState::Nothing
        | TargetState::NotFound(_)
        | TargetState::Unfit(..)
        | TargetState::Forbidden(_) => None,
    }
}

/// The amount in the template, if the rung changes it. Otherwise that of the pod which others have resized in place the
/// furthest back: a pod that nobody has resized has replaced one that the loop had resized.
fn resources<'a>(resize: &Resize, seen: &'a ResizeTarget) -> Option<(&'a ObjectVersion, Option<String>)> {
    let text = |quantities| resize::chosen(resize, quantities).map(|amount| amount.0.clone());
    if resize.template == Some(true) {
        let (_, template) = seen.template.as_ref()?;
        return Some((&seen.target, Some(text(template)?)));
    }
    let amount = |pod: &&PodResources| {
        let amount = resize::chosen(resize, &pod.wants).and_then(|amount| quantity::number(amount.as_str()).ok());
        amount.unwrap_or_default()
    };
    let resized = seen.pods.iter().filter(|pod| pod.thing.written_by.is_some());
    let furthest = match rung::ratio(Some(&resize.factor)) {
        Direction::Raise => resized.min_by(|one, other| amount(one).total_cmp(&amount(other))),
        Direction::Lower | Direction::Neither => resized.max_by(|one, other| amount(one).total_cmp(&amount(other))),
    };
    Some(furthest.map_or((&seen.target, None), |pod| (&pod.thing, text(&pod.wants))))
}

/// Whether the value went back at least part of the way. Without numbers: whether the value differs.
fn is_reverted(last: &LastChange, now: &str) -> bool {
    match (number(&last.before), number(&last.after), number(now)) {
        (Some(before), Some(after), Some(now)) if after > before => now < after,
        (Some(_), Some(after), Some(now)) => now > after,
        _ => now != last.after,
    }
}

/// Returns why the loop stops, if enough changes of the field were undone. `status`: see [`with_reverts`].
pub fn conflict(
    context: &ExecutionContext,
    status: &ExecutionStatus,
    chosen: &Chosen,
    seen: &TargetState,
) -> Option<String> {
    let (thing, _) = field(chosen, seen)?;
    let dimension = seen.dimension(&chosen.action);
    let row: Vec<&Undone> = status.undone.iter().filter(|undone| undone.dimension == dimension).collect();
    let last = row.last().filter(|_| contest::is_lost(row.len()))?;
    if thing.written_by.as_ref() != Some(&last.by) || elapsed(&last.at, context.now) >= PAUSE {
        return None;
    }
    Some(format!(
        "{} undid what this loop did to {} {} times in a row: configure it to leave the field alone, or \
         remove this loop's rung",
        last.by,
        target_text(&context.spec.target),
        contest::MAX_REVERTS
    ))
}
