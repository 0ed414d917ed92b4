//! The reasons of WorkloadActions: one closed set of words for conditions, slots, events and metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::workload_action::status::Step;

/// Declares the enum of one kind's reasons together with the spelling of each word, so that the two cannot drift apart.
macro_rules! reasons {
    ($(#[$about:meta])* $kind:ident: $($(#[$doc:meta])* $word:ident,)*) => {
        $(#[$about])*
        #[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[schemars(with = "String")]
        pub enum $kind {
            $($(#[$doc])* $word,)*
            /// A word of a newer version of this operator.
            #[serde(other)]
            Unknown,
        }

        impl $kind {
            /// The word itself, as it stands in conditions, events and metrics.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$word => stringify!($word),)*
                    Self::Unknown => "Unknown",
                }
            }
        }

        impl AsRef<str> for $kind {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }
    };
}
pub(crate) use reasons;

reasons! {
    /// The reason for the state of a WorkloadAction or of one of its slots.
    Reason:

    // Success.
    /// Everything was done and verified.
    Succeeded,
    /// The same action ran before, as its receipt says; nothing was done.
    AlreadyExecuted,
    /// mode: Plan; `status.plan` says what would be done.
    Planned,

    // In progress: the step of the slot that is furthest behind.
    /// Waiting for admission.
    Queued,
    /// The new replica is being created.
    Creating,
    /// The new replica waits for the scheduler.
    Scheduling,
    /// The new replica is scheduled and not yet Ready for long enough.
    Readying,
    /// The old replica was detached from its ReplicaSet; it still serves.
    Detached,
    /// The ReplicaSet's substitute is marked for deletion.
    Marked,
    /// The workload's `spec.replicas` was changed.
    Scaled,
    /// The new replica belongs to the ReplicaSet.
    Adopted,
    /// The old replica is being evicted.
    Evicting,
    /// Everything was done; its outcome is being verified.
    Verifying,
    /// The changes are being undone.
    RollingBack,
    /// All changes were undone.
    RolledBack,
    /// Ended without success.
    Failed,
    /// `spec.suspend` is true.
    Suspended,

    // Waiting.
    /// The operator's settings allow no more replicas at once.
    LimitReached,
    /// Another action works on this workload, and the two cannot run together.
    WorkloadBusy,
    /// Another action works on this pod.
    VictimBusy,
    /// A rollout of the workload is in flight.
    RolloutInProgress,
    /// Other replicas of the set are not Ready.
    ReplicasNotReady,
    /// A PodDisruptionBudget does not allow the eviction.
    BudgetBlocked,

    // Refused before any effect.
    /// The operator's settings exclude the namespace.
    NamespaceRefused,
    /// A member of the spec, or a kind of workload, that this version does not handle.
    NotSupported,
    /// An expression that does not parse, or names something unknown.
    ExpressionInvalid,
    /// The workload does not exist.
    WorkloadNotFound,
    /// The pod does not exist.
    PodNotFound,
    /// Fewer replicas are available than the action asks for.
    NotEnoughReplicas,
    /// The node does not exist.
    NodeNotFound,
    /// No node that the target allows can take the replica.
    NoCandidateNode,
    /// The replica is on the target already.
    AlreadyOnTarget,
    /// The node is not Ready.
    NodeNotReady,
    /// The node is cordoned.
    NodeCordoned,
    /// The node has a taint that the pod does not tolerate.
    NodeTainted,
    /// The pod's own node selector or affinity excludes the node.
    NodeExcluded,
    /// The node has no room for the pod.
    NodeFull,
    /// No label of the ReplicaSet's selector can be removed from a pod without a Service or budget losing the pod.
    NoDetachLabel,
    /// An autoscaler or GitOps tool owns `spec.replicas`.
    ReplicasOwnedElsewhere,
    /// More than one PodDisruptionBudget selects the pod, so that nothing may evict it.
    BudgetsOverlap,

    // Failure.
    /// The action was not admitted within queueSeconds.
    QueueTimedOut,
    /// The action was not admitted by notAfter.
    Expired,
    /// `spec.abort` was set, or the action was deleted while it ran.
    Aborted,
    /// The new replica was not scheduled in time.
    Unschedulable,
    /// The new replica was not Ready in time.
    ReplacementNotReady,
    /// The new replica crashes.
    ReplacementCrashed,
    /// The new replica's image cannot be pulled.
    ImagePullFailed,
    /// The new replica was deleted by somebody else.
    ReplacementLost,
    /// A quota or an admission rule refused the new replica.
    PodRefused,
    /// The target node went away, or stopped taking pods.
    NodeGone,
    /// The old replica was deleted by somebody else.
    VictimGone,
    /// The old replica does not terminate.
    VictimStuck,
    /// A rollout of the workload began.
    RolloutStarted,
    /// Somebody scaled the workload.
    WorkloadScaled,
    /// The workload was deleted.
    WorkloadGone,
    /// The ReplicaSet controller does not react.
    SetStuck,
    /// The operator's watches broke a moment ago; those of the ReplicaSet controller may have broken, too.
    WatchesBroken,
    /// The API server refused a request of the operator; the message names the missing right or the rule.
    Forbidden,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<Step> for Reason {
    fn from(step: Step) -> Self {
        match step {
            Step::Queued => Self::Queued,
            Step::Planned => Self::Planned,
            Step::Creating => Self::Creating,
            Step::Scheduling => Self::Scheduling,
            Step::Readying => Self::Readying,
            Step::Detached => Self::Detached,
            Step::Marked => Self::Marked,
            Step::Scaled => Self::Scaled,
            Step::Adopted => Self::Adopted,
            Step::Evicting => Self::Evicting,
            Step::Verifying => Self::Verifying,
            Step::RollingBack => Self::RollingBack,
            Step::Succeeded => Self::Succeeded,
            Step::RolledBack => Self::RolledBack,
            Step::Failed => Self::Failed,
            Step::Aborted => Self::Aborted,
            Step::Expired => Self::Expired,
        }
    }
}
