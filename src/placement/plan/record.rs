//! What agents know of a node: its fact, what its pods hold of it, and what was measured of it.
//!
//! Made from the world when the node changes, and read for every pod; so whatever can be calculated before is.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::congestion::Congestion;
use super::pigeon::{PigeonNode, PigeonResource, Row};
use super::safe::statistics::{self, Basis, Statistics};
use super::safe::{PerResource, Usage};
use super::sample::{self, is_expired, is_unmeasured};
use ganglion_api::node_config::source::CpuUsageFormat;
use ganglion_api::node_config::status::{NodeReading, NodeValue};
use ganglion_api::node_config::{NodeConfig, NodeConfigStatus};
use ganglion_core::facts::{CONGESTION, CONGESTION_SAMPLED_AT, NodeFact, PodHold, Requests, USAGE_SAMPLED_AT};
use ganglion_core::power_curve::Curve;
use ganglion_core::quantity;
use ganglion_core::world::World;

/// The resources in the order of the originals; the columns of [`Row`].
pub const RESOURCES: [PigeonResource; 5] = [
    PigeonResource::Cpu,
    PigeonResource::Memory,
    PigeonResource::Pods,
    PigeonResource::Gpu,
    PigeonResource::EphemeralStorage,
];

/// The longest window of samples: pods that were bound longer before a sample are measured.
const MAX_WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// How long values hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRules {
    /// Older samples count as missing.
    pub max_age: SignedDuration,
    /// The time over which usage is averaged.
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
    /// When it was measured.
    pub at: Option<Timestamp>,
    /// Until when it holds, where its source says so.
    until: Option<Timestamp>,
}

/// A value that holds until a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fresh {
    pub value: f64,
    until: Timestamp,
}

impl Fresh {
    /// The value, if it still holds.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Option<f64> {
        (now <= self.until).then_some(self.value)
    }
}

/// The power that a NodeConfig predicts.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictedPower {
    pub curve: Curve,
    /// Until when it holds.
    pub until: Timestamp,
    /// How the model takes the usage of processors.
    pub format: CpuUsageFormat,
}

/// A node.
#[derive(Clone, Debug)]
pub struct NodeRecord {
    pub node: Arc<NodeFact>,
    /// Of the fact, since a request that reads thousands of nodes spends most of its time on waiting for memory.
    allocatable: Requests,
    /// CPU of the machine in millicores, of the fact.
    pub cpu_capacity: i64,
    pub pods: i64,
    pub requests: Requests,
    /// CPU of its pods that do not run yet, in millicores.
    pub pending: i64,
    /// In the units of `pigeon`, by [`RESOURCES`].
    pub row: PigeonNode,
    /// What the annotation says, and when it was measured.
    congestion: Option<(Congestion, Option<Timestamp>)>,
    /// Usage of the processors in percent, by the NodeConfig of the node.
    pub cpu_usage: Option<Fresh>,
    /// That of the annotations, else that of the NodeConfig.
    usage: Option<UsageSample>,
    /// That of the NodeConfig, where there is one of the annotations.
    other_usage: Option<Box<UsageSample>>,
    /// By the NodeConfig of the node, in the order of [`NodeValue::ALL`].
    values: Box<[Option<Fresh>; NodeValue::ALL.len()]>,
    pub power: Option<Box<PredictedPower>>,
    /// The pods that a sample may not contain, the last bound first.
    recent: Vec<PodHold>,
    /// When the first of these was bound, to spare the others a look.
    last_bound: Option<Timestamp>,
}

impl NodeRecord {
    /// A node as the world knows it now.
    #[must_use]
    pub fn of(world: &World, node: &Arc<NodeFact>) -> Self {
        let name = &node.id.key.name;
        let (pods, requests) = world.usage(name);
        let holds = world.holds(name);
        let published = published(node);
        let configs: Vec<_> = world.node_configs_of(name).collect();
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
            node: Arc::clone(node),
        }
    }

    /// Counts pods that are on their way since this time; `cores` is their CPU as [`PodHold`] has it.
    pub fn add(&mut self, pods: i64, requests: Requests, cores: i64, since: Timestamp) {
        self.pods = self.pods.saturating_add(pods);
        self.requests = self.requests + requests;
        self.pending = self.pending.saturating_add(cores);
        self.row.requested = sizes(self.requests, self.pods);
        self.recent.insert(0, PodHold { requests, cores, bound: since, pending: true });
        self.last_bound = Some(since);
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.node.id.key.name
    }

    /// The value of the node's NodeConfig, if it is known and fresh.
    #[must_use]
    pub fn value(&self, value: NodeValue, now: Timestamp) -> Option<f64> {
        let at = NodeValue::ALL.iter().position(|one| *one == value)?;
        self.values.get(at).copied().flatten()?.at(now)
    }

    /// The published congestion, if there is one that holds.
    #[must_use]
    pub fn congestion(&self, now: Timestamp, rules: &SampleRules) -> Option<Congestion> {
        let (congestion, at) = self.congestion?;
        (!is_expired(at, now, rules.max_age)).then_some(congestion)
    }

    /// The measured usage that holds.
    #[must_use]
    pub fn sample(&self, now: Timestamp, rules: &SampleRules) -> Option<&UsageSample> {
        let holds = |sample: &&UsageSample| match sample.until {
            Some(until) => now <= until,
            None => !is_expired(sample.at, now, rules.max_age),
        };
        self.usage.iter().chain(self.other_usage.as_deref()).find(holds)
    }

    /// The usage of CPU and memory, as `safe` takes it.
    #[must_use]
    pub fn usage(&self, now: Timestamp, rules: &SampleRules) -> PerResource<Usage> {
        let sample = self.sample(now, rules);
        let unmeasured = sample.and_then(|sample| sample.at).map(|at| self.unmeasured(at, rules)).unwrap_or_default();
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

    /// The requests of the pods that a sample of this time does not contain.
    fn unmeasured(&self, at: Timestamp, rules: &SampleRules) -> Requests {
        if !self.last_bound.is_some_and(|bound| is_unmeasured(bound, at, rules.window)) {
            return Requests::default();
        }
        let late = self.recent.iter().take_while(|hold| is_unmeasured(hold.bound, at, rules.window));
        late.fold(Requests::default(), |sum, hold| sum + hold.requests)
    }
}

/// Amounts in the units of `pigeon`, by [`RESOURCES`].
#[must_use]
pub fn sizes(amounts: Requests, pods: i64) -> Row {
    let Requests { cpu, memory, gpu, storage } = amounts;
    let mut row = [cpu, memory, pods, gpu, storage].map(|amount| amount as f64);
    row.iter_mut().zip(RESOURCES).for_each(|(amount, resource)| *amount = resource.size(*amount));
    row
}

/// What the annotations say of the node's congestion, and of what time.
fn congestion(node: &NodeFact) -> Option<(Congestion, Option<Timestamp>)> {
    let annotation = |key: &str| node.published.get(key).map(String::as_str);
    let text = annotation(CONGESTION)?;
    Some((Congestion::read(Some(text)), annotation(CONGESTION_SAMPLED_AT).map(sample::time)))
}

/// What the annotations say of the node's usage.
fn published(node: &NodeFact) -> Option<UsageSample> {
    let annotation = |key: &str| node.published.get(key).map(String::as_str);
    let (cpu, memory) = (statistics::CPU.read(annotation), statistics::MEMORY.read(annotation));
    if cpu.is_none() && memory.is_none() {
        return None;
    }
    Some(UsageSample { cpu, memory, at: annotation(USAGE_SAMPLED_AT).map(sample::time), until: None })
}

/// What a NodeConfig says of the node's usage, which it has in percent of the machine.
fn measured(config: &NodeConfig, node: &NodeFact) -> Option<UsageSample> {
    let status = config.status.as_ref()?;
    let until = status.valid_until.as_ref()?.0;
    let used = |value: NodeValue, capacity: i64| {
        let reading = known(status, value)?;
        let amount = |text: &str| Some(quantity::number(text).ok()? * capacity as f64 / 100.0);
        let deviation = reading.deviation.as_deref().and_then(amount);
        Statistics::new(Basis::Used, amount(reading.value.as_deref()?)?, deviation, None)
    };
    let cpu = used(NodeValue::Cpu, node.capacity.cpu);
    let memory = used(NodeValue::Memory, node.capacity.memory);
    if cpu.is_none() && memory.is_none() {
        return None;
    }
    let times = [NodeValue::Cpu, NodeValue::Memory].into_iter().filter_map(|value| known(status, value));
    let at = times.filter_map(|reading| reading.sampled_at.as_ref()).map(|time| time.0).min();
    Some(UsageSample { cpu, memory, at, until: Some(until) })
}

/// A reading that is not stale.
fn known(status: &NodeConfigStatus, value: NodeValue) -> Option<&NodeReading> {
    status.reading(value).filter(|reading| reading.stale != Some(true))
}

fn fresh(status: &NodeConfigStatus, value: NodeValue) -> Option<Fresh> {
    let number = quantity::number(known(status, value)?.value.as_deref()?).ok()?;
    Some(Fresh { value: number, until: status.valid_until.as_ref()?.0 })
}

/// None while the prediction is stale: its inputs may be others now.
fn predicted(config: &NodeConfig) -> Option<PredictedPower> {
    let status = config.status.as_ref()?;
    known(status, NodeValue::Power)?;
    let term = config.spec.predictor.as_ref().and_then(|predictor| predictor.power_consumption.as_ref());
    Some(PredictedPower {
        curve: Curve::read(status.power_curve.as_ref()?)?,
        until: status.valid_until.as_ref()?.0,
        format: term.and_then(|term| term.cpu_usage_format).unwrap_or_default(),
    })
}
