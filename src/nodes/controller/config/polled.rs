//! Plan, polls and poll results of each NodeConfig, shared by its reconciles and the polls. All of it may be lost.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use ganglion_api::node_config::source::CpuUsageFormat;
use ganglion_api::node_config::status::NodeValue;
use ganglion_api::node_config::{NodeConfig, NodeConfigStatus};
use ganglion_core::conditions::Stamp;
use ganglion_core::facts::{Key, NodeName};
use ganglion_core::power_curve::KnownCurve;
use ganglion_nodes_plan::accuracy::{KnownAccuracy, PowerComparison};
use ganglion_nodes_plan::known_sensor::KnownSensor;
use ganglion_nodes_plan::node_plan::NodePlan;
use ganglion_nodes_plan::node_spec::{PrometheusValue, Question, SourceServer, SpecSource};
use ganglion_nodes_plan::readings::{KnownValue, NodeSample, Problem, Readings};
use ganglion_nodes_plan::report::Situation;
use ganglion_outbound::inference::InputLayout;

/// Added to the longest interval: time to wait for the first values of a NodeConfig before its status is written
/// without them. A new NodeConfig then costs one write, and a restart none.
const GRACE: SignedDuration = SignedDuration::from_secs(5);

/// Upper limit of the interval in this sum.
const LONGEST: SignedDuration = SignedDuration::from_secs(30);

/// Added to the time of the next staleness check while all polls succeed: a reconcile per node every three intervals
/// would cost more than the polls. The first failed poll enqueues the object at once.
const STALE_CHECK_SLACK: SignedDuration = SignedDuration::from_secs(120);

/// Key of a poll.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PollKey {
    /// Poll for one NodeConfig.
    Own(Question, Key),
    /// Poll for all NodeConfigs that name this source.
    Shared(Arc<SharedSource>),
}

/// Source whose answer covers many nodes. The namespace is part of the identity, since Secrets differ between
/// namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SharedSource {
    Prometheus {
        namespace: String,
        server: SourceServer,
        value: PrometheusValue,
        label: String,
        matchers: BTreeMap<String, String>,
    },
    MetricsServer,
    Model {
        namespace: String,
        server: SourceServer,
        format: CpuUsageFormat,
        output: Option<String>,
    },
}

impl PollKey {
    /// Whether the poll requests predictions from a model.
    pub fn is_model(&self) -> bool {
        matches!(self, Self::Shared(source) if matches!(**source, SharedSource::Model { .. }))
    }

    /// Question of the poll.
    pub fn question(&self) -> Question {
        match self {
            Self::Own(question, _) => *question,
            Self::Shared(source) => match **source {
                SharedSource::Prometheus { value: PrometheusValue::Power(_), .. } => Question::MeasuredPower,
                SharedSource::Prometheus { .. } | SharedSource::MetricsServer => Question::Usage,
                SharedSource::Model { .. } => Question::Power,
            },
        }
    }
}

/// Input of a model and number of rows that it accepts. It may be lost.
#[derive(Clone, Debug)]
pub struct KnownModel {
    pub layout: InputLayout,
    /// Maximum number of rows in a request.
    pub max_rows: usize,
    pub learned_at: Timestamp,
}

/// State of all NodeConfigs.
#[derive(Default)]
pub struct PolledNodes {
    state: Mutex<NodeStates>,
}

#[derive(Default)]
pub struct NodeStates {
    pub objects: HashMap<Key, NodeState>,
    /// Members of each shared poll, with the interval that each requests.
    pub groups: HashMap<Arc<SharedSource>, BTreeMap<Key, SignedDuration>>,
    /// Descriptions and limits of models, by their polls.
    pub models: HashMap<Arc<SharedSource>, KnownModel>,
}

/// State of one NodeConfig.
pub struct NodeState {
    pub uid: String,
    pub plan: NodePlan,
    pub readings: Readings,
    /// Predicted power as a function of usage.
    pub curve: KnownCurve,
    /// Model that the endpoint provider names.
    pub model: Option<SourceServer>,
    /// Why the endpoint provider names no model.
    pub model_problem: Option<Problem>,
    /// Sensor of the inlet temperature that Redfish found.
    pub sensor: Option<KnownSensor>,
    /// Reading of the power that Redfish found.
    pub power_sensor: Option<KnownSensor>,
    /// Error of predicted power.
    pub accuracy: KnownAccuracy,
    /// Polls of this NodeConfig, with their sources.
    pub polls: HashMap<PollKey, SpecSource>,
    /// Time since which the sources are polled by the current spec.
    pub polled_since: Timestamp,
    /// Time of the last status write by this process.
    pub written_at: Option<Timestamp>,
}

impl NodeState {
    fn new(object: &NodeConfig, plan: NodePlan, heartbeat: SignedDuration, now: Timestamp) -> Self {
        let status = object.status.as_ref();
        // Values of an earlier generation may be from another source.
        let of_this = status.filter(|status| status.observed_generation == object.metadata.generation);
        Self {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            plan,
            readings: of_this.map(|status| Readings::restored(status, heartbeat, now)).unwrap_or_default(),
            curve: of_this.and_then(|status| status.power_curve.as_ref()).map(KnownCurve::restored).unwrap_or_default(),
            model: None,
            model_problem: None,
            // The first poll checks that it is still the right sensor.
            sensor: of_this.and_then(|status| {
                KnownSensor::restored(status.inlet_temperature.as_ref(), status.inlet_sensor.clone())
            }),
            power_sensor: of_this.and_then(|status| KnownSensor::restored(status.measured_power.as_ref(), None)),
            accuracy: of_this
                .and_then(|status| status.power_accuracy.as_ref())
                .map(KnownAccuracy::restored)
                .unwrap_or_default(),
            polls: HashMap::new(),
            polled_since: now,
            written_at: None,
        }
    }

    /// Discards the state that belongs to another spec or node.
    fn replace_plan(&mut self, plan: NodePlan, now: Timestamp) {
        let before = self.plan.parsed.clone().unwrap_or_default();
        let after = plan.parsed.clone().unwrap_or_default();
        self.readings.retain_unchanged(&before, &after);
        if before.sources != after.sources || before.node != after.node {
            (self.model, self.model_problem, self.sensor, self.power_sensor) = (None, None, None, None);
            (self.curve, self.accuracy) = (KnownCurve::default(), KnownAccuracy::default());
        }
        self.polled_since = now;
        self.plan = plan;
    }

    /// Computes the status. None while the first values are pending.
    pub fn status(&self, old: &NodeConfigStatus, stamp: Stamp) -> Option<NodeConfigStatus> {
        if self.first_values_deadline().is_some_and(|until| stamp.now < until) {
            return None;
        }
        let Self { plan: NodePlan { parsed, standing }, readings, curve, .. } = self;
        let (parsed, choice) = (parsed.as_ref(), self.sensor.as_ref().and_then(KnownSensor::choice));
        let window = parsed.ok().and_then(|parsed| parsed.error_window);
        let accuracy = window.and_then(|window| self.accuracy.shown(window, stamp.now));
        let accuracy = accuracy.as_ref();
        Some(Situation { parsed, standing, readings, curve, accuracy, choice, old: &old.conditions, stamp }.status())
    }

    /// Deadline for the first values; None if no value is pending.
    pub fn first_values_deadline(&self) -> Option<Timestamp> {
        let parsed = self.plan.measured()?;
        if self.readings.is_complete(parsed) && !self.awaits_curve() {
            return None;
        }
        let longest = parsed.sources.values().map(|source| source.interval).max().unwrap_or_default();
        self.polled_since.checked_add(longest.min(LONGEST) + GRACE).ok()
    }

    /// Time at which a value may have become stale.
    pub fn next_stale_check(&self, now: Timestamp) -> Option<Timestamp> {
        let parsed = self.plan.parsed.as_ref().ok()?;
        let stale = self.readings.next_stale(parsed, now)?;
        let polls_succeed =
            self.plan.measured().is_some() && self.readings.is_complete(parsed) && !self.readings.has_problem(parsed);
        stale.checked_add(if polls_succeed { STALE_CHECK_SLACK } else { SignedDuration::ZERO }).ok()
    }

    /// Last value, if it is fresh.
    fn fresh(&self, value: NodeValue, now: Timestamp) -> Option<f64> {
        let interval = self.plan.measured()?.interval(value);
        Some(self.readings.fresh(value, interval, now)?.value)
    }

    /// Compares measured with predicted power when power was measured; for the first time, when the last of the values
    /// arrived, so that the first status has the result. Returns the mean absolute error.
    fn compare(&mut self, new: NodeValue, at: Timestamp) -> Option<f64> {
        let window = self.plan.measured()?.error_window?;
        if new != NodeValue::MeasuredPower && self.accuracy.mean_absolute_error().is_some() {
            return None;
        }
        // Values of an earlier process may be minutes old.
        let fresh = |value| self.fresh(value, at).filter(|_| self.readings.get(value).is_some_and(KnownValue::is_own));
        let (cpu, predicted) = (fresh(NodeValue::Cpu)?, fresh(NodeValue::Power)?);
        let measured = fresh(NodeValue::MeasuredPower)?;
        self.accuracy.record(PowerComparison { at, cpu, predicted, measured }, window);
        self.accuracy.mean_absolute_error()
    }

    /// Whether the first curve is pending. A curve is requested after the model has predicted the power.
    fn awaits_curve(&self) -> bool {
        let power = self.readings.get(NodeValue::Power);
        let is_predicted =
            |power: &KnownValue| power.problem.is_none() && power.last.is_some() && power.restored.is_none();
        let asks = || self.polls.keys().any(PollKey::is_model);
        self.curve == KnownCurve::default() && power.is_some_and(is_predicted) && asks()
    }

    /// Returns these inputs of the prediction if all are fresh. Otherwise returns the names of the missing ones, and
    /// whether one of them is still pending, in which case it is too early to report a problem.
    pub fn inputs<const N: usize>(
        &self,
        values: [NodeValue; N],
        now: Timestamp,
    ) -> Result<[f64; N], (Vec<&'static str>, bool)> {
        let all = values.map(|value| (value, self.fresh(value, now)));
        if all.iter().all(|(_, fresh)| fresh.is_some()) {
            return Ok(all.map(|(_, fresh)| fresh.unwrap_or_default()));
        }
        let missing = || all.iter().filter(|(_, fresh)| fresh.is_none()).map(|(value, _)| *value);
        let is_awaited = |value: NodeValue| {
            let is_asked = self.plan.measured().is_some_and(|parsed| parsed.values().any(|one| one == value));
            let known = self.readings.get(value);
            is_asked
                && known
                    .is_none_or(|known| known.problem.is_none() && (known.last.is_none() || known.restored.is_some()))
        };
        Err((missing().map(NodeValue::as_str).collect(), missing().any(is_awaited)))
    }
}

impl PolledNodes {
    pub fn state(&self) -> MutexGuard<'_, NodeStates> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the current plan. Discards the state that belongs to another spec, node or object. `heartbeat`: that of
    /// the status.
    pub fn update_plan(
        &self,
        key: &Key,
        object: &NodeConfig,
        plan: &NodePlan,
        heartbeat: SignedDuration,
        now: Timestamp,
    ) {
        let mut state = self.state();
        let Some(node) = state.objects.get_mut(key) else {
            state.objects.insert(key.clone(), NodeState::new(object, plan.clone(), heartbeat, now));
            return;
        };
        if Some(&node.uid) != object.metadata.uid.as_ref() {
            let polls = std::mem::take(&mut node.polls);
            *node = NodeState { polls, ..NodeState::new(object, plan.clone(), heartbeat, now) };
        } else if node.plan != *plan {
            node.replace_plan(plan.clone(), now);
        }
    }

    /// Records the result of a poll. None if the object is deleted or no longer requests the value.
    pub fn record(&self, key: &Key, value: NodeValue, result: Result<NodeSample, Problem>) -> Option<RecordOutcome> {
        let mut state = self.state();
        let known = state.objects.get_mut(key)?;
        let parsed = known.plan.measured().filter(|parsed| parsed.values().any(|one| one == value))?;
        let (node, interval, inputs) = (parsed.node.clone(), parsed.interval(value), parsed.inputs());
        let sample = result.as_ref().ok().cloned();
        let failed_before = known.readings.get(value).is_some_and(|known| known.problem.is_some());
        known.readings.record(value, result);
        let error = sample.as_ref().and_then(|sample| known.compare(value, sample.at));
        let unpredicted = || {
            let power = known.readings.get(NodeValue::Power);
            power.is_none_or(|power| power.last.is_none() || power.restored.is_some() || power.problem.is_some())
        };
        let is_ready = |at: Timestamp| inputs.iter().all(|input| known.fresh(*input, at).is_some());
        let is_awaited = inputs.contains(&value) && unpredicted();
        let wakes = sample.as_ref().filter(|sample| is_awaited && is_ready(sample.at));
        let wakes = wakes.and_then(|_| known.polls.keys().find(|poll| poll.question() == Question::Power).cloned());
        let begins_to_fail = sample.is_none() && !failed_before;
        Some(RecordOutcome { node, interval, sample, error, begins_to_fail, wakes })
    }

    pub fn forget(&self, key: &Key) {
        self.state().objects.remove(key);
    }
}

/// Effects of a poll result.
pub struct RecordOutcome {
    pub node: NodeName,
    pub interval: SignedDuration,
    pub sample: Option<NodeSample>,
    /// Mean absolute error of predicted power in watts, if the value was compared with a prediction.
    pub error: Option<f64>,
    /// First failure after a success.
    pub begins_to_fail: bool,
    /// Poll that was waiting for this value.
    pub wakes: Option<PollKey>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ganglion_api::node_config::reasons::NodeReason;
    use ganglion_api::node_config::source::CpuUsageFormat;
    use ganglion_nodes_plan::node_plan::Standing;
    use ganglion_nodes_plan::node_spec::{ParsedNodeSpec, Question, ValueSource};

    /// NodeConfig with a first value of each kind, and power from a model.
    fn predicted(now: Timestamp) -> NodeState {
        let term = |kind: &str, url: &str| json!({"type": kind, "endpoint": url, "fetchInterval": "10s"});
        let power = term("V2InferenceProtocol", "http://10.0.0.1:8080/v2/models/m/infer");
        let pressure = term("DifferentialPressureAPI", "http://10.0.0.2:5000");
        let object: NodeConfig = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "b", "uid": "c"},
            "spec": {
                "nodeName": "n", "metricsCollector": {"deltaP": pressure},
                "predictor": {"powerConsumption": power},
            },
        }))
        .expect("a NodeConfig");
        let parsed = ParsedNodeSpec::parse(&object.spec).expect("a valid spec");
        let server = match parsed.sources.get(&Question::Power).map(|one| one.source.clone()) {
            Some(ValueSource::V2Inference { server, .. }) => server,
            other => panic!("{other:?}"),
        };
        let values: Vec<NodeValue> = parsed.values().collect();
        let plan = NodePlan { parsed: Ok(parsed), standing: Standing::Clear };
        let mut known = NodeState::new(&object, plan, SignedDuration::from_mins(5), now);
        for value in values {
            known
                .readings
                .record(value, Ok(NodeSample { value: 1.0, deviation: None, at: now, source: String::new() }));
        }
        let format = CpuUsageFormat::Percent;
        let model = SharedSource::Model { namespace: "b".to_owned(), server, format, output: None };
        let source = SpecSource { source: ValueSource::NamedModel, interval: SignedDuration::from_secs(10) };
        known.polls.insert(PollKey::Shared(Arc::new(model)), source);
        known
    }

    /// NodeConfig with power from a straight line, and measured power.
    fn compared(now: Timestamp) -> PolledNodes {
        let object: NodeConfig = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "b", "uid": "c"},
            "spec": {
                "nodeName": "n", "metricsCollector": {"power": {"type": "Fake"}, "usage": {"type": "Fake"}},
                "predictor": {"powerConsumption": {"type": "Linear", "idleWatts": 100, "fullWatts": 300}},
            },
        }))
        .expect("a NodeConfig");
        let parsed = ParsedNodeSpec::parse(&object.spec).expect("a valid spec");
        let plan = NodePlan { parsed: Ok(parsed), standing: Standing::Clear };
        let polled = PolledNodes::default();
        polled.update_plan(&Key::new("b", "a"), &object, &plan, SignedDuration::from_mins(5), now);
        let source = SpecSource { source: ValueSource::Linear { idle: 100, full: 300 }, interval: GRACE };
        let poll = PollKey::Own(Question::Power, Key::new("b", "a"));
        polled.state().objects.values_mut().for_each(|node| {
            node.polls.insert(poll.clone(), source.clone());
        });
        polled
    }

    #[test]
    fn usage_wakes_the_prediction_and_measured_power_is_compared_with_it() {
        let (now, key) = (Timestamp::UNIX_EPOCH, Key::new("b", "a"));
        let polled = compared(now);
        let record = |value, number, at| {
            let sample = NodeSample { value: number, deviation: None, at, source: String::new() };
            polled.record(&key, value, Ok(sample)).expect("a requested value")
        };
        assert_eq!(record(NodeValue::MeasuredPower, 210.0, now).error, None, "nothing is predicted yet");
        let wakes = record(NodeValue::Cpu, 50.0, now).wakes;
        assert_eq!(wakes, Some(PollKey::Own(Question::Power, key.clone())));
        assert_eq!(record(NodeValue::Power, 200.0, now).error, Some(10.0), "the last of the first values");
        let next = record(NodeValue::Cpu, 60.0, now);
        assert_eq!((next.wakes, next.error), (None, None), "the prediction has its own interval");
        let later = now + SignedDuration::from_secs(40);
        assert_eq!(record(NodeValue::MeasuredPower, 900.0, later).error, Some(10.0), "a minute after the last one");
        let late = now + SignedDuration::from_mins(5);
        assert_eq!(record(NodeValue::MeasuredPower, 900.0, late).error, None, "the prediction is stale");
    }

    #[test]
    fn the_first_status_waits_for_the_first_curve_and_for_none_that_fails() {
        let now = Timestamp::UNIX_EPOCH;
        let mut known = predicted(now);
        assert_eq!(known.first_values_deadline(), Some(now + SignedDuration::from_secs(15)));
        known.curve.take(Err("the model takes one row".to_owned()), now);
        assert_eq!(known.first_values_deadline(), None);
        let mut known = predicted(now);
        known.readings.record(NodeValue::Power, Err(Problem::new(NodeReason::Unreachable, "gone")));
        assert_eq!(known.first_values_deadline(), None, "no curve is requested without power");
    }
}
