//! The objects of the simulated cluster, reduced to the fields that any part reads or writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use ganglion_api::receipt::WorkloadActionReceiptSpec;
use ganglion_api::workload_action::{WorkloadActionSpec, WorkloadActionStatus};
use ganglion_core::facts::{Key, Requests, TemplateFact, Trouble};

/// Label by which Services, budgets and the invariants select the pods of a workload.
pub const APP: &str = "app";

/// Time that never comes.
pub const FOREVER: i64 = i64::MAX;

pub type Labels = BTreeMap<String, String>;

/// Metadata as the API server stores it. Times are seconds since the epoch, the resolution of the API.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    pub key: Key,
    pub uid: String,
    pub version: u64,
    pub generation: i64,
    pub created: i64,
    pub deleted: Option<i64>,
    pub labels: Labels,
    pub annotations: Labels,
    pub owners: Vec<OwnerRef>,
    pub finalizers: Vec<String>,
}

impl Meta {
    pub fn named(namespace: &str, name: &str) -> Self {
        Self { key: Key::new(namespace, name), ..Self::default() }
    }

    pub fn controller(&self) -> Option<&OwnerRef> {
        self.owners.iter().find(|owner| owner.controller)
    }

    pub fn is_of(&self, uid: &str) -> bool {
        self.controller().is_some_and(|owner| owner.uid == uid)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct OwnerRef {
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: bool,
}

impl OwnerRef {
    /// Controller reference to this object.
    pub fn controller(kind: &str, meta: &Meta) -> Self {
        Self { kind: kind.to_owned(), name: meta.key.name.clone(), uid: meta.uid.clone(), controller: true }
    }
}

/// Pod template. Immutable: a rollout uses another template.
#[derive(Debug, Default, PartialEq)]
pub struct Template {
    pub labels: Labels,
    pub annotations: Labels,
    pub node_selector: Labels,
    pub requests: Requests,
    pub grace: i64,
    /// Whether the scheduler preempts pods without a priority for it.
    pub prioritized: bool,
    /// The template as the API has it.
    pub fact: Arc<TemplateFact>,
}

impl Template {
    /// Priority that admission gives to its pods.
    pub fn priority(&self) -> i32 {
        if self.prioritized { 1000 } else { 0 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    #[default]
    Pending,
    Unknown,
    Running,
    Failed,
}

/// Behavior of a pod on its node; hidden from all other parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    #[default]
    Good,
    /// Runs, and becomes Ready this number of seconds after its start.
    Slow(i64),
    /// Runs, but never becomes Ready.
    Never,
    Crash,
    NoImage,
    /// The image is not available for this number of seconds.
    Late(i64),
    /// The kubelet does not admit it: it ends in phase Failed.
    Rejected,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    pub meta: Meta,
    pub template: Arc<Template>,
    /// Whether the API server generated its name, as for a controller's pods.
    pub generated: bool,
    /// Required node affinity by the node's name.
    pub pin: Option<String>,
    /// Name of the node on which the pod may not run.
    pub shuns: Vec<String>,
    /// Labels of nodes that the required node affinity names.
    pub wants: BTreeMap<String, String>,
    pub node: Option<String>,
    pub phase: Phase,
    pub started: i64,
    pub ready_since: Option<i64>,
    pub restarts: u32,
    pub unschedulable: Option<String>,
    pub trouble: Option<Trouble>,
    pub fate: Fate,
    /// Seconds from its deletion to its end.
    pub linger: i64,
    /// Not Ready before this time, because another client made it unready.
    pub unwell_until: i64,
    /// A finalizer of another client keeps it until this time, even if its containers have ended.
    pub held_until: i64,
    /// Name of the node on which the scheduler has preempted a pod for it.
    pub nominated: Option<String>,
}

impl Pod {
    /// Whether the ReplicaSet controller counts it as active.
    pub fn is_active(&self) -> bool {
        self.meta.deleted.is_none() && self.phase != Phase::Failed
    }

    /// Whether it serves.
    pub fn is_serving(&self) -> bool {
        self.is_active() && self.ready_since.is_some()
    }

    /// Whether none of its containers runs.
    pub fn has_ended(&self) -> bool {
        self.node.is_none() || self.phase == Phase::Failed
    }

    pub fn app(&self) -> &str {
        self.meta.labels.get(APP).map_or("", String::as_str)
    }

    pub fn cost(&self) -> i32 {
        self.meta.annotations.get(ganglion_api::marks::DELETION_COST).and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub meta: Meta,
    pub ready: bool,
    pub cordoned: bool,
    pub capacity: Requests,
    pub pods: i64,
    /// Fate of every pod on this node, unless Good.
    pub fate: Fate,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Set {
    pub meta: Meta,
    pub replicas: i32,
    pub selector: Labels,
    pub template: Arc<Template>,
    pub status: SetStatus,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SetStatus {
    pub observed: i64,
    pub replicas: i32,
    pub ready: i32,
    /// Message of the condition FailedCreate.
    pub failure: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Deployment {
    pub meta: Meta,
    pub replicas: i32,
    pub template: Arc<Template>,
    pub status: DeploymentStatus,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeploymentStatus {
    pub observed: i64,
    pub replicas: i32,
    pub updated: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    MinAvailable(i32),
    MaxUnavailable(i32),
}

#[derive(Clone, Debug, PartialEq)]
pub struct DisruptionBudget {
    pub meta: Meta,
    pub selector: Labels,
    pub rule: Rule,
    pub status: BudgetStatus,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct BudgetStatus {
    pub observed: i64,
    pub healthy: i32,
    pub desired: i32,
    pub allowed: i32,
    /// Evicted pods that may still be visible, with the time of the eviction.
    pub disrupted: BTreeMap<String, i64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Service {
    pub meta: Meta,
    pub selector: Labels,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scaler {
    pub meta: Meta,
    pub target_kind: String,
    pub target_name: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    pub meta: Meta,
    pub spec: WorkloadActionReceiptSpec,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    pub meta: Meta,
    pub spec: WorkloadActionSpec,
    pub status: Option<WorkloadActionStatus>,
}

impl Action {
    pub fn finished(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.finished_at.is_some())
    }

    pub fn slots(&self) -> impl Iterator<Item = &ganglion_api::workload_action::status::Slot> {
        self.status.iter().flat_map(|status| &status.slots)
    }

    pub fn open_slots(&self) -> impl Iterator<Item = &ganglion_api::workload_action::status::Slot> {
        self.slots().filter(|slot| !slot.step.is_end())
    }
}

/// Whether the labels match the selector. Empty selectors do not occur here.
pub fn selects(selector: &Labels, labels: &Labels) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}
