//! Status of a NodeConfig, with advice for users by reason.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::node_plan::Standing;
use super::node_spec::{ParsedNodeSpec, Question, SpecProblem};
use super::readings::{Age, Problem, Readings};
use ganglion_api::node_config::NodeConfigStatus;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_api::node_config::status::{FittedLine, NodeReading, NodeValue, PowerAccuracy, SensorChoice};
use ganglion_core::conditions::{self, DATA_AVAILABLE, Health, Stamp};
use ganglion_core::power_curve::KnownCurve;

/// Type of the condition that is true while a value is stale. The condition is removed when no value is stale.
pub const STALE: &str = "Stale";

/// Type of the condition that is true while predicted power is worse than a straight line. It is removed otherwise.
pub const INACCURATE: &str = "Inaccurate";

/// Status of [`DATA_AVAILABLE`], its reason and message.
pub type NodeDataState = (&'static str, NodeReason, String);

/// Input of the status.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    pub parsed: Result<&'a ParsedNodeSpec, &'a SpecProblem>,
    pub standing: &'a Standing,
    pub readings: &'a Readings,
    pub curve: &'a KnownCurve,
    /// Error of predicted power.
    pub accuracy: Option<&'a PowerAccuracy>,
    /// Why the sensor of the inlet temperature was chosen.
    pub choice: Option<&'a SensorChoice>,
    /// Conditions in the current status.
    pub old: &'a [Condition],
    pub stamp: Stamp,
}

impl Situation<'_> {
    /// Whether sources are polled.
    pub fn is_measured(&self) -> bool {
        *self.standing == Standing::Clear && self.parsed.is_ok_and(|parsed| !parsed.suspended)
    }

    /// Computes the status.
    pub fn status(&self) -> NodeConfigStatus {
        let Stamp { generation, now } = self.stamp;
        let mut status = NodeConfigStatus { observed_generation: Some(generation), ..NodeConfigStatus::default() };
        let mut problems = Vec::new();
        if let Ok(parsed) = self.parsed {
            for value in parsed.values() {
                let reading = self.reading(parsed, value, &mut problems);
                *status.reading_mut(value) = reading;
            }
            status.inlet_sensor = self.choice.filter(|_| status.inlet_temperature.is_some()).cloned();
            status.power_curve = status.power.as_ref().and_then(|_| self.curve.shown());
            status.power_accuracy = self.accuracy.cloned();
        }
        status.sampled_at = NodeValue::ALL
            .iter()
            .filter_map(|value| status.reading(*value)?.sampled_at.as_ref())
            .max_by_key(|time| time.0)
            .cloned();
        let stale: Vec<&str> = NodeValue::ALL
            .iter()
            .filter(|value| status.reading(**value).is_some_and(|reading| reading.stale == Some(true)))
            .map(|value| value.as_str())
            .collect();
        let health = self.health();
        status.conditions = conditions::summary(self.old, &health, self.stamp);
        let (data, reason, message) = self.data(health, &problems);
        let data = conditions::condition(self.old, DATA_AVAILABLE, data, reason.as_str(), &message, self.stamp);
        status.conditions.push(data);
        if !stale.is_empty() {
            let words = format!("these values are stale; do not use them as current: {}", stale.join(", "));
            let stamp = Stamp { generation, now };
            let reason = NodeReason::Stale.as_str();
            status.conditions.push(conditions::condition(self.old, STALE, "True", reason, &words, stamp));
        }
        if let Some(words) = self.accuracy.and_then(inaccuracy) {
            let reason = NodeReason::WorseThanLine.as_str();
            status.conditions.push(conditions::condition(self.old, INACCURATE, "True", reason, &words, self.stamp));
        }
        status
    }

    /// Computes one value of the status. Adds the problem to `problems` if the value is not fresh.
    fn reading(
        &self,
        parsed: &ParsedNodeSpec,
        value: NodeValue,
        problems: &mut Vec<(NodeValue, Problem)>,
    ) -> Option<NodeReading> {
        let known = self.readings.get(value);
        let last = known.and_then(|known| known.last.as_ref());
        let age = self.readings.age(value, parsed.interval(value), self.stamp.now);
        let mut problem = None;
        if age != Age::Fresh && self.is_measured() {
            let why = known.and_then(|known| known.problem.clone()).unwrap_or_else(|| match age {
                Age::Stale if known.is_some_and(|known| known.restored.is_none()) => {
                    Problem::new(NodeReason::Stale, "no newer value for three intervals")
                }
                _ => Problem::new(NodeReason::Waiting, "the source has not answered yet"),
            });
            let is_known = known.is_some_and(|known| known.problem.is_some());
            problem = is_known.then(|| with_advice(Question::about(value), why.reason, &why.words));
            problems.push((value, why));
        }
        if last.is_none() && problem.is_none() {
            return None;
        }
        Some(NodeReading {
            value: last.map(|last| show(value, last.value)),
            deviation: last.and_then(|last| last.deviation).map(|deviation| show(value, deviation)),
            sampled_at: last.map(|last| Time(whole_second(last.at))),
            source: last.map(|last| last.source.clone()).filter(|source| !source.is_empty()),
            stale: (age == Age::Stale).then_some(true),
            problem,
        })
    }

    /// Whether every value is known. Nothing is known of a NodeConfig that is not measured.
    fn data(&self, health: Health<NodeReason>, problems: &[(NodeValue, Problem)]) -> NodeDataState {
        match (health, self.parsed) {
            (Health::Good(NodeReason::Polling, _), Ok(parsed)) => values(parsed, problems),
            (Health::Good(reason, message), _) => ("True", reason, message),
            (Health::Working { reason, message, .. } | Health::Suspended(reason, message), _) => {
                ("Unknown", reason, message)
            }
            (Health::Retrying(reason, message) | Health::Stalled(reason, message), _) => ("False", reason, message),
        }
    }

    fn health(&self) -> Health<NodeReason> {
        use NodeReason as R;
        let advised = |reason: R, words: &str| match advice(reason, "") {
            Some(advice) => format!("{words}; {advice}"),
            None => words.to_owned(),
        };
        let parsed = match (self.standing, self.parsed) {
            (Standing::NamespaceRefused(words), _) => return Health::Stalled(R::NamespaceRefused, words.clone()),
            (_, Err(problem)) => return Health::Stalled(R::SpecInvalid, problem.to_string()),
            (_, Ok(parsed)) => parsed,
        };
        if parsed.suspended {
            return Health::Suspended(R::Suspended, advised(R::Suspended, "measurement is suspended"));
        }
        match self.standing {
            Standing::Conflict(older) => {
                let words = format!("NodeConfig {older} is older and describes node {} already", parsed.node);
                return Health::Stalled(R::NodeConflict, advised(R::NodeConflict, &words));
            }
            Standing::NodeNotFound => {
                let words = format!("the cluster has no node {}", parsed.node);
                return Health::Retrying(R::NodeNotFound, advised(R::NodeNotFound, &words));
            }
            Standing::Clear | Standing::NamespaceRefused(_) => {}
        }
        if parsed.sources.is_empty() {
            return Health::Good(R::NothingToMeasure, "the spec names no source".to_owned());
        }
        Health::Good(R::Polling, format!("{} sources are polled", parsed.sources.len()))
    }
}

/// Whether every value of a measured NodeConfig is known, derived from the problems of its values.
fn values(parsed: &ParsedNodeSpec, problems: &[(NodeValue, Problem)]) -> NodeDataState {
    use NodeReason as R;
    if problems.is_empty() {
        let names: Vec<&str> = parsed.values().map(NodeValue::as_str).collect();
        return ("True", R::Sampled, format!("fresh: {}", names.join(", ")));
    }
    // A missing input is less important than its cause, and a pending value counts only if nothing is wrong.
    let rank = |reason: R| match reason {
        R::Waiting => 2,
        R::InputMissing => 1,
        _ => 0,
    };
    let Some((_, worst)) = problems.iter().min_by_key(|(_, problem)| rank(problem.reason)) else {
        return ("True", R::Sampled, String::new());
    };
    let message = message(problems);
    if worst.reason == R::Waiting {
        return ("Unknown", R::Waiting, message);
    }
    ("False", worst.reason, message)
}

/// Describes a predictor that is worse than a straight line.
fn inaccuracy(accuracy: &PowerAccuracy) -> Option<String> {
    let line = accuracy.line.as_ref().filter(|_| accuracy.worse_than_line == Some(true))?;
    let FittedLine { idle_watts, full_watts, .. } = line;
    Some(format!(
        "power is predicted worse than by a straight line from {idle_watts} W (idle) to {full_watts} W (fully used), \
         which policies use instead; status.powerAccuracy has the errors; correct {}",
        Question::Power.field()
    ))
}

/// Lists the problem of each value. Values with the same problem share one entry.
fn message(problems: &[(NodeValue, Problem)]) -> String {
    let mut told: Vec<(Vec<&str>, String)> = Vec::new();
    for (value, Problem { reason, words }) in problems {
        let words = with_advice(Question::about(*value), *reason, words);
        match told.iter_mut().find(|(_, known)| *known == words) {
            Some((names, _)) => names.push(value.as_str()),
            None => told.push((vec![value.as_str()], words)),
        }
    }
    let told: Vec<String> = told.iter().map(|(names, words)| format!("{}: {words}", names.join(", "))).collect();
    told.join(". ")
}

/// Formats a number for the status, with the precision of the value.
pub fn show(value: NodeValue, number: f64) -> String {
    let scale = match value {
        NodeValue::InletTemperature | NodeValue::Cpu | NodeValue::Memory => 10.0,
        NodeValue::DifferentialPressure | NodeValue::Power | NodeValue::MeasuredPower => 100.0,
    };
    // Adding zero turns -0 into 0.
    ((number * scale).round() / scale + 0.0).to_string()
}

/// Truncates to whole seconds, like the API server.
fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Advice that completes a problem text. None if nothing is wrong or the problem text already says what to do. `field`
/// is the spec field of the source.
fn advice(reason: NodeReason, field: &str) -> Option<String> {
    use NodeReason as R;
    let words = match reason {
        R::Polling
        | R::Sampled
        | R::NothingToMeasure
        | R::Waiting
        | R::Applied
        | R::Applying
        | R::Stale
        | R::WorseThanLine => {
            return None;
        }
        // The problem text names what to change.
        R::Ambiguous => return None,
        R::InvalidObject | R::AdmissionPolicyMissing | R::DefinitionOutdated | R::SpecInvalid | R::NamespaceRefused => {
            return None;
        }
        R::SecretUnavailable | R::TemplateInvalid => {
            return None;
        }
        R::InputMissing | R::NoReading | R::NodesLeftOut | R::NodeConfigsNotReady | R::SomeUnknown => return None,
        R::Suspended => "set spec.suspend to false to resume".to_owned(),
        R::NodeNotFound => "measurement starts when the node exists; otherwise delete this NodeConfig".to_owned(),
        R::NodeConflict => "delete one of the two".to_owned(),
        R::Unreachable => format!("check the machine or server, its network, and {field}.endpoint"),
        R::LoginRefused => "correct the user and password in the Secret, or the rights of that user".to_owned(),
        R::CertificateRefused => {
            format!("set {field}.ca to its certificate or to its authority, or {field}.insecureSkipVerify: true")
        }
        R::AddressRefused => {
            format!("change {field}.endpoint, or allow the address in the operator's settings (outbound)")
        }
        // The problem text names the label of the series, or the paths of readings.
        R::SensorNotFound | R::SensorAmbiguous
            if [Question::Usage.field(), Question::MeasuredPower.field()].contains(&field) =>
        {
            return None;
        }
        R::SensorNotFound | R::SensorAmbiguous => format!("set {field}.sensor"),
        R::AnswerInvalid => format!("check that {field}.endpoint is a server of the type in {field}.type"),
        R::NoMetricsServer => format!("install metrics-server, or set another type in {field}"),
        R::NoNodes => "change the selector, or label nodes".to_owned(),
        R::NotOwned => "delete the named object, or rename the template".to_owned(),
        R::Unknown => "use the ganglion program of the operator's version".to_owned(),
    };
    Some(words)
}

/// Appends the advice for this source, if any, to a problem text.
fn with_advice(question: Question, reason: NodeReason, words: &str) -> String {
    match advice(reason, question.field()) {
        Some(advice) => format!("{words}; {advice}"),
        None => words.to_owned(),
    }
}
