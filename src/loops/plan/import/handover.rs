//! The next step of a handover from an autoscaler to a loop, or back, from what is in the cluster.
//!
//! Nothing else is remembered, so a handover that was interrupted between any two writes continues. Each write has the
//! version of the object that the step was determined from. The loop is created in mode DryRun and starts only once it
//! has data and passes its checks, and once the autoscaler is off, so that there is neither a time with two of them nor
//! a gap. On the way back, the loop rests before the autoscaler is switched on.
//!
//! A HorizontalPodAutoscaler has no pause: `selectPolicy: Disabled` switches both directions off. It still returns the
//! number to its bounds, so those of the loop must lie within them. A ScaledObject is paused; KEDA then deletes its
//! HorizontalPodAutoscaler.

use kube::ResourceExt;
use kube::core::DynamicObject;

use super::imported::{HandoverRefusal, ImportClaim, ImportRecord, ImportedScaler};
use crate::validate::conflict::ReplicaRange;
use ganglion_api::closed_loop::{ClosedLoop, LoopMode};
use ganglion_api::execution::Execution;
use ganglion_api::marks;

/// State of the cluster, as far as a handover depends on it.
#[derive(Clone, Copy, Debug)]
pub struct HandoverView<'a> {
    /// Name of the loop.
    pub name: &'a str,
    pub scaler: ImportedScaler<'a>,
    /// The HorizontalPodAutoscaler of a ScaledObject exists.
    pub has_hpa: bool,
    /// All loops of the namespace.
    pub loops: &'a [ClosedLoop],
    /// The loop's Execution.
    pub execution: Option<&'a Execution>,
}

/// Next step of a handover.
#[derive(Clone, Debug, PartialEq)]
pub enum HandoverStep {
    /// Create the loop in mode DryRun, with this record.
    CreateLoop(ImportRecord),
    /// Replace the autoscaler, which is switched off thereby.
    SwitchOff(Box<DynamicObject>),
    /// Set the mode of the loop to DryRun.
    Rehearse,
    /// Set the mode of the loop to Auto.
    Start,
    /// Set the mode of the loop to Paused.
    Pause,
    /// Replace the autoscaler, which is as before thereby.
    SwitchOn(Box<DynamicObject>),
    DeleteLoop,
    /// Look again later. The text names the awaited state and the current one.
    Await(String),
    Done,
}

/// Returns the next step by which the loop takes over.
pub fn next_apply(view: HandoverView) -> Result<HandoverStep, HandoverRefusal> {
    let (scaler, name) = (&view.scaler, view.name);
    let (record, claim) = (scaler.record()?, scaler.claim()?);
    refuse_others(view, claim.as_ref(), &record)?;
    let Some(parent) = own_loop(view) else { return Ok(HandoverStep::CreateLoop(record)) };
    let Some(known) = record_of(parent) else {
        return Err(HandoverRefusal(format!(
            "ClosedLoop {name} exists, and no import has created it: use another name (--name), or delete it"
        )));
    };
    if (known.kind, &known.name, &known.uid) != (record.kind, &record.name, &record.uid) {
        return Err(HandoverRefusal(format!(
            "ClosedLoop {name} replaces {} {} with uid {}, not this one: use another name (--name), or delete the loop",
            known.kind.as_str(),
            known.name,
            known.uid
        )));
    }
    let bounds = scaler.bounds().zip(ReplicaRange::of(&parent.spec, None));
    if let Some(((min, max), _)) = bounds.filter(|(bounds, range)| !range.is_within(*bounds)) {
        return Err(HandoverRefusal(format!(
            "{} returns the number of replicas to {min} to {max} even if it is off: set min and max of ClosedLoop {name} \
             within these bounds, or change those of the autoscaler, and run this again",
            scaler.title()
        )));
    }
    if claim.is_none() || !scaler.is_off() {
        if claim.is_none() && known.original != record.original {
            return Err(HandoverRefusal(format!(
                "{} was changed since ClosedLoop {name} was made from it: undo the import (--undo), and run this again",
                scaler.title()
            )));
        }
        // A paused loop has no data, and one that acts has a conflict.
        if parent.spec.mode != LoopMode::DryRun {
            return Ok(HandoverStep::Rehearse);
        }
        if let Some(problem) = unready(parent, true) {
            return Ok(HandoverStep::Await(format!("ClosedLoop {name} to be ready ({problem})")));
        }
        return Ok(HandoverStep::SwitchOff(Box::new(scaler.switched_off(name, &record.original))));
    }
    if view.has_hpa {
        return Ok(HandoverStep::Await(format!(
            "KEDA to delete the HorizontalPodAutoscaler of ScaledObject {}",
            scaler.object.name_any()
        )));
    }
    if matches!(parent.spec.mode, LoopMode::DryRun | LoopMode::Paused) {
        return Ok(HandoverStep::Start);
    }
    Ok(unready(parent, false).map_or(HandoverStep::Done, |problem| {
        HandoverStep::Await(format!("the operator to start ClosedLoop {name} ({problem})"))
    }))
}

/// Returns the next step by which the autoscaler gets its number back.
pub fn next_undo(view: HandoverView) -> Result<HandoverStep, HandoverRefusal> {
    let (scaler, name) = (&view.scaler, view.name);
    let (record, claim) = (scaler.record()?, scaler.claim()?);
    refuse_others(view, claim.as_ref(), &record)?;
    let is_its = |parent: &&ClosedLoop| {
        record_of(parent).is_some_and(|known| (known.kind, &known.uid) == (record.kind, &record.uid))
    };
    let parent = own_loop(view).filter(is_its);
    if let Some(parent) = parent {
        if parent.spec.mode != LoopMode::Paused {
            return Ok(HandoverStep::Pause);
        }
        let acts = view.execution.and_then(|one| one.status.as_ref()).is_some_and(|status| status.claim.is_some());
        let is_seen = condition(parent, "Ready").is_some_and(|(_, reason, _)| reason == "Paused");
        if acts || !is_observed(parent) || !is_seen {
            return Ok(HandoverStep::Await(format!("the operator to pause ClosedLoop {name}")));
        }
    }
    if claim.is_some() {
        return Ok(HandoverStep::SwitchOn(Box::new(scaler.restored()?)));
    }
    Ok(if parent.is_some() { HandoverStep::DeleteLoop } else { HandoverStep::Done })
}

/// The record of a loop that an import has created.
pub fn record_of(parent: &ClosedLoop) -> Option<ImportRecord> {
    serde_json::from_str(parent.annotations().get(marks::IMPORTED_FROM)?).ok()
}

fn own_loop<'a>(view: HandoverView<'a>) -> Option<&'a ClosedLoop> {
    view.loops.iter().find(|one| one.name_any() == view.name)
}

/// Refuses a second import of the same autoscaler.
fn refuse_others(
    view: HandoverView,
    claim: Option<&ImportClaim>,
    record: &ImportRecord,
) -> Result<(), HandoverRefusal> {
    let is_other =
        |one: &&ClosedLoop| one.name_any() != view.name && record_of(one).is_some_and(|known| known.uid == record.uid);
    let claimed = claim.map(|claim| claim.by.clone()).filter(|by| by != view.name);
    let Some(other) = claimed.or_else(|| view.loops.iter().find(is_other).map(ResourceExt::name_any)) else {
        return Ok(());
    };
    let (named, argument) = (view.scaler.title(), view.scaler.kind.argument());
    let name = view.scaler.object.name_any();
    Err(HandoverRefusal(format!(
        "{named} is already imported as ClosedLoop {other}: continue with `ganglion import {argument} {name} --name {other}`, \
         or undo it there first (--undo)"
    )))
}

fn is_observed(parent: &ClosedLoop) -> bool {
    let observed = parent.status.as_ref().and_then(|status| status.observed_generation);
    observed.is_some() && observed == parent.metadata.generation
}

/// Status, reason and message of a condition.
fn condition<'a>(parent: &'a ClosedLoop, kind: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let found = parent.status.as_ref()?.conditions.iter().find(|one| one.type_ == kind)?;
    Some((&found.status, &found.reason, &found.message))
}

/// Why the loop cannot act yet.
fn unready(parent: &ClosedLoop, with_data: bool) -> Option<String> {
    if !is_observed(parent) {
        return Some("no operator has seen it yet".to_owned());
    }
    let needed = ["Ready", "Preflight", "DataAvailable"];
    needed.into_iter().filter(|kind| with_data || *kind != "DataAvailable").find_map(|kind| {
        match condition(parent, kind) {
            Some(("True", ..)) => None,
            Some((_, reason, message)) => Some(format!("{kind}: {reason}: {message}")),
            None => Some(format!("there is no condition {kind} yet")),
        }
    })
}
