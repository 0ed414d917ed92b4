//! Short stories with a known end, as data: what is there, what is asked for, what happens meanwhile, how it ends.
//!
//! They know nothing of who plays them. `tests/model` plays them on its simulated cluster, `tests/cluster/alike.rs` plays
//! the same on a real control plane, and they have to end alike.

mod all;

use std::collections::BTreeMap;

use ganglion_api::targets::{NodeSource, Target, WorkloadRef};
use ganglion_api::workload_action::status::Step;
use ganglion_api::workload_action::{Create, Delete, Disruption, Move, ReplicaCount, Timeouts, WorkloadActionSpec};

pub use all::ALL;

/// One story. The workload's pods all start on the first node; the other nodes join when it has settled.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    pub name: &'static str,
    pub of: Of,
    pub replicas: i32,
    pub budget: Option<Budget>,
    /// The nodes beside the first, [`HOME`].
    pub nodes: &'static [(&'static str, Nature)],
    pub ask: Ask,
    pub disruption: bool,
    /// Each happens once, in this order.
    pub then: &'static [(When, What)],
    pub end: End,
}

/// The node that every pod starts on.
pub const HOME: &str = "node-1";

/// The workload's name.
pub const APP: &str = "web";

/// The action's name.
pub const ACTION: &str = "story";

/// What the workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Deployment,
    /// A ReplicaSet of its own, whose pods bear a label by which no Service selects.
    ReplicaSet,
}

/// What the workload's PodDisruptionBudget says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    MinAvailable(i32),
    MaxUnavailable(i32),
}

/// What becomes of the pods on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    Good,
    /// Ready only after so many seconds.
    Slow(i64),
    Crashes,
    NeverReady,
    NoImage,
    /// Has room for so many pods.
    Room(i64),
}

/// What the action asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// So many replicas, from [`HOME`], to this node.
    Move(i32, &'static str),
    Create(i32, &'static str),
    Delete(i32),
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// As soon as the operator has written so many times.
    Writes(usize),
    /// As soon as the action's status shows some slot at this step.
    Step(Step),
    /// As soon as the action's Ready condition has this reason.
    Says(&'static str),
    /// As soon as the action has ended.
    Ended,
}

/// What happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    KillOperator,
    /// Somebody scales the workload by so many.
    Scale(i32),
    DeleteReplacement,
    Rollout,
    DeleteWorkload,
    Abort,
    DeleteAction,
    /// Deletes the action and applies the same once it is gone.
    Reapply,
    Suspend,
    Resume,
}

/// How a story ends.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Reason of the action's Ready condition; None if the action is gone.
    pub reason: Option<&'static str>,
    /// `spec.replicas` of the workload; None if it is gone.
    pub replicas: Option<i32>,
    /// Ready pods on each node, where that is settled.
    pub on: &'static [(&'static str, usize)],
    /// A receipt is left.
    pub receipt: bool,
}

/// What became of a story, wherever it was played.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    pub reason: Option<String>,
    pub replicas: Option<i32>,
    pub on: BTreeMap<&'static str, usize>,
    pub receipt: bool,
}

impl End {
    /// The end as it is to be found.
    pub fn wanted(&self) -> Found {
        let reason = self.reason.map(str::to_owned);
        Found { reason, replicas: self.replicas, on: self.on.iter().copied().collect(), receipt: self.receipt }
    }

    /// The nodes that the end speaks of, with what this counts there.
    pub fn count(&self, serving: impl Fn(&str) -> usize) -> BTreeMap<&'static str, usize> {
        self.on.iter().map(|(node, _)| (*node, serving(node))).collect()
    }
}

/// Longer than anything takes by itself, on however busy a machine.
const LONG: i32 = 90;

/// For what a story waits for to run out: longer than it takes to be seen, and short.
const SHORT: i32 = 8;

impl Script {
    /// What is asked for, where the nodes of the story are called so.
    pub fn spec(&self, called: impl Fn(&str) -> String) -> WorkloadActionSpec {
        let kind = if self.of == Of::Deployment { "Deployment" } else { "ReplicaSet" };
        let workload = WorkloadRef { api_version: "apps/v1".into(), kind: kind.into(), name: APP.into() };
        let to = |name: &str| Target { node_name: Some(called(name)), ..Target::default() };
        let from = Some(NodeSource { node_name: Some(called(HOME)), ..NodeSource::default() });
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

    /// Only what the story ends by may run out.
    fn timeouts(&self) -> Timeouts {
        let ends_by = |reason: &str| self.end.reason == Some(reason);
        let by = |reason: &str| Some(if ends_by(reason) { SHORT } else { LONG });
        // A budget is waited for after the new pod's time, and as much longer.
        let ready_seconds = if ends_by("BudgetBlocked") { Some(3 * SHORT) } else { by("ReplacementNotReady") };
        Timeouts {
            queue_seconds: Some(LONG),
            schedule_seconds: by("Unschedulable"),
            ready_seconds,
            drain_seconds: by("BudgetBlocked"),
        }
    }
}
