//! Labels, annotations, finalizers and field managers: every name that this operator writes on an object.

/// Annotation on each pod that an action works on: the id of the slot.
pub const SLOT: &str = "ganglion.dev/slot";

/// Annotation beside [`SLOT`]: the role of the pod, one of [`ROLE_REPLACEMENT`], [`ROLE_VICTIM`], [`ROLE_SURPLUS`].
pub const ROLE: &str = "ganglion.dev/role";

/// A pod that the operator created and its ReplicaSet has not adopted yet.
pub const ROLE_REPLACEMENT: &str = "replacement";

/// A pod detached from its ReplicaSet, about to be evicted.
pub const ROLE_VICTIM: &str = "victim";

/// A pod that the ReplicaSet created in place of the victim; the ReplicaSet deletes it when it adopts the replacement.
pub const ROLE_SURPLUS: &str = "surplus";

/// Annotation on a detached victim: the names of the young pods that its ReplicaSet had at that moment, separated by
/// commas. It identifies the surplus, after a crash, too.
pub const PEERS: &str = "ganglion.dev/peers";

/// Annotation on a workload whose `spec.replicas` an action changed: the slot, the old and the new number.
pub const LEDGER: &str = "ganglion.dev/ledger";

/// Scheduling gate in the template of a StatefulSet: its pods wait until the operator has given them a node, or lets them go.
pub const GATE: &str = "ganglion.dev/placement";

/// Name of the MutatingAdmissionPolicy that gives pods of StatefulSets the node that an action wants, and of its binding.
pub const PIN_POLICY: &str = "ganglion-pin-statefulsets";

/// Kubernetes' annotation that ranks the pods of a ReplicaSet that has too many: the lowest is deleted first.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The lowest deletion cost there is.
pub const LOWEST_COST: &str = "-2147483648";

/// Label that ties pods to the ReplicaSets of a Deployment.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// Annotation on a Deployment and its ReplicaSets: the number of the revision.
pub const REVISION: &str = "deployment.kubernetes.io/revision";

/// Finalizer on a running action: the action is undone or completed before it is deleted.
pub const FINALIZER: &str = "ganglion.dev/workload-action";

/// Label on the moves of a moveApplication: its name, if it fits.
pub const APPLICATION: &str = "ganglion.dev/application";

/// Label on the actions of a drain: the node, or a hash of a longer name.
pub const DRAIN: &str = "ganglion.dev/drain";

/// Every field manager of the operator begins with this.
pub const MANAGERS: &str = "ganglion/";

/// Field manager of everything that the workload-action controller writes, except statuses.
pub const MANAGER: &str = "ganglion/workload-action";

/// Field manager of the status of WorkloadActions.
pub const STATUS_MANAGER: &str = "ganglion/workload-action/status";

/// Annotation on a loop with `mode: Approve`: the digest of the proposal that may be carried out. The only annotation that the
/// operator reads on a loop; it is no part of the spec, which a GitOps tool would take back.
pub const APPROVE: &str = "ganglion.dev/approve";

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

/// Label on the NodeConfigs of a template: the template's name, if it fits.
pub const TEMPLATE: &str = "ganglion.dev/template";

/// Field manager of the NodeConfigs of templates.
pub const TEMPLATE_MANAGER: &str = "ganglion/node-config-template";

/// Field manager of the status of NodeConfigTemplates.
pub const TEMPLATE_STATUS_MANAGER: &str = "ganglion/node-config-template/status";

/// Field manager of the status of NodeConfigs.
pub const NODE_CONFIG_STATUS_MANAGER: &str = "ganglion/node-config/status";

/// Annotation on a pod of a Deployment that is a worker of a SwarmPool: the number of the worker, which survives the pod.
pub const WORKER: &str = "ganglion.dev/worker";

/// Annotation on a worker of a SwarmPool with `refresh.policy: HotReload`: the version of its jobs. A change has its kubelet update
/// the volume.
pub const JOB_VERSION: &str = "ganglion.dev/job-version";

/// Annotation that a worker of a SwarmPool with `version.source: Annotation` writes on its own pod: the version that it works by.
pub const OBSERVED_VERSION: &str = "ganglion.dev/observed-version";

/// Label on the ConfigMaps that a SwarmPool writes: the pool's name, if it fits.
pub const SWARM_POOL: &str = "ganglion.dev/swarm-pool";

/// Field manager of what SwarmPools write, statuses aside.
pub const SWARM_MANAGER: &str = "ganglion/swarm-pool";

/// Field manager of the status of SwarmPools.
pub const SWARM_STATUS_MANAGER: &str = "ganglion/swarm-pool/status";

/// Field manager of the status of PlacementPolicies.
pub const POLICY_STATUS_MANAGER: &str = "ganglion/placement-policy/status";

/// Label on the ConfigMaps with what PlacementPolicies have learned, and its value.
pub const MEMORY: (&str, &str) = ("ganglion.dev/memory", "placement-policy");

/// Field manager of those ConfigMaps.
pub const MEMORY_MANAGER: &str = "ganglion/placement-policy/memory";

/// Field manager of the annotations about the usage of nodes.
pub const USAGE_MANAGER: &str = "ganglion/placement-policy/usage";
