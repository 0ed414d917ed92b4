//! A run: a workload on a fleet, with one scheduler.

use anyhow::{Context, Result};
use fastrand::Rng;
use serde_json::Value;

use super::ledger::{RunLedger, RunMeasures};
use super::moves::{BegunMove, LabOperator, MovableService, MoveRules};
use super::node::{LabNode, STEP};
use super::placer::Placer;
use super::pod::{LabPlace, LabPod, PodDemand};
use super::request::PodRequest;
use super::service::{ReplicaScaling, ScaledService, replica_request, services};
use super::share::{WantedCpu, divide};
use crate::fleet::{HeatModel, ServerFleet};
use crate::trace::{WorkKind, WorkPod, WorkTrace};

/// Interval at which the current usage of nodes is measured, in seconds.
const SAMPLES: i64 = 30;

/// Interval at which statistics of usage are published, in seconds.
const STATISTICS: i64 = 60;

/// Time after which a bound pod has started, in seconds.
const START: i64 = STEP;

/// Time after which a replica of a scaled service serves, in seconds.
const READY: i64 = 30;

/// Settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunSettings<'a> {
    /// Seed of the choice among nodes with equal points.
    pub seed: u64,
    /// Seconds at the begin that do not count: until then the cluster fills, and usage is unknown.
    pub warm_up: i64,
    pub scaling: ReplicaScaling,
    pub moves: MoveRules,
    /// Agents of the policy that chooses the nodes of moves, as in `spec.agents`.
    pub agents: Option<&'a Value>,
}

/// Node that a scheduler chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedPodAt {
    /// Index of the pod: for jobs, and for services that are not scaled, that of the trace.
    pub pod: usize,
    pub node: usize,
    /// Seconds since the begin.
    pub at: i64,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct LabRun {
    pub measures: RunMeasures,
    /// All choices, in order.
    pub placed: Vec<PlacedPodAt>,
}

struct LabSimulation<'a> {
    trace: &'a WorkTrace,
    settings: RunSettings<'a>,
    heat: HeatModel,
    nodes: Vec<LabNode>,
    pods: Vec<LabPod>,
    /// Indexes of the pods that wait, the oldest first.
    pending: Vec<usize>,
    /// Indexes of the bound pods that have not started.
    starting: Vec<usize>,
    services: Vec<ScaledService>,
    /// Position of the next pod of the trace.
    arrived: usize,
    /// Site of each pod of the trace.
    sites: Vec<usize>,
    random: Rng,
    ledger: RunLedger,
    placed: Vec<PlacedPodAt>,
    /// None if nothing moves.
    operator: Option<LabOperator>,
    /// Pods that move, each with its replacement.
    moving: Vec<(usize, usize)>,
}

/// Runs a trace on a fleet. Fails if the trace is empty, or if the scheduler does.
pub fn run(
    trace: &WorkTrace,
    fleet: &ServerFleet,
    placer: &mut dyn Placer,
    settings: RunSettings<'_>,
) -> Result<LabRun> {
    let steps = (trace.duration() / STEP as f64).ceil() as usize;
    anyhow::ensure!(steps as i64 * STEP > settings.warm_up, "the trace ends within the warm-up time");
    let mut simulation = LabSimulation::new(trace, fleet, steps, settings)?;
    for step in 0..steps {
        simulation.step(step, placer).with_context(|| format!("{} s after the begin", step as i64 * STEP))?;
    }
    simulation.close(steps as i64 * STEP);
    Ok(LabRun { measures: simulation.ledger.measures(), placed: simulation.placed })
}

impl<'a> LabSimulation<'a> {
    fn new(trace: &'a WorkTrace, fleet: &ServerFleet, steps: usize, settings: RunSettings<'a>) -> Result<Self> {
        let pools: Vec<&str> = trace.pools().into_keys().collect();
        let pool = |name: &str| pools.binary_search(&name).unwrap_or(0);
        let sites = fleet.sites().max(1);
        let services = match settings.scaling {
            ReplicaScaling::Fixed => Vec::new(),
            scaling @ (ReplicaScaling::Tracking | ReplicaScaling::Forecast(_)) => {
                services(trace, steps, STEP, scaling, |name| pool(name) % sites)?
            }
        };
        let nodes: Vec<LabNode> = fleet.servers.iter().cloned().map(LabNode::new).collect();
        let operator = match settings.moves {
            MoveRules::None => None,
            rules @ (MoveRules::Relief | MoveRules::Consolidation) => {
                let movable = movable_services(trace, |name| pool(name) % sites);
                Some(LabOperator::new(rules, settings.agents, movable, &nodes)?)
            }
        };
        let mut simulation = Self {
            trace,
            settings,
            heat: HeatModel::new(fleet),
            nodes,
            pods: Vec::new(),
            pending: Vec::new(),
            starting: Vec::new(),
            services,
            arrived: 0,
            sites: trace.pods.iter().map(|pod| pool(&pod.pool) % sites).collect(),
            random: Rng::with_seed(settings.seed),
            ledger: RunLedger::default(),
            placed: Vec::new(),
            operator,
            moving: Vec::new(),
        };
        simulation.fill(pool);
        Ok(simulation)
    }

    /// Lists the pods of the trace, so that they have their indexes, and the first replicas of services.
    fn fill(&mut self, pool: impl Fn(&str) -> usize) {
        for (index, pod) in self.trace.pods.iter().enumerate() {
            let (usage, lifetime) = (pod.usage.clone(), pod.lifetime);
            let demand = match pod.kind {
                WorkKind::Job => PodDemand::Job { usage, lifetime, progress: 0.0 },
                WorkKind::Service => PodDemand::Alone { usage, arrival: pod.arrival, ends: pod.ends() },
            };
            let service = (pod.kind == WorkKind::Service).then(|| pool(&pod.pool));
            let request = PodRequest::new(index, service, pod.cpu, pod.memory);
            self.pods.push(LabPod::new(request, self.sites[index], demand, 0));
        }
        for service in 0..self.services.len() {
            self.scale(service, self.services[service].initial, 0);
        }
    }

    fn counts(&self, now: i64) -> bool {
        now >= self.settings.warm_up
    }

    fn step(&mut self, step: usize, placer: &mut dyn Placer) -> Result<()> {
        let now = step as i64 * STEP;
        for service in 0..self.services.len() {
            let replicas = i32::try_from(self.services[service].pods.len()).unwrap_or(i32::MAX);
            let desired = if step == 0 { replicas } else { self.services[service].desired(replicas, now) };
            self.scale(service, desired, now);
        }
        self.end_pods(now, placer)?;
        self.start_pods(now, placer)?;
        if now % SAMPLES == 0 {
            self.sample(now, placer)?;
        }
        self.admit(now);
        self.schedule(now, placer)?;
        self.finish_moves(now, placer)?;
        self.begin_moves(now, placer)?;
        self.consume(step, now);
        Ok(())
    }

    fn end_pods(&mut self, now: i64, placer: &mut dyn Placer) -> Result<()> {
        let bound = self.nodes.iter().flat_map(|node| node.pods.iter().copied());
        let over: Vec<usize> = bound.filter(|pod| self.is_over(*pod, now)).collect();
        for pod in over {
            self.release(pod, placer)?;
        }
        let waiting = std::mem::take(&mut self.pending);
        for pod in waiting {
            if !self.is_over(pod, now) {
                self.pending.push(pod);
                continue;
            }
            self.pods[pod].place = LabPlace::Gone;
            self.note_pending(pod, now);
        }
        Ok(())
    }

    /// Whether a pod has to leave: its work is over, or its service has removed it.
    fn is_over(&self, pod: usize, now: i64) -> bool {
        let is_removed = match &self.pods[pod].demand {
            PodDemand::Replica { service } => !self.services[*service].pods.contains(&pod),
            PodDemand::Job { .. } | PodDemand::Alone { .. } | PodDemand::Replacement => false,
        };
        is_removed || self.pods[pod].is_over(now)
    }

    fn note_pending(&mut self, pod: usize, until: i64) {
        let created = self.pods[pod].created;
        if self.counts(created) {
            self.ledger.add_pending((until - created) as f64);
        }
    }

    fn release(&mut self, pod: usize, placer: &mut dyn Placer) -> Result<()> {
        let Some(node) = self.pods[pod].node() else { return Ok(()) };
        let request = &self.pods[pod].request;
        self.nodes[node].release(request);
        placer.ended(request)?;
        self.operator.iter_mut().for_each(|operator| operator.ended(request));
        self.pods[pod].place = LabPlace::Gone;
        self.starting.retain(|starting| *starting != pod);
        Ok(())
    }

    /// Adds replicas, or removes those that wait, and then the youngest.
    fn scale(&mut self, service: usize, replicas: i32, now: i64) {
        let wanted = usize::try_from(replicas).unwrap_or(0);
        while self.services[service].pods.len() < wanted {
            let pod = self.pods.len();
            let request = PodRequest { pod, ..self.services[service].request.clone() };
            let (site, demand) = (self.services[service].site, PodDemand::Replica { service });
            self.pods.push(LabPod::new(request, site, demand, now));
            self.services[service].pods.push(pod);
            self.pending.push(pod);
        }
        while self.services[service].pods.len() > wanted {
            let members = &self.services[service].pods;
            let waiting = members.iter().rposition(|pod| self.pods[*pod].place == LabPlace::Pending);
            let leaving = waiting.unwrap_or(members.len() - 1);
            let pod = self.services[service].pods.remove(leaving);
            if waiting.is_some() {
                self.pending.retain(|pending| *pending != pod);
                self.pods[pod].place = LabPlace::Gone;
                self.note_pending(pod, now);
            }
        }
    }

    fn start_pods(&mut self, now: i64, placer: &mut dyn Placer) -> Result<()> {
        let starting = std::mem::take(&mut self.starting);
        for pod in starting {
            let LabPod { request, place, .. } = &self.pods[pod];
            match place {
                LabPlace::Bound { node, since } if now - since >= START => {
                    placer.started(request, *node, *since)?;
                    self.operator.iter_mut().for_each(|operator| operator.started(request, *node, *since));
                }
                LabPlace::Bound { .. } => self.starting.push(pod),
                LabPlace::Pending | LabPlace::Gone => {}
            }
        }
        Ok(())
    }

    fn sample(&mut self, now: i64, placer: &mut dyn Placer) -> Result<()> {
        if now % STATISTICS == 0 {
            self.nodes.iter_mut().for_each(|node| node.sample(now));
        }
        let watts: Vec<f64> = self.nodes.iter().map(LabNode::watts).collect();
        let inlets = self.heat.inlets(&watts);
        self.operator.iter_mut().for_each(|operator| operator.sampled(&self.nodes, &inlets, now));
        placer.sampled(&self.nodes, &inlets, now)
    }

    /// Creates the pods of the trace that arrive until now. Pods of scaled services are created by their scaling.
    fn admit(&mut self, now: i64) {
        while let Some(pod) = self.trace.pods.get(self.arrived).filter(|pod| pod.arrival <= now as f64) {
            let is_scaled = pod.kind == WorkKind::Service && self.settings.scaling != ReplicaScaling::Fixed;
            if !is_scaled {
                self.pods[self.arrived].created = now;
                self.pending.push(self.arrived);
            }
            self.arrived += 1;
        }
    }

    /// Tries all pods that wait, the oldest first.
    fn schedule(&mut self, now: i64, placer: &mut dyn Placer) -> Result<()> {
        let waiting = std::mem::take(&mut self.pending);
        for pod in waiting {
            match self.choose(pod, now, placer)? {
                Some(node) => {
                    self.note_pending(pod, now);
                    self.bind(pod, node, now, placer)?;
                }
                None => self.pending.push(pod),
            }
        }
        Ok(())
    }

    /// The node for a pod among those of its site with room.
    fn choose(&mut self, pod: usize, now: i64, placer: &mut dyn Placer) -> Result<Option<usize>> {
        let LabPod { request, site, .. } = &self.pods[pod];
        let has_room = |index: &usize| {
            let node = &self.nodes[*index];
            node.server.site == *site && node.fits(request.cpu, request.memory)
        };
        let candidates: Vec<usize> = (0..self.nodes.len()).filter(has_room).collect();
        self.best(pod, candidates, now, placer)
    }

    /// The node with most points; at random among equal ones, as kube-scheduler chooses.
    fn best(&mut self, pod: usize, candidates: Vec<usize>, now: i64, placer: &mut dyn Placer) -> Result<Option<usize>> {
        if candidates.is_empty() {
            return Ok(None);
        }
        let points = placer.points(&self.pods[pod].request, &candidates, &self.nodes, now)?;
        let mut best: Option<(f64, usize)> = None;
        let mut equal = 0;
        for (points, node) in points.into_iter().zip(candidates) {
            let Some(points) = points else { continue };
            match best {
                Some((most, _)) if points < most => {}
                Some((most, _)) if points <= most => {
                    equal += 1;
                    if self.random.usize(..equal) == 0 {
                        best = Some((points, node));
                    }
                }
                Some(_) | None => {
                    (best, equal) = (Some((points, node)), 1);
                }
            }
        }
        Ok(best.map(|(_, node)| node))
    }

    fn bind(&mut self, pod: usize, node: usize, now: i64, placer: &mut dyn Placer) -> Result<()> {
        let request = self.pods[pod].request.clone();
        self.nodes[node].bind(&request, now);
        self.pods[pod].place = LabPlace::Bound { node, since: now };
        self.starting.push(pod);
        self.placed.push(PlacedPodAt { pod, node, at: now });
        self.operator.iter_mut().for_each(|operator| operator.bound(&request, node, now));
        placer.bound(&request, node, now)
    }

    /// Starts the replacements of the moves that begin.
    fn begin_moves(&mut self, now: i64, placer: &mut dyn Placer) -> Result<()> {
        let Some(operator) = &mut self.operator else { return Ok(()) };
        let mut replacements = Vec::new();
        for begun in operator.step(&self.nodes, now)? {
            let BegunMove { pod, node, .. } = begun;
            let replacement = self.pods.len();
            let LabPod { request, site, .. } = &self.pods[pod];
            let request = PodRequest { pod: replacement, ..request.clone() };
            operator.replace(&begun, &request);
            self.pods.push(LabPod::new(request, *site, PodDemand::Replacement, now));
            self.moving.push((pod, replacement));
            replacements.push((replacement, node));
        }
        for (replacement, node) in replacements {
            self.bind(replacement, node, now, placer)?;
        }
        Ok(())
    }

    /// Evicts pods whose replacements can serve. If a pod has gone meanwhile, its replacement is deleted.
    fn finish_moves(&mut self, now: i64, placer: &mut dyn Placer) -> Result<()> {
        let moving = std::mem::take(&mut self.moving);
        for (pod, replacement) in moving {
            let Some(operator) = &mut self.operator else { break };
            let request = &self.pods[replacement].request;
            let LabPlace::Bound { node, since } = self.pods[replacement].place else { continue };
            if self.pods[pod].node().is_none() {
                operator.cancel(request, now)?;
                self.release(replacement, placer)?;
            } else if now - since < READY {
                self.moving.push((pod, replacement));
            } else {
                operator.hand_over(request, node, since, now)?;
                self.hand_over(pod, replacement);
                self.release(pod, placer)?;
                if self.counts(now) {
                    self.ledger.add_move();
                }
            }
        }
        Ok(())
    }

    /// Lets the replacement serve in place of the pod.
    fn hand_over(&mut self, pod: usize, replacement: usize) {
        self.pods[replacement].demand = self.pods[pod].demand.clone();
        if let PodDemand::Replica { service } = self.pods[pod].demand {
            let members = &mut self.services[service].pods;
            members.iter_mut().filter(|member| **member == pod).for_each(|member| *member = replacement);
        }
    }

    /// Divides the CPU of each node for a step, and adds the step to the figures.
    fn consume(&mut self, step: usize, now: i64) {
        let seconds = STEP as f64;
        let shares = self.serve(step, now);
        for index in 0..self.nodes.len() {
            let pods = std::mem::take(&mut self.nodes[index].pods);
            let wanted: Vec<WantedCpu> = pods
                .iter()
                .map(|pod| WantedCpu { cores: self.wanted(*pod, now, &shares), weight: self.pods[*pod].request.cpu })
                .collect();
            let got = divide(&wanted, self.nodes[index].threads());
            for ((pod, wanted), got) in pods.iter().zip(&wanted).zip(&got) {
                let part = if wanted.cores > 0.0 { got / wanted.cores } else { 1.0 };
                self.pods[*pod].advance(part, seconds);
                self.pods[*pod].used = *got;
                if let PodDemand::Replica { service } = self.pods[*pod].demand {
                    self.services[service].used += got;
                }
            }
            let node = &mut self.nodes[index];
            node.pods = pods;
            node.record(wanted.iter().map(|wanted| wanted.cores).sum(), got.iter().sum());
        }
        if self.counts(now) {
            let watts: Vec<f64> = self.nodes.iter().map(LabNode::watts).collect();
            self.ledger.add_nodes(&self.nodes, &self.heat.inlets(&watts), seconds);
            self.ledger.add_replicas(self.replicas(), seconds);
        }
    }

    /// Demand of each service per ready replica, in cores. Demand without a ready replica is not served, nor that of
    /// pods of services that wait.
    fn serve(&mut self, step: usize, now: i64) -> Vec<f64> {
        let counts = self.counts(now);
        let mut shares = Vec::with_capacity(self.services.len());
        for service in &mut self.services {
            let demand = service.demand(step);
            let ready = service.pods.iter().filter(|pod| self.pods[**pod].is_bound_for(READY, now)).count();
            if ready == 0 && counts {
                self.ledger.add_unserved(demand, STEP as f64);
            }
            shares.push(if ready == 0 { 0.0 } else { demand / ready as f64 });
            service.used = 0.0;
        }
        for pod in self.pending.iter().filter(|_| counts) {
            if let PodDemand::Alone { .. } = self.pods[*pod].demand {
                self.ledger.add_unserved(self.wanted(*pod, now, &shares), STEP as f64);
            }
        }
        shares
    }

    fn wanted(&self, pod: usize, now: i64, shares: &[f64]) -> f64 {
        let pod = &self.pods[pod];
        match &pod.demand {
            PodDemand::Job { usage, progress, .. } => usage.at(*progress),
            PodDemand::Alone { usage, arrival, .. } => usage.at(now as f64 - arrival),
            PodDemand::Replica { service } if pod.is_bound_for(READY, now) => shares[*service],
            PodDemand::Replica { .. } | PodDemand::Replacement => 0.0,
        }
    }

    /// Replicas of all services that exist.
    fn replicas(&self) -> usize {
        let is_alone = |pod: &&usize| matches!(self.pods[**pod].demand, PodDemand::Alone { .. });
        let bound = self.nodes.iter().flat_map(|node| &node.pods);
        let alone = bound.filter(is_alone).count() + self.pending.iter().filter(is_alone).count();
        alone + self.services.iter().map(|service| service.pods.len()).sum::<usize>()
    }

    /// Counts the pods that still wait at the end.
    fn close(&mut self, end: i64) {
        for pod in std::mem::take(&mut self.pending) {
            self.note_pending(pod, end);
        }
    }
}

/// The services of a trace. `site`: of a pool.
fn movable_services(trace: &WorkTrace, site: impl Fn(&str) -> usize) -> Vec<MovableService> {
    let mut services = Vec::new();
    for (index, (pool, members)) in trace.pools().into_iter().enumerate() {
        let pods: Vec<&WorkPod> = members.iter().map(|member| &trace.pods[*member]).collect();
        if pods.iter().any(|pod| pod.kind == WorkKind::Service) {
            services.push(MovableService { service: index, request: replica_request(index, &pods), site: site(pool) });
        }
    }
    services
}
