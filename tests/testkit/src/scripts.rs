//! Short stories with a known end, as data: what is there, what is asked for, what happens meanwhile, how it ends.
//!
//! They know nothing of who plays them. `tests/model` plays them on its simulated cluster, `tests/cluster/alike.rs` plays
//! the same on a real control plane, and they have to end alike.

use std::collections::BTreeMap;

use ganglion::api::targets::{NodeSource, Target, WorkloadRef};
use ganglion::api::workload_action::status::Step;
use ganglion::api::workload_action::{Create, Delete, Disruption, Move, Timeouts, WorkloadActionSpec};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Deployment,
    /// A ReplicaSet of its own, whose pods bear a label by which no Service selects.
    ReplicaSet,
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// So many replicas, from [`HOME`], to this node.
    Move(i32, &'static str),
    Create(i32, &'static str),
    Delete(i32),
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    KillOperator,
    /// Somebody scales the workload by so many.
    Scale(i32),
    DeleteNewcomer,
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

const fn succeeded(replicas: i32, on: &'static [(&'static str, usize)]) -> End {
    End { reason: Some("Succeeded"), replicas: Some(replicas), on, receipt: true }
}

/// Undone, and gone.
const DELETED: End = End { reason: None, replicas: Some(3), on: &[(HOME, 3), ("node-2", 0)], receipt: false };

/// Undone, every replica where it was, and free to be tried again.
const fn undone(reason: &'static str) -> End {
    End { reason: Some(reason), ..DELETED }
}

const GOOD: &[(&str, Nature)] = &[("node-2", Nature::Good)];

/// Slow enough for something to happen while the new pod is not Ready yet.
const SLOW: &[(&str, Nature)] = &[("node-2", Nature::Slow(4))];

const CRASHES: &[(&str, Nature)] = &[("node-2", Nature::Crashes)];

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
                let (workload, count) = (Some(workload), Some(count));
                spec.move_ = Some(Move { workload, pod: None, from, to: to(node), count });
            }
            Ask::Create(count, node) => spec.create = Some(Create { workload, to: to(node), count: Some(count) }),
            Ask::Delete(count) => {
                spec.delete = Some(Delete { workload: Some(workload), pod: None, from, count: Some(count) });
            }
        }
        spec
    }

    /// Only what the story ends by may run out.
    fn timeouts(&self) -> Timeouts {
        let ends_by = |reason: &str| self.end.reason == Some(reason);
        let by = |reason: &str| Some(if ends_by(reason) { SHORT } else { LONG });
        // A budget is waited for after the new pod's time, and as much longer.
        let ready_seconds = if ends_by("BudgetBlocked") { Some(3 * SHORT) } else { by("NewcomerNotReady") };
        Timeouts {
            queue_seconds: Some(LONG),
            schedule_seconds: by("Unschedulable"),
            ready_seconds,
            drain_seconds: by("BudgetBlocked"),
        }
    }
}

/// Three replicas of a Deployment, one of which moves to a good node.
const MOVE: Script = Script {
    name: "a move",
    of: Of::Deployment,
    replicas: 3,
    budget: None,
    nodes: GOOD,
    ask: Ask::Move(1, "node-2"),
    disruption: false,
    then: &[],
    end: succeeded(3, &[(HOME, 2), ("node-2", 1)]),
};

/// The operator dies after each of its first writes.
const KILLS: &[(When, What)] = &{
    let mut kills = [(When::Writes(1), What::KillOperator); 10];
    let mut at = 1;
    while at < kills.len() {
        kills[at].0 = When::Writes(at + 1);
        at += 1;
    }
    kills
};

pub const ALL: &[Script] = &[
    MOVE,
    Script { name: "a move under a budget that allows nothing", budget: Some(Budget::MinAvailable(3)), ..MOVE },
    Script { name: "a move under maxUnavailable 0", budget: Some(Budget::MaxUnavailable(0)), ..MOVE },
    Script { name: "a move of a ReplicaSet's pod", of: Of::ReplicaSet, ..MOVE },
    Script {
        name: "all replicas move",
        ask: Ask::Move(3, "node-2"),
        end: succeeded(3, &[(HOME, 0), ("node-2", 3)]),
        ..MOVE
    },
    Script { name: "a move whose operator dies after every write", then: KILLS, ..MOVE },
    Script { name: "two more", ask: Ask::Create(2, "node-2"), end: succeeded(5, &[(HOME, 3), ("node-2", 2)]), ..MOVE },
    Script {
        name: "one more, whose operator dies after every write",
        ask: Ask::Create(1, "node-2"),
        then: KILLS,
        end: succeeded(4, &[(HOME, 3), ("node-2", 1)]),
        ..MOVE
    },
    Script { name: "two fewer", ask: Ask::Delete(2), end: succeeded(1, &[(HOME, 1)]), ..MOVE },
    Script {
        name: "one fewer, whose operator dies after every write",
        ask: Ask::Delete(1),
        then: KILLS,
        end: succeeded(2, &[(HOME, 2)]),
        ..MOVE
    },
    Script { name: "the new pod crashes", nodes: CRASHES, end: undone("NewcomerCrashed"), ..MOVE },
    Script {
        name: "the new pod's image is missing",
        nodes: &[("node-2", Nature::NoImage)],
        end: undone("ImagePullFailed"),
        ..MOVE
    },
    Script {
        name: "the new pod is never Ready",
        nodes: &[("node-2", Nature::NeverReady)],
        end: undone("NewcomerNotReady"),
        ..MOVE
    },
    Script { name: "no room", nodes: &[("node-2", Nature::Room(0))], end: undone("NodeFull"), ..MOVE },
    Script {
        name: "a budget that can never allow it",
        budget: Some(Budget::MinAvailable(4)),
        end: undone("BudgetBlocked"),
        ..MOVE
    },
    Script {
        name: "aborted while the new pod starts",
        nodes: SLOW,
        then: &[(When::Step(Step::Readying), What::Abort)],
        end: undone("Aborted"),
        ..MOVE
    },
    Script {
        name: "deleted while the new pod starts",
        nodes: SLOW,
        then: &[(When::Step(Step::Readying), What::DeleteAction)],
        end: DELETED,
        ..MOVE
    },
    Script {
        name: "applied again when it is done",
        then: &[(When::Ended, What::Reapply)],
        end: End { reason: Some("AlreadyExecuted"), ..MOVE.end },
        ..MOVE
    },
    Script {
        name: "the new pod is deleted by somebody",
        nodes: SLOW,
        then: &[(When::Step(Step::Readying), What::DeleteNewcomer)],
        ..MOVE
    },
    Script {
        name: "somebody scales up while the new pod starts",
        nodes: SLOW,
        then: &[(When::Step(Step::Readying), What::Scale(1))],
        end: succeeded(4, &[]),
        ..MOVE
    },
    Script {
        name: "somebody rolls out while the new pod starts: undone, and done again afterwards",
        nodes: SLOW,
        then: &[(When::Step(Step::Readying), What::Rollout)],
        end: succeeded(3, &[]),
        ..MOVE
    },
    Script {
        name: "the workload is deleted while the new pod starts",
        nodes: SLOW,
        then: &[(When::Step(Step::Readying), What::DeleteWorkload)],
        end: End { reason: Some("WorkloadGone"), replicas: None, on: &[(HOME, 0), ("node-2", 0)], receipt: false },
        ..MOVE
    },
    Script {
        name: "suspended before the exchange and resumed",
        nodes: SLOW,
        then: &[(When::Step(Step::Readying), What::Suspend), (When::Says("Suspended"), What::Resume)],
        ..MOVE
    },
    Script {
        name: "two move where there is room for one",
        ask: Ask::Move(2, "node-2"),
        nodes: &[("node-2", Nature::Room(1))],
        end: undone("NodeFull"),
        ..MOVE
    },
    Script {
        name: "one more, which crashes",
        nodes: CRASHES,
        ask: Ask::Create(1, "node-2"),
        end: undone("NewcomerCrashed"),
        ..MOVE
    },
    Script {
        name: "the new pod crashes, and the operator dies after every write",
        nodes: CRASHES,
        then: KILLS.split_at(7).0,
        end: undone("NewcomerCrashed"),
        ..MOVE
    },
    Script {
        name: "the operator dies while the new pod is not Ready, as it never is",
        nodes: &[("node-2", Nature::NeverReady)],
        then: &[(When::Step(Step::Readying), What::KillOperator)],
        end: undone("NewcomerNotReady"),
        ..MOVE
    },
    Script {
        name: "a move of a ReplicaSet's pod, whose operator dies after every write",
        of: Of::ReplicaSet,
        then: KILLS,
        ..MOVE
    },
    Script { name: "all replicas go", ask: Ask::Delete(3), end: succeeded(0, &[(HOME, 0)]), ..MOVE },
    Script {
        name: "one fewer under a budget that allows nothing",
        budget: Some(Budget::MinAvailable(3)),
        ask: Ask::Delete(1),
        end: undone("BudgetBlocked"),
        ..MOVE
    },
    Script {
        name: "two fewer under a budget that allows one at a time",
        budget: Some(Budget::MaxUnavailable(1)),
        ask: Ask::Delete(2),
        end: succeeded(1, &[(HOME, 1)]),
        ..MOVE
    },
    Script {
        name: "one fewer under a budget that allows nothing until somebody scales up",
        budget: Some(Budget::MinAvailable(3)),
        ask: Ask::Delete(1),
        then: &[(When::Says("BudgetBlocked"), What::Scale(1))],
        end: succeeded(3, &[]),
        ..MOVE
    },
    Script {
        name: "one more, while somebody scales up",
        nodes: SLOW,
        ask: Ask::Create(1, "node-2"),
        then: &[(When::Step(Step::Readying), What::Scale(1))],
        end: succeeded(5, &[]),
        ..MOVE
    },
    Script {
        name: "one more, while somebody rolls out",
        nodes: SLOW,
        ask: Ask::Create(1, "node-2"),
        then: &[(When::Step(Step::Readying), What::Rollout)],
        end: succeeded(4, &[]),
        ..MOVE
    },
    Script {
        name: "somebody scales down while the new pod starts",
        nodes: SLOW,
        then: &[(When::Step(Step::Readying), What::Scale(-1))],
        end: succeeded(2, &[]),
        ..MOVE
    },
    Script {
        name: "somebody scales to nothing while the new pod starts",
        nodes: SLOW,
        then: &[(When::Step(Step::Readying), What::Scale(-3))],
        end: End { replicas: Some(0), on: &[(HOME, 0), ("node-2", 0)], ..undone("NotEnoughReplicas") },
        ..MOVE
    },
    Script {
        name: "applied again while the new pod starts: undone, and done by the second",
        nodes: SLOW,
        then: &[(When::Step(Step::Readying), What::Reapply)],
        ..MOVE
    },
    Script {
        name: "deleted while it is suspended",
        nodes: SLOW,
        then: &[(When::Step(Step::Readying), What::Suspend), (When::Says("Suspended"), What::DeleteAction)],
        end: DELETED,
        ..MOVE
    },
];
