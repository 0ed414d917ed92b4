//! The reasons of closed loops: one closed set of words for conditions, decisions, events and metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reasons::reasons;

reasons! {
    /// Reason for the state of a loop or of one of its children, or for the rejection of an alarm. The docs of each word are
    /// for users.
    LoopReason:

    // The loop.
    /// The loop and its children exist and work.
    Running,
    /// The target exists, and the rights of the service account allow every action.
    Passed,
    /// `spec.mode` is Paused.
    Paused,
    /// The children are being created, or the target and the rights are being checked.
    Starting,
    /// A field has a value that cannot be read; the message names the field.
    InvalidObject,
    /// A field of the spec is invalid; the message names the field and what is valid.
    SpecInvalid,
    /// The operator could not read a field of the spec at the moment; it tries again every few seconds.
    NotParsed,
    /// A field of the spec needs a feature that this version does not have; the message names it.
    NotSupported,
    /// The operator's settings exclude the namespace.
    NamespaceRefused,
    /// No RoleBinding in the namespace lets the operator act as its service accounts; the message has the command that makes one.
    NamespaceNotBound,
    /// An object with the name of a child exists, and the loop does not own it.
    NotOwned,
    /// The loop tunes itself, directly or through other loops.
    Circle,
    /// A chain of loops that tune each other is longer than three.
    TooDeep,
    /// The loop's interval is under five times the dwell and settle of the loop that it tunes.
    TimescaleOverlap,
    /// Another loop, which came first, acts on the same target and dimension.
    LoopConflict,
    /// An autoscaler acts on the same target and dimension.
    AutoscalerConflict,

    // Why an alarm was rejected.
    /// Another alarm was served in this iteration.
    Outranked,
    /// No action is declared for the alarm.
    NoAction,
    /// No rung of the ladder is left.
    Exhausted,
    /// The minimum time between two actions has not passed.
    Dwell,
    /// The budget of actions is used up.
    Budget,
    /// The settle time of the last such action has not passed.
    Settling,
    /// Too many changes of direction: capacity is not lowered for now.
    Damped,
    /// Too many changes of direction: no action for now.
    Frozen,
    /// The action is not allowed at this time.
    OutsideWindow,
    /// The value is unknown: no action is taken, or none that lowers capacity.
    UnknownValue,
    /// The previous decision is still being carried out.
    InFlight,
    /// A proposal waits for its approval: the annotation `ganglion.dev/approve` with its digest.
    AwaitsApproval,
    /// The loop's Execution does not exist yet.
    NoExecutor,
    /// The expression gave 0, a negative number, or no number.
    NotSelected,

    // How a decision ended.
    /// The alarm was served.
    Served,
    /// mode: DryRun; in mode Auto the decision would have been carried out.
    DryRun,
    /// mode: Approve; the decision is a proposal.
    Proposed,
    /// The proposal is void: its alarm has ended or the policy has changed.
    Withdrawn,
    /// The target was already at its min or max; nothing changed.
    Limited,
    /// The decision could not be carried out; the message says why.
    Failed,
    /// The outcome cannot be determined; the decision is not carried out again.
    Lost,

    // State of an execution.
    /// There was no decision yet.
    Idle,
    /// The intended change is recorded.
    Claimed,
    /// The change is in progress.
    Executing,
    /// The change was made.
    Done,
    /// Somebody else changed the target in the meantime; nothing was changed.
    Overtaken,
    /// The target does not exist.
    TargetNotFound,
    /// The target has no such field, or cannot be scaled.
    NotScalable,
    /// Another manager owns the replicas; the message names it.
    ReplicasOwnedElsewhere,
    /// Changes of the loop were reverted three times within ten minutes; the message names the manager that reverted them.
    FieldConflict,
    /// The loop's service account lacks a right; the message names verb and resource.
    Forbidden,
    /// The target loop's `tunable` does not allow the change.
    NotTunable,
    /// Another loop or an autoscaler controls the target.
    Blocked,
    /// The decision was not carried out before its deadline.
    TimedOut,

    // Events about a change that a loop made.
    /// The loop changed the replicas of its target.
    Scaled,
    /// The loop changed the resources of its target's pods.
    Resized,
    /// The loop changed a field of its target.
    Patched,
    /// The WorkloadAction that the loop created succeeded.
    ActionSucceeded,
    /// The loop changed the policy of another loop.
    Tuned,
    /// The loop sent an event.
    Sent,

    // State of monitoring.
    /// Every metric has a value.
    Watching,
    /// At least one metric has no value.
    SomeUnknown,
    /// No sample has arrived yet.
    NoSample,
    /// A sample is older than the last accepted one.
    OutOfOrder,
    /// A sample has the same time as the last accepted one.
    Repeated,
    /// A sample's time is in the future.
    FromFuture,
    /// A sample's time cannot be parsed.
    Unreadable,
}

impl LoopReason {
    /// The reason of a condition.
    #[must_use]
    pub fn of(word: &str) -> Self {
        serde_json::from_value(word.into()).unwrap_or(Self::Unknown)
    }
}
