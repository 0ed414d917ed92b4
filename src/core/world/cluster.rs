//! Pods, ReplicaSets, nodes and autoscalers: indexes and queries that several products use.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::World;
use super::follow::{Follows, State};
use super::keys::KeysBy;
use super::table::Fact;
use crate::facts::{
    AutoscalerFact, HpaFact, Identity, Key, NodeFact, NodeName, OutsidePodFact, PodConstraints, PodFact, PodHold,
    ReplicaSetFact, Requests, TermNamespaces, Uid,
};
use ganglion_api::node_config::NodeConfig;

/// Indexes of pods, ReplicaSets and NodeConfigs.
#[derive(Default)]
struct ClusterIndex {
    /// By the uid of their controller.
    pods: KeysBy<Uid>,
    /// By the uid of their controller.
    sets: KeysBy<Uid>,
    /// By the name of the node.
    node_configs: KeysBy<NodeName>,
    loads: HashMap<NodeName, NodeLoad>,
    /// Pods with host ports or extended resources, by the name of the node.
    on_node: KeysBy<NodeName>,
    /// The same of pods in namespaces that are not watched.
    outside_on_node: KeysBy<NodeName>,
    /// Pods with a required anti-affinity, by the namespace of the pods that it concerns, or [`ANY_NAMESPACE`].
    repelling: KeysBy<String>,
}

/// Stands for the namespaces of an anti-affinity that concerns others than the pod's own.
const ANY_NAMESPACE: &str = "*";

/// Resources that the pods of a node occupy.
#[derive(Default)]
struct NodeLoad {
    requests: Requests,
    /// One entry per pod, unordered.
    holds: Vec<PodHold>,
}

impl ClusterIndex {
    fn update_load(&mut self, old: Option<(&NodeName, PodHold)>, new: Option<(&NodeName, PodHold)>) {
        if old == new {
            return;
        }
        if let Some((node, hold)) = old {
            self.unload(node, &hold);
        }
        if let Some((node, hold)) = new {
            let load = self.loads.entry(node.to_owned()).or_default();
            load.requests = load.requests + hold.requests;
            load.holds.push(hold);
        }
    }

    fn unload(&mut self, node: &NodeName, hold: &PodHold) {
        let Some(load) = self.loads.get_mut(node) else { return };
        load.requests = load.requests - hold.requests;
        if let Some(at) = load.holds.iter().position(|one| one == hold) {
            load.holds.swap_remove(at);
        }
        if load.holds.is_empty() {
            self.loads.remove(node);
        }
    }
}

impl State for ClusterIndex {
    fn empty() -> &'static Self {
        static EMPTY: LazyLock<ClusterIndex> = LazyLock::new(ClusterIndex::default);
        &EMPTY
    }
}

impl Follows<PodFact> for ClusterIndex {
    fn update(&mut self, old: Option<&PodFact>, new: Option<&PodFact>) {
        let Some(pod) = new.or(old) else { return };
        self.pods.update(&pod.id.key, old.and_then(controller_uid), new.and_then(controller_uid));
        self.update_load(old.and_then(PodFact::held), new.and_then(PodFact::held));
        self.on_node.update(
            &pod.id.key,
            old.and_then(PodFact::constrained_node),
            new.and_then(PodFact::constrained_node),
        );
        let (old, new) = (old.and_then(repelled_namespace), new.and_then(repelled_namespace));
        self.repelling.update(&pod.id.key, old, new);
    }
}

fn repelled_namespace(pod: &PodFact) -> Option<&str> {
    let apart = &pod.constraints.as_ref().filter(|_| !pod.finished)?.apart;
    let is_near = apart.iter().all(|term| term.namespaces == TermNamespaces::Own);
    let namespace = if is_near { pod.id.key.namespace.as_str() } else { ANY_NAMESPACE };
    (!apart.is_empty()).then_some(namespace)
}

impl Follows<OutsidePodFact> for ClusterIndex {
    fn update(&mut self, old: Option<&OutsidePodFact>, new: Option<&OutsidePodFact>) {
        self.update_load(old.and_then(OutsidePodFact::held), new.and_then(OutsidePodFact::held));
        let Some(pod) = new.or(old) else { return };
        let (before, after) =
            (old.and_then(OutsidePodFact::constrained_node), new.and_then(OutsidePodFact::constrained_node));
        self.outside_on_node.update(&pod.id.key, before, after);
    }
}

impl Follows<ReplicaSetFact> for ClusterIndex {
    fn update(&mut self, old: Option<&ReplicaSetFact>, new: Option<&ReplicaSetFact>) {
        let Some(set) = new.or(old) else { return };
        self.sets.update(&set.id.key, old.and_then(owner_uid), new.and_then(owner_uid));
    }
}

impl Follows<NodeConfig> for ClusterIndex {
    fn update(&mut self, old: Option<&NodeConfig>, new: Option<&NodeConfig>) {
        let (old_node, new_node) = (old.map(node_of), new.map(node_of));
        if let Some(config) = new.or(old).filter(|_| old_node != new_node) {
            self.node_configs.update(&config.key(), old_node, new_node);
        }
    }
}

fn controller_uid(pod: &PodFact) -> Option<&Uid> {
    pod.controller.as_ref().map(|owner| &owner.uid)
}

fn owner_uid(set: &ReplicaSetFact) -> Option<&Uid> {
    set.controller.as_ref().map(|owner| &owner.uid)
}

fn node_of(config: &NodeConfig) -> &NodeName {
    &config.spec.node_name
}

pub fn register(world: &mut World) {
    world.follow::<ClusterIndex, PodFact>();
    world.follow::<ClusterIndex, OutsidePodFact>();
    world.follow::<ClusterIndex, ReplicaSetFact>();
    world.follow::<ClusterIndex, NodeConfig>();
}

/// Queries that several products use.
impl World {
    pub fn pod(&self, key: &Key) -> Option<&PodFact> {
        self.get(key)
    }

    /// The pods that the object with this uid controls, by name, including finished and terminating ones.
    pub fn pods_of(&self, controller: &Uid) -> impl Iterator<Item = &PodFact> + use<'_> {
        self.state::<ClusterIndex>().pods.of(controller).filter_map(|key| self.pod(key))
    }

    /// The ReplicaSets that the object with this uid controls, by name.
    pub fn sets_of(&self, owner: &Uid) -> impl Iterator<Item = &ReplicaSetFact> + use<'_> {
        self.state::<ClusterIndex>().sets.of(owner).filter_map(|key| self.get(key))
    }

    pub fn node(&self, name: &NodeName) -> Option<&NodeFact> {
        self.get(&Key::new("", name.as_str()))
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeFact> {
        self.all()
    }

    /// Number of pods bound to this node, and the sum of their requests, without finished pods.
    pub fn usage(&self, node: &NodeName) -> (i64, Requests) {
        self.state::<ClusterIndex>().loads.get(node).map_or((0, Requests::default()), |load| {
            (i64::try_from(load.holds.len()).unwrap_or(i64::MAX), load.requests)
        })
    }

    /// The pods on this node with host ports or extended resources, without finished pods.
    pub fn constraints_on(&self, node: &NodeName) -> impl Iterator<Item = (&Identity, &PodConstraints)> {
        let index = self.state::<ClusterIndex>();
        let pods = index.on_node.of(node).filter_map(|key| self.pod(key));
        let pods = pods.filter_map(|pod| Some((&pod.id, pod.constraints.as_deref()?)));
        let outside = index.outside_on_node.of(node).filter_map(|key| self.get::<OutsidePodFact>(key));
        pods.chain(outside.filter_map(|pod| Some((&pod.id, pod.constraints.as_deref()?))))
    }

    /// The pods whose required anti-affinity may concern pods of this namespace, without finished pods.
    pub fn repelling(&self, namespace: &str) -> impl Iterator<Item = &PodFact> {
        let index = self.state::<ClusterIndex>();
        let keys = index.repelling.of(namespace).chain(index.repelling.of(ANY_NAMESPACE));
        keys.filter_map(|key| self.pod(key))
    }

    /// Resources that each pod occupies on this node.
    pub fn holds(&self, node: &NodeName) -> &[PodHold] {
        self.state::<ClusterIndex>().loads.get(node).map_or(&[], |load| &load.holds)
    }

    /// Priorities of the pods on this node.
    pub fn priorities(&self, node: &NodeName) -> impl Iterator<Item = i32> {
        self.holds(node).iter().map(|hold| hold.priority)
    }

    /// The NodeConfigs in all namespaces whose spec names this node, by key.
    pub fn node_configs_of(&self, node: &NodeName) -> impl Iterator<Item = &Arc<NodeConfig>> {
        self.state::<ClusterIndex>().node_configs.of(node).filter_map(|key| self.table().get(key))
    }

    /// The HorizontalPodAutoscaler that writes the replicas of this workload.
    pub fn replica_scaler_of(&self, namespace: &str, kind: &str, name: &str) -> Option<&AutoscalerFact> {
        let mut hpas = self.within::<HpaFact>(namespace).map(|fact| &fact.0);
        hpas.find(|fact| fact.target.kind == kind && fact.target.name == name)
    }
}
