//! Preview of an action before it is created: runs the planner in a world that contains the action.
//!
//! Owns the question and the answer as text. Changes only that world, and restores it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_json::{Value, json};

use super::effect::{Effect, NextStep};
use super::explain::{cause, reason_of};
use super::rank::NodeRanker;
use super::scope::Scope;
use super::{GRACE, Limits, identity, next, plan_text, verb};
use crate::world::ActionsWorld;
use ganglion_api::marks;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{Plan, PodOnNode, Protocol, Slot};
use ganglion_api::workload_action::{Mode, WorkloadAction, WorkloadActionStatus};
use ganglion_core::facts::{Identity, Key, PodFact, ReceiptFact};
use ganglion_core::layout::paragraph;
use ganglion_core::words::quoted;
use ganglion_core::world::{Fact, Origin, World};

/// The preview of an action.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActionPreview {
    pub namespace: String,
    pub name: String,
    /// Create, Delete, Move, Swap or MoveApplication; empty if the manifest does not parse.
    pub action: &'static str,
    pub outcome: PreviewOutcome,
    /// Why it would not start at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Advice for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Same content as `status.plan` of an action with `mode: Plan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Facts that were not checked or not counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// How an action would begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PreviewOutcome {
    /// It would start at once.
    Starts,
    /// It would find no replica, and succeed.
    Nothing,
    /// It would wait.
    Waits,
    /// It would end without any effect.
    Ends,
    /// The API server does not accept it.
    Refused,
}

/// Asks the planner about an action as if it were created now. The world is unchanged afterwards.
pub fn preview(
    world: &mut World,
    action: &WorkloadAction,
    now: Timestamp,
    limits: &Limits,
    ranker: &dyn NodeRanker,
) -> ActionPreview {
    let mut asked = as_new(action, now);
    let id = Identity::from(&asked.metadata);
    if world.action(&id.key).is_some() {
        let words = format!("workloadactions.ganglion.dev {} already exists", quoted(&id.key.name));
        return ActionPreview::refused(id.key, verb(action), words);
    }
    // If a receipt exists, the mode stays as it is: only an action with `mode: Execute` reports that it already ran.
    let receipt = Key::new(&id.key.namespace, identity::receipt_name(&asked));
    if world.get::<ReceiptFact>(&receipt).is_none() {
        asked.spec.mode = Mode::Plan;
    }
    world.apply(asked, Origin::Watch);
    let answer = next(&id.key, world, now, limits, ranker);
    world.remove::<WorkloadAction>(&id);
    ActionPreview::of(id.key, verb(action), answer)
}

/// Leaves an action in the world as if it had just been admitted, so that the following previews count the room that
/// its replicas will take.
pub fn reserve(world: &mut World, action: &WorkloadAction, now: Timestamp, limits: &Limits, ranker: &dyn NodeRanker) {
    let mut asked = as_new(action, now);
    asked.metadata.finalizers = Some(vec![marks::FINALIZER.to_owned()]);
    let id = Identity::from(&asked.metadata);
    world.apply(asked.clone(), Origin::Watch);
    let NextStep::Do(Effect::Admit { status, .. }) = next(&id.key, world, now, limits, ranker) else {
        world.remove::<WorkloadAction>(&id);
        return;
    };
    asked.metadata.resource_version = Some("2".to_owned());
    asked.status = Some(*status);
    world.apply(asked, Origin::Watch);
}

/// Manifest of the first pod that would be created beside an old one for this reserved action; None if there is none.
pub fn first_new_pod(world: &World, action: &Key) -> Option<Value> {
    let status = world.action(action)?.status.as_ref()?;
    let is_beside = |slot: &&Slot| {
        let is_ready =
            |victim: &PodOnNode| world.pod(&Key::new(&action.namespace, &victim.name)).is_some_and(PodFact::is_ready);
        match slot.protocol {
            Protocol::Replacement => !slot.break_first && !slot.is_stateful(),
            Protocol::Successor => slot.victim.as_ref().is_some_and(is_ready),
            Protocol::Eviction => false,
        }
    };
    let slot = status.slots.iter().find(is_beside)?;
    let scope = Scope::of_slot(world, &action.namespace, slot)?;
    let mut pod: Value = serde_json::from_str(&scope.set.template.as_deref()?.json).ok()?;
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["generateName"] = json!(format!("{}-", slot.replica_set.name));
    Some(pod)
}

/// The action as the API server would create it, except for its age. For an action that is younger than [`GRACE`], the
/// planner would wait for the watches; here, an object that is not listed does not exist.
fn as_new(action: &WorkloadAction, now: Timestamp) -> WorkloadAction {
    let mut asked = WorkloadAction { status: None, ..action.clone() };
    asked.slim();
    let meta = &mut asked.metadata;
    meta.uid.get_or_insert_with(|| "new".to_owned());
    meta.resource_version = Some("1".to_owned());
    meta.generation = Some(1);
    meta.deletion_timestamp = None;
    meta.creation_timestamp = Some(Time(now - (GRACE + SignedDuration::from_secs(1))));
    asked
}

impl ActionPreview {
    /// The preview of an action that the API server does not accept, with its message.
    pub fn refused(key: Key, action: &'static str, words: String) -> Self {
        let exists = words.contains("already exists");
        let advice = if exists {
            let name = &key.name;
            format!("It was made before: ganglion explain wa {name} shows its result. A new action needs a new name.")
        } else {
            "Correct what the message names.".to_owned()
        };
        Self {
            namespace: key.namespace,
            name: key.name,
            action,
            outcome: PreviewOutcome::Refused,
            reason: None,
            message: Some(words),
            advice: Some(advice),
            plan: None,
            notes: Vec::new(),
        }
    }

    /// The preview of an action that the API server accepts and for which no plan is known.
    pub fn unplanned(key: Key, action: &'static str) -> Self {
        Self {
            outcome: PreviewOutcome::Starts,
            message: None,
            advice: None,
            ..Self::refused(key, action, String::new())
        }
    }

    fn of(key: Key, action: &'static str, answer: NextStep) -> Self {
        let status = match answer {
            NextStep::Do(Effect::Record { status, .. }) | NextStep::Wait { report: Some(status), .. } => *status,
            // A plan has no other effects.
            NextStep::Do(_) | NextStep::DoAll(_) | NextStep::Wait { report: None, .. } => {
                WorkloadActionStatus::default()
            }
        };
        let cause = cause(&status);
        let reason = cause.map_or(Reason::Unknown, |condition| reason_of(&condition.reason));
        let outcome = match status.finished_at {
            Some(_) if reason == Reason::Planned => PreviewOutcome::Starts,
            Some(_) if reason == Reason::Succeeded => PreviewOutcome::Nothing,
            Some(_) => PreviewOutcome::Ends,
            None => PreviewOutcome::Waits,
        };
        let open = outcome != PreviewOutcome::Starts;
        let message = cause.map(|condition| {
            let words = condition.message.as_str();
            words.strip_prefix("waiting: ").unwrap_or(words).to_owned()
        });
        Self {
            namespace: key.namespace,
            name: key.name,
            action,
            outcome,
            reason: open.then(|| reason.to_string()),
            message: message.filter(|_| open),
            advice: (open && outcome != PreviewOutcome::Nothing).then(|| reason.advice().to_owned()),
            plan: status.plan,
            notes: Vec::new(),
        }
    }

    /// The same, if the API server would not accept the new pods, with its message.
    pub fn without_pod(self, words: &str) -> Self {
        let reason = Reason::PodRefused;
        Self {
            outcome: PreviewOutcome::Ends,
            reason: Some(reason.to_string()),
            message: Some(format!("the API server would not accept the new pod: {words}")),
            advice: Some(reason.advice().to_owned()),
            ..self
        }
    }

    /// Whether the action would start at once or has nothing to do.
    pub fn starts(&self) -> bool {
        matches!(self.outcome, PreviewOutcome::Starts | PreviewOutcome::Nothing)
    }

    /// Reason and message, as text.
    pub fn why(&self) -> String {
        self.reason.iter().chain(&self.message).cloned().collect::<Vec<_>>().join(": ")
    }

    /// Text for a terminal. Lines have at most 120 columns, except for long names.
    pub fn text(&self) -> String {
        let Self { namespace, name, action, .. } = self;
        let how = match self.outcome {
            PreviewOutcome::Starts => "would start now.",
            PreviewOutcome::Nothing => "would do nothing.",
            PreviewOutcome::Waits => "would wait.",
            PreviewOutcome::Ends => "would not start.",
            PreviewOutcome::Refused => "would not start: the API server does not accept it.",
        };
        let verb = if action.is_empty() { String::new() } else { format!(" ({action})") };
        let mut text = paragraph("", &format!("WorkloadAction {namespace}/{name}{verb} {how}"));
        if let Some(message) = &self.message {
            let reason = self.reason.as_ref().map(|reason| format!("{reason}: ")).unwrap_or_default();
            text.push_str(&paragraph(&reason, message));
        }
        text.extend(self.advice.iter().map(|advice| paragraph("-> ", advice)));
        if let Some(plan) = &self.plan {
            text.push_str(&plan_text::replicas(plan));
            text.push_str(&plan_text::others(plan));
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        text.extend(self.notes.iter().map(|note| paragraph("Note: ", note)));
        text
    }
}
