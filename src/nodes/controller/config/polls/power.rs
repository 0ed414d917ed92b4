//! Predicted power of many nodes from one model: at the current usage, and curves over all usages.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tracing::info;

use super::request::NodeRequest;
use super::shared::TURN;
use super::{PollTrouble, problem};
use crate::config::NodeConfigController;
use ganglion_api::node_config::NodeConfig;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_api::node_config::source::CpuUsageFormat;
use ganglion_api::node_config::status::NodeValue;
use ganglion_core::facts::Key;
use ganglion_core::power_curve::{self, Curve, CurveKey, Curves, PowerInput};
use ganglion_nodes_plan::node_spec::{Question, SourceServer};
use ganglion_nodes_plan::readings::{NodeSample, Problem};
use ganglion_outbound::inference::{CONTENT_TYPE, ExpectedOutput, InferenceModel, MAX_ROWS, request, watts};
use ganglion_outbound::value::{ValueError, is_plain_name};
use ganglion_runtime::polls::PollOutcome;

/// Pause of a model poll when no node has all inputs.
const IDLE: Duration = Duration::from_secs(15);

/// Maximum number of curves requested in one poll.
const MAX_CURVES: usize = 94;

/// Number of failed curves after which a poll requests no more: the others would most likely fail, too. Failed curves
/// pause, so that the next poll tries others.
const MAX_FAILURES: usize = 3;

/// Node whose inputs are fresh.
struct PredictionRow {
    key: Key,
    input: PowerInput,
    /// None if the inputs are not plausible.
    curve: Option<CurveKey>,
}

/// Requests to one model.
struct Model<'a> {
    controller: &'a NodeConfigController,
    request: NodeRequest<'a>,
    /// Name of the model.
    source: String,
    /// Name of the output with the power.
    output: Option<&'a str>,
}

impl NodeConfigController {
    /// Predicts the power of the members whose inputs are fresh, and the curves that are due.
    pub async fn predict(
        &self,
        members: Vec<Key>,
        (namespace, server): (&str, &SourceServer),
        format: CpuUsageFormat,
        output: Option<&str>,
    ) -> PollOutcome {
        let now = self.ctx.now();
        let rows: Vec<PredictionRow> = members.into_iter().filter_map(|key| self.row(key, format, now)).collect();
        if rows.is_empty() {
            return PollOutcome::WaitUntil(Instant::now() + IDLE);
        }
        let members: Vec<Key> = rows.iter().map(|row| row.key.clone()).collect();
        let mut model = match Model::prepare(self, (namespace, server), output).await {
            Ok(model) => model,
            Err(trouble) => return self.hand_out(&members, Question::Power, Err(trouble)).await,
        };
        let inputs: Vec<PowerInput> = rows.iter().map(|row| row.input).collect();
        let answer = model.samples(&inputs).await;
        let is_answered = answer.is_ok();
        let outcome = self.hand_out(&members, Question::Power, answer).await;
        // Curves come last, so that they neither delay nor fail the current power.
        if is_answered {
            self.predict_curves(&mut model, &rows).await;
        }
        outcome
    }

    /// Reuses curves of other nodes, then requests the missing ones, each in its own request: a model may accept only
    /// few rows, and a failed curve does not affect the others. The rest is left to the next poll.
    async fn predict_curves(&self, model: &mut Model<'_>, rows: &[PredictionRow]) {
        let now = self.ctx.now();
        let (curves, due) = self.curves(rows, now);
        let taken = self.take_curves(rows, |key| curves.get(key).cloned().map(Ok), now);
        self.enqueue_changed(&taken).await;
        let (until, mut failures) = (Instant::now() + self.patience(rows), 0);
        for key in due {
            if failures >= MAX_FAILURES || Instant::now() >= until {
                return;
            }
            let result = model.curve(&key).await.map(Arc::new);
            if let Err(problem) = &result {
                if failures == 0 {
                    info!(host = model.request.host, problem, "power curve not predicted");
                }
                failures += 1;
            }
            let taken = self.take_curves(rows, |other| (*other == key).then(|| result.clone()), self.ctx.now());
            self.enqueue_changed(&taken).await;
        }
    }

    /// Time during which a poll starts requests for curves: neither the next poll is delayed nor this one cancelled.
    fn patience(&self, rows: &[PredictionRow]) -> Duration {
        let state = self.polled.state();
        let interval =
            |row: &PredictionRow| Some(state.objects.get(&row.key)?.plan.measured()?.interval(NodeValue::Power));
        let shortest = rows.iter().filter_map(interval).min().and_then(|shortest| Duration::try_from(shortest).ok());
        shortest.unwrap_or_default().min(self.outbound.request_timeout)
    }

    /// Inputs of a node; None if an input is missing, which is then reported in the status.
    fn row(&self, key: Key, format: CpuUsageFormat, now: Timestamp) -> Option<PredictionRow> {
        let inputs = self.polled.state().objects.get(&key)?.inputs(now);
        let [cpu_percent, inlet_celsius, pascals] = match inputs {
            Ok(inputs) => inputs,
            // The last missing value wakes this poll.
            Err((_, true)) => return None,
            Err((missing, false)) => return self.lacks(&key, &missing.join(", ")),
        };
        let cores = self.cores(&key);
        let Some(usage) = power_curve::usage(format, cpu_percent, cores) else {
            return self.lacks(&key, "the node's capacity of CPU");
        };
        let curve = CurveKey::new(format, cores, inlet_celsius, pascals);
        Some(PredictionRow { key, input: PowerInput { usage, inlet_celsius, pascals }, curve })
    }

    fn lacks(&self, key: &Key, missing: &str) -> Option<PredictionRow> {
        let words = format!("the prediction needs fresh values of {missing}");
        self.record(key, &[NodeValue::Power], &Err(Problem::new(NodeReason::InputMissing, words)));
        None
    }

    /// Number of cores of the node that a NodeConfig describes; 0 if unknown.
    fn cores(&self, key: &Key) -> f64 {
        self.ctx.store.read(|world| {
            let node = world.table::<NodeConfig>().get(key).and_then(|config| world.node(&config.spec.node_name));
            node.map_or(0.0, |node| node.capacity.cpu as f64 / 1000.0)
        })
    }

    /// Usable curves of the nodes of this model, and the keys of the curves to request.
    fn curves(&self, rows: &[PredictionRow], now: Timestamp) -> (Curves, Vec<CurveKey>) {
        let state = self.polled.state();
        let known = || rows.iter().filter_map(|row| Some((row.curve?, &state.objects.get(&row.key)?.curve)));
        let curves = Curves::of(known().filter_map(|(key, known)| Some((key, known.last.clone()?))), now);
        let due = known().filter(|(key, known)| known.is_due(key, now)).map(|(key, _)| key);
        let missing = curves.missing(due, MAX_CURVES);
        (curves, missing)
    }

    /// Records curves or problems for the nodes whose curve is due. Returns the NodeConfigs that changed.
    fn take_curves(
        &self,
        rows: &[PredictionRow],
        known: impl Fn(&CurveKey) -> Option<Result<Arc<Curve>, String>>,
        now: Timestamp,
    ) -> Vec<Key> {
        let mut state = self.polled.state();
        let mut taken = Vec::new();
        for row in rows {
            let (Some(key), Some(node)) = (&row.curve, state.objects.get_mut(&row.key)) else { continue };
            if let Some(result) = known(key).filter(|_| node.curve.is_due(key, now)) {
                node.curve.take(result, now);
                taken.push(row.key.clone());
            }
        }
        taken
    }

    async fn enqueue_changed(&self, keys: &[Key]) {
        for some in keys.chunks(TURN) {
            for key in some {
                self.enqueue_if_changed(key);
            }
            tokio::task::yield_now().await;
        }
    }
}

impl<'a> Model<'a> {
    async fn prepare(
        controller: &'a NodeConfigController,
        (namespace, server): (&'a str, &'a SourceServer),
        output: Option<&'a str>,
    ) -> Result<Self, PollTrouble> {
        let limit = controller.outbound.limits.nodes;
        let mut request = NodeRequest::prepare(controller, namespace, server, limit).await?;
        let model = InferenceModel::parse(&server.url).map_err(|error| request.trouble_of_value(&error))?;
        request.call.url = model.url().to_owned();
        Ok(Self { controller, request, source: name(&model), output })
    }

    /// Predicts the power for each of these inputs, in batches.
    async fn samples(&mut self, inputs: &[PowerInput]) -> Result<Vec<Result<Vec<NodeSample>, Problem>>, PollTrouble> {
        let mut all = Vec::with_capacity(inputs.len());
        for batch in inputs.chunks(MAX_ROWS) {
            all.extend(self.watts(batch).await?);
        }
        let at = self.controller.ctx.now();
        let sample = |value| vec![NodeSample { value, deviation: None, at, source: self.source.clone() }];
        Ok(all.into_iter().map(|watts| watts.map(sample)).collect())
    }

    /// Predicts the curve of this key, or returns why there is none.
    async fn curve(&mut self, key: &CurveKey) -> Result<Curve, String> {
        let inputs: Vec<PowerInput> = key.inputs().collect();
        let watts = self.watts(&inputs).await.map_err(|trouble| trouble.problem.words)?;
        let watts: Result<Vec<f64>, Problem> = watts.into_iter().collect();
        let watts = watts.map_err(|problem| problem.words)?;
        let curve = Curve::of(key, &watts, self.controller.ctx.now());
        curve.ok_or_else(|| "the model predicts power out of range for a node".to_owned())
    }

    /// Predicts the power for each of these inputs in one request.
    async fn watts(&mut self, batch: &[PowerInput]) -> Result<Vec<Result<f64, Problem>>, PollTrouble> {
        let answer = loop {
            let got = request_power(self.controller, &self.request, batch, self.output).await;
            if self.request.repeats(got.as_ref().err().and_then(problem::client)).await? {
                continue;
            }
            // A missing model must not be reported as a missing sensor.
            let got = got.map_err(|error| match error {
                ValueError::NotFound(words) => ValueError::Invalid(words),
                error => error,
            });
            break got.map_err(|error| self.request.trouble_of_value(&error))?;
        };
        let problem = |error: ValueError| self.request.trouble_of_value(&error).problem;
        Ok(answer.into_iter().map(|watts| watts.map_err(problem)).collect())
    }
}

async fn request_power(
    controller: &NodeConfigController,
    prepared: &NodeRequest<'_>,
    batch: &[PowerInput],
    output: Option<&str>,
) -> Result<Vec<Result<f64, ValueError>>, ValueError> {
    let answer = controller.outbound.web().ask(&prepared.call, CONTENT_TYPE, request(batch)?).await?;
    watts(answer.status, answer.body(), ExpectedOutput { name: output, rows: batch.len() })
}

/// Name of the model for the status. A BMC can name a model arbitrarily, so other than plain names are left out.
fn name(model: &InferenceModel) -> String {
    let parts: Vec<&str> = [Some(model.name()), model.version()].into_iter().flatten().collect();
    if parts.iter().all(|part| is_plain_name(part)) { parts.join("/") } else { String::new() }
}
