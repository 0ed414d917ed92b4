//! Reasons of WorkloadActions: one closed set of words for conditions, slots, events and metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Declares the enum of one kind's reasons together with the spelling of each word, so that the two cannot diverge.
macro_rules! reasons {
    ($(#[$about:meta])* $kind:ident: $($(#[$doc:meta])* $word:ident,)*) => {
        $(#[$about])*
        #[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[schemars(with = "String")]
        pub enum $kind {
            $($(#[$doc])* $word,)*
            /// A reason of a newer version of this operator.
            #[serde(other)]
            Unknown,
        }

        impl $kind {
            /// All words of this version.
            pub const ALL: &'static [Self] = &[$(Self::$word,)*];

            /// The word as it appears in conditions, events and metrics.
            pub const fn as_str(self) -> &'static str {
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
    /// Reason for the state of a WorkloadAction or of one of its slots.
    Reason:

    // Success.
    /// Everything was done and verified.
    Succeeded,
    /// The same action ran before, as its receipt shows; nothing was done.
    AlreadyExecuted,
    /// mode: Plan; `status.plan` shows what would be done.
    Planned,

    // In progress: the step of the slot that is the furthest behind.
    /// Waiting for admission.
    Queued,
    /// The new replica is being created.
    Creating,
    /// The new replica waits for the scheduler.
    Scheduling,
    /// The new replica is scheduled, but has not been Ready for long enough.
    Readying,
    /// The old replica was detached from its ReplicaSet; it still serves.
    Detached,
    /// The pod that the ReplicaSet created as a substitute is marked for deletion.
    Marked,
    /// The workload's `spec.replicas` was changed.
    Scaled,
    /// The new replica belongs to the ReplicaSet.
    Adopted,
    /// The replicas of an application are moving.
    Moving,
    /// The old replica is being evicted.
    Evicting,
    /// All changes were made; the outcome is being verified.
    Verifying,
    /// The changes are being undone.
    RollingBack,
    /// All changes were undone.
    RolledBack,
    /// The action ended without success.
    Failed,
    /// `spec.suspend` is true.
    Suspended,

    // Waiting.
    /// The limit in the operator's settings for replicas at once in the cluster is reached.
    LimitReached,
    /// The limit of the moveApplication for replicas at once is reached.
    ApplicationLimitReached,
    /// The limit in the operator's settings for replicas at once in the namespace is reached.
    NamespaceLimitReached,
    /// The limit in the operator's settings for replicas of the workload at once is reached.
    WorkloadLimitReached,
    /// The limit in the operator's settings for replicas that leave or arrive at the node at once is reached.
    NodeLimitReached,
    /// Another action works on this workload, and the two actions cannot run together.
    WorkloadBusy,
    /// Another action works on this pod.
    VictimBusy,
    /// The load of the nodes is unknown: the operator watches some namespaces only and cannot read the pods of the
    /// others.
    LoadUnknown,
    /// The usage of the nodes, which an expression of the action uses, is unknown.
    UsageUnknown,
    /// Nodes have not been measured since another action moved a replica from or to them, and an expression of the
    /// action uses the values.
    UsageOutdated,
    /// A rollout of the workload is in progress.
    RolloutInProgress,
    /// Other replicas of the ReplicaSet or StatefulSet are not Ready.
    ReplicasNotReady,
    /// A PodDisruptionBudget does not allow the eviction.
    BudgetBlocked,

    // Rejected before any effect.
    /// A rollout of the workload does not go on by itself: it is paused, or makes no progress.
    RolloutStuck,
    /// A field has a value that cannot be parsed; the message names the field.
    InvalidObject,
    /// Admission policies of the operator are missing or edited, so the operator does not act; the message says which,
    /// and what to do.
    AdmissionPolicyMissing,
    /// The CRD of this kind is older than the operator, so the operator does not act; the message says what to do.
    DefinitionOutdated,
    /// The operator's settings exclude the namespace.
    NamespaceRefused,
    /// This version does not support a member of the spec, or the kind of the workload.
    NotSupported,
    /// An expression cannot be parsed, or uses an unknown name.
    ExpressionInvalid,
    /// The workload does not exist.
    WorkloadNotFound,
    /// The pod does not exist.
    PodNotFound,
    /// The action changes more replicas together than the limits in the operator's settings allow.
    LimitTooSmall,
    /// Fewer replicas are available than the action requests.
    NotEnoughReplicas,
    /// The node does not exist.
    NodeNotFound,
    /// None of the nodes that the target allows can run the replica.
    NoCandidateNode,
    /// The PlacementPolicy that the target names does not exist.
    PolicyNotFound,
    /// The spec of the PlacementPolicy that the target names is invalid.
    PolicyInvalid,
    /// The PlacementPolicy rejects the node.
    PolicyRejected,
    /// The replica already runs on the target.
    AlreadyOnTarget,
    /// The node is not Ready.
    NodeNotReady,
    /// The node is cordoned.
    NodeCordoned,
    /// The node has a taint that the pod does not tolerate.
    NodeTainted,
    /// The pod's node selector or affinity excludes the node.
    NodeExcluded,
    /// A volume of the replica is bound and cannot be used on the node.
    VolumeOnOtherNode,
    /// The node does not have enough room for the pod.
    NodeFull,
    /// Other pods keep the pod off the node: by a host port, a required affinity or anti-affinity of either pod, or a
    /// required spread constraint.
    NodeOccupied,
    /// No label in the ReplicaSet's selector can be removed from a pod without a Service or PodDisruptionBudget losing
    /// the pod.
    NoDetachLabel,
    /// The replica of a StatefulSet cannot be moved without an interruption, which the action does not allow.
    DisruptionNeeded,
    /// Claims would be deleted with their data, which the action does not accept.
    DataWouldBeLost,
    /// The cluster is not set up to bind a pod of a StatefulSet to a given node.
    PinNotInstalled,
    /// A StatefulSet removes the replica with the highest ordinal first, but the action names another one.
    NotHighestOrdinal,
    /// The new pod cannot run beside the old one, because of a volume that only one node can mount at a time or
    /// `strategy: Recreate`.
    ReplacementCannotBeFirst,
    /// The old pod would have to be evicted first, and its successor could be scheduled to the same node.
    NodeNotCordoned,
    /// An autoscaler or GitOps tool owns `spec.replicas`.
    ReplicasOwnedElsewhere,
    /// More than one PodDisruptionBudget selects the pod, so the API server refuses every eviction.
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
    /// The new replica was deleted, or has ended.
    ReplacementLost,
    /// A quota or an admission rule rejected the new replica.
    PodRefused,
    /// The target node was deleted, or no longer accepts pods.
    NodeGone,
    /// The new replica of a StatefulSet was created on a different node than planned.
    PinMissed,
    /// The old replica was deleted.
    VictimGone,
    /// The old replica does not terminate.
    VictimStuck,
    /// A rollout of the workload began.
    RolloutStarted,
    /// Another client scaled the workload.
    WorkloadScaled,
    /// The workload was deleted.
    WorkloadGone,
    /// New replicas are repeatedly scheduled to the nodes that an application leaves.
    SourceRefilled,
    /// The ReplicaSet controller does not react.
    SetStuck,
    /// The operator's watches were interrupted a moment ago; those of the ReplicaSet controller may have been
    /// interrupted, too.
    WatchesBroken,
    /// The API server rejected a request of the operator; the message names the missing permission or the rule.
    Forbidden,

    // Notifications: reasons of the condition Notified.
    /// Each receiver has accepted the event.
    Delivered,
    /// The event is being sent.
    Delivering,
    /// An attempt failed; another attempt follows.
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
    /// Advice for the user of an action that has not ended, so that a new one is not needed. The message of the
    /// condition contains the names.
    pub fn advice_at_work(self) -> &'static str {
        match self {
            Self::RolloutStuck => "Resume, repair or undo the rollout (kubectl rollout resume, undo).",
            Self::RolloutStarted => "Wait until the rollout has ended: kubectl rollout status.",
            Self::NodeFull => "Make room on the node.",
            Self::NodeOccupied => "Move the pod that the message names.",
            Self::NodeNotCordoned => "Cordon the node that the message names.",
            Self::NodeNotReady | Self::NodeGone => "Repair the node.",
            Self::NodeCordoned => "Uncordon the node.",
            Self::NoCandidateNode => "See status.plan.nodes for each node. Make room, or add a node.",
            Self::Unschedulable => "See the events of the namespace for what the scheduler lacks.",
            Self::ReplacementNotReady | Self::ReplacementCrashed => "Repair the workload.",
            Self::ImagePullFailed => "Repair the image or its pull secret.",
            Self::ReplacementLost | Self::VictimGone => {
                "Find out what deleted the pod: see the message, the events and the audit log."
            }
            Self::PodRefused => "Raise the quota or change the rule that the message names.",
            Self::SetStuck => "Check kube-controller-manager and the quota of the namespace.",
            Self::UsageUnknown => "Install metrics-server, or measure the nodes by NodeConfigs.",
            Self::ReplicasOwnedElsewhere => "Change the number of replicas in its owner.",
            other if other.advice().contains("new action") || other.advice().contains("apply it again") => {
                "Remove the cause that the message names. To give the action up, set spec.abort to true."
            }
            other => other.advice(),
        }
    }

    /// Advice for the user of an action that has ended. The message of the condition contains the names.
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
            Self::UsageOutdated => "Wait until the nodes are measured again.",
            Self::RolloutInProgress => "Wait until the rollout has ended: kubectl rollout status.",
            Self::RolloutStuck => {
                "Resume, repair or undo the rollout (kubectl rollout resume, undo), then apply a new action."
            }
            Self::ReplicasNotReady => "Wait until the replicas of the set are Ready, or repair them.",
            Self::BudgetBlocked => "Wait until the PodDisruptionBudget allows a disruption, or change the budget.",
            Self::NotSupported => "Apply a new action without the field, kind or workload that the message names.",
            Self::NamespaceRefused => {
                "Use another namespace, or set namespaces.allowKube in the operator's settings, then apply a new action."
            }
            Self::InvalidObject => "Delete the object, correct the field that the message names, and apply it again.",
            Self::AdmissionPolicyMissing => {
                "Install the admission policies: kubectl apply --server-side -f kustomize/base/admission.yaml."
            }
            Self::DefinitionOutdated => {
                "Apply the CRDs of the operator's version: kubectl apply --server-side -k crds."
            }
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
            Self::NodeOccupied => {
                "Apply a new action with another target, or move the pod that the message names first."
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
                "Change the number of replicas in its owner, or apply a new action with onReplicaOwner: Force."
            }
            Self::BudgetsOverlap => "Change the PodDisruptionBudgets so that one of them selects the pod.",
            Self::DataWouldBeLost => {
                "Apply a new action with dataLoss: Accept, or set persistentVolumeClaimRetentionPolicy.whenScaled: Retain."
            }
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
                "Find out what deleted the pod (the message, events, the audit log), then apply a new action."
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

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn an_action_at_work_needs_no_new_action() {
        for reason in Reason::ALL {
            let advice = reason.advice_at_work();
            assert!(!advice.contains("new action") && !advice.contains("apply it again"), "{reason}: {advice}");
        }
    }
}
