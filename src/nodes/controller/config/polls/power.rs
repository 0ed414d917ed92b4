//! Predicted power: of many nodes from one model, at the current usage and as curves over all usages; or of one node by
//! a straight line.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tracing::info;

use super::model::{Model, ModelQuestion};
use super::shared::TURN;
use crate::config::NodeConfigController;
use crate::config::polled::SharedSource;
use ganglion_api::node_config::NodeConfig;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_api::node_config::source::{CpuFamily, CpuUsageFormat};
use ganglion_api::node_config::status::NodeValue;
use ganglion_core::facts::Key;
use ganglion_core::power_curve::{self, Curve, CurveKey, Curves, PowerInput, PowerLine};
use ganglion_nodes_plan::cpu_family;
use ganglion_nodes_plan::node_spec::Question;
use ganglion_nodes_plan::readings::{NodeSample, Problem};
use ganglion_runtime::polls::PollOutcome;

/// Pause of a model poll when no node has all inputs.
const IDLE: Duration = Duration::from_secs(15);

/// Maximum number of curves requested in one poll.
const MAX_CURVES: usize = 94;

/// Number of failed curves after which a poll requests no more: the others would most likely fail, too. Failed curves
/// pause, so that the next poll tries others.
const MAX_FAILURES: usize = 3;

/// Source of a prediction by a straight line.
const LINEAR: &str = "Linear";

/// Node whose inputs are fresh.
struct PredictionRow {
    key: Key,
    input: PowerInput,
    /// None if the inputs are not plausible.
    curve: Option<CurveKey>,
}

impl NodeConfigController {
    /// Predicts the power of the members whose inputs are fresh, and the curves that are due.
    pub async fn predict(
        &self,
        members: Vec<Key>,
        source: &Arc<SharedSource>,
        (namespace, question): (&str, ModelQuestion<'_>),
        format: CpuUsageFormat,
    ) -> PollOutcome {
        let now = self.ctx.now();
        let rows: Vec<PredictionRow> = members.into_iter().filter_map(|key| self.row(key, format, now)).collect();
        if rows.is_empty() {
            return PollOutcome::WaitUntil(Instant::now() + IDLE);
        }
        let members: Vec<Key> = rows.iter().map(|row| row.key.clone()).collect();
        let mut model = match Model::prepare(self, source, namespace, question).await {
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

    /// Predicts the power of one node by a straight line over its CPU usage.
    pub fn predict_linear(&self, key: &Key, line: &PowerLine) -> PollOutcome {
        let now = self.ctx.now();
        let inputs = {
            let mut state = self.polled.state();
            let Some(known) = state.objects.get_mut(key) else { return PollOutcome::Ok };
            if let Some(curve) = Curve::straight(line, now).filter(|curve| !known.curve.is_at(curve)) {
                known.curve.take(Ok(Arc::new(curve)), now);
            }
            known.inputs([NodeValue::Cpu], now)
        };
        let cpu = match inputs {
            Ok([cpu]) => cpu,
            // The value wakes this poll.
            Err((_, true)) => return PollOutcome::WaitUntil(Instant::now() + IDLE),
            Err((missing, false)) => {
                self.lacks(key, &missing.join(", "));
                return PollOutcome::Ok;
            }
        };
        let sample = NodeSample { value: line.watts(cpu / 100.0), deviation: None, at: now, source: LINEAR.to_owned() };
        self.record(key, &[NodeValue::Power], &Ok(vec![sample]));
        PollOutcome::Ok
    }

    /// Predicts the power of one node by the straight line of its processor family.
    pub fn predict_by_family(&self, key: &Key, family: CpuFamily) -> PollOutcome {
        if let Some(line) = cpu_family::line(family, self.cores(key)) {
            return self.predict_linear(key, &line);
        }
        self.lacks(key, "the node's capacity of CPU");
        PollOutcome::Ok
    }

    /// Reuses curves of other nodes, then requests the missing ones, each apart from the others: a failed one does not
    /// affect them. The rest is left to the next poll.
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
                    info!(host = model.host(), problem, "power curve not predicted");
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
        let values = [NodeValue::Cpu, NodeValue::InletTemperature, NodeValue::DifferentialPressure];
        let inputs = self.polled.state().objects.get(&key)?.inputs(values, now);
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
