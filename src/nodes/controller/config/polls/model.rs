//! Requests to one model: as it describes its input, in batches that it accepts.

use std::ops::Range;
use std::sync::Arc;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};

use super::request::NodeRequest;
use super::{PollTrouble, problem};
use crate::config::NodeConfigController;
use crate::config::polled::{KnownModel, SharedSource};
use ganglion_core::power_curve::{Curve, CurveKey, PowerInput};
use ganglion_nodes_plan::batches::{BatchRefusal, Batches};
use ganglion_nodes_plan::node_spec::SourceServer;
use ganglion_nodes_plan::readings::{NodeSample, Problem};
use ganglion_outbound::inference::{
    CONTENT_TYPE, ExpectedOutput, InferenceModel, InputLayout, MAX_ROWS, request, watts,
};
use ganglion_outbound::value::{ValueError, is_plain_name};
use ganglion_outbound::web::Call;

/// Time after which the description of a model is read again, and larger batches are tried again: the model may have
/// been replaced.
const REFRESH: SignedDuration = SignedDuration::from_mins(30);

/// Model, and its output with the power.
#[derive(Clone, Copy)]
pub struct ModelQuestion<'a> {
    pub server: &'a SourceServer,
    pub output: Option<&'a str>,
}

/// Requests to one model.
pub struct Model<'a> {
    controller: &'a NodeConfigController,
    request: NodeRequest<'a>,
    source: &'a Arc<SharedSource>,
    /// Name of the model.
    name: String,
    output: Option<&'a str>,
    known: KnownModel,
}

impl<'a> Model<'a> {
    /// Prepares requests, and reads the description of the model if it is not known.
    pub async fn prepare(
        controller: &'a NodeConfigController,
        source: &'a Arc<SharedSource>,
        namespace: &'a str,
        ModelQuestion { server, output }: ModelQuestion<'a>,
    ) -> Result<Self, PollTrouble> {
        let limit = controller.outbound.limits.nodes;
        let mut request = NodeRequest::prepare(controller, namespace, server, limit).await?;
        let model = InferenceModel::parse(&server.url).map_err(|error| request.trouble_of_value(&error))?;
        let now = controller.ctx.now();
        let is_current = |known: &&KnownModel| now.duration_since(known.learned_at) < REFRESH;
        let known = controller.polled.state().models.get(source).filter(is_current).cloned();
        let known = match known {
            Some(known) => known,
            None => {
                let described = describe(controller, &request, &model).await;
                let described = described.map_err(|error| request.trouble_of_value(&error))?;
                // Without an answer, the next poll reads it.
                let learned_at = if described.is_some() { now } else { Timestamp::UNIX_EPOCH };
                let layout = described.unwrap_or_default();
                KnownModel { max_rows: layout.max_rows(), layout, learned_at }
            }
        };
        request.call.url = model.url().to_owned();
        let this = Self { controller, request, source, name: name(&model), output, known };
        this.remember(Some(this.known.clone()));
        Ok(this)
    }

    /// Host and port of the server.
    pub fn host(&self) -> &str {
        &self.request.host
    }

    /// Predicts the power for each of these inputs.
    pub async fn samples(
        &mut self,
        inputs: &[PowerInput],
    ) -> Result<Vec<Result<Vec<NodeSample>, Problem>>, PollTrouble> {
        let all = self.watts(inputs).await?;
        let at = self.controller.ctx.now();
        let sample = |value| vec![NodeSample { value, deviation: None, at, source: self.name.clone() }];
        Ok(all.into_iter().map(|watts| watts.map(sample)).collect())
    }

    /// Predicts the curve of this key, or returns why there is none.
    pub async fn curve(&mut self, key: &CurveKey) -> Result<Curve, String> {
        let inputs: Vec<PowerInput> = key.inputs().collect();
        let watts = self.watts(&inputs).await.map_err(|trouble| trouble.problem.words)?;
        let watts: Result<Vec<f64>, Problem> = watts.into_iter().collect();
        let watts = watts.map_err(|problem| problem.words)?;
        let curve = Curve::of(key, &watts, self.controller.ctx.now());
        curve.ok_or_else(|| "the model predicts power out of range for a node".to_owned())
    }

    /// Predicts the power for each of these inputs. A batch that the model refuses is halved.
    async fn watts(&mut self, inputs: &[PowerInput]) -> Result<Vec<Result<f64, Problem>>, PollTrouble> {
        let mut batches = Batches::new(inputs.len(), self.known.max_rows.min(MAX_ROWS));
        let mut results = vec![None; inputs.len()];
        let mut refused = None;
        loop {
            let batch = batches.take();
            if batch.is_empty() {
                break;
            }
            let answers =
                join_all(batch.iter().map(|rows| self.ask(inputs.get(rows.clone()).unwrap_or_default()))).await;
            let failed = answers.iter().find_map(|answer| problem::client(answer.as_ref().err()?));
            if self.request.repeats(failed).await? {
                batch.into_iter().rev().for_each(|rows| batches.repeat(rows));
                continue;
            }
            for (rows, answer) in batch.into_iter().zip(answers) {
                refused = self.take(&mut batches, &mut results, rows, answer)?.or(refused);
            }
        }
        if let (false, Some(error)) = (batches.has_accepted(), &refused) {
            self.distrust();
            return Err(self.request.trouble_of_value(error));
        }
        if let Some(limit) = batches.limit() {
            self.known.max_rows = limit;
            self.remember(Some(self.known.clone()));
        }
        // The batches contain each row once.
        let unanswered = || Err(self.problem(&ValueError::NoReading("the model was not asked".to_owned())));
        Ok(results.into_iter().map(|result| result.unwrap_or_else(unanswered)).collect())
    }

    /// Records the answer for a batch. Returns why it was refused. Fails if the others would fail, too.
    fn take(
        &self,
        batches: &mut Batches,
        results: &mut [Option<Result<f64, Problem>>],
        rows: Range<usize>,
        answer: Result<Vec<Result<f64, ValueError>>, ValueError>,
    ) -> Result<Option<ValueError>, PollTrouble> {
        let error = match answer {
            Ok(watts) => {
                batches.accept();
                let places = results.get_mut(rows).into_iter().flatten();
                for (place, watts) in places.zip(watts) {
                    *place = Some(watts.map_err(|error| self.problem(&error)));
                }
                return Ok(None);
            }
            Err(error) => error,
        };
        if !matches!(error, ValueError::Rejected(_)) {
            return Err(self.request.trouble_of_value(&error));
        }
        match batches.refuse(rows) {
            BatchRefusal::Split => {}
            BatchRefusal::Row(row) => {
                if let Some(place) = results.get_mut(row) {
                    *place = Some(Err(self.problem(&error)));
                }
            }
            BatchRefusal::Model => {
                self.distrust();
                return Err(self.request.trouble_of_value(&error));
            }
        }
        Ok(Some(error))
    }

    /// Predicts the power for each of these inputs in one request.
    async fn ask(&self, inputs: &[PowerInput]) -> Result<Vec<Result<f64, ValueError>>, ValueError> {
        let layout = &self.known.layout;
        let body = request(inputs, layout)?;
        let answer = self.controller.outbound.web().ask(&self.request.call, CONTENT_TYPE, body).await?;
        let expected = ExpectedOutput { name: self.output, rows: layout.sent_rows(inputs.len()) };
        // A missing model must not be reported as a missing sensor.
        let watts = watts(answer.status, answer.body(), expected).map_err(|error| match error {
            ValueError::NotFound(words) => ValueError::Invalid(words),
            error => error,
        });
        watts.map(|watts| watts.into_iter().take(inputs.len()).collect())
    }

    fn problem(&self, error: &ValueError) -> Problem {
        self.request.trouble_of_value(error).problem
    }

    /// The next poll uses the input of WAO's models once, since the description may be wrong; the one after it reads
    /// the description again.
    fn distrust(&self) {
        let default = InputLayout::default();
        let described = self.known.layout != default;
        self.remember(described.then(|| KnownModel { max_rows: default.max_rows(), layout: default, ..self.known }));
    }

    fn remember(&self, known: Option<KnownModel>) {
        let mut state = self.controller.polled.state();
        // The last member may have left meanwhile.
        match known.filter(|_| state.groups.contains_key(self.source)) {
            Some(known) => state.models.insert(Arc::clone(self.source), known),
            None => state.models.remove(self.source),
        };
    }
}

/// Reads the description of the input. None if the server does not answer, which the request for a prediction reports.
async fn describe(
    controller: &NodeConfigController,
    prepared: &NodeRequest<'_>,
    model: &InferenceModel,
) -> Result<Option<InputLayout>, ValueError> {
    let call = Call { url: model.metadata_url(), ..prepared.call.clone() };
    match controller.outbound.web().get(&call).await {
        Ok(answer) => InputLayout::parse(answer.status, answer.body()).map(Some),
        Err(_) => Ok(None),
    }
}

/// Name of the model for the status. A BMC can name a model arbitrarily, so other than plain names are left out.
fn name(model: &InferenceModel) -> String {
    let parts: Vec<&str> = [Some(model.name()), model.version()].into_iter().flatten().collect();
    if parts.iter().all(|part| is_plain_name(part)) { parts.join("/") } else { String::new() }
}
