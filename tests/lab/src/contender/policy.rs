//! Ours: the default scheduler with a PlacementPolicy as its extender, by the shipped planner.
//!
//! Nodes, pods and NodeConfigs enter the cache of the extender as watches would deliver them. The configuration is that
//! of `config/kube-scheduler.yaml`: nodes that the policy rejects are left out, and its score has weight 5.

use anyhow::{Context, Result, anyhow};
use ganglion_api::node_config::status::{NodeReading, PowerCurve};
use ganglion_api::node_config::{NodeConfig, NodeConfigSpec, NodeConfigStatus};
use ganglion_api::placement_policy::{DEFAULT_SCHEDULER, PlacementPolicy};
use ganglion_core::facts::{
    CONGESTION, CONGESTION_SAMPLED_AT, Identity, Key, NodeFact, PodFact, PodHold, Requests, USAGE_SAMPLED_AT, Uid,
};
use ganglion_core::power_curve::POINTS;
use ganglion_core::world::{Origin, World};
use ganglion_placement::cache::PlacementCache;
use ganglion_placement_plan::question::PlacedPod;
use ganglion_runtime::store::Store;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::stock::{FitStrategy, stock_points};
use crate::cluster::{LabNode, Placer, PodRequest, time};

const POLICY: &str = "lab";
const NAMESPACE: &str = "lab";

/// Points of the scheduler for one point of the policy: the extender's weight, times 100 / 10.
const WEIGHT: f64 = 50.0;

/// Number of pods that a node admits: in the lab, only their requests limit them.
const MAX_PODS: i64 = 10_000;

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
        let policy: PlacementPolicy = serde_json::from_value(json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy",
            "metadata": {"name": POLICY, "uid": POLICY, "generation": 1, "resourceVersion": "1"},
            "spec": {"sampleWindow": "15m", "agents": agents},
        }))?;
        store.apply(policy, Origin::Watch);
        let names: Vec<String> = (0..nodes.len()).map(|node| format!("node-{node:04}")).collect();
        let facts: Vec<NodeFact> = nodes.iter().zip(&names).map(|(node, name)| fact(node, name)).collect();
        let configs = nodes.iter().zip(&names).map(|(node, name)| config(node, name)).collect();
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
        let scheduler = DEFAULT_SCHEDULER.to_owned();
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
        let scheduler = DEFAULT_SCHEDULER.to_owned();
        let placed = PlacedPod { key, uid, requests, cores: requests.cpu, scheduler, ..PlacedPod::default() };
        let names: Vec<&str> = candidates.iter().map(|node| self.names[*node].as_str()).collect();
        let (rejections, _) = self.cache.filter(&policy, &placed, &names, time(now));
        let open: Vec<bool> = rejections.iter().map(Option::is_none).collect();
        let passing: Vec<&str> = names.iter().zip(&open).filter(|(_, open)| **open).map(|(name, _)| *name).collect();
        let mut scores = self.cache.score(&policy, &placed, &passing, true, time(now)).into_iter();
        let points = |(node, open): (&usize, &bool)| {
            let score = if *open { scores.next() } else { None };
            Some(WEIGHT * score?.round() + stock_points(FitStrategy::LeastAllocated, pod, &nodes[*node]))
        };
        Ok(candidates.iter().zip(&open).map(points).collect())
    }

    fn sampled(&mut self, nodes: &[LabNode], inlets: &[f64], now: i64) -> Result<()> {
        for (index, (node, inlet)) in nodes.iter().zip(inlets).enumerate() {
            let version = self.next_version();
            let config = &mut self.configs[index];
            config.metadata.resource_version = Some(version);
            config.status = Some(status(node, *inlet, now));
            self.store.apply(config.clone(), Origin::Watch);
            if node.sampled.is_some_and(|(sampled, _)| sampled == now) {
                let version = self.next_version();
                let fact = &mut self.facts[index];
                fact.id.version = version;
                annotate(fact, node, now);
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

    fn ended(&mut self, pod: &PodRequest) {
        self.store.remove::<PodFact>(&identity(pod));
    }
}

fn identity(pod: &PodRequest) -> Identity {
    let name = format!("pod-{}", pod.pod);
    Identity { uid: Uid::from(name.as_str()), key: Key::new(NAMESPACE, name), version: String::new() }
}

fn requests(pod: &PodRequest) -> Requests {
    Requests { cpu: millis(pod.cpu), memory: bytes(pod.memory), ..Requests::default() }
}

fn millis(cores: f64) -> i64 {
    (cores * 1000.0).round() as i64
}

fn bytes(gib: f64) -> i64 {
    (gib * f64::from(1 << 30)).round() as i64
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

/// Annotations with the published statistics, and with the congestion.
fn annotate(fact: &mut NodeFact, node: &LabNode, now: i64) {
    let Some((_, usage)) = node.sampled else { return };
    let at = time(now).to_string();
    fact.published.extend([
        ("mean-used-cpu", (usage.mean * 1000.0).to_string()),
        ("std-used-cpu", (usage.deviation * 1000.0).to_string()),
        ("mean-used-memory", bytes(node.requested_memory).to_string()),
        ("std-used-memory", "0".to_owned()),
        (USAGE_SAMPLED_AT, at.clone()),
        (CONGESTION, (100.0 * node.load().min(1.0)).to_string()),
        (CONGESTION_SAMPLED_AT, at),
    ]);
}

fn config(node: &LabNode, name: &str) -> NodeConfig {
    let mut config = NodeConfig::new(name, NodeConfigSpec { node_name: name.into(), ..NodeConfigSpec::default() });
    config.metadata.namespace = Some(NAMESPACE.to_owned());
    config.metadata.uid = Some(format!("config-{name}"));
    config.metadata.resource_version = Some("1".to_owned());
    config.status = Some(status(node, 20.0, 0));
    config
}

/// Status with the usage, and with the power that the fleet's table predicts.
fn status(node: &LabNode, inlet: f64, now: i64) -> NodeConfigStatus {
    let at = Time(time(now));
    let reading = |value: f64| {
        Some(NodeReading { value: Some(value.to_string()), sampled_at: Some(at.clone()), ..NodeReading::default() })
    };
    let parts = (0..POINTS).map(|point| point as f64 / (POINTS - 1) as f64);
    let watts = parts.map(|part| node.server.model.watts(part).to_string()).collect();
    NodeConfigStatus {
        valid_until: Some(Time(time(now) + SignedDuration::from_mins(5))),
        inlet_temperature: reading(inlet),
        differential_pressure: reading(7.5),
        cpu: reading(100.0 * node.usage()),
        power: reading(node.watts()),
        power_curve: Some(PowerCurve {
            watts,
            inlet_temperature: Some(inlet.to_string()),
            differential_pressure: Some("7.5".to_owned()),
            predicted_at: Some(at.clone()),
            problem: None,
        }),
        ..NodeConfigStatus::default()
    }
}
