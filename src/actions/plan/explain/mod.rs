//! The story of an action: when it was created, what it waited for, what happened to each replica and why, how the
//! action ended, and what its user can do.
//!
//! Reads only the action and its receipt. Decides nothing and sends no requests.

mod text;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Serialize;

use super::notify::NOTIFIED;
use super::report::step_words;
use super::{identity, verb};
use crate::world::application_of;
use ganglion_api::marks;
use ganglion_api::reasons::Reason;
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_api::workload_action::status::{ApplicationProgress, Plan, PodOnNode, Slot, Step, Summary};
use ganglion_api::workload_action::{DataLoss, Mode, WorkloadAction, WorkloadActionStatus};
use ganglion_core::duration;
use ganglion_core::facts::{Identity, NodeName, Uid};
use ganglion_core::layout::{age, clock};
use ganglion_core::words::counted;

/// Maximum number of deleted pods whose claims are listed.
const LISTED_PODS: usize = 8;

/// Maximum number of pieces of advice.
const ADVICE: usize = 3;

/// The action to explain. Its managedFields contain only the first manager, as in the world.
#[derive(Clone, Copy, Debug)]
pub struct ExplainedAction<'a> {
    pub action: &'a WorkloadAction,
    /// The receipt of the action's name and spec, if there is one. None if receipts are unknown.
    pub receipts: Option<&'a [WorkloadActionReceipt]>,
    pub now: Timestamp,
}

/// The story of an action.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActionStory {
    pub namespace: String,
    pub name: String,
    /// Create, Delete, Move, Swap or MoveApplication.
    pub action: &'static str,
    /// None before the operator has reconciled the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// The events, oldest first.
    pub events: Vec<StoryEvent>,
    /// The replicas that have begun.
    pub replicas: Vec<StoryReplica>,
    /// Progress of a moveApplication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationProgress>,
    /// Current state; None before the operator has reconciled the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StoryState>,
    /// Further facts, as text.
    pub remarks: Vec<String>,
    /// The plan of an action with `mode: Plan`, or why nothing could be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Advice for the user.
    pub advice: Vec<&'static str>,
    /// Time at which the story was created.
    pub told_at: Time,
}

/// One event in the life of an action.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoryEvent {
    pub at: Time,
    pub what: String,
}

/// A replica of an action.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoryReplica {
    pub index: i32,
    pub step: Step,
    /// The step as text.
    pub words: &'static str,
    /// Time at which the replica reached the step.
    pub since: Time,
    /// The old pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeName>,
    /// The new pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_pod: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<NodeName>,
    /// Nodes on which the new pod failed before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<NodeName>,
    /// Number of retries.
    pub attempt: i32,
    /// Why the replica waits or was undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// State of an action.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoryState {
    /// State as text, such as `it waits`.
    pub words: &'static str,
    pub since: Time,
    /// Reason of the condition Ready.
    pub reason: String,
    /// Why the action has not progressed further; same as `reason` if there is no other obstacle.
    pub cause: String,
    pub message: String,
}

/// The condition that explains the state of an action: while the action works, the condition Reconciling says what it
/// waits for; otherwise Ready.
pub(super) fn cause(status: &WorkloadActionStatus) -> Option<&Condition> {
    let condition = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind);
    let ready = condition("Ready")?;
    Some(condition("Reconciling").filter(|_| ready.status == "Unknown").unwrap_or(ready))
}

/// Parses the reason of a condition.
pub(super) fn reason_of(word: &str) -> Reason {
    serde_json::from_value(word.into()).unwrap_or(Reason::Unknown)
}

impl ActionStory {
    /// The story of this action.
    pub fn of(subject: ExplainedAction) -> Self {
        let action = subject.action;
        let Identity { key, .. } = (&action.metadata).into();
        let fresh = WorkloadActionStatus::default();
        let status = action.status.as_ref().unwrap_or(&fresh);
        Self {
            namespace: key.namespace,
            name: key.name,
            action: verb(action),
            summary: status.summary.clone(),
            events: events(action, status),
            replicas: status.slots.iter().map(StoryReplica::from).collect(),
            application: status.application.clone(),
            state: state(status),
            remarks: remarks(subject, status),
            plan: status.plan.clone().filter(|_| status.slots.is_empty()),
            advice: advice(status),
            told_at: Time(subject.now),
        }
    }
}

impl From<&Slot> for StoryReplica {
    fn from(slot: &Slot) -> Self {
        let of = |pod: &Option<PodOnNode>| {
            pod.as_ref().filter(|pod| !pod.name.is_empty()).map(|pod| (pod.name.clone(), pod.node.clone())).unzip()
        };
        let ((pod, from), (new_pod, to)) = (of(&slot.victim), of(&slot.replacement));
        Self {
            index: slot.index,
            step: slot.step,
            words: step_words(slot.step),
            since: slot.since.clone(),
            pod,
            from,
            new_pod,
            to,
            tried: slot.tried.clone(),
            attempt: slot.attempt,
            reason: slot.reason,
            message: slot.message.clone(),
        }
    }
}

/// The events, with the times in the status.
fn events(action: &WorkloadAction, status: &WorkloadActionStatus) -> Vec<StoryEvent> {
    let (made, begun) = (action.metadata.creation_timestamp.as_ref(), status.started_at.as_ref());
    let after = |since: Option<&Time>, at: &Time, what: &str| {
        let time: Option<SignedDuration> = since.map(|since| at.0.duration_since(since.0));
        time.map(|time| format!(", {} after {what}", duration::show(time))).unwrap_or_default()
    };
    let by = action.metadata.labels.as_ref().and_then(|labels| labels.get(marks::LOOP));
    let by = by.map(|name| format!(" by loop {name}")).unwrap_or_default();
    let ended = |at: &Time| {
        let reason = cause(status).map_or("", |condition| condition.reason.as_str());
        match begun {
            Some(_) => format!("ended: {reason}{}", after(begun, at, "its admission")),
            None => format!("ended without having begun: {reason}{}", after(made, at, "it was made")),
        }
    };
    let event =
        |at: Option<&Time>, what: &dyn Fn(&Time) -> String| at.map(|at| StoryEvent { at: at.clone(), what: what(at) });
    let mut all: Vec<StoryEvent> = [
        event(made, &|_| format!("made{by}")),
        event(status.queued_at.as_ref(), &|_| "began to wait for its admission".to_owned()),
        event(begun, &|at| format!("admitted{}", after(made, at, "it was made"))),
        event(status.suspended_at.as_ref(), &|_| "suspended; its timeouts do not run".to_owned()),
        event(action.metadata.deletion_timestamp.as_ref(), &|_| "its deletion was requested".to_owned()),
        event(status.finished_at.as_ref(), &ended),
    ]
    .into_iter()
    .flatten()
    .collect();
    all.sort_by_key(|event| event.at.0);
    all
}

fn state(status: &WorkloadActionStatus) -> Option<StoryState> {
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready")?;
    let in_motion = status.application.as_ref().map_or(0, |progress| progress.in_motion);
    let waits = in_motion == 0 && status.slots.iter().all(|slot| slot.step == Step::Queued);
    let words = match ready.status.as_str() {
        "True" => "it is done",
        "Unknown" if ready.reason == Reason::Suspended.as_str() => "it is suspended",
        "Unknown" if waits => "it waits",
        "Unknown" => "it is at work",
        _ => "it ended without success",
    };
    Some(StoryState {
        words,
        since: ready.last_transition_time.clone(),
        reason: ready.reason.clone(),
        cause: cause(status).map_or_else(|| ready.reason.clone(), |condition| condition.reason.clone()),
        message: ready.message.clone(),
    })
}

fn notified(status: &WorkloadActionStatus) -> Option<&Condition> {
    status.conditions.iter().find(|one| one.type_ == NOTIFIED)
}

/// Advice for the state, then for replicas with other problems, then for receivers.
fn advice(status: &WorkloadActionStatus) -> Vec<&'static str> {
    let Some(cause) = cause(status) else {
        return vec!["Wait a moment. If nothing changes, check the operator: kubectl get pods -n ganglion-system"];
    };
    let slots = status.slots.iter().filter(|slot| slot.step != Step::Succeeded).filter_map(|slot| slot.reason);
    let notified = notified(status).filter(|one| one.status != "True").map(|one| reason_of(&one.reason));
    let mut all: Vec<&str> = Vec::new();
    let advice_of = if status.finished_at.is_some() { Reason::advice } else { Reason::advice_at_work };
    for advice in std::iter::once(reason_of(&cause.reason)).chain(slots).chain(notified).map(advice_of) {
        if !all.contains(&advice) && all.len() < ADVICE {
            all.push(advice);
        }
    }
    all
}

/// Further facts: other settings of the spec, the number of replicas that have not begun, the receipt, the receivers,
/// and the deletion.
fn remarks(subject: ExplainedAction, status: &WorkloadActionStatus) -> Vec<String> {
    let spec = &subject.action.spec;
    let is_over = status.finished_at.is_some();
    let mut all = Vec::new();
    if spec.mode == Mode::Plan {
        all.push("It has mode: Plan: nothing was changed.".to_owned());
    }
    if spec.data_loss == DataLoss::Accept {
        let pods = status.plan.iter().flat_map(|plan| &plan.pods).filter(|pod| pod.chosen);
        all.push("It accepts that claims are deleted with their data.".to_owned());
        all.extend(pods.take(LISTED_PODS).map(|pod| format!("Pod {}: {}.", pod.name, pod.message)));
    }
    if spec.abort && !is_over {
        all.push("spec.abort is set: it undoes what was done, unless a pod was evicted already.".to_owned());
    }
    let asked = status.summary.as_ref().and_then(|summary| summary.done.split_once('/')?.1.parse::<usize>().ok());
    let left = asked.unwrap_or(0).saturating_sub(status.slots.len());
    if left > 0 && !status.slots.is_empty() {
        all.push(format!("{} not begun{}.", counted(left as u64, "replica"), if is_over { "" } else { " yet" }));
    }
    all.extend(receipt(subject, status));
    all.extend(notified(status).map(|one| format!("Receivers ({}): {}.", one.reason, one.message)));
    let ignored = status.conditions.iter().find(|one| one.type_ == "TTLHonored");
    match (spec.ttl_seconds_after_finished, &status.finished_at, ignored) {
        (_, _, Some(ignored)) => all.push(format!("ttlSecondsAfterFinished is ignored: {}.", ignored.message)),
        (Some(seconds), Some(at), None) => {
            let due = at.0.checked_add(SignedDuration::from_secs(i64::from(seconds))).unwrap_or(Timestamp::MAX);
            all.push(format!("It is deleted at {}, as ttlSecondsAfterFinished says.", clock(due)));
        }
        _ => {}
    }
    all
}

fn receipt(subject: ExplainedAction, status: &WorkloadActionStatus) -> Option<String> {
    if let Some(owner) =
        subject.action.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
        && application_of(subject.action).is_some_and(|application| application == *owner.uid)
    {
        return Some(format!("It is a move of the moveApplication {}: ganglion explain wa {0}", owner.name));
    }
    let name = identity::receipt_name(subject.action);
    let Some(receipt) = subject.receipts?.first() else {
        let words = format!("Its receipt {name} does not exist: all its changes were undone, or somebody deleted it.");
        return status.started_at.as_ref().map(|_| words);
    };
    let spec = &receipt.spec;
    let when = format!("{} ({} ago)", clock(spec.executed_at.0), age(spec.executed_at.0, subject.now));
    let outcome = spec.outcome.as_ref().map(|outcome| format!("; its outcome was {outcome}")).unwrap_or_default();
    Some(if spec.action_uid == Uid::of(&subject.action.metadata) {
        format!("Receipt {name} proves that it ran, from {when} on{outcome}.")
    } else {
        format!("Receipt {name} proves that another object of this name ran, from {when} on{outcome}.")
    })
}
