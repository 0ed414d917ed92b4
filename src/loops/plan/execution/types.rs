//! Types that the steps of an execution share: the input, the state of the target, effects and steps.

use std::fmt::{Display, Formatter, Result as FmtResult};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::composition::PodComposition;
use crate::rung;
use ganglion_api::closed_loop::LoopMode;
use ganglion_api::closed_loop::action::{ActionTemplate, LoopAction, PatchField, Resize, Rung, Scale, Tune, Webhook};
use ganglion_api::closed_loop::metric::{Metric, ResourceName};
use ganglion_api::closed_loop::policy::{Tunable, Tuning};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::Chosen;
use ganglion_api::execution::{ExecutionSpec, ExecutionStatus, Quantities};
use ganglion_api::monitoring::Tag;
use ganglion_api::scalars::Number;
use ganglion_api::workload_action::{WorkloadAction, WorkloadActionSpec};
use ganglion_core::facts::{FieldOwner, Uid};

/// Timeout of an effect that is not accepted.
pub const EFFECT_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// Input of a step.
#[derive(Clone, Copy, Debug)]
pub struct ExecutionContext<'a> {
    pub spec: &'a ExecutionSpec,
    /// Actions of the loop. Statuses can be written by others, so a decision or claim counts only if its action is
    /// among them.
    pub actions: &'a [LoopAction],
    pub status: &'a ExecutionStatus,
    /// uid of the Execution.
    pub uid: &'a Uid,
    pub generation: i64,
    /// Name of the loop.
    pub loop_name: &'a str,
    /// Mode of the loop.
    pub mode: LoopMode,
    /// Last decision, as it was written.
    pub chosen: Option<&'a Chosen>,
    /// Whether that decision was made or confirmed in the current leader term.
    pub is_confirmed: bool,
    /// Tag of the sample of that decision.
    pub tag: Option<&'a Tag>,
    /// State of the target, if it was read after the status.
    pub seen: Option<&'a TargetState>,
    /// Whether the claim in the status may have been carried out.
    pub sent: Sent,
    pub now: Timestamp,
}

impl ExecutionContext<'_> {
    /// Whether the loop has this rung.
    pub fn has_rung(&self, rung: &Rung) -> bool {
        self.actions.iter().any(|action| action.ladder.contains(rung))
    }
}

/// Whether a claim may have been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// No request was accepted: this process wrote the claim and knows it, or the target shows it.
    NotYet,
    /// This process or another one may have sent the request.
    Maybe,
}

/// Identity and version of an object, for preconditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectVersion {
    pub uid: Uid,
    /// The API server increases it with each change of the spec, and with nothing else.
    pub generation: i64,
    /// The resourceVersion.
    pub version: String,
    /// The field manager that last wrote the field, unless it was a loop.
    /// A pod has the one that last resized it in place.
    pub written_by: Option<String>,
    /// The field, if somebody else applies it.
    pub owned: Option<Box<OwnedField>>,
    /// Path of the number of replicas, if it is known.
    pub replicas_path: Option<String>,
}

/// A field of the target that somebody else applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedField {
    pub owner: FieldOwner,
    /// Path, such as `spec.replicas`.
    pub path: String,
    /// Paths of the rung's fields that belong to the owner, including `path`.
    pub paths: Vec<String>,
    /// Manager that has changed the field since the owner applied it. None: the owner still has it.
    pub taken_over_by: Option<String>,
    /// Command that hands the field over to the loop and keeps its value, if there is one.
    pub command: Option<String>,
}

/// State of the target, as the rung needs it.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetState {
    /// It does not exist; the message says so.
    NotFound(String),
    /// It is not suitable for the rung, or may not be changed; the message says why.
    Unfit(LoopReason, String),
    /// The loop's account may not read it; the message names verb and resource.
    Forbidden(String),
    /// Its replicas, from the scale subresource.
    Scale(ObjectVersion, i32),
    /// The resources of one container in its pods, or those of the pods as a whole.
    Resources(Box<ResizeTarget>),
    /// The value of the field.
    Field(ObjectVersion, Option<Value>),
    /// The replicas of the workload, before a WorkloadAction that changes them exists.
    Workload(ObjectVersion, i32),
    /// The WorkloadAction of this decision; none if it does not exist.
    WorkloadAction(Option<WorkloadActionState>),
    /// The loop that is tuned.
    Loop(Box<TunedLoop>),
    /// The rung has no target to read.
    Nothing,
}

impl TargetState {
    /// Returns the dimension that the rung changes on this target.
    pub fn dimension(&self, rung: &Rung) -> String {
        rung::dimension_on(rung, self.replicas_path())
    }

    /// Path of the number of replicas in the target, if it is known.
    pub fn replicas_path(&self) -> Option<&str> {
        let object = match self {
            Self::Scale(object, _) | Self::Field(object, _) | Self::Workload(object, _) => object,
            Self::Resources(seen) => &seen.target,
            Self::NotFound(_)
            | Self::Unfit(..)
            | Self::Forbidden(_)
            | Self::WorkloadAction(_)
            | Self::Loop(_)
            | Self::Nothing => return None,
        };
        object.replicas_path.as_deref()
    }
}

/// A workload with the resources of one container, or of the pod as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResizeTarget {
    pub target: ObjectVersion,
    /// The resources in the pod template, with the index of the container; no index for the pod as a whole.
    pub template: Option<(Option<usize>, Quantities)>,
    /// The running pods that have the container, or resources at pod level.
    pub pods: Vec<PodResources>,
    /// Name of a pod that does not run yet, if there is one.
    pub starting: Option<String>,
    /// Why the usage of the pods is not known, if it was read.
    pub usage_problem: Option<String>,
}

/// A pod with the resources of one container, or of the pod as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodResources {
    pub name: String,
    pub thing: ObjectVersion,
    /// Index of the container in the pod; None for the pod as a whole.
    pub index: Option<usize>,
    /// The resources in the pod's spec.
    pub wants: Quantities,
    /// The resources that the kubelet has set; none if it does not report them.
    pub has: Option<Quantities>,
    /// The resources that the kubelet has allocated; none if it does not report them.
    pub allocated: Option<Quantities>,
    /// Why the kubelet has not resized the pod.
    pub pending: Option<PendingResize>,
    /// Whether a loop was the last to resize these resources.
    pub is_resized_by_loop: bool,
    /// Measured memory usage in bytes. None if it is not known or was not read.
    pub usage: Option<i64>,
    /// All resources of the pod; empty if they are not known.
    pub composition: PodComposition,
}

impl PodResources {
    /// Name of the pod's node.
    pub fn node_name(&self) -> Option<&str> {
        self.composition.node.as_ref().map(|node| node.name.as_str())
    }

    /// Whether the kubelet waits for room on the node.
    pub fn is_deferred(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.reason == "Deferred")
    }

    /// The resources that the pod has: what the kubelet reports, or the spec if it reports nothing.
    pub fn actuated(&self) -> Quantities {
        let part = |has: fn(&Quantities) -> &Option<Number>| {
            let wanted = has(&self.wants).clone()?;
            Some(self.has.as_ref().and_then(|reported| has(reported).clone()).unwrap_or(wanted))
        };
        Quantities { request: part(|all| &all.request), limit: part(|all| &all.limit) }
    }
}

/// A kubelet's report of a resize that it has not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingResize {
    /// Reason of the pod's condition: Deferred, Infeasible or Error.
    pub reason: String,
    pub message: String,
}

impl PendingResize {
    /// Whether the kubelet will never carry it out: the node is too small, or the pod cannot be resized.
    pub fn is_refused(&self) -> bool {
        self.reason == "Infeasible"
    }

    /// Whether the kubelet has started to carry it out, has failed, and tries again.
    pub fn is_retried(&self) -> bool {
        self.reason == "Error"
    }
}

impl Display for PendingResize {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        let Self { reason, message } = self;
        if message.is_empty() { write!(f, "{reason}") } else { write!(f, "{reason}: {message}") }
    }
}

/// The change of one pod. Precondition: nobody has written its spec since it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct PodResize {
    pub name: String,
    /// Name of the pod's node, if it is known.
    pub node: Option<String>,
    pub thing: ObjectVersion,
    /// Index of the container; None for the pod as a whole.
    pub index: Option<usize>,
    pub from: Quantities,
    pub to: Quantities,
}

/// Progress of a WorkloadAction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkloadActionState {
    Running(String),
    Succeeded(String),
    /// It has ended well without a replica to act on.
    NothingToDo(String),
    Failed(String),
}

impl From<&WorkloadAction> for WorkloadActionState {
    fn from(action: &WorkloadAction) -> Self {
        let Some(status) = &action.status else { return Self::Running("was created".to_owned()) };
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let words =
            ready.map_or_else(|| "was created".to_owned(), |ready| format!("{}: {}", ready.reason, ready.message));
        match (&status.finished_at, ready) {
            (None, _) => Self::Running(words),
            (Some(_), Some(ready)) if ready.status == "True" && status.replicas == Some(0) => Self::NothingToDo(words),
            (Some(_), Some(ready)) if ready.status == "True" => Self::Succeeded(words),
            (Some(_), _) => Self::Failed(words),
        }
    }
}

/// Loop that is tuned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TunedLoop {
    pub uid: Uid,
    pub tunable: Option<Tunable>,
    /// Effective rank and metrics.
    pub rank: Vec<String>,
    pub metrics: Vec<Metric>,
    /// The earlier tuning of this loop, if it has not expired.
    pub mine: Option<Tuning>,
}

/// Next step.
#[derive(Clone, Debug, PartialEq)]
pub enum ExecutionStep {
    /// Nothing until something changes.
    Nothing,
    /// Read the target and call `next_step` again.
    ReadTarget,
    /// Write this status, with the resourceVersion that was read as precondition, and call `next_step` again.
    Record(Box<ExecutionStatus>),
    /// Carry out this effect and pass its result to `after_effect`.
    Act(Box<ExecutionEffect>),
    /// Call `next_step` again at this time.
    Wait(Timestamp),
}

/// A change outside of the Execution's status. Each one has a precondition or is idempotent.
#[derive(Clone, Debug, PartialEq)]
pub enum ExecutionEffect {
    /// Sets the replicas of exactly this version of the target.
    Scale { target: ObjectVersion, replicas: i32 },
    /// Resizes these pods in place, each only while its generation is the same. No container: the pods as a whole.
    Resize { pods: Vec<PodResize>, container: Option<String>, resource: ResourceName },
    /// Sets exactly these versions of pods back to their allocated resources.
    TakeBack { pods: Vec<PodResize>, container: Option<String>, resource: ResourceName },
    /// Sets the resources in the pod template of exactly this generation of the target.
    Template {
        target: ObjectVersion,
        index: Option<usize>,
        container: Option<String>,
        resource: ResourceName,
        from: Quantities,
        to: Quantities,
    },
    /// Sets the field of exactly this version of the target.
    Patch { target: ObjectVersion, path: String, value: Value },
    /// Creates a WorkloadAction. An existing one of that name counts as created if the Execution owns it.
    Create { name: String, spec: Box<WorkloadActionSpec> },
    /// Sends an event, once.
    Send { id: String, webhook: Webhook },
    /// Sets this loop's entry in `status.tuning` of the other loop.
    Tune { uid: Uid, tuning: Tuning },
}

impl ExecutionEffect {
    /// Whether the effect is a single request, which changes everything or nothing.
    pub fn is_atomic(&self) -> bool {
        match self {
            // The template is the last of several writes.
            Self::Resize { .. } | Self::TakeBack { .. } | Self::Template { .. } => false,
            Self::Scale { .. } | Self::Patch { .. } | Self::Create { .. } | Self::Send { .. } | Self::Tune { .. } => {
                true
            }
        }
    }
}

/// Result of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectResult {
    /// It was accepted. Contains the new value, if it is known.
    Done(Option<String>),
    /// Its precondition failed.
    Conflict,
    /// The target does not exist any more.
    NotFound(String),
    /// The loop's account may not do it; the message names verb and resource.
    Forbidden(String),
    /// It was refused permanently.
    Refused(String),
    /// The result is unknown: no answer, or an error that can be retried.
    Unclear(String),
}

/// Reason why a decision is not claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPlan {
    /// Min, max or an unknown value leave nothing to do.
    Limited(String),
    /// The target or the rung is not suitable.
    Failed(LoopReason, String),
    /// Somebody else has changed the target since the decision.
    Overtaken(String),
    /// The target has to be read in another way.
    ReadTarget,
}

impl NoPlan {
    /// The rung is not suitable.
    pub fn invalid(message: String) -> Self {
        Self::Failed(LoopReason::SpecInvalid, message)
    }
}

/// Progress of a claim, judged by the state of the target.
pub enum ClaimProgress {
    /// The target is unchanged.
    NotStarted(Box<ExecutionEffect>),
    /// The target has the goal.
    Done(String),
    /// Somebody else changed the target.
    Overtaken(String),
    /// The effect is in progress.
    Running(String),
    /// The effect has ended, and there was nothing to change.
    Limited(String),
    /// The effect failed.
    Failed(String),
    /// The result cannot be known.
    Lost(String),
    /// Something else has to be read.
    ReadTarget,
}

impl ClaimProgress {
    /// Result for a claim whose goal is not what its rung computes, because somebody edited it.
    pub fn tampered() -> Self {
        Self::Lost("its claim was changed by somebody else".into())
    }
}

/// Returns why the target could not be read.
pub fn lookup_failure(seen: &TargetState) -> Option<(LoopReason, &str)> {
    match seen {
        TargetState::NotFound(message) => Some((LoopReason::TargetNotFound, message)),
        TargetState::Unfit(reason, message) => Some((*reason, message)),
        TargetState::Forbidden(message) => Some((LoopReason::Forbidden, message)),
        TargetState::Scale(..)
        | TargetState::Resources(..)
        | TargetState::Field(..)
        | TargetState::Workload(..)
        | TargetState::WorkloadAction(_)
        | TargetState::Loop(_)
        | TargetState::Nothing => None,
    }
}

/// Action of a rung.
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
            Rung {
                scale: None,
                resize: None,
                workload_action: None,
                patch: None,
                webhook: None,
                tune: None,
                on_replica_owner: _,
            } => Self::Nothing,
        }
    }
}

/// Whether the effect of the rung cannot be verified on the target.
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
