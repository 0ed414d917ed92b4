//! The series of loops, nodes and actions. They are built for each scrape, so that deleted objects have no series.

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
use ganglion_loops_plan::figures::LoopFigures;
use ganglion_nodes_plan::node_plan::POWER_ERROR;
use ganglion_nodes_plan::readings::stale_at;
use ganglion_runtime::metrics::ValuesOfNode;

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

/// Builds a registry with these figures.
pub fn registry(
    loops: Vec<LoopFigures>,
    actions: &ActionFigures,
    nodes: Vec<ValuesOfNode>,
    policies: &BTreeMap<&'static str, PolicyState>,
    now: Timestamp,
) -> Registry {
    let mut registry = Registry::with_prefix("ganglion");
    add_policies(&mut registry, policies);
    add_loops(&mut registry, loops);
    add_nodes(&mut registry, nodes, now);
    let count = Family::<ActionLabels, Gauge>::default();
    for (&(state, reason), number) in &actions.count {
        count.get_or_create(&ActionLabels { state, reason }).set(*number);
    }
    registry.register("actions", "WorkloadActions by state and reason", count);
    let oldest = FloatGauge::default();
    oldest.set(actions.oldest_wait);
    let help = "Waiting time of the WorkloadAction that has waited longest";
    registry.register("actions_oldest_wait_seconds", help, oldest);
    registry
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

fn add_loops(registry: &mut Registry, loops: Vec<LoopFigures>) {
    let ready = Family::<LoopLabels, Gauge>::default();
    let values = Family::<MetricLabels, FloatGauge>::default();
    let alarms = Family::<AlarmLabels, Gauge>::default();
    let decisions = Family::<DecisionLabels, Counter>::default();
    for LoopFigures { key, ready: is_ready, values: read, alarms: raised, counters } in loops {
        let (namespace, name) = (key.namespace, key.name);
        ready.get_or_create(&LoopLabels { namespace: namespace.clone(), name: name.clone() }).set(i64::from(is_ready));
        for (metric, value) in read {
            values.get_or_create(&MetricLabels { namespace: namespace.clone(), name: name.clone(), metric }).set(value);
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
    registry.register("loop_value", "The last known value of a loop's metric", values);
    registry.register("loop_alarm", "1 while the alarm of a loop's metric is raised", alarms);
    registry.register("loop_decisions", "Number of times a loop's metric was wanted, served and limited", decisions);
}

/// Adds the series of nodes. A stale value has no series of its own, only its age.
fn add_nodes(registry: &mut Registry, nodes: Vec<ValuesOfNode>, now: Timestamp) {
    let gauges = NodeValue::ALL.map(|value| (value.as_str(), Family::<NodeLabels, FloatGauge>::default()));
    let ages = Family::<ValueLabels, FloatGauge>::default();
    let errors = Family::<NodeLabels, FloatGauge>::default();
    for ValuesOfNode { node, values } in nodes {
        for (value, measured) in values {
            let is_fresh = now < stale_at(measured.at, measured.interval);
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
    }
}
