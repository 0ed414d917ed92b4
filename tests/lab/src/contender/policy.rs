//! Ours: the default scheduler with a PlacementPolicy as its extender, by the shipped planner.
//!
//! Nodes, pods and NodeConfigs enter the cache of the extender as watches would deliver them. The configuration is that
//! of `config/kube-scheduler.yaml`: nodes that the policy rejects are left out, and its score has weight 5.

use anyhow::{Context, Result, anyhow};
use ganglion_core::world::World;
use ganglion_placement::cache::PlacementCache;
use ganglion_placement_plan::question::PlacedPod;
use serde_json::Value;

use super::spread::spread_points;
use super::stock::{FitStrategy, stock_points};
use crate::cluster::facts::{BoundPod, LabFacts, identity, pod_name, requests};
use crate::cluster::published::{POLICY, SCHEDULER};
use crate::cluster::{LabNode, Placer, PodRequest, time};

/// Points of the scheduler for one point of the policy: the extender's weight, times 100 / 10.
const WEIGHT: f64 = 50.0;

/// The scheduler with an extender.
pub struct PolicyScheduler {
    facts: LabFacts,
    cache: PlacementCache,
}

impl PolicyScheduler {
    /// A scheduler with a policy of these agents, as in `spec.agents`.
    pub fn new(agents: &Value, nodes: &[LabNode]) -> Result<Self> {
        let mut world = World::default();
        ganglion_placement_plan::world::register(&mut world);
        let facts = LabFacts::new(world, nodes);
        facts.put_policy(agents)?;
        let cache = PlacementCache::new(facts.store.clone());
        Ok(Self { facts, cache })
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
        let id = identity(&pod_name(pod.pod));
        let scheduler = SCHEDULER.to_owned();
        let placed =
            PlacedPod { key: id.key, uid: id.uid, requests, cores: requests.cpu, scheduler, ..PlacedPod::default() };
        let name = |node: &usize| self.facts.names()[*node].as_str();
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
        self.facts.sample(nodes, inlets, now);
        Ok(())
    }

    fn bound(&mut self, pod: &PodRequest, node: usize, now: i64) -> Result<()> {
        self.facts.put_pod(&pod_name(pod.pod), pod, pod.service, BoundPod { node, since: now, runs: false });
        Ok(())
    }

    fn started(&mut self, pod: &PodRequest, node: usize, bound: i64) -> Result<()> {
        self.facts.put_pod(&pod_name(pod.pod), pod, pod.service, BoundPod { node, since: bound, runs: true });
        Ok(())
    }

    fn ended(&mut self, pod: &PodRequest) -> Result<()> {
        self.facts.remove_pod(&pod_name(pod.pod));
        Ok(())
    }
}
