//! Quality of placement by labels and by an extender: the same pods with moving loads, on the same nodes, in virtual
//! time.
//!
//! The policy, the labels and their delays are those of the operator. The scores of kube-scheduler are modeled by their
//! published formulas: NodeResourcesFit (least allocated) and NodeResourcesBalancedAllocation, each with weight 1, and
//! NodeAffinity or the extender with weight 2.

use std::collections::HashMap;
use std::f64::consts::TAU;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use ganglion::operator::world::world;
use ganglion_api::node_config::NodeConfig;
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::placement_policy::labels::TypicalRequest;
use ganglion_core::facts::{Key, NodeFact, NodeName, PodFact, Requests, SlimPod};
use ganglion_core::world::Origin;
use ganglion_placement::cache::PlacementCache;
use ganglion_placement_plan::labels::plan::{LabelPlan, LabelWrite, MinorWrites, WantedLabels, plan};
use ganglion_placement_plan::labels::typical::PlacedRequests;
use ganglion_placement_plan::labels::{LabelValue, key};
use ganglion_placement_plan::question::PlacedPod;
use ganglion_runtime::store::Store;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::objects::POLICY;
use crate::frame::{Bench, Bound, Progress, median, number};

pub const PART: &str = "quality";

/// Namespace of the pods.
const NAMESPACE: &str = "jobs";

const NODES: usize = 200;
const CORES: f64 = 32.0;
const MEMORY: i64 = 256 << 30;

/// Duration of a run in seconds, and its begin, which is not measured.
const SECONDS: i64 = 5400;
const WARMING: i64 = 1800;

/// Pods per second, in bursts, and their mean lifetime in seconds.
const RATE: f64 = 2.0;
const LIFETIME: f64 = 1200.0;

/// Interval of the samples of usage in seconds. Labels are compared each second.
const SAMPLES: i64 = 30;

/// Usage from which on a node counts as overloaded.
const OVERLOAD: f64 = 0.9;

const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

/// Maximum of each figure with labels, relative to the extender.
const BOUND: f64 = 1.05;

/// A pod of the trace. Its usage swings around a share of its request.
#[derive(Clone)]
struct Job {
    at: i64,
    ends: i64,
    request: f64,
    share: f64,
    phase: f64,
    period: f64,
}

impl Job {
    fn usage(&self, now: i64) -> f64 {
        let swing = (number_of(now) / self.period * TAU + self.phase).sin();
        self.request * self.share * (1.0 + 0.6 * swing)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// The scheduler without a policy.
    Alone,
    Extender,
    Labels,
}

/// One figure of a run.
type QualityFigure = fn(&Quality) -> f64;

/// Figures of a run.
#[derive(Debug)]
struct Quality {
    /// Seconds of nodes above the limit.
    overload: f64,
    /// Mean power of all nodes.
    watts: f64,
    /// Mean standard deviation of the usage of nodes.
    spread: f64,
    /// Label writes per node and minute.
    writes: f64,
}

pub fn run(bench: &mut Bench) -> Result<()> {
    let ways = [Way::Alone, Way::Extender, Way::Labels];
    let mut runs = [const { Vec::new() }; 3];
    let progress = Progress::spin(&format!("{} runs of {SECONDS} virtual seconds", SEEDS.len() * 3));
    for seed in SEEDS {
        let jobs = trace(seed);
        for (way, runs) in ways.iter().zip(&mut runs) {
            runs.push(Simulation::new(*way, seed)?.run(&jobs)?);
        }
    }
    progress.end();
    let of = |way: usize, figure: fn(&Quality) -> f64| median(&runs[way].iter().map(figure).collect::<Vec<_>>());
    let figures: [(&str, QualityFigure, &str); 3] = [
        ("node seconds above 90 %", |run| run.overload, "s"),
        ("power", |run| run.watts, "W"),
        ("spread of usage", |run| run.spread, "of a node"),
    ];
    for (words, figure, unit) in figures {
        let [alone, extender, labels] = [0, 1, 2].map(|way| of(way, figure));
        let title = format!("the same pods with labels, relative to an extender: {words}");
        bench.claim(&title, labels / extender, "times", Bound::AtMost(BOUND));
        bench.note("  with labels", labels, unit);
        bench.note("  with an extender", extender, unit);
        bench.note("  with the scheduler alone", alone, unit);
    }
    bench.note("  label writes per node", of(2, |run| run.writes), "per minute");
    Ok(())
}

/// Pods that arrive in bursts of different sizes.
fn trace(seed: u64) -> Vec<Job> {
    let mut random = Rng::with_seed(seed);
    let mut jobs = Vec::new();
    let mut now = 0.0;
    while now < number_of(SECONDS) {
        let burst = if random.f64() < 0.1 { 30 } else { 3 };
        // Mean of the bursts: 5.7 pods.
        now += exponential(&mut random, 5.7 / RATE);
        for _ in 0..burst {
            let at = whole(now);
            let request = [0.25, 0.5, 1.0, 2.0, 4.0][random.usize(..5)];
            jobs.push(Job {
                at,
                ends: at + 1 + whole(exponential(&mut random, LIFETIME)),
                request,
                share: 0.3 + 0.9 * random.f64(),
                phase: TAU * random.f64(),
                period: 300.0 + 1500.0 * random.f64(),
            });
        }
    }
    jobs
}

struct Simulation {
    way: Way,
    random: Rng,
    store: Store,
    cache: PlacementCache,
    nodes: Vec<NodeFact>,
    jobs: Vec<Vec<Job>>,
    /// Usage by other programs of a node.
    others: Vec<Job>,
    /// Requested CPU and memory.
    requested: Vec<(f64, i64)>,
    best: Option<f64>,
    typical: Option<TypicalRequest>,
    minor: MinorWrites,
    labeled_pods: HashMap<NodeName, i64>,
    writes: usize,
}

const START: i64 = 1_800_000_000;

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn name(node: usize) -> String {
    format!("node-{node:03}")
}

impl Simulation {
    fn new(way: Way, seed: u64) -> Result<Self> {
        let mut random = Rng::with_seed(seed ^ 0x5eed);
        let store = Store::new(world());
        let cache = PlacementCache::new(store.clone());
        let policy: PlacementPolicy = serde_json::from_value(json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy",
            "metadata": {"name": POLICY, "uid": POLICY, "generation": 1, "resourceVersion": "1"},
            "spec": {"delivery": ["Extender", "Labels"], "agents": [
                {"name": "safe", "weight": 5, "safe": {}}, {"name": "power", "weight": 5, "power": {}},
            ]},
        }))?;
        store.apply(policy, Origin::Watch);
        let others = (0..NODES).map(|_| Job {
            at: 0,
            ends: SECONDS,
            request: CORES,
            share: 0.05 + 0.2 * random.f64(),
            phase: TAU * random.f64(),
            period: 600.0 + 3000.0 * random.f64(),
        });
        let others = others.collect();
        let mut simulation = Self {
            way,
            random,
            store,
            cache,
            nodes: Vec::new(),
            jobs: vec![Vec::new(); NODES],
            others,
            requested: vec![(0.0, 0); NODES],
            best: None,
            typical: None,
            minor: MinorWrites::default(),
            labeled_pods: HashMap::new(),
            writes: 0,
        };
        simulation.nodes = (0..NODES).map(|node| simulation.node(node, 0)).collect::<Result<_>>()?;
        Ok(simulation)
    }

    fn run(mut self, jobs: &[Job]) -> Result<Quality> {
        let (mut overload, mut watts, mut spread) = (0.0, 0.0, 0.0);
        let mut next = jobs.iter().peekable();
        for now in 0..SECONDS {
            self.end_jobs(now)?;
            if now % SAMPLES == 0 {
                self.sample(now)?;
            }
            if self.way == Way::Labels {
                self.label(now)?;
            }
            while let Some(job) = next.next_if(|job| job.at <= now) {
                self.place(job, now)?;
            }
            if now < WARMING {
                continue;
            }
            let usage: Vec<f64> = (0..NODES).map(|node| self.usage(node, now)).collect();
            overload += number(usage.iter().filter(|usage| **usage > OVERLOAD).count());
            watts += usage.iter().enumerate().map(|(node, usage)| power(node, *usage)).sum::<f64>();
            let mean = usage.iter().sum::<f64>() / number(NODES);
            let variance = usage.iter().map(|usage| (usage - mean).powi(2)).sum::<f64>() / number(NODES);
            spread += variance.sqrt();
        }
        let measured = number_of(SECONDS - WARMING);
        let writes = number(self.writes) / number(NODES) / (number_of(SECONDS) / 60.0);
        Ok(Quality { overload, watts: watts / measured, spread: spread / measured, writes })
    }

    /// Share of the processors in use.
    fn usage(&self, node: usize, now: i64) -> f64 {
        let jobs: f64 = self.jobs[node].iter().map(|job| job.usage(now)).sum();
        ((jobs + self.others[node].usage(now)) / CORES).min(1.0)
    }

    fn node(&self, node: usize, now: i64) -> Result<NodeFact> {
        let used: Vec<f64> = (0..3).map(|at| self.usage(node, now - at * 10) * CORES * 1000.0).collect();
        let mean = used.iter().sum::<f64>() / 3.0;
        let deviation = (used.iter().map(|used| (used - mean).powi(2)).sum::<f64>() / 3.0).sqrt();
        let size = json!({"cpu": CORES.to_string(), "memory": MEMORY.to_string(), "pods": "250"});
        let labels = self.nodes.get(node).map(|fact| fact.labels.clone()).unwrap_or_default();
        let object: Node = serde_json::from_value(json!({
            "metadata": {
                "name": name(node), "uid": name(node), "resourceVersion": (now + 2).to_string(), "labels": labels,
                "annotations": {
                    "mean-used-cpu": mean.to_string(), "std-used-cpu": deviation.to_string(),
                    "ganglion.dev/usage-sampled-at": time(now).to_string(),
                },
            },
            "status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]},
        }))?;
        Ok(NodeFact::from(object))
    }

    fn sample(&mut self, now: i64) -> Result<()> {
        for node in 0..NODES {
            self.nodes[node] = self.node(node, now)?;
            self.store.apply(self.nodes[node].clone(), Origin::Watch);
            let config: NodeConfig = serde_json::from_value(config(node, self.usage(node, now), now))?;
            self.store.apply(config, Origin::Watch);
        }
        self.check_data(now)
    }

    /// Checks that each agent has data about each node: one that abstains would not be measured.
    fn check_data(&self, now: i64) -> Result<()> {
        let policy = self.cache.policy(POLICY).context("no policy")?.map_err(|(_, error)| anyhow::anyhow!(error))?;
        let inventory = self.store.read(|world| self.cache.copy(world, time(now)));
        for node in 0..NODES {
            let record = inventory.node(&name(node)).context("an unknown node")?;
            ensure!(!policy.lacks(record, time(now)), "an agent has no data about {}", name(node));
        }
        Ok(())
    }

    /// A pass of the operator over the labels.
    fn label(&mut self, now: i64) -> Result<()> {
        let policy = self.cache.policy(POLICY).context("no policy")?.map_err(|(_, error)| anyhow::anyhow!(error))?;
        let labels = policy.labels.as_ref().context("no labels")?;
        let placed = self.store.read(PlacedRequests::of);
        let typical = labels.typical.pod(&placed, self.typical.as_ref());
        let verdicts = self.cache.verdicts(&policy, &typical, time(now));
        self.typical = Some(typical.request);
        let key = key(POLICY);
        let present: HashMap<NodeName, LabelValue> = self
            .nodes
            .iter()
            .filter_map(|node| Some((node.name(), LabelValue::parse(node.labels.get(&key)?)?)))
            .collect();
        let (values, best) = labels.rules.labels(&verdicts, |node| present.get(node).copied(), self.best);
        self.best = best;
        let pods = self.cache.pods();
        for (node, count) in &pods {
            let known = self.labeled_pods.entry(node.clone()).or_insert(*count);
            *known = (*known).min(*count);
        }
        let wanted = [WantedLabels { key, values: Some(values) }];
        let is_filling = |node: &NodeName| pods.get(node) > self.labeled_pods.get(node);
        let LabelPlan { urgent, minor } = plan(self.nodes.iter(), &wanted, true, is_filling);
        let left = self.minor.left(NODES, time(now)).min(minor.len());
        self.minor.record(left, time(now));
        for LabelWrite { node, set } in urgent.into_iter().chain(minor.into_iter().take(left)) {
            let fact = self.nodes.iter_mut().find(|fact| fact.id == node).context("an unknown node")?;
            self.labeled_pods.remove(&fact.name());
            fact.labels.extend(set.into_iter().filter_map(|(key, change)| Some((key, change?.value.to_string()))));
            self.writes += 1;
        }
        Ok(())
    }

    fn end_jobs(&mut self, now: i64) -> Result<()> {
        for node in 0..NODES {
            let (left, ended): (Vec<Job>, Vec<Job>) = self.jobs[node].drain(..).partition(|job| job.ends > now);
            self.jobs[node] = left;
            for job in ended {
                self.requested[node].0 -= job.request;
                self.requested[node].1 -= memory(&job);
                let pod = PodFact::from(serde_json::from_value::<SlimPod>(pod(&job, node, now))?);
                self.store.remove::<PodFact>(&pod.id);
            }
        }
        Ok(())
    }

    fn place(&mut self, job: &Job, now: i64) -> Result<()> {
        let fits = |node: &usize| {
            let (cpu, used) = self.requested[*node];
            cpu + job.request <= CORES && used + memory(job) <= MEMORY
        };
        let open: Vec<usize> = (0..NODES).filter(fits).collect();
        // The scheduler selects at random among the best.
        let ties: Vec<f64> = open.iter().map(|_| self.random.f64()).collect();
        let points = self.points(&open, job, now)?;
        let score = |at: usize| points[at] + self.own_points(open[at], job);
        let best = (0..open.len())
            .max_by(|one, other| score(*one).total_cmp(&score(*other)).then(ties[*one].total_cmp(&ties[*other])));
        // A full cluster: the pod is lost in all ways.
        let Some(node) = best.map(|at| open[at]) else { return Ok(()) };
        self.requested[node].0 += job.request;
        self.requested[node].1 += memory(job);
        let bound: SlimPod = serde_json::from_value(pod(job, node, now))?;
        self.store.apply(PodFact::from(bound), Origin::Watch);
        self.jobs[node].push(job.clone());
        Ok(())
    }

    /// Points of the policy for the nodes that have room.
    fn points(&self, open: &[usize], job: &Job, now: i64) -> Result<Vec<f64>> {
        match self.way {
            Way::Alone => Ok(vec![0.0; open.len()]),
            Way::Labels => {
                let key = key(POLICY);
                let level =
                    |node: &usize| match self.nodes[*node].labels.get(&key).and_then(|text| LabelValue::parse(text)) {
                        Some(LabelValue::Level(level)) => f64::from(level),
                        _ => 0.0,
                    };
                let levels: Vec<f64> = open.iter().map(level).collect();
                let top = levels.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
                Ok(levels.into_iter().map(|level| 200.0 * level / top).collect())
            }
            Way::Extender => {
                let policy =
                    self.cache.policy(POLICY).context("no policy")?.map_err(|(_, error)| anyhow::anyhow!(error))?;
                let requests = Requests { cpu: millis(job), memory: memory(job), ..Requests::default() };
                let placed = PlacedPod {
                    key: Key::new(NAMESPACE, uid(job)),
                    uid: uid(job).as_str().into(),
                    requests,
                    cores: requests.cpu,
                    scheduler: "default-scheduler".to_owned(),
                    ..PlacedPod::default()
                };
                let names: Vec<String> = open.iter().map(|node| name(*node)).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let (rejections, _) = self.cache.filter(&policy, &placed, &names, time(now));
                let scores = self.cache.score(&policy, &placed, &names, true, time(now));
                // A rejected node gets nothing; it stays possible, as with soft rejections.
                let points = scores.iter().zip(&rejections).map(|(score, rejection)| match rejection {
                    Some(_) => -1000.0,
                    None => 20.0 * score.round(),
                });
                Ok(points.collect())
            }
        }
    }

    /// Points of NodeResourcesFit, and of NodeResourcesBalancedAllocation as of Kubernetes 1.36: the more the pod
    /// brings the parts of CPU and memory together, the better.
    fn own_points(&self, node: usize, job: &Job) -> f64 {
        let (cpu, bytes) = self.requested[node];
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let parts = |cpu: f64, bytes: i64| (cpu / CORES, bytes as f64 / MEMORY as f64);
        let balance = |(cpu, memory): (f64, f64)| ((1.0 - (cpu - memory).abs() / 2.0) * 100.0).floor();
        let (before, after) = (parts(cpu, bytes), parts(cpu + job.request, bytes + memory(job)));
        let least = f64::midpoint(1.0 - after.0, 1.0 - after.1) * 100.0;
        least.floor() + 50.0 + f64::midpoint(50.0, balance(after) - balance(before)).floor()
    }
}

/// Power in watts: three generations of servers.
fn power(node: usize, usage: f64) -> f64 {
    let [idle, full] = [[60.0, 220.0], [100.0, 350.0], [160.0, 480.0]][node % 3];
    idle + (full - idle) * usage
}

fn config(node: usize, usage: f64, now: i64) -> serde_json::Value {
    let watts: Vec<String> = (0..21).map(|point| power(node, f64::from(point) / 20.0).to_string()).collect();
    let reading = |value: f64| json!({"value": value.to_string(), "sampledAt": time(now).to_string()});
    json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig",
        "metadata": {"namespace": "nodes", "name": name(node), "uid": format!("config-{node}"), "resourceVersion": (now + 2).to_string()},
        "spec": {"nodeName": name(node)},
        "status": {
            "validUntil": time(10 * SECONDS).to_string(), "inletTemperature": reading(22.0),
            "differentialPressure": reading(7.5), "cpu": reading(100.0 * usage), "power": reading(power(node, usage)),
            "powerCurve": {
                "watts": watts, "inletTemperature": "22", "differentialPressure": "7.5",
                "predictedAt": time(now).to_string(),
            },
        },
    })
}

fn uid(job: &Job) -> String {
    format!("{:x}-{:x}", job.phase.to_bits(), job.period.to_bits())
}

fn millis(job: &Job) -> i64 {
    whole(job.request * 1000.0)
}

/// Twice as many GiB as cores.
fn memory(job: &Job) -> i64 {
    whole(job.request * 2.0 * f64::from(1 << 30))
}

/// A pod, bound to a node since some second.
fn pod(job: &Job, node: usize, since: i64) -> serde_json::Value {
    let requests = json!({"cpu": format!("{}m", millis(job)), "memory": memory(job).to_string()});
    let (node, since) = (name(node), time(since).to_string());
    json!({
        "metadata": {"namespace": NAMESPACE, "name": uid(job), "uid": uid(job), "resourceVersion": "1", "creationTimestamp": since},
        "spec": {
            "nodeName": node, "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": since},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": since},
        ]},
    })
}

fn exponential(random: &mut Rng, mean: f64) -> f64 {
    -mean * (1.0 - random.f64()).ln()
}

#[expect(clippy::cast_possible_truncation, reason = "small amounts")]
fn whole(value: f64) -> i64 {
    value as i64
}

fn number_of(second: i64) -> f64 {
    SignedDuration::from_secs(second).as_secs_f64()
}
