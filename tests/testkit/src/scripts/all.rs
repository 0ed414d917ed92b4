//! The scripts themselves.

use ganglion_api::workload_action::status::Step;

use super::{Ask, BudgetRule, Cue, End, HOME, Nature, Of, Script, What};

const fn succeeded(replicas: i32, on: &'static [(&'static str, usize)]) -> End {
    End { reason: Some("Succeeded"), replicas: Some(replicas), on, receipt: true }
}

/// The action is undone and deleted.
const DELETED: End = End { reason: None, replicas: Some(3), on: &[(HOME, 3), ("node-2", 0)], receipt: false };

/// The action is undone, every replica is back at its node, and the move may be retried.
const fn undone(reason: &'static str) -> End {
    End { reason: Some(reason), ..DELETED }
}

const GOOD: &[(&str, Nature)] = &[("node-2", Nature::Good)];

/// Slow enough for something to happen before the new pod is Ready.
const SLOW: &[(&str, Nature)] = &[("node-2", Nature::Slow(4))];

const CRASHES: &[(&str, Nature)] = &[("node-2", Nature::Crashes)];

/// A Deployment with three replicas; one of them moves to a healthy node.
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
const KILLS: &[(Cue, What)] = &{
    let mut kills = [(Cue::Writes(1), What::KillOperator); 10];
    let mut at = 1;
    while at < kills.len() {
        kills[at].0 = Cue::Writes(at + 1);
        at += 1;
    }
    kills
};

/// All scripts; `tests/cluster/alike.rs` has a test for each.
pub const ALL: &[Script] = &[
    MOVE,
    Script { name: "a move under a budget that allows nothing", budget: Some(BudgetRule::MinAvailable(3)), ..MOVE },
    Script { name: "a move under maxUnavailable 0", budget: Some(BudgetRule::MaxUnavailable(0)), ..MOVE },
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
    Script { name: "the new pod crashes", nodes: CRASHES, end: undone("ReplacementCrashed"), ..MOVE },
    Script {
        name: "the new pod's image is missing",
        nodes: &[("node-2", Nature::NoImage)],
        end: undone("ImagePullFailed"),
        ..MOVE
    },
    Script {
        name: "the new pod is never Ready",
        nodes: &[("node-2", Nature::NeverReady)],
        end: undone("ReplacementNotReady"),
        ..MOVE
    },
    Script { name: "no room", nodes: &[("node-2", Nature::Room(0))], end: undone("NodeFull"), ..MOVE },
    Script {
        name: "a budget that can never allow it",
        budget: Some(BudgetRule::MinAvailable(4)),
        end: undone("BudgetBlocked"),
        ..MOVE
    },
    Script {
        name: "aborted while the new pod starts",
        nodes: SLOW,
        then: &[(Cue::Step(Step::Readying), What::Abort)],
        end: undone("Aborted"),
        ..MOVE
    },
    Script {
        name: "deleted while the new pod starts",
        nodes: SLOW,
        then: &[(Cue::Step(Step::Readying), What::DeleteAction)],
        end: DELETED,
        ..MOVE
    },
    Script {
        name: "applied again when it is done",
        then: &[(Cue::Ended, What::Reapply)],
        end: End { reason: Some("AlreadyExecuted"), ..MOVE.end },
        ..MOVE
    },
    Script {
        name: "the new pod is deleted by somebody",
        nodes: SLOW,
        then: &[(Cue::Step(Step::Readying), What::DeleteReplacement)],
        ..MOVE
    },
    Script {
        name: "somebody scales up while the new pod starts",
        nodes: SLOW,
        then: &[(Cue::Step(Step::Readying), What::Scale(1))],
        end: succeeded(4, &[]),
        ..MOVE
    },
    Script {
        name: "somebody rolls out while the new pod starts: undone, and done again afterwards",
        nodes: SLOW,
        then: &[(Cue::Step(Step::Readying), What::Rollout)],
        end: succeeded(3, &[]),
        ..MOVE
    },
    Script {
        name: "the workload is deleted while the new pod starts",
        nodes: SLOW,
        then: &[(Cue::Step(Step::Readying), What::DeleteWorkload)],
        end: End { reason: Some("WorkloadGone"), replicas: None, on: &[(HOME, 0), ("node-2", 0)], receipt: false },
        ..MOVE
    },
    Script {
        name: "suspended before the exchange and resumed",
        nodes: SLOW,
        then: &[(Cue::Step(Step::Readying), What::Suspend), (Cue::Says("Suspended"), What::Resume)],
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
        end: undone("ReplacementCrashed"),
        ..MOVE
    },
    Script {
        name: "the new pod crashes, and the operator dies after every write",
        nodes: CRASHES,
        then: KILLS.split_at(7).0,
        end: undone("ReplacementCrashed"),
        ..MOVE
    },
    Script {
        name: "the operator dies while the new pod is not Ready, as it never is",
        nodes: &[("node-2", Nature::NeverReady)],
        then: &[(Cue::Step(Step::Readying), What::KillOperator)],
        end: undone("ReplacementNotReady"),
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
        budget: Some(BudgetRule::MinAvailable(3)),
        ask: Ask::Delete(1),
        end: undone("BudgetBlocked"),
        ..MOVE
    },
    Script {
        name: "two fewer under a budget that allows one at a time",
        budget: Some(BudgetRule::MaxUnavailable(1)),
        ask: Ask::Delete(2),
        end: succeeded(1, &[(HOME, 1)]),
        ..MOVE
    },
    Script {
        name: "one fewer under a budget that allows nothing until somebody scales up",
        budget: Some(BudgetRule::MinAvailable(3)),
        ask: Ask::Delete(1),
        then: &[(Cue::Says("BudgetBlocked"), What::Scale(1))],
        end: succeeded(3, &[]),
        ..MOVE
    },
    Script {
        name: "one more, while somebody scales up",
        nodes: SLOW,
        ask: Ask::Create(1, "node-2"),
        then: &[(Cue::Step(Step::Readying), What::Scale(1))],
        end: succeeded(5, &[]),
        ..MOVE
    },
    Script {
        name: "one more, while somebody rolls out",
        nodes: SLOW,
        ask: Ask::Create(1, "node-2"),
        then: &[(Cue::Step(Step::Readying), What::Rollout)],
        end: succeeded(4, &[]),
        ..MOVE
    },
    Script {
        name: "somebody scales down while the new pod starts",
        nodes: SLOW,
        then: &[(Cue::Step(Step::Readying), What::Scale(-1))],
        end: succeeded(2, &[]),
        ..MOVE
    },
    Script {
        name: "somebody scales to nothing while the new pod starts",
        nodes: SLOW,
        then: &[(Cue::Step(Step::Readying), What::Scale(-3))],
        end: End { replicas: Some(0), on: &[(HOME, 0), ("node-2", 0)], ..undone("NotEnoughReplicas") },
        ..MOVE
    },
    Script {
        name: "applied again while the new pod starts: undone, and done by the second",
        nodes: SLOW,
        then: &[(Cue::Step(Step::Readying), What::Reapply)],
        ..MOVE
    },
    Script {
        name: "deleted while it is suspended",
        nodes: SLOW,
        then: &[(Cue::Step(Step::Readying), What::Suspend), (Cue::Says("Suspended"), What::DeleteAction)],
        end: DELETED,
        ..MOVE
    },
];
