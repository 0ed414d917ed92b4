//! Effects that the planner requests, each with a precondition, and the refusals that may follow.
//!
//! Owns the types only. The controller turns effects into requests.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use ganglion_api::marks;
use ganglion_api::reasons::Reason;
use ganglion_api::receipt::WorkloadActionReceiptSpec;
use ganglion_api::workload_action::status::SetRef;
use ganglion_api::workload_action::{WorkloadAction, WorkloadActionStatus};
use ganglion_core::facts::{Identity, Key, NodeFact, NodeName, OtherKind, SlotId, Uid};
use ganglion_core::json_patch::JsonPatch;

/// The next step for an action.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one exists at a time, and is consumed at once")]
pub enum NextStep {
    /// Perform this effect, then plan again.
    Do(Effect),
    /// Perform these effects concurrently, then plan again. No effect changes the facts that another one depends on.
    DoAll(Vec<Effect>),
    /// Wait for a change, or until this time. `report` is the status to write if the wait lasts; safety does not depend
    /// on it.
    Wait { until: Option<Timestamp>, report: Option<Box<WorkloadActionStatus>> },
}

impl NextStep {
    /// Whether the step performs this effect.
    pub fn performs(&self, effect: &Effect) -> bool {
        match self {
            Self::Do(own) => own == effect,
            Self::DoAll(all) => all.contains(effect),
            Self::Wait { .. } => false,
        }
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Writes the action's status if the action still has the version that was planned on.
    Record {
        action: Identity,
        status: Box<WorkloadActionStatus>,
    },
    /// Writes a status that reserves nodes, pods or places within limits. Another action may plan to take the same ones
    /// at the same time, so the effect is planned again and reserved under one lock. The receipt may be written in
    /// parallel. If that fails, the planner requests it again, so its result is not reported.
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
    /// Creates a move of a moveApplication. An existing move of this name that belongs to the moveApplication counts as
    /// created.
    CreatePart {
        application: Identity,
        part: Box<WorkloadAction>,
    },
    WriteReceipt(NewReceipt),
    /// Records in the receipt that the action did not fully succeed.
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
    /// Evicts the pod if it still has this uid. Without a grace period, the pod's own applies.
    Evict {
        pod: Identity,
        grace_seconds: Option<u32>,
    },
    DeletePod {
        pod: Identity,
        grace_seconds: Option<u32>,
    },
    /// Removes our scheduling gate from a pod of a StatefulSet. If a node is given, also pins the pod to it.
    ReleasePod {
        pod: Identity,
        node: Option<NodeName>,
    },
    /// Writes replicas and ledger in one patch if the workload still has this version.
    Scale {
        workload: Scalable,
        replicas: i32,
        ledger: Option<String>,
    },
    /// Removes the ledger annotation.
    ClearLedger {
        workload: Scalable,
    },
}

impl Effect {
    /// Name of the effect in metrics and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Record { .. } => "Record",
            Self::Admit { .. } => "Admit",
            Self::AddFinalizer { .. } => "AddFinalizer",
            Self::RemoveFinalizer { .. } => "RemoveFinalizer",
            Self::DeleteAction { .. } => "DeleteAction",
            Self::CreatePart { .. } => "CreatePart",
            Self::WriteReceipt(_) => "WriteReceipt",
            Self::FailReceipt { .. } => "FailReceipt",
            Self::DeleteReceipt { .. } => "DeleteReceipt",
            Self::CreatePod(_) => "CreatePod",
            Self::ChangePod { change: PodChange::Detach { .. }, .. } => "Detach",
            Self::ChangePod { change: PodChange::Attach { .. }, .. } => "Attach",
            Self::ChangePod { change: PodChange::GiveBack { .. }, .. } => "GiveBack",
            Self::ChangePod { change: PodChange::Mark { .. }, .. } => "Mark",
            Self::ChangePod { change: PodChange::Unmark { .. }, .. } => "Unmark",
            Self::Evict { .. } => "Evict",
            Self::DeletePod { .. } => "DeletePod",
            Self::ReleasePod { .. } => "ReleasePod",
            Self::Scale { .. } => "Scale",
            Self::ClearLedger { .. } => "ClearLedger",
        }
    }

    /// The object that the effect writes.
    pub fn target(&self) -> EffectTarget {
        match self {
            Self::Record { action, .. }
            | Self::Admit { action, .. }
            | Self::AddFinalizer { action, .. }
            | Self::RemoveFinalizer { action, .. }
            | Self::DeleteAction { action } => EffectTarget::Action(action.clone()),
            Self::CreatePart { part, .. } => EffectTarget::Action(named(Identity::from(&part.metadata).key)),
            Self::WriteReceipt(new) => EffectTarget::Receipt(named(new.key.clone())),
            Self::FailReceipt { receipt } | Self::DeleteReceipt { receipt } => EffectTarget::Receipt(receipt.clone()),
            Self::CreatePod(new) => EffectTarget::Pod(named(new.key.clone())),
            Self::ChangePod { pod, .. }
            | Self::Evict { pod, .. }
            | Self::DeletePod { pod, .. }
            | Self::ReleasePod { pod, .. } => EffectTarget::Pod(pod.clone()),
            Self::Scale { workload, .. } | Self::ClearLedger { workload } => EffectTarget::Workload(workload.clone()),
        }
    }

    /// Id of the slot that the effect names.
    pub fn slot(&self) -> Option<&SlotId> {
        match self {
            Self::CreatePod(new) => Some(&new.slot),
            Self::ChangePod { change: PodChange::Detach { slot, .. } | PodChange::Mark { slot, .. }, .. } => Some(slot),
            Self::ChangePod {
                change: PodChange::Attach { .. } | PodChange::GiveBack { .. } | PodChange::Unmark { .. },
                ..
            }
            | Self::Record { .. }
            | Self::Admit { .. }
            | Self::AddFinalizer { .. }
            | Self::RemoveFinalizer { .. }
            | Self::DeleteAction { .. }
            | Self::CreatePart { .. }
            | Self::WriteReceipt(_)
            | Self::FailReceipt { .. }
            | Self::DeleteReceipt { .. }
            | Self::Evict { .. }
            | Self::DeletePod { .. }
            | Self::ReleasePod { .. }
            | Self::Scale { .. }
            | Self::ClearLedger { .. } => None,
        }
    }

    /// Whether the effect creates a pod, or a ReplicaSet creates one after it. Another action may plan to take the room
    /// of that pod at the same time, so the effect is planned again under the lock of admissions.
    pub fn creates_pod(&self) -> bool {
        match self {
            Self::ChangePod { change: PodChange::Detach { .. }, .. } | Self::Scale { .. } | Self::CreatePod(_) => true,
            Self::ChangePod { .. }
            | Self::Record { .. }
            | Self::Admit { .. }
            | Self::AddFinalizer { .. }
            | Self::RemoveFinalizer { .. }
            | Self::DeleteAction { .. }
            | Self::CreatePart { .. }
            | Self::WriteReceipt(_)
            | Self::FailReceipt { .. }
            | Self::DeleteReceipt { .. }
            | Self::Evict { .. }
            | Self::DeletePod { .. }
            | Self::ReleasePod { .. }
            | Self::ClearLedger { .. } => false,
        }
    }

    /// Whether the effect updates the action itself, so that its refusal cannot be recorded in the action.
    pub fn updates_action(&self) -> bool {
        match self {
            Self::Record { .. } | Self::Admit { .. } | Self::AddFinalizer { .. } | Self::RemoveFinalizer { .. } => true,
            Self::DeleteAction { .. }
            | Self::CreatePart { .. }
            | Self::WriteReceipt(_)
            | Self::FailReceipt { .. }
            | Self::DeleteReceipt { .. }
            | Self::CreatePod(_)
            | Self::ChangePod { .. }
            | Self::Evict { .. }
            | Self::DeletePod { .. }
            | Self::ReleasePod { .. }
            | Self::Scale { .. }
            | Self::ClearLedger { .. } => false,
        }
    }
}

/// Object that an effect writes. The identity of an object to be created has neither uid nor version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectTarget {
    Action(Identity),
    Receipt(Identity),
    Pod(Identity),
    Workload(Scalable),
}

impl EffectTarget {
    pub fn key(&self) -> &Key {
        match self {
            Self::Action(id) | Self::Receipt(id) | Self::Pod(id) => &id.key,
            Self::Workload(workload) => &workload.id.key,
        }
    }
}

fn named(key: Key) -> Identity {
    Identity { key, ..Identity::default() }
}

/// A receipt to create.
#[derive(Clone, Debug, PartialEq)]
pub struct NewReceipt {
    pub key: Key,
    pub spec: WorkloadActionReceiptSpec,
    /// Whether the receipt is deleted with the action, since it cannot concern another object.
    pub is_owned: bool,
}

/// A workload whose replicas can be written: kind and identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalable {
    pub kind: ScalableKind,
    pub id: Identity,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScalableKind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    Other(OtherKind),
}

/// A replacement pod, created from a ReplicaSet's template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPod {
    pub key: Key,
    pub place: PodPlace,
    pub slot: SlotId,
    /// The ReplicaSet whose template is used. It becomes the owner of the pod, not yet the controller.
    pub set: SetRef,
    /// The label of the template that the pod is created without.
    pub label: String,
}

/// Nodes on which a replacement pod may run, beside what its template requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodPlace {
    /// This node.
    On(NodeName),
    /// Any node with these labels, except some.
    Any { labels: BTreeMap<String, String>, except: Vec<NodeName> },
}

impl PodPlace {
    pub fn allows(&self, node: &NodeFact) -> bool {
        match self {
            Self::On(name) => node.name() == *name,
            Self::Any { labels, except } => {
                !except.contains(&node.name()) && labels.iter().all(|(key, value)| node.labels.get(key) == Some(value))
            }
        }
    }
}

impl NewPod {
    /// The only node on which the pod may run.
    #[cfg(test)]
    pub fn node(&self) -> NodeName {
        match &self.place {
            PodPlace::On(node) => node.clone(),
            PodPlace::Any { .. } => panic!("more than one node"),
        }
    }

    /// Key of the ReplicaSet.
    pub fn set_key(&self) -> Key {
        Key::new(&self.key.namespace, &self.set.name)
    }
}

/// One change of a pod's metadata. It fails if the facts that it depends on have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodChange {
    /// Detaches the pod from its ReplicaSet: removes the label, leaves the set as owner but not as controller, adds
    /// the slot's marks.
    Detach { label: String, set: SetRef, slot: SlotId, peers: String },
    /// Attaches the pod to the ReplicaSet: adds the label, makes the set its controller, removes the marks.
    Attach { label: String, value: String, set: SetRef },
    /// Attaches a leftover to the ReplicaSet, marked as the pod that the set deletes when it has one too many.
    GiveBack { label: String, value: String, set: SetRef },
    /// Marks the pod that the set deletes when it has one too many.
    Mark { slot: SlotId, rests_on: Claimable },
    /// Removes the mark. `cost` is the deletion cost of the template.
    Unmark { cost: Option<String> },
}

/// Properties of a pod that a slot may mark. The patch tests them instead of the resourceVersion, which changes all the
/// time while the kubelet starts the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimable {
    /// The label, with its value, that ties the pod to its set.
    pub label: Option<(String, String)>,
    /// The slot whose mark the pod has.
    pub held_by: Option<SlotId>,
    /// Whether the pod has any annotations.
    pub annotated: bool,
}

/// A change as the body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patch {
    /// Strategic merge patch with uid and resourceVersion inside. Owner references are merged by uid, so the pod keeps
    /// the owners that others added.
    Strategic(Value),
    Json(JsonPatch),
}

impl PodChange {
    /// Returns the patch for the change. It fails if the pod is another one, or if the facts that the change depends on
    /// have changed.
    pub fn patch(&self, pod: &Identity) -> Patch {
        let mut patch = match self {
            Self::Detach { label, set, slot, peers } => json!({"metadata": {
                "labels": {label: null},
                "ownerReferences": [set_owner(set, false)],
                "annotations": {marks::SLOT: slot, marks::ROLE: marks::ROLE_VICTIM, marks::PEERS: peers},
            }}),
            Self::Attach { label, value, set } => json!({"metadata": {
                "labels": {label: value, marks::ROLE: null},
                "ownerReferences": [set_owner(set, true)],
                "annotations": {marks::SLOT: null, marks::ROLE: null, marks::PEERS: null},
            }}),
            Self::GiveBack { label, value, set } => json!({"metadata": {
                "labels": {label: value, marks::ROLE: null},
                "ownerReferences": [set_owner(set, true)],
                "annotations": {
                    marks::ROLE: marks::ROLE_SURPLUS, marks::PEERS: null, marks::DELETION_COST: marks::LOWEST_COST,
                },
            }}),
            Self::Mark { slot, rests_on } => return Patch::Json(mark(&pod.uid, slot, rests_on)),
            Self::Unmark { cost } => json!({"metadata": {
                "labels": {marks::ROLE: null},
                "annotations": {marks::SLOT: null, marks::ROLE: null, marks::DELETION_COST: cost},
            }}),
        };
        patch["metadata"]["uid"] = json!(pod.uid);
        patch["metadata"]["resourceVersion"] = json!(pod.version);
        Patch::Strategic(patch)
    }
}

fn mark(uid: &Uid, slot: &SlotId, rests_on: &Claimable) -> JsonPatch {
    const ANNOTATIONS: [&str; 2] = ["metadata", "annotations"];
    let marks =
        [(marks::SLOT, slot.as_str()), (marks::ROLE, marks::ROLE_SURPLUS), (marks::DELETION_COST, marks::LOWEST_COST)];
    let mut patch = JsonPatch::of(uid);
    patch.test(&["metadata", "deletionTimestamp"], Value::Null);
    if let Some((key, value)) = &rests_on.label {
        patch.test(&["metadata", "labels", key], &**value);
    }
    if rests_on.annotated {
        patch.test(&["metadata", "annotations", marks::SLOT], rests_on.held_by.as_ref().map(SlotId::as_str));
        for (key, value) in marks {
            patch.add(&["metadata", "annotations", key], value);
        }
    } else {
        patch.test(&ANNOTATIONS, Value::Null);
        patch.add(&ANNOTATIONS, json!(BTreeMap::from(marks)));
    }
    patch
}

/// Owner reference to a ReplicaSet. A pod outside its set keeps the set as plain owner: it is deleted with the
/// workload, not with the action, whose deletion in the foreground would bypass budgets; and a GitOps tool does not
/// prune the pod as an orphan.
pub fn set_owner(set: &SetRef, controls: bool) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set.name, "uid": set.uid,
        "controller": controls, "blockOwnerDeletion": controls,
    })
}

/// Why an effect failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: RefusalKind,
    /// Message of the API server.
    pub message: String,
}

/// Kinds of refusals. Other errors (conflicts, throttling, timeouts) are retried with fresh facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// Quota, admission or validation refused the effect and will refuse it again.
    Denied,
    /// A permission is missing.
    Forbidden,
    /// A budget does not allow the eviction now.
    Budget,
    /// More than one budget guards the pod.
    Budgets,
    /// An object of that name exists and is not ours.
    Taken,
    /// The object is gone.
    Gone,
    /// The API server has answered with an error for a while, for instance because a webhook fails.
    Failing,
}

impl RefusalKind {
    /// The reason in the status.
    pub fn reason(self) -> Reason {
        match self {
            Self::Denied | Self::Taken | Self::Failing => Reason::PodRefused,
            Self::Forbidden => Reason::Forbidden,
            Self::Budget => Reason::BudgetBlocked,
            Self::Budgets => Reason::BudgetsOverlap,
            Self::Gone => Reason::WorkloadGone,
        }
    }
}
