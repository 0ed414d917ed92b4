//! Drains of nodes: which pods move, which are waited for and which stay, the actions that move them, and the progress.
//!
//! Pure. `operator::drain` reads the cluster, cordons the nodes and creates the actions.

pub mod action;
mod evicting;
mod evictions;
mod operators;
mod plan;
mod pods;
mod progress;
mod report;
mod rights;
mod summary;
#[cfg(test)]
mod tests;
mod text;

use serde::Serialize;

use ganglion_api::refs::WorkloadRef;
use ganglion_core::facts::{Key, NodeName};

pub use evictions::{EvictionOption, LastEviction, OwnEviction, Terminations};
pub use operators::{unseen_words, working_namespaces};
pub use plan::{DrainPlan, LeavingPod, PodSurroundings, WorkloadMove, is_confined};
pub use pods::{NodePod, Termination};
pub use progress::{DrainProgress, NewMove};
pub use report::{DrainOutcome, DrainReport, PendingPod, PlannedHow, PlannedMove};
pub use rights::UserRight;
pub use summary::{advice, interruption_text, summary};
pub use text::{news, nodes_words, plan_text, report_text, tree};

/// Options of a drain.
#[derive(Clone, Debug, Default)]
pub struct DrainWishes {
    /// Also moves pods whose replacement cannot run first, and pods that lose data; evicts pods that no action moves
    /// and that their controller makes again.
    pub disruption: bool,
    /// Evicts pods without a controller.
    pub force: bool,
    /// Evicts pods of Jobs, instead of waiting for them.
    pub evict_jobs: bool,
    /// Does not wait for pods of Jobs.
    pub leave_jobs: bool,
    /// Labels of the pods that leave the nodes. None: all pods leave.
    pub pod_selector: Option<String>,
    /// Maximum number of replicas in motion at once, over all actions.
    pub parallel: Option<usize>,
    /// Grace period of the pods that are evicted. None: their own.
    pub grace_seconds: Option<u32>,
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
    /// Other pods of its workload on the node do not have the labels of `--pod-selector`.
    NotSelected,
    /// A volume can be used on no node that is not drained.
    LocalVolume,
    /// The API server refused the action or the eviction.
    Refused,
    /// It was deleted and does not end.
    Stuck,
    /// It came after the node was cordoned.
    CameBack,
    /// Its replicas left the node, but its action has not succeeded.
    Incomplete,
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
    /// A pod that stays.
    fn of_pod(pod: &Key, node: &NodeName, cause: StayCause, message: String) -> Self {
        Self {
            namespace: pod.namespace.clone(),
            what: format!("Pod/{}", pod.name),
            node: node.clone(),
            pods: 1,
            cause,
            reason: None,
            message,
            advice: None,
        }
    }

    /// Whether a node with this pod counts as empty.
    pub fn is_expected(&self) -> bool {
        match self.cause {
            StayCause::DaemonSet | StayCause::StaticPod => true,
            StayCause::BarePod
            | StayCause::UnknownOwner
            | StayCause::Job
            | StayCause::NeedsDisruption
            | StayCause::NotSelected
            | StayCause::LocalVolume
            | StayCause::Refused
            | StayCause::Stuck
            | StayCause::CameBack
            | StayCause::Incomplete
            | StayCause::NotMoved
            | StayCause::NotYet => false,
        }
    }
}
