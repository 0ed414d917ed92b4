//! The data about one node that agents read: the cached node, the requests of its pods, and its measured values.
//!
//! A record is built when the node changes and read for every pod, so everything that can be calculated in advance is.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::answered::ExpectedLoad;
use super::congestion::Congestion;
use super::pigeon::{PigeonNode, PigeonResource, Row};
use super::safe::{self, Basis, PerResource, Statistics, Usage};
use super::sample::{self, is_expired, unmeasured_part};
use ganglion_api::node_config::source::CpuUsageFormat;
use ganglion_api::node_config::status::{NodeReading, NodeValue, PowerAccuracy};
use ganglion_api::node_config::{NodeConfig, NodeConfigStatus};
use ganglion_core::facts::{CONGESTION, CONGESTION_SAMPLED_AT, NodeFact, PodHold, Requests, USAGE_SAMPLED_AT};
use ganglion_core::power_curve::{Curve, PowerLine};
use ganglion_core::quantity;
use ganglion_core::world::World;

/// Resources in the order of the columns of [`Row`], which is the order of the original scheduler plugins.
pub const RESOURCES: [PigeonResource; 5] = [
    PigeonResource::Cpu,
    PigeonResource::Memory,
    PigeonResource::Pods,
    PigeonResource::Gpu,
    PigeonResource::EphemeralStorage,
];

/// Maximum sample window. A sample includes every pod that was bound earlier than this before the sample.
const MAX_WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// Expiry and averaging window of measured values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRules {
    /// Maximum age of a sample. Older samples count as missing.
    pub max_age: SignedDuration,
    /// Time over which usage is averaged.
    pub window: SignedDuration,
}

impl Default for SampleRules {
    fn default() -> Self {
        Self { max_age: SignedDuration::from_mins(5), window: SignedDuration::from_secs(60) }
    }
}

/// Measured usage of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsageSample {
    pub cpu: Option<Statistics>,
    pub memory: Option<Statistics>,
    /// Time of the measurement.
    pub at: Option<Timestamp>,
    /// Expiry time, if the source sets one (`status.validUntil` of a NodeConfig).
    until: Option<Timestamp>,
}

/// A value with an expiry time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fresh {
    pub value: f64,
    until: Timestamp,
}

impl Fresh {
    /// The value; None if it has expired.
    pub fn at(self, now: Timestamp) -> Option<f64> {
        (now <= self.until).then_some(self.value)
    }
}

/// Predicted power from a NodeConfig.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictedPower {
    pub curve: Curve,
    /// Expiry time.
    pub until: Timestamp,
    /// Format of the CPU usage that the power model expects. None: the curve is not from a model.
    pub format: Option<CpuUsageFormat>,
    /// The curve is the line that fits the measured power, because the predictor is worse than it.
    pub is_discounted: bool,
}

/// Data about one node.
#[derive(Clone, Debug)]
pub struct NodeRecord {
    pub node: Arc<NodeFact>,
    /// Index in the inventory.
    pub place: usize,
    /// Copy of `node.allocatable`. A request that reads thousands of nodes spends most of its time on memory accesses,
    /// and the copy saves one per node.
    allocatable: Requests,
    /// CPU in millicores of `status.capacity`.
    pub cpu_capacity: i64,
    pub pods: i64,
    pub requests: Requests,
    /// CPU in millicores of bound pods that do not run yet.
    pub pending: i64,
    /// Allocatable and requested amounts in the units of `pigeon`, by [`RESOURCES`].
    pub row: PigeonNode,
    /// Congestion from the node's annotation, and the time of its measurement.
    congestion: Option<(Congestion, Option<Timestamp>)>,
    /// CPU usage in percent, from the node's NodeConfig.
    pub cpu_usage: Option<Fresh>,
    /// Usage from the annotations; from the NodeConfig if there is none in the annotations.
    usage: Option<UsageSample>,
    /// Usage from the NodeConfig, if `usage` comes from the annotations. Used once the annotations expire.
    other_usage: Option<Box<UsageSample>>,
    /// Values from the node's NodeConfig, in the order of [`NodeValue::ALL`].
    values: Box<[Option<Fresh>; NodeValue::ALL.len()]>,
    pub power: Option<Box<PredictedPower>>,
    /// Pods that a sample may not include yet, the most recently bound first.
    recent: Vec<PodHold>,
    /// Time at which the first pod of `recent` was bound. Saves reading the list if even that pod is included in a
    /// sample.
    last_bound: Option<Timestamp>,
}

impl NodeRecord {
    /// Builds the record of a node from the caches.
    pub fn from_world(world: &World, node: &Arc<NodeFact>) -> Self {
        let name = node.name();
        let (pods, requests) = world.usage(&name);
        let holds = world.holds(&name);
        let published = published(node);
        let configs: Vec<_> = world.node_configs_of(&name).collect();
        let measured = configs.iter().find_map(|config| measured(config, node));
        let times = [&published, &measured].into_iter().flatten().filter_map(|sample| sample.at);
        let oldest = times.min().map(|at| at.saturating_sub(MAX_WINDOW).unwrap_or(Timestamp::MIN));
        let mut recent: Vec<PodHold> =
            holds.iter().filter(|hold| oldest.is_some_and(|oldest| hold.bound > oldest)).copied().collect();
        recent.sort_unstable_by_key(|hold| std::cmp::Reverse(hold.bound));
        let value = |value| configs.iter().find_map(|config| fresh(config.status.as_ref()?, value));
        let power = configs.iter().find_map(|config| predicted(config));
        let (usage, other_usage) = match (published, measured) {
            (Some(published), measured) => (Some(published), measured.map(Box::new)),
            (None, measured) => (measured, None),
        };
        Self {
            allocatable: node.allocatable,
            cpu_capacity: node.capacity.cpu,
            pods,
            requests,
            pending: holds.iter().filter(|hold| hold.pending).fold(0, |sum, hold| sum.saturating_add(hold.cores)),
            row: PigeonNode {
                capacity: sizes(node.allocatable, node.pod_capacity),
                requested: sizes(requests, pods),
                counted: node.takes_pods(),
            },
            congestion: congestion(node),
            cpu_usage: value(NodeValue::Cpu),
            usage,
            other_usage,
            values: Box::new(NodeValue::ALL.map(value)),
            power: power.map(Box::new),
            last_bound: recent.first().map(|hold| hold.bound),
            recent,
            place: 0,
            node: Arc::clone(node),
        }
    }

    /// Adds pods that have been on their way to the node since this time. `cores` is their CPU as in [`PodHold`].
    pub fn add(&mut self, pods: i64, requests: Requests, cores: i64, since: Timestamp) {
        self.pods = self.pods.saturating_add(pods);
        self.requests = self.requests + requests;
        self.pending = self.pending.saturating_add(cores);
        self.row.requested = sizes(self.requests, self.pods);
        self.recent.insert(0, PodHold { requests, cores, bound: since, pending: true, priority: 0 });
        self.last_bound = Some(since);
    }

    /// Allocatable and requested amounts with an expected load, in the units of `pigeon`.
    pub fn row_with(&self, expected: &ExpectedLoad) -> PigeonNode {
        let requested = sizes(self.requests + expected.requests, self.pods.saturating_add(expected.pods));
        PigeonNode { requested, ..self.row }
    }

    pub fn name(&self) -> &str {
        &self.node.id.key.name
    }

    /// A value of the node's NodeConfig; None if it is missing or has expired.
    pub fn value(&self, value: NodeValue, now: Timestamp) -> Option<f64> {
        let at = NodeValue::ALL.iter().position(|one| *one == value)?;
        self.values.get(at).copied().flatten()?.at(now)
    }

    /// The published congestion; None if it is missing or has expired.
    pub fn congestion(&self, now: Timestamp, rules: &SampleRules) -> Option<Congestion> {
        let (congestion, at) = self.congestion?;
        (!is_expired(at, now, rules.max_age)).then_some(congestion)
    }

    /// The first usage sample that has not expired.
    pub fn sample(&self, now: Timestamp, rules: &SampleRules) -> Option<&UsageSample> {
        let holds = |sample: &&UsageSample| match sample.until {
            Some(until) => now <= until,
            None => !is_expired(sample.at, now, rules.max_age),
        };
        self.usage.iter().chain(self.other_usage.as_deref()).find(holds)
    }

    /// Usage of CPU and memory with an expected load, as input of the agent `safe`.
    pub fn usage(&self, expected: &ExpectedLoad, now: Timestamp, rules: &SampleRules) -> PerResource<Usage> {
        let sample = self.sample(now, rules);
        let unmeasured = sample.and_then(|sample| sample.at).map(|at| self.unmeasured(at, rules)).unwrap_or_default();
        let unmeasured = unmeasured + expected.unmeasured;
        let usage = |capacity: i64, statistics: fn(&UsageSample) -> Option<Statistics>, unmeasured: i64| Usage {
            capacity: capacity as f64,
            statistics: sample.and_then(statistics),
            unmeasured: unmeasured as f64,
        };
        PerResource {
            cpu: usage(self.allocatable.cpu, |sample| sample.cpu, unmeasured.cpu),
            memory: usage(self.allocatable.memory, |sample| sample.memory, unmeasured.memory),
        }
    }

    /// Part of the requests of a pod of this node that measured usage does not include.
    pub fn unmeasured_of(&self, hold: &PodHold, now: Timestamp, rules: &SampleRules) -> Requests {
        let sampled = self.sample(now, rules).and_then(|sample| sample.at);
        sampled.map(|at| unmeasured(hold, at, rules.window)).unwrap_or_default()
    }

    /// Part of the requests of the pods that a sample of this time does not include.
    fn unmeasured(&self, at: Timestamp, rules: &SampleRules) -> Requests {
        let is_late = |bound: Timestamp| unmeasured_part(bound, at, rules.window) > 0.0;
        if !self.last_bound.is_some_and(is_late) {
            return Requests::default();
        }
        let late = self.recent.iter().take_while(|hold| is_late(hold.bound));
        late.fold(Requests::default(), |sum, hold| sum + unmeasured(hold, at, rules.window))
    }
}

/// Part of the requests of a pod that usage measured at `sampled` does not include. A pod that has not run yet has used
/// nothing.
fn unmeasured(hold: &PodHold, sampled: Timestamp, window: SignedDuration) -> Requests {
    let part = unmeasured_part(hold.bound, sampled, window);
    if hold.pending && part > 0.0 {
        return hold.requests;
    }
    let of = |amount: i64| (amount as f64 * part).round() as i64;
    let Requests { cpu, memory, gpu, storage } = hold.requests;
    Requests { cpu: of(cpu), memory: of(memory), gpu: of(gpu), storage: of(storage) }
}

/// Converts amounts to the units of `pigeon`, by [`RESOURCES`].
pub fn sizes(amounts: Requests, pods: i64) -> Row {
    let Requests { cpu, memory, gpu, storage } = amounts;
    let mut row = [cpu, memory, pods, gpu, storage].map(|amount| amount as f64);
    row.iter_mut().zip(RESOURCES).for_each(|(amount, resource)| *amount = resource.size(*amount));
    row
}

/// Converts the requests of a pod to its demand, by [`RESOURCES`].
pub fn demand(requests: Requests) -> Row {
    let Requests { cpu, memory, gpu, storage } = requests;
    let mut row = [cpu, memory, 1, gpu, storage].map(|amount| amount as f64);
    row.iter_mut().zip(RESOURCES).for_each(|(amount, resource)| *amount = resource.demand(*amount));
    row
}

/// Congestion from the node's annotations, and the time of its measurement.
fn congestion(node: &NodeFact) -> Option<(Congestion, Option<Timestamp>)> {
    let annotation = |key: &str| node.published.get(key).map(String::as_str);
    let text = annotation(CONGESTION)?;
    Some((Congestion::read(Some(text)), annotation(CONGESTION_SAMPLED_AT).map(sample::time)))
}

/// Usage from the node's annotations.
fn published(node: &NodeFact) -> Option<UsageSample> {
    let annotation = |key: &str| node.published.get(key).map(String::as_str);
    let (cpu, memory) = (safe::CPU.read(annotation), safe::MEMORY.read(annotation));
    if cpu.is_none() && memory.is_none() {
        return None;
    }
    Some(UsageSample { cpu, memory, at: annotation(USAGE_SAMPLED_AT).map(sample::time), until: None })
}

/// Usage from a NodeConfig, which reports it in percent of the node's capacity.
fn measured(config: &NodeConfig, node: &NodeFact) -> Option<UsageSample> {
    let status = config.status.as_ref()?;
    let until = status.valid_until.as_ref()?.0;
    let used = |value: NodeValue, capacity: i64| {
        let reading = reading_of(status, value)?;
        let amount = |text: &str| Some(quantity::number(text).ok()? * capacity as f64 / 100.0);
        let deviation = reading.deviation.as_deref().and_then(amount);
        Statistics::new(Basis::Used, amount(reading.value.as_deref()?)?, deviation, None)
    };
    let cpu = used(NodeValue::Cpu, node.capacity.cpu);
    let memory = used(NodeValue::Memory, node.capacity.memory);
    if cpu.is_none() && memory.is_none() {
        return None;
    }
    let times = [NodeValue::Cpu, NodeValue::Memory].into_iter().filter_map(|value| reading_of(status, value));
    let at = times.filter_map(|reading| reading.sampled_at.as_ref()).map(|time| time.0).min();
    Some(UsageSample { cpu, memory, at, until: Some(until) })
}

/// A reading; None if it is missing or stale.
fn reading_of(status: &NodeConfigStatus, value: NodeValue) -> Option<&NodeReading> {
    status.reading(value).filter(|reading| reading.stale != Some(true))
}

fn fresh(status: &NodeConfigStatus, value: NodeValue) -> Option<Fresh> {
    let number = quantity::number(reading_of(status, value)?.value.as_deref()?).ok()?;
    Some(Fresh { value: number, until: status.valid_until.as_ref()?.0 })
}

/// The line that fits the measured power, if it is better than the predictor.
fn better_line(accuracy: &PowerAccuracy) -> Option<Curve> {
    let line = accuracy.line.as_ref().filter(|_| accuracy.worse_than_line == Some(true))?;
    let number = |text: &str| quantity::number(text).ok();
    let line = PowerLine { idle: number(&line.idle_watts)?, full: number(&line.full_watts)? };
    Curve::straight(&line, accuracy.sampled_at.as_ref()?.0)
}

/// The predicted power; None while the prediction is stale, since its inputs may have changed.
fn predicted(config: &NodeConfig) -> Option<PredictedPower> {
    let status = config.status.as_ref()?;
    let until = status.valid_until.as_ref()?.0;
    if let Some(curve) = status.power_accuracy.as_ref().and_then(better_line) {
        return Some(PredictedPower { curve, until, format: None, is_discounted: true });
    }
    reading_of(status, NodeValue::Power)?;
    let term = config.spec.predictor.as_ref().and_then(|predictor| predictor.power_consumption.as_ref());
    Some(PredictedPower {
        curve: Curve::read(status.power_curve.as_ref()?)?,
        until,
        is_discounted: false,
        format: match term {
            Some(term) if term.type_ == "Linear" => None,
            term => Some(term.and_then(|term| term.cpu_usage_format).unwrap_or_default()),
        },
    })
}
