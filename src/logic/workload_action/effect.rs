//! What the planner may ask for: one effect at a time, each with a precondition, and what may come back.
//!
//! Owns the words only. The shell turns them into requests, the model into changes of a simulated cluster.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::marks;
use crate::api::reasons::Reason;
use crate::api::receipt::WorkloadActionReceiptSpec;
use crate::api::workload_action::WorkloadActionStatus;
use crate::api::workload_action::status::SetRef;
use crate::logic::facts::{Identity, Key};

/// The next thing to do for an action.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one exists at a time, and is consumed at once")]
pub enum Next {
    /// Do this, then ask again.
    Do(Effect),
    /// Nothing to do until something changes, or until this time. `report` is the status that a user should see should
    /// the wait last: writing it is not needed for safety.
    Wait { until: Option<Timestamp>, report: Option<Box<WorkloadActionStatus>> },
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Status of the action, only if the action is still of the version that was planned on.
    Record {
        action: Identity,
        status: Box<WorkloadActionStatus>,
    },
    /// The same, for a status that takes up nodes, pods or turns that another action may be after at the same time: to be
    /// planned again and written with nothing planned in between. The receipt may be written at the same time; where that
    /// does not succeed, it is asked for again, so what comes of it need not be told.
    Admit {
        action: Identity,
        status: Box<WorkloadActionStatus>,
        receipt: Option<NewReceipt>,
    },
    AddFinalizer {
        action: Identity,
        finalizers: Vec<String>,
    },
    RemoveFinalizer {
        action: Identity,
        finalizers: Vec<String>,
    },
    DeleteAction {
        action: Identity,
    },
    WriteReceipt(NewReceipt),
    /// Note in the receipt that the action did not fully succeed.
    FailReceipt {
        receipt: Identity,
    },
    DeleteReceipt {
        receipt: Identity,
    },
    CreatePod(NewPod),
    ChangePod {
        pod: Identity,
        change: PodChange,
    },
    /// Only while the pod is of this uid.
    Evict {
        pod: Identity,
    },
    DeletePod {
        pod: Identity,
    },
    /// Replicas and ledger in one patch, only if the workload is still of this version.
    Scale {
        workload: Scalable,
        replicas: i32,
        ledger: Option<String>,
    },
    /// Takes our ledger annotation off.
    ClearLedger {
        workload: Scalable,
    },
}

/// A receipt that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct NewReceipt {
    pub key: Key,
    pub spec: WorkloadActionReceiptSpec,
}

/// A workload whose replicas can be written: kind and identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalable {
    pub kind: ScalableKind,
    pub id: Identity,
}

/// See [`Scalable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalableKind {
    Deployment,
    ReplicaSet,
}

/// A new pod, made from a ReplicaSet's template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPod {
    pub key: Key,
    pub node: String,
    pub slot: String,
    /// The ReplicaSet whose template it is made from.
    pub set: Key,
    /// Label of the template that it is made without.
    pub label: String,
    /// The action, as plain owner.
    pub action: Identity,
}

/// One change of a pod's metadata, on the condition that nothing that it rests on has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodChange {
    /// Out of its ReplicaSet: without the label, with the action as plain owner, bearing the slot's mark.
    Detach { label: String, slot: String, action: Identity, peers: String },
    /// Into the ReplicaSet: with the label, the set as controller, without our marks.
    Attach { label: String, value: String, set: SetRef },
    /// Chosen to go when the set has one too many.
    Mark { slot: String, rests_on: Claimable },
    /// Not chosen any more; `cost` is what the template says.
    Unmark { cost: Option<String> },
}

/// What makes a pod one that a slot may mark. Tested in place of its version, which changes all the time: the pod is one
/// that its kubelet is just starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimable {
    /// Label, with its value, by which the pod belongs to its set.
    pub label: Option<(String, String)>,
    /// The slot whose mark it bears.
    pub held_by: Option<String>,
    /// It bears annotations, whatever they are.
    pub annotated: bool,
}

/// A change as the API server takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patch {
    /// RFC 7386, with uid and version inside.
    Merge(Value),
    /// RFC 6902, with `test` operations. One for `null` holds where there is nothing at that path [tried on a control
    /// plane]; a failed one is a 422 that names no cause.
    Json(Value),
}

impl PodChange {
    /// The patch that makes the change, and fails if the pod is another or what the change rests on is not so any more.
    #[must_use]
    pub fn patch(&self, pod: &Identity) -> Patch {
        let mut patch = match self {
            Self::Detach { label, slot, action, peers } => json!({"metadata": {
                "labels": {label: null},
                "ownerReferences": [action_owner(action)],
                "annotations": {marks::SLOT: slot, marks::ROLE: marks::ROLE_VICTIM, marks::PEERS: peers},
            }}),
            Self::Attach { label, value, set } => json!({"metadata": {
                "labels": {label: value},
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set.name, "uid": set.uid,
                    "controller": true, "blockOwnerDeletion": true,
                }],
                "annotations": {marks::SLOT: null, marks::ROLE: null, marks::PEERS: null},
            }}),
            Self::Mark { slot, rests_on } => return Patch::Json(mark(&pod.uid, slot, rests_on)),
            Self::Unmark { cost } => json!({"metadata": {"annotations": {
                marks::SLOT: null, marks::ROLE: null, marks::DELETION_COST: cost,
            }}}),
        };
        patch["metadata"]["uid"] = json!(pod.uid);
        patch["metadata"]["resourceVersion"] = json!(pod.version);
        Patch::Merge(patch)
    }
}

fn mark(uid: &str, slot: &str, rests_on: &Claimable) -> Value {
    let test = |path: String, value: Value| json!({"op": "test", "path": path, "value": value});
    let add = |path: String, value: Value| json!({"op": "add", "path": path, "value": value});
    let at = |map: &str, key: &str| format!("/metadata/{map}/{}", key.replace('~', "~0").replace('/', "~1"));
    let marks = json!({
        marks::SLOT: slot, marks::ROLE: marks::ROLE_SURPLUS, marks::DELETION_COST: marks::LOWEST_COST,
    });
    let mut patch =
        vec![test("/metadata/uid".to_owned(), json!(uid)), test("/metadata/deletionTimestamp".to_owned(), Value::Null)];
    patch.extend(rests_on.label.iter().map(|(key, value)| test(at("labels", key), json!(value))));
    if rests_on.annotated {
        patch.push(test(at("annotations", marks::SLOT), json!(rests_on.held_by)));
        patch.extend(
            marks.as_object().into_iter().flatten().map(|(key, value)| add(at("annotations", key), value.clone())),
        );
    } else {
        patch.push(test("/metadata/annotations".to_owned(), Value::Null));
        patch.push(add("/metadata/annotations".to_owned(), marks));
    }
    Value::Array(patch)
}

/// The plain (not controlling) owner reference to an action: the pod goes should the action vanish, and a GitOps tool does
/// not take it for an orphan of its own.
#[must_use]
pub fn action_owner(action: &Identity) -> Value {
    json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
        "name": action.key.name, "uid": action.uid, "controller": false, "blockOwnerDeletion": false,
    })
}

/// Why an effect did not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: RefusalKind,
    /// The API server's words.
    pub message: String,
}

/// See [`Refusal`]. What is not here (conflicts, throttling, time-outs) is simply tried again on fresh facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// Quota, admission or validation said no, and will say so again.
    Denied,
    /// A right is missing.
    Forbidden,
    /// A budget does not allow the eviction now.
    Budget,
    /// More than one budget guards the pod.
    Budgets,
    /// An object of that name exists that is not ours.
    Taken,
    /// The object is gone.
    Gone,
}

impl RefusalKind {
    /// The reason that a user reads when the action ends by it.
    #[must_use]
    pub fn reason(self) -> Reason {
        match self {
            Self::Denied | Self::Taken => Reason::PodRefused,
            Self::Forbidden => Reason::Forbidden,
            Self::Budget => Reason::BudgetBlocked,
            Self::Budgets => Reason::BudgetsOverlap,
            Self::Gone => Reason::WorkloadGone,
        }
    }
}
