//! The event that reports the end of an action: CloudEvents 1.0, structured JSON.

use serde_json::{Value, json};

use crate::verb;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::{PodOnNode, Slot, Step};
use ganglion_api::{reasons::Reason, workload_action::WorkloadActionStatus};
use ganglion_core::cloud_event::{CloudEvent, EventSource};

/// Maximum size of an event in bytes. Replicas that do not fit are omitted.
pub const MAX_EVENT: usize = 64 << 10;

/// Prefix of the event's type. The outcome follows.
const TYPE: &str = "dev.ganglion.workloadaction";

/// An event as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndEvent {
    /// Identical for each receiver and each attempt.
    pub id: String,
    pub body: Vec<u8>,
}

/// Outcome of an action, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOutcome {
    Succeeded,
    AlreadyExecuted,
    Planned,
    RolledBack,
    Failed,
    Aborted,
    Expired,
}

impl EndOutcome {
    /// The outcome of an action that has ended with this status and reason.
    pub fn of(status: &WorkloadActionStatus, reason: Reason) -> Self {
        let has = |step| status.slots.iter().any(|slot| slot.step == step);
        match reason {
            Reason::Succeeded => Self::Succeeded,
            Reason::AlreadyExecuted => Self::AlreadyExecuted,
            Reason::Planned => Self::Planned,
            // A replica that could not be undone outweighs replicas that were undone.
            _ if has(Step::Failed) => Self::Failed,
            Reason::Aborted => Self::Aborted,
            Reason::Expired | Reason::QueueTimedOut => Self::Expired,
            _ if has(Step::RolledBack) => Self::RolledBack,
            _ => Self::Failed,
        }
    }

    /// Suffix of the event's type and id.
    pub fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::AlreadyExecuted => "alreadyexecuted",
            Self::Planned => "planned",
            Self::RolledBack => "rolledback",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
            Self::Expired => "expired",
        }
    }
}

/// The event of an action that has ended; None before.
pub fn event(action: &WorkloadAction) -> Option<EndEvent> {
    let status = action.status.as_ref()?;
    let mut shown = status.slots.len();
    loop {
        let (id, event) = with_replicas(action, status, shown)?;
        let body = event.to_string().into_bytes();
        if body.len() <= MAX_EVENT || shown == 0 {
            return Some(EndEvent { id, body });
        }
        shown /= 2;
    }
}

/// Id and event, with the first `shown` replicas.
fn with_replicas(action: &WorkloadAction, status: &WorkloadActionStatus, shown: usize) -> Option<(String, Value)> {
    let finished_at = status.finished_at.as_ref()?;
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready")?;
    let reason: Reason = serde_json::from_value(ready.reason.clone().into()).unwrap_or(Reason::Unknown);
    let outcome = EndOutcome::of(status, reason).word();
    let metadata = &action.metadata;
    let (namespace, name) = (metadata.namespace.as_deref()?, metadata.name.as_deref()?);
    let uid = metadata.uid.as_deref()?;
    let id = format!("{uid}-{outcome}");
    let event = CloudEvent {
        id: id.clone(),
        source: EventSource { plural: "workloadactions", namespace: namespace.to_owned(), name: name.to_owned() },
        event_type: format!("{TYPE}.{outcome}"),
        subject: status.summary.as_ref().and_then(|summary| summary.workload.clone()),
        time: Some(json!(finished_at)),
        data: json!({
            "namespace": namespace,
            "name": name,
            "uid": uid,
            "action": verb(action),
            "ready": ready.status,
            "reason": ready.reason,
            "message": ready.message,
            "summary": status.summary,
            "startedAt": status.started_at,
            "finishedAt": finished_at,
            "replicas": status.slots.iter().take(shown).map(replica).collect::<Vec<_>>(),
            "replicasTotal": status.slots.len(),
            "truncated": shown < status.slots.len(),
        }),
    };
    Some((id, event.to_json()))
}

fn replica(slot: &Slot) -> Value {
    let node = |pod: &Option<PodOnNode>| pod.as_ref().map(|pod| pod.node.clone());
    let name = |pod: &Option<PodOnNode>| pod.as_ref().map(|pod| pod.name.clone());
    json!({
        "from": node(&slot.victim),
        "to": node(&slot.replacement),
        "step": slot.step,
        "oldPod": name(&slot.victim),
        "newPod": name(&slot.replacement),
        "reason": slot.reason,
    })
}
