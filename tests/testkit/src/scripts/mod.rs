//! Short stories with a known end, as data: the initial objects, the action, events meanwhile, and the end.
//!
//! They are independent of the cluster that plays them: `tests/model` plays them on its simulated cluster, and
//! `tests/cluster/alike.rs` on a real control plane. Both must end alike.

mod all;

use std::collections::BTreeMap;

use ganglion_api::refs::{NodeSource, Target, WorkloadRef};
use ganglion_api::workload_action::status::Step;
use ganglion_api::workload_action::{Create, Delete, Disruption, Move, ReplicaCount, Timeouts, WorkloadActionSpec};

pub use all::ALL;

/// One story. All pods of the workload start on the first node; the other nodes join when the workload has settled.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    pub name: &'static str,
    pub of: Of,
    pub replicas: i32,
    pub budget: Option<BudgetRule>,
    /// Nodes besides the first, [`HOME`].
    pub nodes: &'static [(&'static str, Nature)],
    pub ask: Ask,
    pub disruption: bool,
    /// Events, each happening once, in this order.
    pub then: &'static [(Cue, What)],
    pub end: End,
}

/// Node on which every pod starts.
pub const HOME: &str = "node-1";

/// Name of the workload.
pub const APP: &str = "web";

/// Name of the action.
pub const ACTION: &str = "story";

/// Kind of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Deployment,
    /// A standalone ReplicaSet. Its selector includes a label that no Service selects by.
    ReplicaSet,
}

/// PodDisruptionBudget of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetRule {
    MinAvailable(i32),
    MaxUnavailable(i32),
}

/// Behavior of the pods on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    Good,
    /// Ready only after this number of seconds.
    Slow(i64),
    Crashes,
    NeverReady,
    NoImage,
    /// Room for this number of pods.
    Room(i64),
}

/// Spec of the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Moves this number of replicas from [`HOME`] to this node.
    Move(i32, &'static str),
    Create(i32, &'static str),
    Delete(i32),
}

/// Condition of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cue {
    /// As soon as the operator has made this number of writes.
    Writes(usize),
    /// As soon as a slot in the action's status is at this step.
    Step(Step),
    /// As soon as the action's Ready condition has this reason.
    Says(&'static str),
    /// As soon as the action has ended.
    Ended,
}

/// Event of a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    KillOperator,
    /// A user scales the workload by this number.
    Scale(i32),
    DeleteReplacement,
    Rollout,
    DeleteWorkload,
    Abort,
    DeleteAction,
    /// Deletes the action, and applies it again once it is gone.
    Reapply,
    Suspend,
    Resume,
}

/// End of a story.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Reason of the action's Ready condition; None if the action is gone.
    pub reason: Option<&'static str>,
    /// `spec.replicas` of the workload; None if the workload is gone.
    pub replicas: Option<i32>,
    /// Number of Ready pods on each node, where it is determined.
    pub on: &'static [(&'static str, usize)],
    /// Whether a receipt is left.
    pub receipt: bool,
}

/// Observed end of a story, from either cluster.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    pub reason: Option<String>,
    pub replicas: Option<i32>,
    pub on: BTreeMap<&'static str, usize>,
    pub receipt: bool,
}

impl End {
    /// Expected end.
    pub fn wanted(&self) -> Found {
        let reason = self.reason.map(str::to_owned);
        Found { reason, replicas: self.replicas, on: self.on.iter().copied().collect(), receipt: self.receipt }
    }

    /// Counts pods on the nodes that the end names.
    pub fn count(&self, serving: impl Fn(&str) -> usize) -> BTreeMap<&'static str, usize> {
        self.on.iter().map(|(node, _)| (*node, serving(node))).collect()
    }
}

/// Longer than any step takes by itself, on any machine, in seconds.
const LONG: i32 = 90;

/// Timeout, in seconds, of a wait that must expire: long enough to be observed, but short.
const SHORT: i32 = 8;

impl Script {
    /// Spec of the action. `called` maps the story's nodes to real node names.
    pub fn spec(&self, called: impl Fn(&str) -> String) -> WorkloadActionSpec {
        let kind = if self.of == Of::Deployment { "Deployment" } else { "ReplicaSet" };
        let workload = WorkloadRef { api_version: "apps/v1".into(), kind: kind.into(), name: APP.into() };
        let to = |name: &str| Target { node_name: Some(called(name).into()), ..Target::default() };
        let from = Some(NodeSource { node_name: Some(called(HOME).into()), ..NodeSource::default() });
        let disruption = if self.disruption { Disruption::Allowed } else { Disruption::Never };
        let mut spec =
            WorkloadActionSpec { disruption, timeouts: Some(self.timeouts()), ..WorkloadActionSpec::default() };
        match self.ask {
            Ask::Move(count, node) => {
                let (workload, count) = (Some(workload), Some(ReplicaCount::Number(count)));
                spec.move_ = Some(Move { workload, pod: None, from, to: Some(to(node)), count, up_to: None });
            }
            Ask::Create(count, node) => spec.create = Some(Create { workload, to: to(node), count: Some(count) }),
            Ask::Delete(count) => {
                let count = Some(ReplicaCount::Number(count));
                spec.delete = Some(Delete { workload: Some(workload), pod: None, from, count, up_to: None });
            }
        }
        spec
    }

    /// Only the timeout that ends the story is short.
    fn timeouts(&self) -> Timeouts {
        let ends_by = |reason: &str| self.end.reason == Some(reason);
        let by = |reason: &str| Some(if ends_by(reason) { SHORT } else { LONG });
        // The time for the budget starts after the time for the new pod, and is added to it.
        let starts_badly = ["ReplacementNotReady", "ReplacementCrashed", "ImagePullFailed"].into_iter().any(ends_by);
        let ready_seconds = match starts_badly {
            _ if ends_by("BudgetBlocked") => 3 * SHORT,
            true => SHORT,
            false => LONG,
        };
        Timeouts {
            queue_seconds: Some(LONG),
            schedule_seconds: by("Unschedulable"),
            ready_seconds: Some(ready_seconds),
            drain_seconds: by("BudgetBlocked"),
        }
    }
}
