//! The simulated cluster as the caches of the operator have it: nodes, NodeConfigs and pods, as watches would deliver
//! them.

use std::collections::BTreeMap;

use ganglion_api::marks::POD_TEMPLATE_HASH;
use ganglion_api::node_config::NodeConfig;
use ganglion_core::facts::{Identity, Key, NodeFact, NodeName, Owner, PodFact, PodHold, Requests, Uid};
use ganglion_core::world::{Fact, Origin, World};
use ganglion_runtime::store::Store;
use serde_json::Value;

use super::node::LabNode;
use super::published::{MAX_PODS, POLICY, SCHEDULER, annotations, node_config, node_status, policy};
use super::request::{PodRequest, bytes, millis};
use super::service::time;

/// Namespace of all pods and workloads.
pub const NAMESPACE: &str = "lab";

/// Label of a node with the index of its site, and the one with its server model.
pub const SITE: &str = "example.com/site";
pub const MODEL: &str = "example.com/model";

/// Hash of the template of each Deployment.
const HASH: &str = "h1";

/// The cached objects.
pub struct LabFacts {
    pub store: Store,
    names: Vec<NodeName>,
    nodes: Vec<NodeFact>,
    configs: Vec<NodeConfig>,
    /// Last resourceVersion.
    version: u64,
}

impl LabFacts {
    /// Nodes without pods. `world`: empty, with the products that follow it.
    pub fn new(world: World, nodes: &[LabNode]) -> Self {
        let store = Store::new(world);
        let names: Vec<NodeName> = (0..nodes.len()).map(|node| format!("node-{node:04}").as_str().into()).collect();
        let facts: Vec<NodeFact> = nodes.iter().zip(&names).map(|(node, name)| node_fact(node, name)).collect();
        let configs = names.iter().map(config).collect();
        facts.iter().for_each(|fact| store.apply(fact.clone(), Origin::Watch));
        Self { store, names, nodes: facts, configs, version: 1 }
    }

    /// Adds the policy with these agents, as in `spec.agents`.
    pub fn put_policy(&self, agents: &Value) -> Result<(), serde_json::Error> {
        let mut policy = policy(agents)?;
        policy.metadata.uid = Some(POLICY.to_owned());
        policy.metadata.generation = Some(1);
        policy.metadata.resource_version = Some("1".to_owned());
        self.store.apply(policy, Origin::Watch);
        Ok(())
    }

    /// Names of the nodes, in their order.
    pub fn names(&self) -> &[NodeName] {
        &self.names
    }

    /// A resourceVersion that is higher than all before.
    pub fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// Stores an object whose version is set.
    pub fn put<F: Fact>(&self, fact: F) {
        self.store.apply(fact, Origin::Watch);
    }

    /// Stores a pod that was bound to a node at this time in seconds. `service`: the service whose ReplicaSet has it.
    pub fn put_pod(&mut self, name: &str, pod: &PodRequest, service: Option<usize>, place: BoundPod) {
        let id = Identity { version: self.next_version(), ..identity(name) };
        let BoundPod { node, since, runs } = place;
        let requests = requests(pod);
        let hold = PodHold { requests, cores: requests.cpu, bound: time(since), pending: !runs, priority: 0 };
        let set = service.map(set_identity);
        self.put(PodFact {
            id,
            created: time(since),
            generated: true,
            labels: service.map(pod_labels).unwrap_or_default(),
            controller: set.map(|set| Owner { kind: "ReplicaSet".to_owned(), name: set.key.name, uid: set.uid }),
            node: self.names.get(node).cloned(),
            ready_since: runs.then(|| time(since)),
            hold,
            scheduler: SCHEDULER.to_owned(),
            ..PodFact::default()
        });
    }

    /// Removes a pod.
    pub fn remove_pod(&self, name: &str) {
        self.store.remove::<PodFact>(&identity(name));
    }

    /// Stores what was measured at this time in seconds. `inlets`: temperatures in degrees Celsius.
    pub fn sample(&mut self, nodes: &[LabNode], inlets: &[f64], now: i64) {
        for (index, (node, inlet)) in nodes.iter().zip(inlets).enumerate() {
            let version = self.next_version();
            let config = &mut self.configs[index];
            config.metadata.resource_version = Some(version);
            config.status = Some(node_status(node, *inlet, time(now)));
            self.store.apply(config.clone(), Origin::Watch);
            if node.sampled.is_some_and(|(sampled, _)| sampled == now) {
                let version = self.next_version();
                let fact = &mut self.nodes[index];
                fact.id.version = version;
                fact.published.extend(annotations(node, time(now)));
                self.store.apply(fact.clone(), Origin::Watch);
            }
        }
    }
}

/// Node of a bound pod.
#[derive(Clone, Copy, Debug)]
pub struct BoundPod {
    /// Index of the node.
    pub node: usize,
    /// Time of its binding in seconds.
    pub since: i64,
    /// Whether it has started. Measured usage includes it from then on.
    pub runs: bool,
}

/// Name of a pod that a scheduler places.
pub fn pod_name(pod: usize) -> String {
    format!("pod-{pod}")
}

/// Index of the pod with such a name.
pub fn pod_index(name: &str) -> Option<usize> {
    name.strip_prefix("pod-")?.parse().ok()
}

/// Identity of a pod or workload of this name, without a version.
pub fn identity(name: &str) -> Identity {
    Identity { uid: Uid::from(name), key: Key::new(NAMESPACE, name), version: String::new() }
}

/// Requested millicores and bytes.
pub fn requests(pod: &PodRequest) -> Requests {
    Requests { cpu: millis(pod.cpu), memory: bytes(pod.memory), ..Requests::default() }
}

/// Name of the Deployment of a service, and value of the label `app` of its pods.
pub fn service_name(service: usize) -> String {
    format!("service-{service}")
}

/// Identity of the ReplicaSet of a service, without a version.
pub fn set_identity(service: usize) -> Identity {
    identity(&format!("{}-{HASH}", service_name(service)))
}

/// Labels of the pods of a service.
pub fn pod_labels(service: usize) -> BTreeMap<String, String> {
    [("app".to_owned(), service_name(service)), (POD_TEMPLATE_HASH.to_owned(), HASH.to_owned())].into()
}

fn node_fact(node: &LabNode, name: &NodeName) -> NodeFact {
    let size = Requests { cpu: millis(node.threads()), memory: bytes(node.memory()), ..Requests::default() };
    NodeFact {
        id: Identity { key: Key::new("", name.as_str()), uid: Uid::from(name.as_str()), version: "1".to_owned() },
        created: time(-86_400),
        ready: true,
        allocatable: size,
        capacity: size,
        pod_capacity: MAX_PODS,
        labels: [(SITE.to_owned(), node.server.site.to_string()), (MODEL.to_owned(), node.server.model.name.clone())]
            .into(),
        ..NodeFact::default()
    }
}

/// The NodeConfig of a node as the API server stores it.
fn config(name: &NodeName) -> NodeConfig {
    let mut config = node_config(name.as_str());
    config.metadata.namespace = Some(NAMESPACE.to_owned());
    config.metadata.uid = Some(format!("config-{name}"));
    config.metadata.resource_version = Some("1".to_owned());
    config
}
