//! The series of loops, nodes, pools, actions, and objects. They are built for each scrape, so that deleted objects
//! have no series.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use ganglion_actions_plan::figures::ActionFigures;
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::node_config::status::NodeValue;
use ganglion_core::policies::PolicyState;
use ganglion_core::reading::MetricReading;
use ganglion_loops_plan::figures::{ConditionFigure, LoopFigures};
use ganglion_nodes_plan::node_plan::POWER_ERROR;
use ganglion_nodes_plan::readings::stale_at;
use ganglion_pools_plan::figures::PoolFigures;
use ganglion_runtime::metrics::{NodeMeasurement, ValuesOfNode};

use super::objects::ObjectGroup;

/// Gauge of a floating-point number.
type FloatGauge = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LoopLabels {
    namespace: String,
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MetricLabels {
    namespace: String,
    name: String,
    metric: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AlarmLabels {
    namespace: String,
    name: String,
    metric: String,
    side: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    namespace: String,
    name: String,
    metric: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabels {
    namespace: String,
    name: String,
    condition: &'static str,
    status: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabels {
    kind: &'static str,
    state: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FreshnessLabels {
    value: &'static str,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyLabels {
    policy: &'static str,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabels {
    state: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabels {
    node: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ValueLabels {
    node: String,
    value: &'static str,
}

/// Figures of one scrape.
#[derive(Clone, Debug, Default)]
pub struct ScrapedFigures {
    pub loops: Vec<LoopFigures>,
    pub actions: ActionFigures,
    pub pools: PoolFigures,
    pub objects: BTreeMap<ObjectGroup, i64>,
    pub policies: BTreeMap<&'static str, PolicyState>,
    /// Number of pods that kubelets have refused.
    pub refused_pods: u64,
    /// Values of all nodes, by name.
    pub nodes: Vec<ValuesOfNode>,
    /// Maximum number of nodes with their own series.
    pub node_series: usize,
}

/// Builds a registry with these figures.
pub fn registry(figures: ScrapedFigures, now: Timestamp) -> Registry {
    let mut registry = Registry::with_prefix("ganglion");
    let ScrapedFigures { loops, actions, pools, objects, policies, refused_pods, mut nodes, node_series } = figures;
    add_policies(&mut registry, &policies);
    add_loops(&mut registry, loops, now);
    add_freshness(&mut registry, &nodes, now);
    nodes.truncate(node_series);
    add_nodes(&mut registry, nodes, now);
    add_actions(&mut registry, &actions);
    add_pools(&mut registry, pools);
    let refused = Counter::<u64>::default();
    refused.inc_by(refused_pods);
    registry.register("refused_pods", "Pods that kubelets refused, since the node lacks a resource or a port", refused);
    let count = Family::<ObjectLabels, Gauge>::default();
    for ((kind, state, reason), number) in objects {
        count.get_or_create(&ObjectLabels { kind, state, reason }).set(number);
    }
    registry.register("objects", "Objects of other kinds than WorkloadAction, by state and reason", count);
    registry
}

fn add_actions(registry: &mut Registry, actions: &ActionFigures) {
    let count = Family::<ActionLabels, Gauge>::default();
    for (&(state, reason), number) in &actions.count {
        count.get_or_create(&ActionLabels { state, reason }).set(*number);
    }
    registry.register("actions", "WorkloadActions by state and reason", count);
    let (wait, step) = (FloatGauge::default(), FloatGauge::default());
    wait.set(actions.oldest_wait);
    step.set(actions.longest_step);
    let help = "Waiting time of the WorkloadAction that has waited longest";
    registry.register("actions_oldest_wait_seconds", help, wait);
    let help = "Time since the running WorkloadAction without progress for longest last made progress; 0 if none runs";
    registry.register("actions_longest_step_seconds", help, step);
}

fn add_pools(registry: &mut Registry, pools: PoolFigures) {
    let (jobs, workers) = (Family::<StateLabel, Gauge>::default(), Family::<StateLabel, Gauge>::default());
    jobs.get_or_create(&StateLabel { state: "assigned" }).set(pools.assigned);
    jobs.get_or_create(&StateLabel { state: "unassigned" }).set(pools.unassigned);
    workers.get_or_create(&StateLabel { state: "converged" }).set(pools.converged);
    workers.get_or_create(&StateLabel { state: "behind" }).set(pools.behind);
    registry.register("pool_jobs", "Jobs of all SwarmPools, by whether they have a worker", jobs);
    let help = "Workers with jobs of all SwarmPools, by whether they use their current job list";
    registry.register("pool_workers", help, workers);
}

/// Adds a series for each state of each policy: 1 for the current state.
fn add_policies(registry: &mut Registry, policies: &BTreeMap<&'static str, PolicyState>) {
    let states = Family::<PolicyLabels, Gauge>::default();
    for (&policy, current) in policies {
        for state in PolicyState::ALL {
            let labels = PolicyLabels { policy, state: state.as_str() };
            states.get_or_create(&labels).set(i64::from(state == *current));
        }
    }
    let help = "Admission policies by state: 1 for the current state; the operator acts only if all are Present";
    registry.register("admission_policies", help, states);
}

fn add_loops(registry: &mut Registry, loops: Vec<LoopFigures>, now: Timestamp) {
    let ready = Family::<LoopLabels, Gauge>::default();
    let conditions = Family::<ConditionLabels, Gauge>::default();
    let values = Family::<MetricLabels, FloatGauge>::default();
    let ages = Family::<MetricLabels, FloatGauge>::default();
    let alarms = Family::<AlarmLabels, Gauge>::default();
    let decisions = Family::<DecisionLabels, Counter>::default();
    for LoopFigures { key, ready: is_ready, conditions: known, values: read, alarms: raised, counters } in loops {
        let (namespace, name) = (key.namespace, key.name);
        ready.get_or_create(&LoopLabels { namespace: namespace.clone(), name: name.clone() }).set(i64::from(is_ready));
        for ConditionFigure { condition, status, reason } in known {
            let (namespace, name, reason) = (namespace.clone(), name.clone(), reason.as_str());
            conditions.get_or_create(&ConditionLabels { namespace, name, condition, status, reason }).set(1);
        }
        for MetricReading { metric, value, at } in read {
            let labels = MetricLabels { namespace: namespace.clone(), name: name.clone(), metric };
            values.get_or_create(&labels).set(value);
            ages.get_or_create(&labels).set(now.duration_since(at).as_secs_f64().max(0.0));
        }
        for (metric, side) in raised {
            let side = word(side);
            alarms
                .get_or_create(&AlarmLabels { namespace: namespace.clone(), name: name.clone(), metric, side })
                .set(1);
        }
        for counter in counters {
            for (outcome, number) in
                [("wanted", counter.wanted), ("served", counter.served), ("limited", counter.limited)]
            {
                let (namespace, name, metric) = (namespace.clone(), name.clone(), counter.metric.clone());
                let series = decisions.get_or_create(&DecisionLabels { namespace, name, metric, outcome });
                series.inc_by(u64::try_from(number).unwrap_or(0));
            }
        }
    }
    registry.register("loop_ready", "1 while the loop is Ready", ready);
    registry.register("loop_condition", "Current conditions of a loop; always 1", conditions);
    registry.register("loop_value", "The last known value of a loop's metric", values);
    registry.register("loop_value_age_seconds", "Age of the last known value of a loop's metric", ages);
    registry.register("loop_alarm", "1 while the alarm of a loop's metric is raised", alarms);
    registry.register("loop_decisions", "Number of times a loop's metric was wanted, served and limited", decisions);
}

/// Whether a measured or predicted value counts as current.
fn is_fresh(measured: &NodeMeasurement, now: Timestamp) -> bool {
    now < stale_at(measured.at, measured.interval)
}

/// Adds the numbers of fresh and stale values of all nodes.
fn add_freshness(registry: &mut Registry, nodes: &[ValuesOfNode], now: Timestamp) {
    let count = Family::<FreshnessLabels, Gauge>::default();
    for (value, measured) in nodes.iter().flat_map(|node| &node.values).filter(|(value, _)| **value != POWER_ERROR) {
        for (state, counts) in [("fresh", is_fresh(measured, now)), ("stale", !is_fresh(measured, now))] {
            count.get_or_create(&FreshnessLabels { value, state }).inc_by(i64::from(counts));
        }
    }
    registry.register("node_values", "Values of nodes, by whether they are current", count);
}

/// Adds the series of nodes. A stale value has no series of its own, only its age.
fn add_nodes(registry: &mut Registry, nodes: Vec<ValuesOfNode>, now: Timestamp) {
    let gauges = NodeValue::ALL.map(|value| (value.as_str(), Family::<NodeLabels, FloatGauge>::default()));
    let ages = Family::<ValueLabels, FloatGauge>::default();
    let errors = Family::<NodeLabels, FloatGauge>::default();
    for ValuesOfNode { node, values } in nodes {
        for (value, measured) in values {
            let is_fresh = is_fresh(&measured, now);
            if value == POWER_ERROR {
                if is_fresh {
                    errors.get_or_create(&NodeLabels { node: node.clone() }).set(measured.value);
                }
                continue;
            }
            let age = now.duration_since(measured.at).as_secs_f64().max(0.0);
            ages.get_or_create(&ValueLabels { node: node.clone(), value }).set(age);
            let gauge = gauges.iter().find(|(name, _)| *name == value);
            if let Some((_, gauge)) = gauge.filter(|_| is_fresh) {
                gauge.get_or_create(&NodeLabels { node: node.clone() }).set(measured.value);
            }
        }
    }
    for (value, (_, gauge)) in NodeValue::ALL.into_iter().zip(gauges) {
        let (name, help) = series(value);
        registry.register(name, help, gauge);
    }
    let help = "Mean absolute difference of predicted and measured power of a node";
    registry.register("node_power_error_watts", help, errors);
    let help = "Time since a value of a node was measured or predicted; a stale value has no series of its own";
    registry.register("node_value_age_seconds", help, ages);
}

fn series(value: NodeValue) -> (&'static str, &'static str) {
    match value {
        NodeValue::InletTemperature => {
            ("node_inlet_temperature_celsius", "Temperature of the air at the inlet of a node")
        }
        NodeValue::DifferentialPressure => {
            ("node_differential_pressure_pascals", "Differential air pressure between front and back of a node")
        }
        NodeValue::Cpu => ("node_cpu_usage_percent", "CPU usage of a node, in percent of its capacity"),
        NodeValue::Memory => ("node_memory_usage_percent", "Memory usage of a node, in percent of its capacity"),
        NodeValue::Power => ("node_power_watts", "Predicted power of a node"),
        NodeValue::MeasuredPower => ("node_measured_power_watts", "Measured power of a node"),
    }
}

fn word(side: Side) -> &'static str {
    match side {
        Side::Low => "low",
        Side::High => "high",
        Side::Equal => "equal",
        Side::Missing => "missing",
        Side::Target => "target",
    }
}
