//! What the steps of an execution share: what they are given, how the target is found to be, and what they answer.

use jiff::Timestamp;
use serde_json::Value;

use super::goal::NoGoal;
use crate::api::closed_loop::action::{ActionTemplate, PatchField, Resize, Resource, Rung, Scale, Tune, Webhook};
use crate::api::closed_loop::metric::Metric;
use crate::api::closed_loop::reasons::LoopReason;
use crate::api::closed_loop::tunable::{Tunable, Tuning};
use crate::api::decision::Chosen;
use crate::api::execution::{ExecutionSpec, ExecutionStatus, Quantities};
use crate::api::sample::Tag;
use crate::api::workload_action::WorkloadActionSpec;

/// What an execution is made of.
#[derive(Clone, Copy, Debug)]
pub struct ExecutionContext<'a> {
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
    pub seen: Option<&'a TargetState>,
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
pub struct ObjectVersion {
    pub uid: String,
    /// It changes with every change of the spec, and with nothing else.
    pub generation: i64,
    /// The resourceVersion.
    pub version: String,
    /// Who wrote what is looked at last, where it was not a loop.
    pub written_by: Option<String>,
}

/// The target, as the rung needs it.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetState {
    /// It is not there; in words.
    NotFound(String),
    /// It is not what the rung needs, or may not be changed; in words.
    Unfit(LoopReason, String),
    /// The loop's account may not look at it; the message names verb and resource.
    Forbidden(String),
    /// Its replicas, by its scale subresource.
    Scale(ObjectVersion, i32),
    /// The resource of one container in its pods.
    Resources(Box<ResizeTarget>),
    /// The value of the field.
    Field(ObjectVersion, Option<Value>),
    /// The WorkloadAction of this decision; None where it is not there.
    WorkloadAction(Option<ActionProgress>),
    /// The loop that is tuned.
    Loop(Box<TunedLoop>),
    /// There is nothing to look at.
    Nothing,
}

/// A workload, of which one container's resource is looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResizeTarget {
    pub target: ObjectVersion,
    /// Where the container stands in the pod template, with its resource there.
    pub template: Option<(usize, Quantities)>,
    /// The pods that have the container.
    pub pods: Vec<PodResources>,
}

/// A pod, of which one container's resource is looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodResources {
    pub name: String,
    pub thing: ObjectVersion,
    /// Where the container stands in the pod's list.
    pub index: usize,
    /// What its spec asks for.
    pub wants: Quantities,
    /// What its kubelet has given it; none where it does not tell.
    pub has: Option<Quantities>,
    /// Why its kubelet does not give it what it asks for.
    pub pending: Option<PendingResize>,
}

/// What a kubelet says of a resize that it has not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingResize {
    /// It never will: the node is too small, or the pod is not of a kind that can be resized.
    pub refused: bool,
    pub message: String,
}

/// One change of a pod, on the condition that nobody has written its spec since it was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct PodResize {
    pub name: String,
    pub thing: ObjectVersion,
    pub index: usize,
    pub from: Quantities,
    pub to: Quantities,
}

/// How a WorkloadAction is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionProgress {
    Running(String),
    Succeeded(String),
    Failed(String),
}

/// A loop that is tuned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TunedLoop {
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
pub enum ExecutionStep {
    /// Nothing, until something changes.
    Nothing,
    /// Look at the target and ask again.
    Look,
    /// Write this status, with the version of the one that was read as precondition, and ask again.
    Record(Box<ExecutionStatus>),
    /// Do this, and hand what came of it to [`after`].
    Act(Box<ExecutionEffect>),
    /// Ask again then.
    Wait(Timestamp),
}

/// One change of the world. Each has a precondition, or is the same when done twice.
#[derive(Clone, Debug, PartialEq)]
pub enum ExecutionEffect {
    /// Sets the replicas of exactly this version of the target.
    Scale { target: ObjectVersion, replicas: i32 },
    /// Sets the resource of these pods in place, each only while it is of its generation.
    Resize { pods: Vec<PodResize>, container: String, resource: Resource },
    /// Sets the resource in the pod template of exactly this generation of the target.
    Template {
        target: ObjectVersion,
        index: usize,
        container: String,
        resource: Resource,
        from: Quantities,
        to: Quantities,
    },
    /// Sets the field of exactly this version of the target.
    Patch { target: ObjectVersion, path: String, value: Value },
    /// Makes a WorkloadAction; that it is there already is as good.
    Create { name: String, spec: Box<WorkloadActionSpec> },
    /// Sends an event, once.
    Send { id: String, webhook: Webhook },
    /// Sets this loop's entry in the other's `status.tuning`.
    Tune { uid: String, tuning: Tuning },
}

/// What came of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectResult {
    /// It was accepted; the value that there is now, where it is known.
    Done(Option<String>),
    /// Its precondition did not hold.
    Conflict,
    /// The target is gone.
    NotFound(String),
    /// The loop's account may not do it; the message names verb and resource.
    Forbidden(String),
    /// It was refused for good.
    Refused(String),
    /// Nobody knows: no answer, or an answer to try again.
    Unclear(String),
}

/// Why nothing will.
pub enum NoPlan {
    Limited(String),
    Failed(LoopReason, String),
    /// The target has to be looked at in another way.
    Look,
}

impl From<NoGoal> for NoPlan {
    fn from(none: NoGoal) -> Self {
        match none {
            NoGoal::Limited(message) => Self::Limited(message),
            NoGoal::Impossible(message) => Self::Failed(LoopReason::SpecInvalid, message),
        }
    }
}

/// How the world stands to a claim.
pub enum ClaimProgress {
    /// It is as it was: nothing has happened.
    NotStarted(ExecutionEffect),
    /// It is as it is to be.
    Done(String),
    /// It is neither.
    Overtaken(String),
    /// It is under way.
    Running(String),
    /// It has ended otherwise.
    Failed(String),
    /// What became of it cannot be known.
    Lost(String),
    /// Something else has to be looked at.
    Look,
}

impl ClaimProgress {
    /// A claim that somebody has edited so that it says nothing.
    pub fn tampered() -> Self {
        Self::Lost("its record was changed by somebody else".into())
    }
}

/// Why the target could not be looked at.
pub fn lookup_failure(seen: &TargetState) -> Option<(LoopReason, &str)> {
    match seen {
        TargetState::NotFound(message) => Some((LoopReason::TargetNotFound, message)),
        TargetState::Unfit(reason, message) => Some((*reason, message)),
        TargetState::Forbidden(message) => Some((LoopReason::Forbidden, message)),
        TargetState::Scale(..)
        | TargetState::Resources(..)
        | TargetState::Field(..)
        | TargetState::WorkloadAction(_)
        | TargetState::Loop(_)
        | TargetState::Nothing => None,
    }
}

/// The kind of a rung, with what belongs to it.
pub enum RungAction<'a> {
    Scale(&'a Scale),
    Resize(&'a Resize),
    WorkloadAction(&'a ActionTemplate),
    Patch(&'a PatchField),
    Webhook(&'a Webhook),
    Tune(&'a Tune),
    Nothing,
}

impl<'a> From<&'a Rung> for RungAction<'a> {
    fn from(rung: &'a Rung) -> Self {
        match rung {
            Rung { scale: Some(scale), .. } => Self::Scale(scale),
            Rung { resize: Some(resize), .. } => Self::Resize(resize),
            Rung { workload_action: Some(template), .. } => Self::WorkloadAction(template),
            Rung { patch: Some(patch), .. } => Self::Patch(patch),
            Rung { webhook: Some(webhook), .. } => Self::Webhook(webhook),
            Rung { tune: Some(tune), .. } => Self::Tune(tune),
            Rung { scale: None, resize: None, workload_action: None, patch: None, webhook: None, tune: None } => {
                Self::Nothing
            }
        }
    }
}

/// Whether the rung is one that only this loop's own word can tell the end of.
pub fn cannot_be_verified(rung: &Rung) -> bool {
    match RungAction::from(rung) {
        RungAction::Webhook(_) => true,
        RungAction::Scale(_)
        | RungAction::Resize(_)
        | RungAction::WorkloadAction(_)
        | RungAction::Patch(_)
        | RungAction::Tune(_)
        | RungAction::Nothing => false,
    }
}
