//! Parsed spec of a NodeConfig: the source of each value, and its interval.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use jiff::SignedDuration;
use thiserror::Error;

use ganglion_api::node_config::NodeConfigSpec;
use ganglion_api::node_config::source::{CpuFamily, CpuUsageFormat, EndpointTerm, MetricsCollector, Predictor};
use ganglion_api::node_config::status::NodeValue;
use ganglion_api::refs::{CaRef, RequestHeader};
use ganglion_api::scalars::DurationText;
use ganglion_core::duration;
use ganglion_core::facts::NodeName;
use ganglion_core::names::is_label_name;
use ganglion_core::node_values::{INTERVAL, WINDOW};
use ganglion_core::words::quoted;

/// Time range of the error of predicted power without `window`.
const ERROR_WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// Label of the series that identifies the node, if `nodeLabel` is unset.
const LABEL: &str = "instance";

/// A request to a source. Each variant corresponds to a field of the spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Question {
    InletTemperature,
    DifferentialPressure,
    Usage,
    Power,
    MeasuredPower,
    /// The model that predicts the power.
    Model,
}

impl Question {
    /// Spec field of the source.
    pub fn field(self) -> &'static str {
        match self {
            Self::InletTemperature => "metricsCollector.inletTemp",
            Self::DifferentialPressure => "metricsCollector.deltaP",
            Self::Usage => "metricsCollector.usage",
            Self::Power => "predictor.powerConsumption",
            Self::MeasuredPower => "metricsCollector.power",
            Self::Model => "predictor.powerConsumptionEndpointProvider",
        }
    }

    /// Values that one answer contains.
    pub fn values(self) -> &'static [NodeValue] {
        match self {
            Self::InletTemperature => &[NodeValue::InletTemperature],
            Self::DifferentialPressure => &[NodeValue::DifferentialPressure],
            Self::Usage => &[NodeValue::Cpu, NodeValue::Memory],
            Self::Power => &[NodeValue::Power],
            Self::MeasuredPower => &[NodeValue::MeasuredPower],
            Self::Model => &[],
        }
    }

    /// Question whose answer contains this value.
    pub fn about(value: NodeValue) -> Self {
        match value {
            NodeValue::InletTemperature => Self::InletTemperature,
            NodeValue::DifferentialPressure => Self::DifferentialPressure,
            NodeValue::Cpu | NodeValue::Memory => Self::Usage,
            NodeValue::Power => Self::Power,
            NodeValue::MeasuredPower => Self::MeasuredPower,
        }
    }

    /// Name of the polls in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::InletTemperature => "inletTemperature",
            Self::DifferentialPressure => "differentialPressure",
            Self::Usage => "usage",
            Self::Power => "power",
            Self::MeasuredPower => "measuredPower",
            Self::Model => "model",
        }
    }
}

/// Address, credentials and TLS settings of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceServer {
    pub url: String,
    /// Name of the Secret with user and password.
    pub secret: Option<String>,
    pub ca: Option<CaRef>,
    /// Skips certificate verification.
    pub insecure: bool,
    pub headers: Vec<RequestHeader>,
}

/// Source of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ValueSource {
    /// Fixed values, without a server.
    Fake,
    Redfish {
        server: SourceServer,
        sensor: Option<String>,
    },
    DifferentialPressureApi {
        server: SourceServer,
        sensor: Option<String>,
    },
    Prometheus {
        server: SourceServer,
        value: PrometheusValue,
        label: String,
        /// Labels that the series must have.
        matchers: BTreeMap<String, String>,
    },
    MetricsServer,
    V2Inference {
        server: SourceServer,
        format: CpuUsageFormat,
        /// Name of the output with the power.
        output: Option<String>,
    },
    /// The model that the endpoint provider names.
    NamedModel,
    /// A straight line over the CPU usage, in watts.
    Linear {
        idle: i32,
        full: i32,
    },
    /// The straight line of a processor family, which depends on the node's number of CPUs.
    FamilyLine(CpuFamily),
}

/// Values that series of Prometheus contain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PrometheusValue {
    /// Usage over this window.
    Usage(SignedDuration),
    /// Power, from the metric of this name.
    Power(String),
}

/// A source and its interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecSource {
    pub source: ValueSource,
    pub interval: SignedDuration,
}

/// Requested measurements of a NodeConfig.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedNodeSpec {
    pub node: NodeName,
    pub suspended: bool,
    pub sources: BTreeMap<Question, SpecSource>,
    /// Time range of the error of predicted power. None: power is not both measured and predicted.
    pub error_window: Option<SignedDuration>,
}

/// Invalid spec field. The schema rejects most of these; an object may be older than the schema.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("spec.{field}{member}: {problem}")]
pub struct SpecProblem {
    field: &'static str,
    member: &'static str,
    problem: String,
}

impl ParsedNodeSpec {
    /// Parses a spec.
    pub fn parse(spec: &NodeConfigSpec) -> Result<Self, SpecProblem> {
        let nothing = (MetricsCollector::default(), Predictor::default());
        let collector = spec.metrics_collector.as_ref().unwrap_or(&nothing.0);
        let predictor = spec.predictor.as_ref().unwrap_or(&nothing.1);
        let terms = [
            (Question::InletTemperature, &collector.inlet_temp),
            (Question::DifferentialPressure, &collector.delta_p),
            (Question::Usage, &collector.usage),
            (Question::MeasuredPower, &collector.power),
            (Question::Power, &predictor.power_consumption),
            (Question::Model, &predictor.power_consumption_endpoint_provider),
        ];
        let mut sources = BTreeMap::new();
        for (question, term) in terms {
            if let Some(term) = term {
                sources.insert(question, parse_source(question, term)?);
            }
        }
        let provider = sources.get(&Question::Model).cloned();
        if let Some(SpecSource { source, interval }) = provider {
            // A fake provider implies a fake model.
            let source = if source == ValueSource::Fake { source } else { ValueSource::NamedModel };
            sources.entry(Question::Power).or_insert(SpecSource { source, interval });
        }
        let predicted = sources.get(&Question::Power).map(|power| (power.source != ValueSource::Fake, power.interval));
        if let Some((true, interval)) = predicted {
            sources.entry(Question::Usage).or_insert(SpecSource { source: ValueSource::MetricsServer, interval });
        }
        let is_compared = [Question::Power, Question::MeasuredPower].iter().all(|one| sources.contains_key(one));
        let measured = collector.power.as_ref().filter(|_| is_compared);
        let error_window = measured.map(|term| window(term, Question::MeasuredPower, ERROR_WINDOW)).transpose()?;
        let suspended = spec.suspend.unwrap_or(false);
        Ok(Self { node: spec.node_name.clone(), suspended, sources, error_window })
    }

    /// Requested values, in the order of the status.
    pub fn values(&self) -> impl Iterator<Item = NodeValue> + '_ {
        NodeValue::ALL.into_iter().filter(|value| self.sources.contains_key(&Question::about(*value)))
    }

    /// Interval between two measurements of this value; the default interval if the value is not requested.
    pub fn interval(&self, value: NodeValue) -> SignedDuration {
        self.sources.get(&Question::about(value)).map_or(INTERVAL, |source| source.interval)
    }

    /// Longest interval between two measurements, over all sources.
    pub fn longest_interval(&self) -> SignedDuration {
        self.sources.values().map(|source| source.interval).max().unwrap_or(INTERVAL)
    }

    /// Values that the prediction needs.
    pub fn inputs(&self) -> &'static [NodeValue] {
        match self.sources.get(&Question::Power).map(|power| &power.source) {
            None | Some(ValueSource::Fake) => &[],
            Some(ValueSource::Linear { .. } | ValueSource::FamilyLine(_))
                if !self.sources.contains_key(&Question::Model) =>
            {
                &[NodeValue::Cpu]
            }
            Some(_) => &[NodeValue::Cpu, NodeValue::InletTemperature, NodeValue::DifferentialPressure],
        }
    }
}

fn parse_source(question: Question, term: &EndpointTerm) -> Result<SpecSource, SpecProblem> {
    let wrong = |member, problem| SpecProblem { field: question.field(), member, problem };
    let server = || {
        let url = term.endpoint.clone().unwrap_or_default();
        let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/')) {
            return Err(wrong(".endpoint", "an http or https address is needed".to_owned()));
        }
        let secret = term.basic_auth_secret.as_ref().map(|secret| secret.name.clone());
        let (ca, insecure) = (term.ca.clone(), term.insecure_skip_verify.unwrap_or(false));
        Ok(SourceServer { url, secret, ca, insecure, headers: term.headers.clone().unwrap_or_default() })
    };
    let sensor = term.sensor.clone();
    let prometheus = |value| {
        let (label, matchers) = (term.node_label.clone().unwrap_or_else(|| LABEL.to_owned()), matchers(term));
        let matchers = matchers.map_err(|problem| wrong(".matchers", problem))?;
        Ok(ValueSource::Prometheus { server: server()?, value, label, matchers })
    };
    use Question as Q;
    let source = match (question, term.type_.as_str()) {
        (_, "Fake") => ValueSource::Fake,
        (Q::MeasuredPower, "Redfish") if sensor.as_ref().is_some_and(|sensor| !sensor.starts_with('/')) => {
            let good = "it must be a path such as /redfish/v1/Chassis/1/EnvironmentMetrics";
            return Err(wrong(".sensor", good.to_owned()));
        }
        (Q::InletTemperature | Q::MeasuredPower | Q::Model, "Redfish") => {
            ValueSource::Redfish { server: server()?, sensor }
        }
        (Q::DifferentialPressure, "DifferentialPressureAPI") => {
            ValueSource::DifferentialPressureApi { server: server()?, sensor }
        }
        (Q::Usage, "Prometheus") => prometheus(PrometheusValue::Usage(window(term, question, WINDOW)?))?,
        (Q::MeasuredPower, "Prometheus") => match &term.metric {
            Some(metric) => prometheus(PrometheusValue::Power(metric.clone()))?,
            None => return Err(wrong(".metric", METRIC_NEEDED.to_owned())),
        },
        (Q::Usage, "MetricsServer") => ValueSource::MetricsServer,
        (Q::Power, "V2InferenceProtocol") => {
            let (format, output) = (term.cpu_usage_format.unwrap_or_default(), term.output.clone());
            ValueSource::V2Inference { server: server()?, format, output }
        }
        (Q::Power, "Linear") => match (term.idle_watts, term.full_watts, term.cpu_family) {
            (Some(idle), Some(full), None) if (0..=full).contains(&idle) => ValueSource::Linear { idle, full },
            (None, None, Some(family)) => ValueSource::FamilyLine(family),
            _ => {
                return Err(wrong(
                    ".idleWatts",
                    "idleWatts and fullWatts, which is not less, or cpuFamily without them are needed".to_owned(),
                ));
            }
        },
        _ => return Err(wrong(".type", format!("it must be one of {}", types(question)))),
    };
    let within = SignedDuration::from_secs(1)..=SignedDuration::from_hours(1);
    let interval = span(term.fetch_interval.as_ref(), INTERVAL, within)
        .map_err(|problem| wrong(".fetchInterval", problem.unwrap_or_else(|| "it must be 1s to 1h".to_owned())))?;
    Ok(SpecSource { source, interval })
}

const METRIC_NEEDED: &str = "it is needed: a metric such as ipmi_dcmi_power_consumption_watts, kepler_platform_watts, \
    kepler_node_platform_joules_total or node_hwmon_power_average_watt";

/// Time range of a source.
fn window(term: &EndpointTerm, question: Question, unset: SignedDuration) -> Result<SignedDuration, SpecProblem> {
    let within = SignedDuration::from_mins(1)..=SignedDuration::from_hours(24);
    span(term.window.as_ref(), unset, within).map_err(|problem| SpecProblem {
        field: question.field(),
        member: ".window",
        problem: problem.unwrap_or_else(|| "it must be 1m to 24h".to_owned()),
    })
}

/// Parses a duration. The error is None if it is out of range.
fn span(
    text: Option<&DurationText>,
    unset: SignedDuration,
    within: RangeInclusive<SignedDuration>,
) -> Result<SignedDuration, Option<String>> {
    let Some(text) = text else { return Ok(unset) };
    let span = duration::parse(text.as_str()).map_err(|error| Some(error.to_string()))?;
    within.contains(&span).then_some(span).ok_or(None)
}

/// Labels that the series of a Prometheus source must have.
fn matchers(term: &EndpointTerm) -> Result<BTreeMap<String, String>, String> {
    let matchers = term.matchers.clone().unwrap_or_default();
    match matchers.keys().find(|label| !is_label_name(label)) {
        None => Ok(matchers),
        Some(label) => Err(format!("{} is not the name of a label of Prometheus", quoted(label))),
    }
}

fn types(question: Question) -> &'static str {
    match question {
        Question::InletTemperature | Question::Model => "Redfish, Fake",
        Question::MeasuredPower => "Redfish, Prometheus, Fake",
        Question::DifferentialPressure => "DifferentialPressureAPI, Fake",
        Question::Usage => "Prometheus, MetricsServer, Fake",
        Question::Power => "V2InferenceProtocol, Linear, Fake",
    }
}
