//! The tables of the world: one per kind.
//!
//! A new kind needs one line here. The products that it concerns follow it.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ManagedFieldsEntry, ObjectMeta};

use super::occupancy::room;
use super::table::{Fact, Table};
use super::unreadable::{UnreadableBytes, head};
use super::{World, occupancy};
use crate::facts::{
    BudgetFact, ClaimFact, ConfigMapFact, DeploymentFact, HpaFact, Key, LabelBindingFact, LabelPolicyFact, NodeFact,
    OutsidePodFact, PinBindingFact, PinPolicyFact, PodFact, PolicyBindingFact, PolicyFact, ReceiptFact, Reducible,
    ReplicaSetFact, ScaledObjectFact, ServiceFact, StatefulSetFact, Uid, VolumeFact, VpaFact,
};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::closed_loop::action::LoopAction;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::marks;
use ganglion_api::monitoring::{Monitoring, MonitoringSpec};
use ganglion_api::node_config::{NodeConfig, NodeConfigTemplate};
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::workload_action::WorkloadAction;

macro_rules! tables {
    (facts {
        $($fact:ident: $type:ty = $kind:literal $(, follow $follow:path)? $(, see $see:path)? $(, bytes $bytes:path)?
            $(, reducible $reducible:ident)?;)*
    }
     objects { $($object:ident: $whole:ty = $name:literal, factor $factor:literal $(, besides $besides:path)?;)* }) => {
        /// All tables.
        #[derive(Default)]
        pub struct Tables {
            $($fact: Table<$type>,)*
            $($object: Table<$whole>,)*
        }

        impl Tables {
            /// Number of cached objects of each kind.
            pub fn counts(&self) -> Vec<(&'static str, usize)> {
                vec![$(($kind, self.$fact.len()),)* $(($name, self.$object.len()),)*]
            }

            /// Number of versions of objects that get no condition, by kind.
            pub fn unreported(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$object.unreported()),)*]
            }

            /// Bytes of the objects that are not kept.
            pub fn unreadable_bytes(&self, namespace: &str) -> UnreadableBytes {
                UnreadableBytes::default()
                    $(.and(self.$fact.unreadable_bytes(namespace)))*
                    $(.and(self.$object.unreadable_bytes(namespace)))*
            }
        }

        $(impl Fact for $type {
            const KIND: &'static str = $kind;
            fn key(&self) -> Cow<'_, Key> {
                Cow::Borrowed(&self.id.key)
            }
            fn unique_id(&self) -> Cow<'_, Uid> {
                Cow::Borrowed(&self.id.uid)
            }
            fn version(&self) -> &str {
                &self.id.version
            }
            fn version_mut(&mut self) -> &mut String {
                &mut self.id.version
            }
            $(fn follow(&mut self, stored: &Self) {
                $follow(self, stored);
            })?
            $(fn see(&mut self, now: Timestamp) {
                $see(self, now);
            })?
            $(const IS_ALWAYS_STORED: bool = true;
            fn bytes(&self) -> usize {
                $bytes(self)
            })?
            $(const IS_ALWAYS_STORED: bool = true;
            fn bytes(&self) -> usize {
                $reducible::counted_bytes(self)
            }
            fn reduce(&mut self) {
                $reducible::reduce(self);
            }
            fn is_reduced(&self) -> bool {
                $reducible::is_reduced(self)
            })?
            fn table(world: &World) -> &Table<Self> {
                &world.tables.$fact
            }
            fn table_mut(world: &mut World) -> &mut Table<Self> {
                &mut world.tables.$fact
            }
        })*

        $(impl Fact for $whole {
            const KIND: &'static str = $name;
            fn key(&self) -> Cow<'_, Key> {
                let ObjectMeta { namespace, name, .. } = &self.metadata;
                Cow::Owned(Key::new(namespace.clone().unwrap_or_default(), name.clone().unwrap_or_default()))
            }
            fn unique_id(&self) -> Cow<'_, Uid> {
                Cow::Owned(Uid::of(&self.metadata))
            }
            fn version(&self) -> &str {
                self.metadata.resource_version.as_deref().unwrap_or_default()
            }
            fn version_mut(&mut self) -> &mut String {
                self.metadata.resource_version.get_or_insert_default()
            }
            fn slim(&mut self) {
                let fields = self.metadata.managed_fields.take();
                self.metadata.managed_fields = fields.and_then(first_manager).map(|first| vec![first]);
                // A copy of the object, which nothing reads.
                self.metadata.annotations.as_mut().and_then(|all| all.remove(LAST_APPLIED));
            }
            fn bytes(&self) -> usize {
                let version = self.version().len().saturating_mul($factor);
                occupancy::estimate(size_of::<Self>(), $factor, self).saturating_sub(version) $(+ $besides(self))?
            }
            fn head(&self) -> (ObjectMeta, Vec<Condition>) {
                let conditions = self.status.as_ref().map(|status| status.conditions.clone());
                (head(&self.metadata), conditions.unwrap_or_default())
            }
            fn table(world: &World) -> &Table<Self> {
                &world.tables.$object
            }
            fn table_mut(world: &mut World) -> &mut Table<Self> {
                &mut world.tables.$object
            }
        })*
    };
}

/// Maximum memory of the samples of a metric with values of a period of time, in bytes.
pub const WINDOW_BYTES: usize = 26 << 10;

/// Memory of large items, and of the samples that the controller keeps for a Monitoring.
fn monitoring_bytes(object: &Monitoring) -> usize {
    let MonitoringSpec { metrics, tracking, .. } = &object.spec;
    let windows = metrics.iter().filter(|metric| metric.over.is_some()).count();
    room(metrics).saturating_add(actions_bytes(tracking)).saturating_add(windows.saturating_mul(WINDOW_BYTES))
}

fn loop_bytes(object: &ClosedLoop) -> usize {
    room(&object.spec.metrics).saturating_add(actions_bytes(object.spec.actions.as_deref().unwrap_or_default()))
}

fn decision_bytes(object: &Decision) -> usize {
    actions_bytes(&object.spec.actions)
}

fn actions_bytes(actions: &[LoopAction]) -> usize {
    actions.iter().map(|action| room(&action.ladder)).fold(room(actions), usize::saturating_add)
}

fn policy_bytes(object: &PlacementPolicy) -> usize {
    room(&object.spec.agents)
}

/// Annotation with the manifest that `kubectl apply` last applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Reduces managedFields, which are often larger than the object, to the entry of the first manager, without its
/// fields. The entry shows who created the object. Entries of the operator do not count, since it may have written in
/// the same second.
fn first_manager(fields: Vec<ManagedFieldsEntry>) -> Option<ManagedFieldsEntry> {
    let is_ours = |entry: &ManagedFieldsEntry| {
        entry.manager.as_deref().is_some_and(|manager| manager.starts_with(marks::MANAGERS))
    };
    let of_object = fields.into_iter().filter(|entry| entry.subresource.as_deref().is_none_or(str::is_empty));
    let first = of_object.filter(|entry| !is_ours(entry)).min_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    Some(ManagedFieldsEntry { fields_v1: None, ..first })
}

// The factors of the estimate of memory per byte of JSON are measured by tests/memory.
tables! {
    facts {
        pods: PodFact = "Pod", follow PodFact::follow, see PodFact::see, reducible Reducible;
        outside_pods: OutsidePodFact = "OutsidePod";
        nodes: NodeFact = "Node";
        sets: ReplicaSetFact = "ReplicaSet", reducible Reducible;
        deployments: DeploymentFact = "Deployment", reducible Reducible;
        stateful_sets: StatefulSetFact = "StatefulSet", reducible Reducible;
        pin_policies: PinPolicyFact = "MutatingAdmissionPolicy";
        pin_bindings: PinBindingFact = "MutatingAdmissionPolicyBinding";
        label_policies: LabelPolicyFact = "MutatingAdmissionPolicy";
        label_bindings: LabelBindingFact = "MutatingAdmissionPolicyBinding";
        policies: PolicyFact = "ValidatingAdmissionPolicy";
        policy_bindings: PolicyBindingFact = "ValidatingAdmissionPolicyBinding";
        claims: ClaimFact = "PersistentVolumeClaim";
        volumes: VolumeFact = "PersistentVolume";
        config_maps: ConfigMapFact = "ConfigMap", reducible Reducible;
        budgets: BudgetFact = "PodDisruptionBudget", reducible Reducible;
        services: ServiceFact = "Service", reducible Reducible;
        hpas: HpaFact = "HorizontalPodAutoscaler";
        scaled_objects: ScaledObjectFact = "ScaledObject";
        vpas: VpaFact = "VerticalPodAutoscaler";
        receipts: ReceiptFact = "WorkloadActionReceipt", bytes ReceiptFact::bytes;
    }
    objects {
        actions: WorkloadAction = "WorkloadAction", factor 6;
        loops: ClosedLoop = "ClosedLoop", factor 9, besides loop_bytes;
        monitorings: Monitoring = "Monitoring", factor 9, besides monitoring_bytes;
        decisions: Decision = "Decision", factor 12, besides decision_bytes;
        executions: Execution = "Execution", factor 7;
        node_configs: NodeConfig = "NodeConfig", factor 2;
        node_config_templates: NodeConfigTemplate = "NodeConfigTemplate", factor 6;
        swarm_pools: SwarmPool = "SwarmPool", factor 6;
        placement_policies: PlacementPolicy = "PlacementPolicy", factor 5, besides policy_bytes;
    }
}
