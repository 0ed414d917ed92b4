//! Labels, annotations, finalizers and field managers: every name that this operator writes on an object.

/// Annotation on each pod that an action is working on: the id of the slot that has it.
pub const SLOT: &str = "ganglion.dev/slot";

/// Annotation beside [`SLOT`]: what the pod is to its slot, one of [`ROLE_REPLACEMENT`], [`ROLE_VICTIM`], [`ROLE_SURPLUS`].
pub const ROLE: &str = "ganglion.dev/role";

/// A pod made by the operator, not yet handed to its ReplicaSet.
pub const ROLE_REPLACEMENT: &str = "replacement";

/// A pod taken out of its ReplicaSet, about to be evicted.
pub const ROLE_VICTIM: &str = "victim";

/// A pod that the ReplicaSet made in place of the victim, chosen to go when the replacement comes in.
pub const ROLE_SURPLUS: &str = "surplus";

/// Annotation on a detached victim: the young pods that its set had at that moment, so that the surplus can be told
/// from them also after a crash. Comma-separated names.
pub const PEERS: &str = "ganglion.dev/peers";

/// Annotation on a workload whose `spec.replicas` an action changed: which slot, from what to what, see
/// [`crate::logic::workload_action::ledger`].
pub const LEDGER: &str = "ganglion.dev/ledger";

/// Kubernetes' annotation that ranks the pods of a ReplicaSet when it has too many: lowest goes first.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The lowest deletion cost there is.
pub const LOWEST_COST: &str = "-2147483648";

/// Label by which a Deployment's ReplicaSets know their pods.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// Annotation of a Deployment and its ReplicaSets: the number of the revision.
pub const REVISION: &str = "deployment.kubernetes.io/revision";

/// Finalizer on a running action: it is undone or carried through before it goes.
pub const FINALIZER: &str = "ganglion.dev/workload-action";

/// Field manager of everything the workload-action controller writes, statuses aside.
pub const MANAGER: &str = "ganglion/workload-action";

/// Field manager of the status of WorkloadActions.
pub const STATUS_MANAGER: &str = "ganglion/workload-action/status";

/// Label on a loop's children: the loop's name.
pub const LOOP: &str = "ganglion.dev/loop";

/// Field manager of a loop's children's specs, `sample` aside.
pub const LOOP_MANAGER: &str = "ganglion/closed-loop";

/// Field manager of the status of ClosedLoops, tuning aside.
pub const LOOP_STATUS_MANAGER: &str = "ganglion/closed-loop/status";

/// Field manager of the status of Monitorings.
pub const MONITORING_STATUS_MANAGER: &str = "ganglion/monitoring/status";

/// Field manager of the status of Decisions.
pub const DECISION_STATUS_MANAGER: &str = "ganglion/decision/status";

/// Field manager of the status of Executions.
pub const EXECUTION_STATUS_MANAGER: &str = "ganglion/execution/status";

/// Field manager of what a loop does to its target; the loop's name follows it in an entry of `status.tuning`.
pub const EXECUTION_MANAGER: &str = "ganglion/execution";
