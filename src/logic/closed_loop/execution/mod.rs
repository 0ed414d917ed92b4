//! The third hop: one decision in, at most one effect out, whatever is killed when.
//!
//! What is to be done is recorded, as an absolute value, before it is done; after a crash the world is looked at before
//! anything is repeated. The target's generation tells whether our change, or anybody's, happened since the claim: as long as
//! it is the same, none did. What cannot be looked at (an event that was sent) is never repeated. Must not know how the
//! target is read or written.

mod begin;
mod end;
pub mod goal;
mod resize;
mod resume;
mod undone;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::Value;

use crate::api::closed_loop::action::{Resource, Rung, Webhook};
use crate::api::closed_loop::metric::Metric;
use crate::api::closed_loop::reasons::LoopReason;
use crate::api::closed_loop::tunable::{Tunable, Tuning};
use crate::api::closed_loop::{LoopMode, TargetRef};
use crate::api::decision::Chosen;
use crate::api::execution::{ExecutionSpec, ExecutionStatus, Quantities};
use crate::api::sample::Tag;
use crate::api::workload_action::WorkloadActionSpec;
use crate::logic::digest::digest;

pub use end::{Acted, after};

/// What an execution is made of.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub spec: &'a ExecutionSpec,
    pub status: &'a ExecutionStatus,
    /// uid and generation of the Execution.
    pub uid: &'a str,
    pub generation: i64,
    /// Name of the loop.
    pub loop_name: &'a str,
    /// The last decision, as it was written.
    pub chosen: Option<&'a Chosen>,
    /// The sample that it was about.
    pub tag: Option<&'a Tag>,
    /// The target, where it was looked at after the status was read.
    pub seen: Option<&'a Seen>,
    /// Whether the claim in the status may have been acted on.
    pub sent: Sent,
    pub now: Timestamp,
}

/// Whether a claim may have been acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// This process wrote the claim and has done nothing since.
    NotYet,
    /// Another process may have, or this one did.
    Maybe,
}

/// An object, as far as preconditions need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thing {
    pub uid: String,
    /// It changes with every change of the spec, and with nothing else.
    pub generation: i64,
    /// The resourceVersion.
    pub version: String,
    /// Who wrote what is looked at last, where it was not a loop.
    pub by: Option<String>,
}

/// The target, as the rung needs it.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// It is not there; in words.
    NotFound(String),
    /// It is not what the rung needs, or may not be changed; in words.
    Unfit(LoopReason, String),
    /// The loop's account may not look at it; the message names verb and resource.
    Forbidden(String),
    /// Its replicas, by its scale subresource.
    Scale(Thing, i32),
    /// The resource of one container in its pods.
    Resources(Box<ResizeSeen>),
    /// The value of the field.
    Field(Thing, Option<Value>),
    /// The WorkloadAction of this decision; None where it is not there.
    WorkloadAction(Option<ActionEnd>),
    /// The loop that is tuned.
    Loop(Box<LoopSeen>),
    /// There is nothing to look at.
    Nothing,
}

/// A workload, of which one container's resource is looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResizeSeen {
    pub target: Thing,
    /// Where the container stands in the pod template, with its resource there.
    pub template: Option<(usize, Quantities)>,
    /// The pods that have the container.
    pub pods: Vec<PodSeen>,
}

/// A pod, of which one container's resource is looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSeen {
    pub name: String,
    pub thing: Thing,
    /// Where the container stands in the pod's list.
    pub index: usize,
    /// What its spec asks for.
    pub wants: Quantities,
    /// What its kubelet has given it; none where it does not tell.
    pub has: Option<Quantities>,
    /// Why its kubelet does not give it what it asks for.
    pub pending: Option<Pending>,
}

/// What a kubelet says of a resize that it has not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// It never will: the node is too small, or the pod is not of a kind that can be resized.
    pub refused: bool,
    pub message: String,
}

/// One change of a pod, on the condition that nobody has written its spec since it was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct PodChange {
    pub name: String,
    pub thing: Thing,
    pub index: usize,
    pub from: Quantities,
    pub to: Quantities,
}

/// How a WorkloadAction is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionEnd {
    Running(String),
    Succeeded(String),
    Failed(String),
}

/// A loop that is tuned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopSeen {
    pub uid: String,
    pub tunable: Option<Tunable>,
    /// The rank and the metrics that hold.
    pub rank: Vec<String>,
    pub metrics: Vec<Metric>,
    /// What this loop changed before, where it has not expired.
    pub mine: Option<Tuning>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing, until something changes.
    Nothing,
    /// Look at the target and ask again.
    Look,
    /// Write this status, with the version of the one that was read as precondition, and ask again.
    Record(Box<ExecutionStatus>),
    /// Do this, and hand what came of it to [`after`].
    Act(Box<Effect>),
    /// Ask again then.
    Wait(Timestamp),
}

/// One change of the world. Each has a precondition, or is the same when done twice.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Sets the replicas of exactly this version of the target.
    Scale { target: Thing, replicas: i32 },
    /// Sets the resource of these pods in place, each only while it is of its generation.
    Resize { pods: Vec<PodChange>, container: String, resource: Resource },
    /// Sets the resource in the pod template of exactly this generation of the target.
    Template { target: Thing, index: usize, container: String, resource: Resource, from: Quantities, to: Quantities },
    /// Sets the field of exactly this version of the target.
    Patch { target: Thing, path: String, value: Value },
    /// Makes a WorkloadAction; that it is there already is as good.
    Create { name: String, spec: Box<WorkloadActionSpec> },
    /// Sends an event, once.
    Send { id: String, webhook: Webhook },
    /// Sets this loop's entry in the other's `status.tuning`.
    Tune { uid: String, tuning: Tuning },
}

/// What to do next.
#[must_use]
pub fn next(job: &Job) -> Next {
    if let Some(claim) = &job.status.claim {
        return resume::resume(job, claim);
    }
    let Some(last) = job.status.seq else { return end::first(job) };
    let Some(chosen) = job.chosen.filter(|chosen| is_due(job, chosen, last)) else { return Next::Nothing };
    if job.spec.paused {
        return Next::Nothing;
    }
    if let Some(why) = &job.spec.blocked {
        return end::blocked(job, why);
    }
    match chosen.mode {
        LoopMode::Auto => {}
        LoopMode::Approve if job.spec.approve == Some(chosen.seq) => {}
        LoopMode::Approve | LoopMode::DryRun | LoopMode::Paused => return Next::Nothing,
    }
    match job.seen {
        None => Next::Look,
        Some(seen) => begin::begin(job, chosen, seen),
    }
}

/// Whether the decision is this Execution's, open, and not taken up yet.
fn is_due(job: &Job, chosen: &Chosen, last: i64) -> bool {
    chosen.outcome.is_none() && chosen.executor == job.uid && chosen.seq > last
}

/// Name of the WorkloadAction of a decision that this Execution carries out: the same whenever it is asked for.
#[must_use]
pub fn action_name(loop_name: &str, uid: &str, seq: i64) -> String {
    let mut name = loop_name.to_owned();
    name.truncate(200);
    let hash = digest(&[uid, &seq.to_string()], 8);
    format!("{}-{seq}-{hash}", name.trim_end_matches(['-', '.']))
}

/// Id of the event of a decision.
#[must_use]
pub fn event_id(uid: &str, seq: i64) -> String {
    format!("{uid}/{seq}")
}

/// `Deployment/web`.
fn words(target: &TargetRef) -> String {
    format!("{}/{}", target.kind, target.name)
}

/// Why the target could not be looked at.
fn unseen(seen: &Seen) -> Option<(LoopReason, &str)> {
    match seen {
        Seen::NotFound(message) => Some((LoopReason::TargetNotFound, message)),
        Seen::Unfit(reason, message) => Some((*reason, message)),
        Seen::Forbidden(message) => Some((LoopReason::Forbidden, message)),
        Seen::Scale(..)
        | Seen::Resources(..)
        | Seen::Field(..)
        | Seen::WorkloadAction(_)
        | Seen::Loop(_)
        | Seen::Nothing => None,
    }
}

/// The kind of a rung, with what belongs to it.
enum Do<'a> {
    Scale(&'a crate::api::closed_loop::action::Scale),
    Resize(&'a crate::api::closed_loop::action::Resize),
    Action(&'a crate::api::closed_loop::action::ActionTemplate),
    Patch(&'a crate::api::closed_loop::action::PatchField),
    Webhook(&'a Webhook),
    Tune(&'a crate::api::closed_loop::action::Tune),
    Nothing,
}

impl<'a> From<&'a Rung> for Do<'a> {
    fn from(rung: &'a Rung) -> Self {
        match rung {
            Rung { scale: Some(scale), .. } => Self::Scale(scale),
            Rung { resize: Some(resize), .. } => Self::Resize(resize),
            Rung { workload_action: Some(template), .. } => Self::Action(template),
            Rung { patch: Some(patch), .. } => Self::Patch(patch),
            Rung { webhook: Some(webhook), .. } => Self::Webhook(webhook),
            Rung { tune: Some(tune), .. } => Self::Tune(tune),
            Rung { scale: None, resize: None, workload_action: None, patch: None, webhook: None, tune: None } => {
                Self::Nothing
            }
        }
    }
}
