//! The list of watched kinds, each with the fact that is stored for it. The products that follow a kind
//! (`src/*/plan/world.rs`) define which objects a change requeues.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::foreign::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ScaledObject, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, VerticalPodAutoscaler,
};
use ganglion_api::marks;
use ganglion_api::monitoring::Monitoring;
use ganglion_api::node_config::{NodeConfig, NodeConfigTemplate};
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{
    BudgetFact, ClaimFact, DeploymentFact, HpaFact, LabelBindingFact, LabelPolicyFact, NodeFact, OutsidePodFact,
    PinBindingFact, PinPolicyFact, PodFact, PolicyBindingFact, PolicyFact, ReceiptFact, ReplicaSet, ReplicaSetFact,
    ScaledObjectFact, ServiceFact, SlimAutoscaler, SlimDeployment, SlimPod, StatefulSet, StatefulSetFact, VolumeFact,
    VpaFact,
};
use ganglion_runtime::watch::Feeds;

/// Starts the watch of every kind.
pub fn feed(feeds: &mut Feeds) {
    feed_workloads(feeds);
    feeds.optional_cluster::<ValidatingAdmissionPolicy, PolicyFact>();
    feeds.optional_cluster::<ValidatingAdmissionPolicyBinding, PolicyBindingFact>();
    feeds.namespaced::<WorkloadAction, WorkloadAction>();
    feeds.namespaced::<WorkloadActionReceipt, ReceiptFact>();
    feeds.namespaced::<ClosedLoop, ClosedLoop>();
    feeds.namespaced::<Monitoring, Monitoring>();
    feeds.namespaced::<Decision, Decision>();
    feeds.namespaced::<Execution, Execution>();
    feeds.namespaced::<NodeConfig, NodeConfig>();
    feeds.namespaced::<NodeConfigTemplate, NodeConfigTemplate>();
    feeds.namespaced::<SwarmPool, SwarmPool>();
    feeds.cluster::<PlacementPolicy, PlacementPolicy>();
    feeds.optional_named::<MutatingAdmissionPolicy, LabelPolicyFact>(marks::LABEL_POLICY);
    feeds.optional_named::<MutatingAdmissionPolicyBinding, LabelBindingFact>(marks::LABEL_POLICY);
}

/// Starts the watches of the kinds that [`super::term::Term::start_completing`] needs. The kinds of the operator may be
/// gone already.
pub fn feed_completing(feeds: &mut Feeds) {
    feed_workloads(feeds);
    feeds.optional::<WorkloadAction, WorkloadAction>();
    feeds.optional::<WorkloadActionReceipt, ReceiptFact>();
}

/// Starts the watches of workloads and of all that their moves depend on.
fn feed_workloads(feeds: &mut Feeds) {
    feeds.cluster::<Node, NodeFact>();
    feeds.namespaced::<SlimPod, PodFact>();
    // Pods outside the watched namespaces, as load of their nodes.
    feeds.outside::<SlimPod, OutsidePodFact>();
    feeds.namespaced::<ReplicaSet, ReplicaSetFact>();
    feeds.namespaced::<SlimDeployment, DeploymentFact>();
    feeds.namespaced::<StatefulSet, StatefulSetFact>();
    feeds.namespaced::<PersistentVolumeClaim, ClaimFact>();
    feeds.namespaced::<PodDisruptionBudget, BudgetFact>();
    feeds.namespaced::<Service, ServiceFact>();
    feeds.namespaced::<SlimAutoscaler, HpaFact>();
    feeds.optional::<ScaledObject, ScaledObjectFact>();
    feeds.optional::<VerticalPodAutoscaler, VpaFact>();
    feeds.optional_cluster::<PersistentVolume, VolumeFact>();
    feeds.optional_named::<MutatingAdmissionPolicy, PinPolicyFact>(marks::PIN_POLICY);
    feeds.optional_named::<MutatingAdmissionPolicyBinding, PinBindingFact>(marks::PIN_POLICY);
}
