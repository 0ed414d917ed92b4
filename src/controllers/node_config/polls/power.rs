//! The predicted power of many nodes, from one model.

use super::request::Request;
use super::{PollTrouble, problem};
use crate::clients::inference::{CONTENT_TYPE, InferenceModel, MAX_ROWS, PowerInput, request, watts};
use crate::clients::value::{ValueError, is_plain_name};
use crate::controllers::node_config::NodeConfigController;
use crate::logic::node_config::asked::Server;
use crate::logic::node_config::readings::{NodeSample, Problem};

/// The power of a node each, or why there is none.
pub type Predictions = Vec<Result<Vec<NodeSample>, Problem>>;

/// The power of these nodes, in batches.
///
/// # Errors
/// A batch had no answer.
pub async fn poll(
    controller: &NodeConfigController,
    namespace: &str,
    server: &Server,
    inputs: &[PowerInput],
) -> Result<Predictions, PollTrouble> {
    let limit = controller.outbound.limits.nodes;
    let mut asked = Request::prepare(controller, namespace, server, limit).await?;
    let model = InferenceModel::parse(&server.url).map_err(|error| asked.trouble_of_value(&error))?;
    asked.call.url = model.url().to_owned();
    let mut predictions = Vec::with_capacity(inputs.len());
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
        let at = controller.ctx.now();
        predictions.extend(answer.into_iter().map(|watts| {
            let value = watts.map_err(|error| asked.trouble_of_value(&error).problem)?;
            Ok(vec![NodeSample { value, deviation: None, at, source: name(&model) }])
        }));
    }
    Ok(predictions)
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
