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
    /// The replicas of an application are moving.
    Moving,
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
    /// The operator's settings allow no more replicas at once in the cluster.
    LimitReached,
    /// The moveApplication lets no more replicas move at once.
    ApplicationLimitReached,
    /// The operator's settings allow no more replicas at once in the namespace.
    NamespaceLimitReached,
    /// The operator's settings allow no more replicas of the workload at once.
    WorkloadLimitReached,
    /// The operator's settings allow no more replicas at once that leave the node, or that arrive at it.
    NodeLimitReached,
    /// Another action works on this workload, and the two cannot run together.
    WorkloadBusy,
    /// Another action works on this pod.
    VictimBusy,
    /// The load of nodes is unknown: the operator watches some namespaces and may not see the pods of the others.
    LoadUnknown,
    /// The usage of nodes, which an expression of the action reads, is unknown.
    UsageUnknown,
    /// A rollout of the workload is in flight.
    RolloutInProgress,
    /// Other replicas of the set are not Ready.
    ReplicasNotReady,
    /// A PodDisruptionBudget does not allow the eviction.
    BudgetBlocked,

    // Refused before any effect.
    /// A field has a value that cannot be read; the message names the field.
    InvalidObject,
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
    /// The operator's settings never allow as many replicas at once as the action changes together.
    LimitTooSmall,
    /// Fewer replicas are available than the action asks for.
    NotEnoughReplicas,
    /// The node does not exist.
    NodeNotFound,
    /// No node that the target allows can take the replica.
    NoCandidateNode,
    /// The PlacementPolicy that the target names does not exist.
    PolicyNotFound,
    /// The spec of the PlacementPolicy that the target names is invalid.
    PolicyInvalid,
    /// The PlacementPolicy rejects the node.
    PolicyRejected,
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
    /// A volume of the replica is bound, and cannot be used on the node.
    VolumeOnOtherNode,
    /// The node has no room for the pod.
    NodeFull,
    /// No label of the ReplicaSet's selector can be removed from a pod without a Service or budget losing the pod.
    NoDetachLabel,
    /// The replica of a StatefulSet cannot be moved without a break, which the action does not allow.
    DisruptionNeeded,
    /// The cluster cannot give a pod of the StatefulSet the node that is wanted.
    PinNotInstalled,
    /// A StatefulSet loses the replica with the highest ordinal first, and the action asks for another one.
    NotHighestOrdinal,
    /// The new pod cannot run beside the old one: a volume that one node at a time may mount, or `strategy: Recreate`.
    ReplacementCannotBeFirst,
    /// The old pod would have to go first, and the next one could come back to its node.
    NodeNotCordoned,
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
    /// The new replica of a StatefulSet came on another node than the one that is wanted.
    PinMissed,
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
    /// New replicas keep coming to the nodes that an application leaves.
    SourceRefilled,
    /// The ReplicaSet controller does not react.
    SetStuck,
    /// The operator's watches broke a moment ago; those of the ReplicaSet controller may have broken, too.
    WatchesBroken,
    /// The API server refused a request of the operator; the message names the missing right or the rule.
    Forbidden,

    // Notifications: reasons of the condition Notified.
    /// Each receiver has accepted the event.
    Delivered,
    /// The event is being sent.
    Delivering,
    /// An attempt failed and another one follows.
    DeliveryRetrying,
    /// A receiver did not accept the event, and no further attempt is made.
    DeliveryFailed,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Reason {
    /// What the user can do now. The message of the condition has the names.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::Succeeded | Self::Verifying => "Nothing to do.",
            Self::AlreadyExecuted => {
                "To run it again, delete its WorkloadActionReceipt, or apply a new action with runPolicy: OncePerObject."
            }
            Self::Planned => "To carry the plan out, apply a new action with mode: Execute.",
            Self::Queued
            | Self::Creating
            | Self::Scheduling
            | Self::Readying
            | Self::Detached
            | Self::Marked
            | Self::Scaled
            | Self::Adopted
            | Self::Moving
            | Self::Evicting => "Wait. To undo what was done so far, set spec.abort to true.",
            Self::RollingBack => "Wait until the changes are undone.",
            Self::RolledBack | Self::Failed => "Remove the cause that the message names, then apply a new action.",
            Self::Suspended => "Set spec.suspend to false to resume.",
            Self::ApplicationLimitReached => "Wait until other replicas of the application have moved.",
            Self::LimitReached | Self::NamespaceLimitReached | Self::WorkloadLimitReached | Self::NodeLimitReached => {
                "Wait, or raise the limit in the operator's settings."
            }
            Self::WorkloadBusy | Self::VictimBusy => "Wait until the other action has ended, or abort it.",
            Self::LoadUnknown => {
                "Grant the operator list and watch on pods in all namespaces by a ClusterRole, or let it watch all namespaces."
            }
            Self::UsageUnknown => {
                "Install metrics-server, or measure the nodes by NodeConfigs. To go on without, apply a new action without utilization in where."
            }
            Self::RolloutInProgress => "Wait until the rollout has ended: kubectl rollout status.",
            Self::ReplicasNotReady => "Wait until the replicas of the set are Ready, or repair them.",
            Self::BudgetBlocked => "Wait until the PodDisruptionBudget allows a disruption, or change the budget.",
            Self::NotSupported => "Apply a new action without what the message names.",
            Self::NamespaceRefused => {
                "Use another namespace, or set namespaces.allowKube in the operator's settings, then apply a new action."
            }
            Self::InvalidObject => "Delete the object and apply it again with what the message names put right.",
            Self::ExpressionInvalid => "Apply a new action with a valid expression in where.",
            Self::WorkloadNotFound => "Check kind, name and namespace of the workload, then apply a new action.",
            Self::PodNotFound => "Apply a new action that names a running pod.",
            Self::LimitTooSmall => {
                "Apply a new action that swaps fewer replicas, or raise the limit in the operator's settings first."
            }
            Self::NotEnoughReplicas => {
                "Apply a new action with a lower count; status.plan.pods shows why each pod was left out."
            }
            Self::NodeNotFound => "Apply a new action that names a node of kubectl get nodes.",
            Self::NoCandidateNode => "See status.plan.nodes for each node; apply a new action with another target.",
            Self::PolicyNotFound => "Apply a new action that names a policy of kubectl get plpol.",
            Self::PolicyInvalid => "Correct the policy, then apply a new action.",
            Self::PolicyRejected => {
                "See ganglion explain placement for the policy's reasons, or apply a new action with another target."
            }
            Self::AlreadyOnTarget => "Nothing to do, or apply a new action with another target.",
            Self::NodeNotReady | Self::NodeGone => "Repair the node, or apply a new action with another target.",
            Self::NodeCordoned => "Uncordon the node, or apply a new action with another target.",
            Self::NodeTainted => "Add a toleration to the workload, or apply a new action with another target.",
            Self::NodeExcluded => {
                "Change the pod's node selector or affinity, or apply a new action with another target."
            }
            Self::VolumeOnOtherNode => {
                "Apply a new action with a target on which the volume can be used: kubectl describe pv shows its nodes."
            }
            Self::NodeFull => "Make room on the node, or apply a new action with another target.",
            Self::NoDetachLabel => {
                "Add a label that no Service or budget selects by to the selector and template of the ReplicaSet."
            }
            Self::ReplacementCannotBeFirst => {
                "Apply a new action with disruption: Allowed and without `to`, which evicts the old pod first."
            }
            Self::NodeNotCordoned => "Cordon the node that the message names, then apply a new action.",
            Self::ReplicasOwnedElsewhere => {
                "Change the number where its owner keeps it, or apply a new action with onReplicaOwner: Force."
            }
            Self::BudgetsOverlap => "Change the PodDisruptionBudgets so that one of them selects the pod.",
            Self::DisruptionNeeded => "Apply a new action with disruption: Allowed.",
            Self::PinNotInstalled => {
                "Apply kustomize/components/pin-statefulsets (Kubernetes 1.36 or newer), or add the scheduling gate \
                 ganglion.dev/placement to the template of the StatefulSet; then apply a new action."
            }
            Self::NotHighestOrdinal => {
                "Apply a new action that deletes the replica with the highest ordinal, or move this one to another node."
            }
            Self::PinMissed => {
                "Check the policy ganglion-pin-statefulsets and its binding: kubectl apply -k kustomize/components/pin-statefulsets. \
                 Then apply a new action."
            }
            Self::QueueTimedOut => "Apply a new action, with a longer timeouts.queueSeconds if it has to wait.",
            Self::Expired => "Apply a new action with a later notAfter.",
            Self::Aborted => "Apply a new action if it is still wanted.",
            Self::Unschedulable => {
                "See the events of the namespace for what the scheduler lacks, then apply a new action."
            }
            Self::ReplacementNotReady | Self::ReplacementCrashed => {
                "Repair the workload, or apply a new action with a longer timeouts.readySeconds."
            }
            Self::ImagePullFailed => "Repair the image or its pull secret, then apply a new action.",
            Self::ReplacementLost | Self::VictimGone => {
                "Find out who deletes pods of the workload, then apply a new action."
            }
            Self::PodRefused => "Raise the quota or change the rule that the message names, then apply a new action.",
            Self::VictimStuck => "See the pod's finalizers and its node's kubelet.",
            Self::RolloutStarted => "Wait until the rollout has ended, then apply a new action.",
            Self::WorkloadScaled => "Apply a new action if it is still wanted.",
            Self::WorkloadGone => "Nothing to do: the workload was deleted.",
            Self::SourceRefilled => "Cordon the nodes that the application leaves, then apply a new action.",
            Self::SetStuck => "Check the controller manager and the quota of the namespace, then apply a new action.",
            Self::WatchesBroken => "Wait a moment. If nothing changes, check the API server.",
            Self::Forbidden => "Grant the right that the message names, or change the rule.",
            Self::Delivered => "Nothing to do.",
            Self::Delivering => "Wait until the receivers have answered.",
            Self::DeliveryRetrying => "Repair the receiver or what the message names; the event is sent again.",
            Self::DeliveryFailed => {
                "Read the result in the action's status. Repair the receiver or what the message names for the next action."
            }
            Self::Unknown => "Use the ganglion program of the operator's version.",
        }
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
