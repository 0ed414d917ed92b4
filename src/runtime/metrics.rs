//! Metrics of the process itself. Labels are closed sets: never the name of an object, never the text of an error. The
//! series of single objects are in `http::figures`.
//!
//! This module defines names and help texts, and is independent of the measured code.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use ganglion_core::reading::MetricReading;

/// `{kind}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabel {
    pub kind: &'static str,
}

/// `{controller}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ControllerLabel {
    pub controller: &'static str,
}

/// `{controller, outcome}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReconcileLabels {
    pub controller: &'static str,
    pub outcome: &'static str,
}

/// `{effect, outcome}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EffectLabels {
    pub effect: &'static str,
    pub outcome: &'static str,
}

/// `{source, outcome}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SourceLabels {
    pub source: &'static str,
    pub outcome: &'static str,
}

/// `{reason}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    pub reason: &'static str,
}

/// `{limit}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct LimitLabel {
    pub limit: &'static str,
}

/// `{outcome}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabel {
    pub outcome: &'static str,
}

/// `{kind, reason}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WatchLabels {
    pub kind: &'static str,
    pub reason: &'static str,
}

/// `{poll, outcome}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PollLabels {
    pub poll: &'static str,
    pub outcome: &'static str,
}

/// `{verb}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct VerbLabel {
    pub verb: &'static str,
}

/// `{verb, outcome}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ExtenderLabels {
    pub verb: &'static str,
    pub outcome: &'static str,
}

/// A measured or predicted value of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeMeasurement {
    pub value: f64,
    pub at: Timestamp,
    /// Time between two measurements.
    pub interval: SignedDuration,
}

/// Newest values of nodes, by the object that they are measured for. A status contains them with a delay of up to one
/// heartbeat.
#[derive(Clone, Default)]
pub struct NodeValues(Arc<Mutex<HashMap<String, ValuesOfNode>>>);

/// Values of one node, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValuesOfNode {
    pub node: String,
    pub values: BTreeMap<&'static str, NodeMeasurement>,
}

impl NodeValues {
    fn all(&self) -> MutexGuard<'_, HashMap<String, ValuesOfNode>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes all values of an object except these, which all belong to this node.
    pub fn keep(&self, object: &str, node: &str, values: &[&'static str]) {
        let mut all = self.all();
        let Some(known) = all.get_mut(object) else { return };
        known.values.retain(|name, _| known.node == node && values.contains(name));
        if known.values.is_empty() {
            all.remove(object);
        }
    }

    pub fn set(&self, object: &str, node: &str, name: &'static str, value: NodeMeasurement) {
        let mut all = self.all();
        let known = all.entry(object.to_owned()).or_default();
        if known.node != node {
            *known = ValuesOfNode { node: node.to_owned(), values: BTreeMap::new() };
        }
        known.values.insert(name, value);
    }

    /// Removes an object.
    pub fn remove(&self, object: &str) {
        self.all().remove(object);
    }

    /// Values of all nodes, by name.
    pub fn sorted(&self) -> Vec<ValuesOfNode> {
        let mut all: Vec<ValuesOfNode> = self.all().values().cloned().collect();
        all.sort_by(|a, b| a.node.cmp(&b.node));
        all
    }
}

/// Newest values of loops' metrics, by namespace and name of the loop. A status contains them with a delay of up to one
/// heartbeat.
#[derive(Clone, Default)]
pub struct LoopValues(Arc<Mutex<ValuesByLoop>>);

/// Values by metric, by namespace and name of the loop.
type ValuesByLoop = HashMap<(String, String), Vec<MetricReading>>;

impl LoopValues {
    fn all(&self) -> MutexGuard<'_, ValuesByLoop> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the values of a loop.
    pub fn set(&self, namespace: &str, name: &str, values: Vec<MetricReading>) {
        self.all().insert((namespace.to_owned(), name.to_owned()), values);
    }

    /// Removes a loop.
    pub fn remove(&self, namespace: &str, name: &str) {
        self.all().remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Values of a loop, if this replica observes it.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Vec<MetricReading>> {
        self.all().get(&(namespace.to_owned(), name.to_owned())).cloned()
    }
}

/// Handles to all metrics; clones share them.
#[derive(Clone)]
pub struct Metrics {
    pub reconciles: Family<ReconcileLabels, Counter>,
    pub reconcile_seconds: Family<ControllerLabel, Histogram, fn() -> Histogram>,
    pub effects: Family<EffectLabels, Counter>,
    pub effect_seconds: Family<EffectLabels, Histogram, fn() -> Histogram>,
    pub queue_length: Family<ControllerLabel, Gauge>,
    pub cache_objects: Family<KindLabel, Gauge>,
    pub unreadable: Family<KindLabel, Counter>,
    pub unreported: Family<KindLabel, Gauge>,
    pub watch_restarts: Family<WatchLabels, Counter>,
    pub api_errors: Family<ReasonLabel, Counter>,
    pub sources: Family<SourceLabels, Counter>,
    pub outbound_full: Family<LimitLabel, Counter>,
    pub events_dropped: Counter,
    pub events_left_out: Counter,
    pub janitor: Family<ReasonLabel, Counter>,
    pub notifications: Family<ReasonLabel, Counter>,
    pub leader: Gauge,
    pub memory: Gauge,
    pub loop_values: LoopValues,
    pub node_polls: Family<PollLabels, Counter>,
    pub extender_requests: Family<ExtenderLabels, Counter>,
    pub extender_seconds: Family<VerbLabel, Histogram, fn() -> Histogram>,
    pub node_values: NodeValues,
    pub trace_spans: Family<OutcomeLabel, Counter>,
    /// All metrics above, except the values by object.
    pub registry: Arc<Registry>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn reconcile_histogram() -> Histogram {
    Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0])
}

fn effect_histogram() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
}

impl Metrics {
    /// Creates and registers all metrics.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("ganglion");
        let mut all = Self {
            reconciles: Family::default(),
            reconcile_seconds: Family::new_with_constructor(reconcile_histogram),
            effects: Family::default(),
            effect_seconds: Family::new_with_constructor(effect_histogram),
            queue_length: Family::default(),
            cache_objects: Family::default(),
            unreadable: Family::default(),
            unreported: Family::default(),
            watch_restarts: Family::default(),
            api_errors: Family::default(),
            sources: Family::default(),
            outbound_full: Family::default(),
            events_dropped: Counter::default(),
            events_left_out: Counter::default(),
            janitor: Family::default(),
            notifications: Family::default(),
            leader: Gauge::default(),
            memory: Gauge::default(),
            loop_values: LoopValues::default(),
            node_polls: Family::default(),
            extender_requests: Family::default(),
            extender_seconds: Family::new_with_constructor(effect_histogram),
            node_values: NodeValues::default(),
            trace_spans: Family::default(),
            registry: Arc::default(),
        };
        all.register(&mut registry);
        all.registry = Arc::new(registry);
        all
    }

    fn register(&self, registry: &mut Registry) {
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Version of the operator; always 1", build);
        registry.register("reconciles", "Reconciles of one object", self.reconciles.clone());
        registry.register(
            "reconcile_duration_seconds",
            "Duration of one reconcile, including its requests",
            self.reconcile_seconds.clone(),
        );
        registry.register("effects", "Writes to the API server, by effect", self.effects.clone());
        registry.register(
            "effect_duration_seconds",
            "Duration of one write to the API server",
            self.effect_seconds.clone(),
        );
        registry.register("queue_length", "Objects that wait to be reconciled", self.queue_length.clone());
        registry.register("cache_objects", "Objects in the caches, by kind", self.cache_objects.clone());
        registry.register(
            "unreadable_objects",
            "Versions of objects that could not be parsed",
            self.unreadable.clone(),
        );
        registry.register(
            "unreported_objects",
            "Versions of objects without a condition, since their namespace has too many that are not worked on",
            self.unreported.clone(),
        );
        registry.register("watch_restarts", "Restarts of watches", self.watch_restarts.clone());
        registry.register("api_errors", "Failed requests to the API server, by reason", self.api_errors.clone());
        registry.register("sources_asked", "Queries of loop sources, by outcome", self.sources.clone());
        registry.register("node_polls", "Polls of machines and servers for NodeConfigs", self.node_polls.clone());
        registry.register(
            "extender_requests",
            "Requests of schedulers for filters and scores, by outcome",
            self.extender_requests.clone(),
        );
        registry.register(
            "extender_request_seconds",
            "Duration of a request of a scheduler, including its body",
            self.extender_seconds.clone(),
        );
        registry.register(
            "outbound_full",
            "Requests of loops, pools and notifications that waited or failed at a shared limit, by limit",
            self.outbound_full.clone(),
        );
        registry.register(
            "events_dropped",
            "Kubernetes Events that were dropped because the queue was full or the API server refused them",
            self.events_dropped.clone(),
        );
        registry.register(
            "events_left_out",
            "Kubernetes Events that were not sent because their object had ten within a minute",
            self.events_left_out.clone(),
        );
        registry.register(
            "janitor_actions",
            "Annotations and pods of deleted actions that were cleaned up",
            self.janitor.clone(),
        );
        registry.register(
            "notifications",
            "Attempts to notify receivers about the end of an action, by result",
            self.notifications.clone(),
        );
        registry.register(
            "trace_spans",
            "Spans of traces, by outcome: sent, refused by the endpoint, or dropped because it did not answer",
            self.trace_spans.clone(),
        );
        registry.register("leader", "1 while this replica holds the lease and acts", self.leader.clone());
        registry.register("resident_memory_bytes", "Resident memory of the process", self.memory.clone());
    }

    /// Creates the counters of a controller, so that its first failure is an increase from 0.
    pub fn expect_reconciles(&self, controller: &'static str) {
        for outcome in ["ok", "retry", "retry_after", "terminal", "panic"] {
            let _ = self.reconciles.get_or_create(&ReconcileLabels { controller, outcome });
        }
    }

    /// Counts a finished reconcile.
    pub fn reconciled(&self, controller: &'static str, outcome: &'static str, time: Duration) {
        self.reconciles.get_or_create(&ReconcileLabels { controller, outcome }).inc();
        self.reconcile_seconds.get_or_create(&ControllerLabel { controller }).observe(time.as_secs_f64());
    }

    /// Counts a finished write.
    pub fn effect(&self, effect: &'static str, outcome: &'static str, time: Duration) {
        let labels = EffectLabels { effect, outcome };
        self.effects.get_or_create(&labels).inc();
        self.effect_seconds.get_or_create(&labels).observe(time.as_secs_f64());
    }

    /// All metrics of this process and of this registry, in the OpenMetrics text format.
    pub fn render(&self, more: &Registry) -> Result<String, std::fmt::Error> {
        let mut out = String::new();
        text::encode_registry(&mut out, &self.registry)?;
        text::encode_registry(&mut out, more)?;
        text::encode_eof(&mut out)?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_rendered_with_its_labels() {
        let metrics = Metrics::new();
        metrics.reconciled("workload-action", "ok", Duration::from_millis(3));
        metrics.effect("Record", "ok", Duration::from_millis(3));
        metrics.leader.set(1);
        let text = metrics.render(&Registry::default()).unwrap();
        assert!(text.contains("ganglion_reconciles_total{controller=\"workload-action\",outcome=\"ok\"} 1"), "{text}");
        assert!(text.contains("ganglion_effects_total{effect=\"Record\",outcome=\"ok\"} 1"), "{text}");
        assert!(text.contains("ganglion_leader 1"), "{text}");
        assert!(text.contains("ganglion_build_info{version="), "{text}");
        metrics.expect_reconciles("decision");
        let text = metrics.render(&Registry::default()).unwrap();
        assert!(text.contains("ganglion_reconciles_total{controller=\"decision\",outcome=\"panic\"} 0"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
