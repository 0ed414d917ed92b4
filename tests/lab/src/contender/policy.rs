//! Ours: the default scheduler with a PlacementPolicy as its extender, by the shipped planner.
//!
//! Nodes, pods and NodeConfigs enter the cache of the extender as watches would deliver them. The configuration is that
//! of `config/kube-scheduler.yaml`: nodes that the policy rejects are left out, and its score has weight 5.

use anyhow::{Context, Result, anyhow};
use ganglion_api::node_config::NodeConfig;
use ganglion_core::facts::{Identity, Key, NodeFact, PodFact, PodHold, Requests, Uid};
use ganglion_core::world::{Origin, World};
use ganglion_placement::cache::PlacementCache;
use ganglion_placement_plan::question::PlacedPod;
use ganglion_runtime::store::Store;
use serde_json::Value;

use super::published::{MAX_PODS, POLICY, SCHEDULER, annotations, node_config, node_status, policy};
use super::spread::spread_points;
use super::stock::{FitStrategy, stock_points};
use crate::cluster::{LabNode, Placer, PodRequest, bytes, millis, time};

const NAMESPACE: &str = "lab";

/// Points of the scheduler for one point of the policy: the extender's weight, times 100 / 10.
const WEIGHT: f64 = 50.0;

/// The scheduler with an extender.
pub struct PolicyScheduler {
    store: Store,
    cache: PlacementCache,
    names: Vec<String>,
    facts: Vec<NodeFact>,
    configs: Vec<NodeConfig>,
    /// Next resourceVersion.
    version: u64,
}

impl PolicyScheduler {
    /// A scheduler with a policy of these agents, as in `spec.agents`.
    pub fn new(agents: &Value, nodes: &[LabNode]) -> Result<Self> {
        let mut world = World::default();
        ganglion_placement_plan::world::register(&mut world);
        let store = Store::new(world);
        let mut policy = policy(agents)?;
        policy.metadata.uid = Some(POLICY.to_owned());
        policy.metadata.generation = Some(1);
        policy.metadata.resource_version = Some("1".to_owned());
        store.apply(policy, Origin::Watch);
        let names: Vec<String> = (0..nodes.len()).map(|node| format!("node-{node:04}")).collect();
        let facts: Vec<NodeFact> = nodes.iter().zip(&names).map(|(node, name)| fact(node, name)).collect();
        let configs = names.iter().map(|name| config(name)).collect();
        facts.iter().for_each(|fact| store.apply(fact.clone(), Origin::Watch));
        let cache = PlacementCache::new(store.clone());
        Ok(Self { store, cache, names, facts, configs, version: 2 })
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn store_pod(&mut self, pod: &PodRequest, node: usize, bound: i64, pending: bool) {
        let id = Identity { version: self.next_version(), ..identity(pod) };
        let requests = requests(pod);
        let hold = PodHold { requests, cores: requests.cpu, bound: time(bound), pending, priority: 0 };
        let node = Some(self.names[node].as_str().into());
        let scheduler = SCHEDULER.to_owned();
        let pod = PodFact { id, created: time(bound), node, hold, scheduler, ..PodFact::default() };
        self.store.apply(pod, Origin::Watch);
    }
}

impl Placer for PolicyScheduler {
    fn points(
        &mut self,
        pod: &PodRequest,
        candidates: &[usize],
        nodes: &[LabNode],
        now: i64,
    ) -> Result<Vec<Option<f64>>> {
        let policy = self.cache.policy(POLICY).context("no policy")?.map_err(|(_, words)| anyhow!(words))?;
        let requests = requests(pod);
        let Identity { key, uid, .. } = identity(pod);
        let scheduler = SCHEDULER.to_owned();
        let placed = PlacedPod { key, uid, requests, cores: requests.cpu, scheduler, ..PlacedPod::default() };
        let name = |node: &usize| self.names[*node].as_str();
        let names: Vec<&str> = candidates.iter().map(name).collect();
        let (rejections, _) = self.cache.filter(&policy, &placed, &names, time(now));
        let passes = |(node, rejection): (&usize, &Option<_>)| rejection.is_none().then_some(*node);
        let passing: Vec<usize> = candidates.iter().zip(&rejections).filter_map(passes).collect();
        let passing_names: Vec<&str> = passing.iter().map(name).collect();
        let mut scores = self.cache.score(&policy, &placed, &passing_names, true, time(now)).into_iter();
        let mut spread = spread_points(pod, &passing, nodes).into_iter();
        let points = |(node, rejection): (&usize, &Option<_>)| {
            if rejection.is_some() {
                return None;
            }
            let stock = stock_points(FitStrategy::LeastAllocated, pod, &nodes[*node]);
            Some(WEIGHT * scores.next()?.round() + stock + spread.next()?)
        };
        Ok(candidates.iter().zip(&rejections).map(points).collect())
    }

    fn sampled(&mut self, nodes: &[LabNode], inlets: &[f64], now: i64) -> Result<()> {
        for (index, (node, inlet)) in nodes.iter().zip(inlets).enumerate() {
            let version = self.next_version();
            let config = &mut self.configs[index];
            config.metadata.resource_version = Some(version);
            config.status = Some(node_status(node, *inlet, time(now)));
            self.store.apply(config.clone(), Origin::Watch);
            if node.sampled.is_some_and(|(sampled, _)| sampled == now) {
                let version = self.next_version();
                let fact = &mut self.facts[index];
                fact.id.version = version;
                fact.published.extend(annotations(node, time(now)));
                self.store.apply(fact.clone(), Origin::Watch);
            }
        }
        Ok(())
    }

    fn bound(&mut self, pod: &PodRequest, node: usize, now: i64) -> Result<()> {
        self.store_pod(pod, node, now, true);
        Ok(())
    }

    fn started(&mut self, pod: &PodRequest, node: usize, bound: i64) -> Result<()> {
        self.store_pod(pod, node, bound, false);
        Ok(())
    }

    fn ended(&mut self, pod: &PodRequest) -> Result<()> {
        self.store.remove::<PodFact>(&identity(pod));
        Ok(())
    }
}

fn identity(pod: &PodRequest) -> Identity {
    let name = format!("pod-{}", pod.pod);
    Identity { uid: Uid::from(name.as_str()), key: Key::new(NAMESPACE, name), version: String::new() }
}

fn requests(pod: &PodRequest) -> Requests {
    Requests { cpu: millis(pod.cpu), memory: bytes(pod.memory), ..Requests::default() }
}

fn fact(node: &LabNode, name: &str) -> NodeFact {
    let size = Requests { cpu: millis(node.threads()), memory: bytes(node.memory()), ..Requests::default() };
    NodeFact {
        id: Identity { key: Key::new("", name), uid: Uid::from(name), version: "1".to_owned() },
        created: time(-86_400),
        ready: true,
        allocatable: size,
        capacity: size,
        pod_capacity: MAX_PODS,
        ..NodeFact::default()
    }
}

/// The NodeConfig of a node as the API server stores it.
fn config(name: &str) -> NodeConfig {
    let mut config = node_config(name);
    config.metadata.namespace = Some(NAMESPACE.to_owned());
    config.metadata.uid = Some(format!("config-{name}"));
    config.metadata.resource_version = Some("1".to_owned());
    config
}
