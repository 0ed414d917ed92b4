//! Reasons of closed loops: one closed set of words for conditions, decisions, events and metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reasons::reasons;

reasons! {
    /// Reason for the state of a loop or of one of its children, or for the rejection of an alarm. The documentation of
    /// each word is user documentation.
    LoopReason:

    // The loop.
    /// The loop and its children exist and work.
    Running,
    /// The target exists, and the permissions of the service account allow every action.
    Passed,
    /// `spec.mode` is Paused.
    Paused,
    /// The children are being created, or the target and the permissions are being checked.
    Starting,
    /// A field has a value that cannot be parsed; the message names the field.
    InvalidObject,
    /// Admission policies of the operator are missing or edited, so the operator does not act; the message says which,
    /// and what to do.
    AdmissionPolicyMissing,
    /// The CRD of this kind is older than the operator, so the operator does not act; the message says what to do.
    DefinitionOutdated,
    /// A field of the spec is invalid; the message names the field and the valid values.
    SpecInvalid,
    /// The operator could not parse a field of the spec; it retries every few seconds.
    NotParsed,
    /// A field of the spec requires a feature that this version does not support; the message names it.
    NotSupported,
    /// The operator's settings exclude the namespace.
    NamespaceRefused,
    /// No RoleBinding in the namespace lets the operator impersonate its service accounts; the message contains the
    /// command that creates one.
    NamespaceNotBound,
    /// An object with the name of a child exists, but the loop does not own it.
    NotOwned,
    /// The API server refuses to create or change a child, for instance because of a quota; the message has its words.
    ChildRefused,
    /// The loop tunes itself, directly or through other loops.
    Circle,
    /// A chain of loops that tune each other has more than three loops.
    TooDeep,
    /// The loop's interval is shorter than five times the dwell and settle of the loop that it tunes.
    TimescaleOverlap,
    /// Another loop that was created first acts on the same target and dimension.
    LoopConflict,
    /// An autoscaler acts on the same target and dimension.
    AutoscalerConflict,

    // Reasons for the rejection of an alarm.
    /// Another alarm was served in this iteration.
    Outranked,
    /// No action is declared for the alarm.
    NoAction,
    /// The action is for several alarms together, and not all of them are active; the message says which are not.
    NotAllActive,
    /// All rungs of the ladder have been tried.
    Exhausted,
    /// The minimum time between two actions has not passed.
    Dwell,
    /// The budget of actions is used up.
    Budget,
    /// The settle time of the last action for this alarm has not passed.
    Settling,
    /// Too many changes of direction: capacity is not lowered for now.
    Damped,
    /// Too many changes of direction: no action for now.
    Frozen,
    /// The action is not allowed at this time.
    OutsideWindow,
    /// The value is unknown: no action is taken, or only actions that do not lower capacity.
    UnknownValue,
    /// The previous decision is still being carried out.
    InFlight,
    /// A proposal waits for approval: the annotation `ganglion.dev/approve` with its digest.
    AwaitsApproval,
    /// The loop's Execution does not exist yet.
    NoExecutor,
    /// The expression returned 0, a negative number, or no number.
    NotSelected,

    // Outcomes of a decision.
    /// The alarm was served.
    Served,
    /// mode: DryRun; in mode Auto, the decision would have been carried out.
    DryRun,
    /// mode: Approve; the decision is a proposal.
    Proposed,
    /// The proposal is void: its alarm has ended or the policy has changed.
    Withdrawn,
    /// Nothing changed: the target was already at its min or max, or there was no replica to move.
    Limited,
    /// The decision could not be carried out; the message says why.
    Failed,
    /// The outcome cannot be determined; the decision is not carried out again.
    Lost,

    // State of an execution.
    /// No decision has been made yet.
    Idle,
    /// The intended change is recorded.
    Claimed,
    /// The change is in progress.
    Executing,
    /// The change was made.
    Done,
    /// Another client changed the target in the meantime; the loop changed nothing.
    Overtaken,
    /// The target does not exist.
    TargetNotFound,
    /// The target does not have the field, or cannot be scaled.
    NotScalable,
    /// Another field manager applies the replicas; the message names it and says how to hand the field over.
    ReplicasOwnedElsewhere,
    /// Another field manager applies the field that the rung changes; the message names it and says how to hand the
    /// field over.
    FieldOwnedElsewhere,
    /// Changes of the loop were reverted three times in a row; the message names the field manager that reverted them.
    /// The loop tries once more after an hour, or as soon as somebody else writes the field.
    FieldConflict,
    /// The loop's service account lacks a permission; the message names the verb and the resource.
    Forbidden,
    /// The target loop's `tunable` does not allow the change.
    NotTunable,
    /// A kubelet has not carried out the last resize of a pod, so the pod is not resized further; the message names the
    /// pod and quotes the kubelet.
    ResizePending,
    /// A kubelet has deferred a resize for too long, so the loop took it back; the message names the pods and the
    /// nodes.
    ResizeTakenBack,
    /// A metric in percent of the requests has an alarm, and the loop changes these requests; the message says what to
    /// use instead.
    UtilizationFeedback,
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
    /// The metrics are watched.
    Watching,
    /// Every metric has a value.
    AllKnown,
    /// At least one metric has no value.
    SomeUnknown,
    /// No sample has arrived yet.
    NoSample,

    // State of actions on side Target.
    /// The number of replicas follows the metrics.
    Tracking,
    /// The target has its min, and the metrics ask for fewer replicas.
    AtMin,
    /// The target has its max, and the metrics ask for more replicas.
    AtMax,
    /// The target has 0 replicas, since no metric is active. It wakes when one is.
    Inactive,
    /// Somebody else scaled the target to 0. It stays there until somebody scales it to 1 or more.
    StoppedAtZero,
    /// The target's number of replicas or its pods cannot be read; the message says why.
    TargetUnknown,

    // Refused samples.
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
    /// Parses the reason of a condition.
    pub fn of(word: &str) -> Self {
        serde_json::from_value(word.into()).unwrap_or(Self::Unknown)
    }
}
