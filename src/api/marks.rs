//! Names of all labels, annotations, finalizers and field managers that this operator writes.

/// Annotation on each pod that an action works on: the id of its slot.
pub const SLOT: &str = "ganglion.dev/slot";

/// Annotation together with [`SLOT`]: the role of the pod, one of [`ROLE_REPLACEMENT`], [`ROLE_VICTIM`],
/// [`ROLE_SURPLUS`]. A replacement also has it as a label, until it belongs to its ReplicaSet: an admission policy
/// selects new pods by it.
pub const ROLE: &str = "ganglion.dev/role";

/// A pod that the operator created and that its ReplicaSet has not adopted yet.
pub const ROLE_REPLACEMENT: &str = "replacement";

/// A pod that was detached from its ReplicaSet and is about to be evicted.
pub const ROLE_VICTIM: &str = "victim";

/// A pod that the ReplicaSet created in place of the victim; the ReplicaSet deletes it when it adopts the replacement.
pub const ROLE_SURPLUS: &str = "surplus";

/// Annotation on a detached victim: names of the young pods that its ReplicaSet had at that moment, separated by
/// commas. It identifies the surplus pod, even after a crash.
pub const PEERS: &str = "ganglion.dev/peers";

/// Annotation on a workload whose `spec.replicas` an action changed: the slot, and the old and the new number.
pub const LEDGER: &str = "ganglion.dev/ledger";

/// Scheduling gate in the template of a StatefulSet: its pods wait until the operator has assigned a node to them or
/// releases them.
pub const GATE: &str = "ganglion.dev/placement";

/// Name of the MutatingAdmissionPolicy that binds pods of StatefulSets to the node that an action selected, and of its
/// binding.
pub const PIN_POLICY: &str = "ganglion-pin-statefulsets";

/// Annotation on an admission policy of the operator: the version of Ganglion that generated it.
pub const POLICY_VERSION: &str = "ganglion.dev/policy-version";

/// Annotation on an admission policy of the operator: the digest of its spec. A policy with another spec was edited.
pub const POLICY_DIGEST: &str = "ganglion.dev/policy-digest";

/// Kubernetes' annotation that orders the pods of a ReplicaSet for scaling down: the pod with the lowest cost is
/// deleted first.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Lowest possible deletion cost.
pub const LOWEST_COST: &str = "-2147483648";

/// Label that assigns pods to the ReplicaSets of a Deployment.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// Annotation on a Deployment and its ReplicaSets: the revision number.
pub const REVISION: &str = "deployment.kubernetes.io/revision";

/// Finalizer on a running action: the action is undone or completed before it is deleted.
pub const FINALIZER: &str = "ganglion.dev/workload-action";

/// Label on the moves of a moveApplication: the name of the moveApplication, if it fits.
pub const APPLICATION: &str = "ganglion.dev/application";

/// Label on the actions of a drain: the name of the node, or a hash if the name is too long.
pub const DRAIN: &str = "ganglion.dev/drain";

/// Annotation on the operator's Lease: the namespaces that it works in, separated by commas. Without it, all.
pub const NAMESPACES: &str = "ganglion.dev/namespaces";

/// Prefix of every field manager of the operator.
pub const MANAGERS: &str = "ganglion/";

/// Field manager of all writes of the workload-action controller, except statuses.
pub const MANAGER: &str = "ganglion/workload-action";

/// Field manager of the status of WorkloadActions.
pub const STATUS_MANAGER: &str = "ganglion/workload-action/status";

/// Annotation on a loop with `mode: Approve`: the digest of the approved proposal. It is the only annotation on a loop
/// that the operator reads; it is not part of the spec because a GitOps tool would revert it.
pub const APPROVE: &str = "ganglion.dev/approve";

/// Annotation on a loop that `ganglion import` created: the autoscaler that it replaces, as JSON.
pub const IMPORTED_FROM: &str = "ganglion.dev/imported-from";

/// Annotation on an autoscaler that `ganglion import --apply` has switched off: the loop, and the fields that were
/// changed as they were before, as JSON.
pub const IMPORTED_BY: &str = "ganglion.dev/imported-by";

/// KEDA's annotation on a ScaledObject: `true` pauses it.
pub const KEDA_PAUSED: &str = "autoscaling.keda.sh/paused";

/// Field manager of the writes of `ganglion import`.
pub const IMPORT_MANAGER: &str = "ganglion-import";

/// Label on a loop's children: the loop's name.
pub const LOOP: &str = "ganglion.dev/loop";

/// Field manager of the specs of a loop's children, except `sample`.
pub const LOOP_MANAGER: &str = "ganglion/closed-loop";

/// Field manager of the status of ClosedLoops, except `tuning`.
pub const LOOP_STATUS_MANAGER: &str = "ganglion/closed-loop/status";

/// Field manager of the status of Monitorings.
pub const MONITORING_STATUS_MANAGER: &str = "ganglion/monitoring/status";

/// Field manager of the memory of a forecast in the status of a ClosedLoop.
pub const FORECAST_MANAGER: &str = "ganglion/monitoring/forecast";

/// Field manager of the status of Decisions.
pub const DECISION_STATUS_MANAGER: &str = "ganglion/decision/status";

/// Field manager of the status of Executions.
pub const EXECUTION_STATUS_MANAGER: &str = "ganglion/execution/status";

/// Field manager of a loop's changes of its target; in an entry of `status.tuning`, it is followed by the loop's name.
pub const EXECUTION_MANAGER: &str = "ganglion/execution";

/// Field manager under which a user applies a field that a loop shall change from then on. It keeps the value when the
/// previous owner leaves the field out of its manifest.
pub const HANDOVER_MANAGER: &str = "ganglion/handover";

/// Label on the NodeConfigs of a template: the template's name, if it fits.
pub const TEMPLATE: &str = "ganglion.dev/template";

/// Field manager of the NodeConfigs of templates.
pub const TEMPLATE_MANAGER: &str = "ganglion/node-config-template";

/// Field manager of the status of NodeConfigTemplates.
pub const TEMPLATE_STATUS_MANAGER: &str = "ganglion/node-config-template/status";

/// Field manager of the status of NodeConfigs.
pub const NODE_CONFIG_STATUS_MANAGER: &str = "ganglion/node-config/status";

/// Annotation on a pod of a Deployment that is a worker of a SwarmPool: the number of the worker, which passes to the
/// pod's successor.
pub const WORKER: &str = "ganglion.dev/worker";

/// Annotation on a worker of a SwarmPool with `refresh.policy: HotReload`: the version of its jobs. A change of the
/// annotation causes the kubelet to update the volume.
pub const JOB_VERSION: &str = "ganglion.dev/job-version";

/// Annotation that a worker of a SwarmPool with `version.source: Annotation` writes on its own pod: the version that it
/// uses.
pub const OBSERVED_VERSION: &str = "ganglion.dev/observed-version";

/// Label on the ConfigMaps that a SwarmPool writes: the pool's name, if it fits.
pub const SWARM_POOL: &str = "ganglion.dev/swarm-pool";

/// Field manager of all writes of SwarmPools, except statuses.
pub const SWARM_MANAGER: &str = "ganglion/swarm-pool";

/// Field manager of the status of SwarmPools.
pub const SWARM_STATUS_MANAGER: &str = "ganglion/swarm-pool/status";

/// Field manager of the status of PlacementPolicies.
pub const POLICY_STATUS_MANAGER: &str = "ganglion/placement-policy/status";

/// Label on the ConfigMaps with the learned values of PlacementPolicies, and its value.
pub const MEMORY: (&str, &str) = ("ganglion.dev/memory", "placement-policy");

/// Field manager of these ConfigMaps.
pub const MEMORY_MANAGER: &str = "ganglion/placement-policy/memory";

/// Field manager of the annotations about the usage of nodes.
pub const USAGE_MANAGER: &str = "ganglion/placement-policy/usage";

/// Field manager of the labels of nodes with the scores of PlacementPolicies.
pub const LABEL_MANAGER: &str = "ganglion/placement-policy/labels";

/// Domain of these labels. The admission plugin NodeRestriction refuses changes of such labels by kubelets.
pub const LABEL_DOMAIN: &str = "ganglion.node-restriction.kubernetes.io/";

/// Name of the MutatingAdmissionPolicy that adds terms to new pods that read these labels, and of its binding.
pub const LABEL_POLICY: &str = "ganglion-placement-labels";

/// Label of a pod: the PlacementPolicy whose labels its terms read.
pub const POD_POLICY: &str = "ganglion.dev/placement-policy";

/// Label of a PlacementPolicy with the value `true`: pods without [`POD_POLICY`] use it.
pub const DEFAULT_POLICY: &str = "ganglion.dev/default-policy";
