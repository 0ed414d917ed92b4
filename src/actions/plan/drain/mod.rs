//! Drains of nodes: which pods move, which are waited for and which stay, the actions that move them, and the progress.
//!
//! Pure. `app::drain` reads the cluster, cordons the nodes and creates the actions.

pub mod action;
mod plan;
mod pods;
mod progress;
#[cfg(test)]
mod tests;
mod text;

use serde::Serialize;

use ganglion_api::refs::WorkloadRef;
use ganglion_core::facts::NodeName;

pub use plan::{DrainPlan, PodSurroundings, WorkloadMove};
pub use pods::NodePod;
pub use progress::{DrainProgress, NewMove};
pub use text::{news, nodes_words, plan_text, report_text, stays_of_plan, tree};

/// Options of a drain.
#[derive(Clone, Debug, Default)]
pub struct DrainWishes {
    /// Also moves pods whose replacement cannot run first, and pods that lose data.
    pub disruption: bool,
    /// Does not wait for pods of Jobs.
    pub leave_jobs: bool,
    /// Maximum number of replicas in motion at once, over all actions.
    pub parallel: Option<usize>,
}

/// One action of a drain: the replicas of one workload on one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MoveKey {
    pub namespace: String,
    pub kind: String,
    pub name: String,
    pub node: NodeName,
}

impl MoveKey {
    pub fn new(namespace: &str, workload: &WorkloadRef, node: &NodeName) -> Self {
        let own = str::to_owned;
        Self { namespace: own(namespace), kind: own(&workload.kind), name: own(&workload.name), node: node.clone() }
    }
}

/// Why pods stay on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum StayCause {
    /// A DaemonSet runs one pod on each node.
    DaemonSet,
    /// The node's kubelet runs it from a file.
    StaticPod,
    /// It belongs to no workload.
    BarePod,
    /// Its workload is of a kind that is not handled.
    UnknownOwner,
    /// It runs to its end.
    Job,
    /// It would move with `--disruption` only.
    NeedsDisruption,
    /// A volume is on this node only.
    LocalVolume,
    /// The API server refused the action.
    Refused,
    /// The action ended without success, or found nothing to move.
    NotMoved,
    /// The drain ended before the pod was gone.
    NotYet,
}

/// A pod, or the pods of a workload, that stay on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stay {
    pub namespace: String,
    /// Kind and name of the pod or workload, such as `Deployment/web`.
    pub what: String,
    pub node: NodeName,
    /// Number of its pods on the node.
    pub pods: usize,
    pub cause: StayCause,
    /// Reason of the action, if one was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub message: String,
    /// Advice for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Stay {
    /// Whether a node with this pod counts as empty.
    pub fn is_expected(&self) -> bool {
        match self.cause {
            StayCause::DaemonSet | StayCause::StaticPod => true,
            StayCause::BarePod
            | StayCause::UnknownOwner
            | StayCause::Job
            | StayCause::NeedsDisruption
            | StayCause::LocalVolume
            | StayCause::Refused
            | StayCause::NotMoved
            | StayCause::NotYet => false,
        }
    }
}

/// Result of a drain, or of its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum DrainOutcome {
    /// Only DaemonSets and static pods are left.
    Empty,
    /// Other pods stay, too.
    Stays,
    /// The time ran out before.
    TimedOut,
}

/// Report at the end of a drain.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainReport {
    pub nodes: Vec<NodeName>,
    pub outcome: DrainOutcome,
    /// Number of replicas that moved.
    pub moved: usize,
    /// The actions, as namespace and name.
    pub actions: Vec<String>,
    pub stays: Vec<Stay>,
    /// Duration, such as `2m13s`.
    pub took: String,
}

impl DrainReport {
    /// Sets the outcome according to the pods that stay.
    pub fn judged(self) -> Self {
        let is_empty = self.stays.iter().all(Stay::is_expected);
        Self { outcome: if is_empty { DrainOutcome::Empty } else { DrainOutcome::Stays }, ..self }
    }
}
