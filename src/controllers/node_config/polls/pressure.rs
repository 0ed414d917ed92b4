//! Differential pressure of one node from a server of the DifferentialPressureAPI.

use super::request::Request;
use super::{PollTrouble, problem};
use crate::clients::pressure::{PressureReading, PressureSensor, reading, sensor_url};
use crate::clients::value::ValueError;
use crate::controllers::node_config::NodeConfigController;
use crate::logic::facts::Key;
use crate::logic::node_config::asked::Server;
use crate::logic::node_config::readings::NodeSample;

/// Reads the current pressure.
pub async fn poll(
    controller: &NodeConfigController,
    key: &Key,
    server: &Server,
    (node, sensor): (&str, Option<&str>),
) -> Result<Vec<NodeSample>, PollTrouble> {
    let sensor = sensor.map_or(PressureSensor::OfNode(node), PressureSensor::Named);
    let limit = controller.outbound.limits.node;
    let mut request = Request::prepare(controller, &key.namespace, server, limit).await?;
    let url = sensor_url(&server.url, sensor).map_err(|error| request.trouble_of_value(&error))?;
    request.call.url = url.into();
    loop {
        let got = ask(controller, &request, sensor).await;
        if request.repeats(got.as_ref().err().and_then(problem::client)).await? {
            continue;
        }
        let PressureReading { pascals, sensor } = got.map_err(|error| request.trouble_of_value(&error))?;
        let source = sensor.unwrap_or_default();
        return Ok(vec![NodeSample { value: pascals, deviation: None, at: controller.ctx.now(), source }]);
    }
}

async fn ask(
    controller: &NodeConfigController,
    request: &Request<'_>,
    sensor: PressureSensor<'_>,
) -> Result<PressureReading, ValueError> {
    let answer = controller.outbound.web().get(&request.call).await?;
    reading(answer.status, answer.body(), sensor)
}
