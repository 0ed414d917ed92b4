//! The predicted power of many nodes, from one model: as they are now, and over their usage.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::request::Request;
use super::{PollTrouble, problem};
use crate::api::node_config::reasons::NodeReason;
use crate::api::node_config::source::CpuUsageFormat;
use crate::api::node_config::status::NodeValue;
use crate::clients::inference::{CONTENT_TYPE, InferenceModel, MAX_ROWS, request, watts};
use crate::clients::value::{ValueError, is_plain_name};
use crate::controllers::node_config::NodeConfigController;
use crate::logic::facts::Key;
use crate::logic::node_config::asked::{Question, Server};
use crate::logic::node_config::readings::{NodeSample, Problem};
use crate::logic::power_curve::{self, Curve, CurveKey, Curves, POINTS, PowerInput};
use crate::runtime::polls::PollOutcome;

/// When a model is asked again that could be asked about no node.
const IDLE: Duration = Duration::from_secs(15);

/// How many curves a model is asked for in one poll: two batches.
const MAX_CURVES: usize = 94;

/// A node whose inputs are fresh.
struct Row {
    key: Key,
    input: PowerInput,
    /// None: its inputs are not plausible.
    curve: Option<CurveKey>,
}

/// The watts of each input, or why there are none.
struct Answer {
    watts: Vec<Result<f64, Problem>>,
    at: Timestamp,
    /// The name of the model.
    source: String,
}

impl NodeConfigController {
    /// Predicts the power of those whose inputs are fresh, and the curves that are due.
    pub async fn predict(
        &self,
        members: Vec<Key>,
        namespace: &str,
        server: &Server,
        format: CpuUsageFormat,
    ) -> PollOutcome {
        let now = self.ctx.now();
        let rows: Vec<Row> = members.into_iter().filter_map(|key| self.row(key, format, now)).collect();
        if rows.is_empty() {
            return PollOutcome::WaitUntil(Instant::now() + IDLE);
        }
        let (mut curves, asked) = self.curves(&rows, now);
        let mut inputs: Vec<PowerInput> = rows.iter().map(|row| row.input).collect();
        inputs.extend(asked.iter().flat_map(CurveKey::inputs));
        let answer = ask_all(self, namespace, server, &inputs).await.map(|mut answer| {
            let predicted = answer.watts.split_off(rows.len().min(answer.watts.len()));
            let mut wrong = BTreeMap::new();
            for (key, watts) in asked.iter().zip(predicted.chunks(POINTS)) {
                match curve_of(key, watts, answer.at) {
                    Ok(curve) => curves.add(*key, curve),
                    Err(words) => drop(wrong.insert(*key, words)),
                }
            }
            self.take_curves(&rows, &curves, &wrong, answer.at);
            let Answer { watts, at, source } = answer;
            let sample = |value| vec![NodeSample { value, deviation: None, at, source: source.clone() }];
            watts.into_iter().map(|watts| watts.map(sample)).collect()
        });
        let members: Vec<Key> = rows.into_iter().map(|row| row.key).collect();
        self.hand_out(&members, Question::Power, answer).await
    }

    /// What the model is asked about a node; none if an input is missing, which its status says then.
    fn row(&self, key: Key, format: CpuUsageFormat, now: Timestamp) -> Option<Row> {
        let inputs = self.memory.state().objects.get(&key)?.inputs(now);
        let [cpu_percent, inlet_celsius, pascals] = match inputs {
            Ok(inputs) => inputs,
            // Whoever takes the last of them wakes this poll.
            Err((_, true)) => return None,
            Err((missing, false)) => return self.lacks(&key, &missing.join(", ")),
        };
        let cores = self.cores(&key);
        let Some(usage) = power_curve::usage(format, cpu_percent, cores) else {
            return self.lacks(&key, "the node's capacity of CPU");
        };
        let curve = CurveKey::new(format, cores, inlet_celsius, pascals);
        Some(Row { key, input: PowerInput { usage, inlet_celsius, pascals }, curve })
    }

    fn lacks(&self, key: &Key, missing: &str) -> Option<Row> {
        let words = format!("the prediction needs fresh values of {missing}");
        self.take(key, &[NodeValue::Power], &Err(Problem::new(NodeReason::InputMissing, words)));
        None
    }

    /// The cores of the node that a NodeConfig describes; 0 if they are not known.
    fn cores(&self, key: &Key) -> f64 {
        self.ctx.store.read(|world| {
            let node = world.node_config(key).and_then(|config| world.node(&config.spec.node_name));
            node.map_or(0.0, |node| node.capacity.cpu as f64 / 1000.0)
        })
    }

    /// The curves that nodes of this model have, and those that the model is to be asked for.
    fn curves(&self, rows: &[Row], now: Timestamp) -> (Curves, Vec<CurveKey>) {
        let state = self.memory.state();
        let known = || rows.iter().filter_map(|row| Some((row.curve?, &state.objects.get(&row.key)?.curve)));
        let curves = Curves::of(known().filter_map(|(key, known)| Some((key, known.last.clone()?))), now);
        let due = known().filter(|(key, known)| known.is_due(key, now)).map(|(key, _)| key);
        let asked = curves.missing(due, MAX_CURVES);
        (curves, asked)
    }

    fn take_curves(&self, rows: &[Row], curves: &Curves, wrong: &BTreeMap<CurveKey, String>, now: Timestamp) {
        let mut state = self.memory.state();
        for row in rows {
            let (Some(key), Some(known)) = (&row.curve, state.objects.get_mut(&row.key)) else { continue };
            if !known.curve.is_due(key, now) {
                continue;
            }
            if let Some(curve) = curves.get(key) {
                known.curve.take(Ok(curve.clone()), now);
            } else if let Some(words) = wrong.get(key) {
                known.curve.take(Err(words.clone()), now);
            }
        }
    }
}

fn curve_of(key: &CurveKey, watts: &[Result<f64, Problem>], at: Timestamp) -> Result<Curve, String> {
    let watts: Result<Vec<f64>, &Problem> = watts.iter().map(|one| one.as_ref().copied()).collect();
    let watts = watts.map_err(|problem| problem.words.clone())?;
    Curve::of(key, &watts, at).ok_or_else(|| "the model predicts what no node can take".to_owned())
}

/// The watts of all these inputs, in batches.
async fn ask_all(
    controller: &NodeConfigController,
    namespace: &str,
    server: &Server,
    inputs: &[PowerInput],
) -> Result<Answer, PollTrouble> {
    let limit = controller.outbound.limits.nodes;
    let mut asked = Request::prepare(controller, namespace, server, limit).await?;
    let model = InferenceModel::parse(&server.url).map_err(|error| asked.trouble_of_value(&error))?;
    asked.call.url = model.url().to_owned();
    let mut all = Vec::with_capacity(inputs.len());
    for batch in inputs.chunks(MAX_ROWS) {
        let answer = loop {
            let got = ask(controller, &asked, batch).await;
            if asked.repeats(got.as_ref().err().and_then(problem::client)).await? {
                continue;
            }
            // That there is no such model is no matter of sensors.
            let got = got.map_err(|error| match error {
                ValueError::NotFound(words) => ValueError::Invalid(words),
                error => error,
            });
            break got.map_err(|error| asked.trouble_of_value(&error))?;
        };
        let problem = |error: ValueError| asked.trouble_of_value(&error).problem;
        all.extend(answer.into_iter().map(|watts| watts.map_err(problem)));
    }
    Ok(Answer { watts: all, at: controller.ctx.now(), source: name(&model) })
}

async fn ask(
    controller: &NodeConfigController,
    asked: &Request<'_>,
    batch: &[PowerInput],
) -> Result<Vec<Result<f64, ValueError>>, ValueError> {
    let answer = controller.outbound.web().ask(&asked.call, CONTENT_TYPE, request(batch)?).await?;
    watts(answer.status, answer.body(), batch.len())
}

/// The model, as the status names it; one that a BMC names may be called anything.
fn name(model: &InferenceModel) -> String {
    let parts: Vec<&str> = [Some(model.name()), model.version()].into_iter().flatten().collect();
    if parts.iter().all(|part| is_plain_name(part)) { parts.join("/") } else { String::new() }
}
