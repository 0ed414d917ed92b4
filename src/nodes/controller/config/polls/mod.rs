//! Polls of NodeConfigs. A poll puts its result into the memory, and enqueues the NodeConfigs whose status is worth a
//! write.
//!
//! Nodes that one answer covers share a poll: a query of one Prometheus server, the list of metrics.k8s.io, a batch of
//! one model.
//!
//! | file | content |
//! |---|---|
//! | `redfish`, `pressure`, `usage`, `power` | requests to each kind of source |
//! | `model` | requests to one model, in batches that it accepts |
//! | `shared` | shared polls: members, and distribution of the results |
//! | `register` | registration of the polls of a NodeConfig |
//! | `request` | requests of a poll, and conversion of their errors |
//! | `problem` | reason and text for each error of the clients |

mod model;
mod power;
mod pressure;
mod problem;
mod redfish;
mod register;
mod request;
mod shared;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::NodeConfigController;
use super::polled::PollKey;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_core::facts::{Key, NodeName};
use ganglion_core::power_curve::{Curve, POINTS, PowerLine};
use ganglion_nodes_plan::node_spec::{Question, ValueSource};
use ganglion_nodes_plan::readings::{NodeSample, Problem};
use ganglion_runtime::metrics::PollLabels;
use ganglion_runtime::polls::{BrokenOff, PollOutcome, Poller};
use redfish::BmcQuantity;

/// Fake values of WAO: degrees Celsius, pascals and watts.
const FAKE_INLET: f64 = 15.5;
const FAKE_PRESSURE: f64 = 7.5;
#[expect(clippy::approx_constant, reason = "it is 3.14 W, whatever the circle is like")]
const FAKE_POWER: f64 = 3.14;

/// Why a poll returned no values, and the time of the next attempt unless the poll engine decides it.
pub struct PollTrouble {
    pub problem: Problem,
    pub again: Option<Instant>,
}

impl PollTrouble {
    /// Failure; the poll backs off.
    fn failed(problem: Problem) -> Self {
        Self { problem, again: None }
    }

    /// No request was sent; the next attempt is after this pause.
    fn waits(problem: Problem, pause: Duration) -> Self {
        Self { problem, again: Some(Instant::now() + pause) }
    }

    fn outcome(&self) -> PollOutcome {
        self.again.map_or(PollOutcome::Failed, PollOutcome::WaitUntil)
    }
}

impl Poller for NodeConfigController {
    type Key = PollKey;

    async fn poll(self: Arc<Self>, key: PollKey) -> PollOutcome {
        let outcome = match &key {
            PollKey::Own(question, object) => self.poll_own(*question, object).await,
            PollKey::Shared(source) => self.poll_shared(source).await,
        };
        self.count(
            &key,
            match outcome {
                PollOutcome::Ok => "ok",
                PollOutcome::Failed => "failed",
                PollOutcome::WaitUntil(_) => "waits",
            },
        );
        outcome
    }

    fn broken_off(&self, key: &PollKey, how: BrokenOff) {
        let (word, problem) = match how {
            BrokenOff::Timeout => ("timeout", Problem::new(NodeReason::Unreachable, "no answer in time")),
            BrokenOff::Panic => {
                ("panic", Problem::new(NodeReason::AnswerInvalid, "a bug in the operator; its log says more"))
            }
        };
        self.count(key, word);
        let question = key.question();
        match key {
            PollKey::Own(_, object) => self.record(object, question.values(), &Err(problem)),
            PollKey::Shared(source) => {
                for member in self.members(source) {
                    self.record(&member, question.values(), &Err(problem.clone()));
                }
            }
        }
    }
}

impl NodeConfigController {
    fn count(&self, key: &PollKey, outcome: &'static str) {
        let labels = PollLabels { poll: key.question().word(), outcome };
        self.ctx.metrics.node_polls.get_or_create(&labels).inc();
    }

    /// Source for this question and name of the node; None if it is no longer measured.
    fn source(&self, question: Question, key: &Key) -> Option<(ValueSource, NodeName)> {
        let state = self.polled.state();
        let parsed = state.objects.get(key)?.plan.measured()?;
        Some((parsed.sources.get(&question)?.source.clone(), parsed.node.clone()))
    }

    async fn poll_own(self: &Arc<Self>, question: Question, key: &Key) -> PollOutcome {
        let Some((source, node)) = self.source(question, key) else { return PollOutcome::Ok };
        let result = match &source {
            ValueSource::Fake => {
                if question == Question::Power {
                    self.take_fake_curve(key);
                }
                Ok(self.fake(question))
            }
            ValueSource::DifferentialPressureApi { server, sensor } => {
                pressure::poll(self, key, server, (node.as_str(), sensor.as_deref())).await
            }
            ValueSource::Redfish { server, .. } if question == Question::Model => {
                return redfish::poll_model(self, key, server).await;
            }
            ValueSource::Redfish { server, sensor } => {
                let is_power = question == Question::MeasuredPower;
                let quantity = if is_power { BmcQuantity::Power } else { BmcQuantity::Inlet };
                redfish::poll(self, key, server, sensor.as_deref(), quantity).await
            }
            ValueSource::Linear { idle, full } => {
                let line = PowerLine { idle: f64::from(*idle), full: f64::from(*full) };
                return self.predict_linear(key, &line);
            }
            ValueSource::FamilyLine(family) => return self.predict_by_family(key, *family),
            // Shared polls cover these.
            ValueSource::Prometheus { .. }
            | ValueSource::MetricsServer
            | ValueSource::V2Inference { .. }
            | ValueSource::NamedModel => {
                return PollOutcome::Ok;
            }
        };
        self.end(key, question, result)
    }

    /// Records the result of a poll of one NodeConfig.
    fn end(&self, key: &Key, question: Question, result: Result<Vec<NodeSample>, PollTrouble>) -> PollOutcome {
        let outcome = result.as_ref().map_or_else(PollTrouble::outcome, |_| PollOutcome::Ok);
        self.record(key, question.values(), &result.map_err(|trouble| trouble.problem));
        outcome
    }

    /// Sets a curve with the same power at each usage.
    fn take_fake_curve(&self, key: &Key) {
        let now = self.ctx.now();
        if let Some(known) = self.polled.state().objects.get_mut(key)
            && let (None, Some(curve)) =
                (&known.curve.last, Curve::at(FAKE_INLET, FAKE_PRESSURE, &[FAKE_POWER; POINTS], now))
        {
            known.curve.take(Ok(Arc::new(curve)), now);
        }
    }

    /// Fixed values of the type Fake.
    fn fake(&self, question: Question) -> Vec<NodeSample> {
        let values: &[f64] = match question {
            Question::InletTemperature => &[FAKE_INLET],
            Question::DifferentialPressure => &[FAKE_PRESSURE],
            Question::Usage => &[50.0, 50.0],
            Question::Power | Question::MeasuredPower => &[FAKE_POWER],
            Question::Model => &[],
        };
        let at = self.ctx.now();
        let sample = |value: &f64| NodeSample { value: *value, deviation: None, at, source: "Fake".to_owned() };
        values.iter().map(sample).collect()
    }
}
