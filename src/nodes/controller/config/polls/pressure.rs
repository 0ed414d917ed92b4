//! Differential pressure of one node from a server of the DifferentialPressureAPI.

use super::request::NodeRequest;
use super::{PollTrouble, problem};
use crate::config::NodeConfigController;
use ganglion_core::facts::Key;
use ganglion_nodes_plan::node_spec::SourceServer;
use ganglion_nodes_plan::readings::NodeSample;
use ganglion_outbound::pressure::{PressureReading, PressureSensor, reading, sensor_url};
use ganglion_outbound::value::ValueError;

/// Reads the current pressure.
pub async fn poll(
    controller: &NodeConfigController,
    key: &Key,
    server: &SourceServer,
    (node, sensor): (&str, Option<&str>),
) -> Result<Vec<NodeSample>, PollTrouble> {
    let sensor = sensor.map_or(PressureSensor::OfNode(node), PressureSensor::Named);
    let limit = controller.outbound.limits.node;
    let mut request = NodeRequest::prepare(controller, &key.namespace, server, limit).await?;
    let url = sensor_url(&server.url, sensor).map_err(|error| request.trouble_of_value(&error))?;
    request.call.url = url.into();
    loop {
        let got = request_pressure(controller, &request, sensor).await;
        if request.repeats(got.as_ref().err().and_then(problem::client)).await? {
            continue;
        }
        let PressureReading { pascals, sensor } = got.map_err(|error| request.trouble_of_value(&error))?;
        let source = sensor.unwrap_or_default();
        return Ok(vec![NodeSample { value: pascals, deviation: None, at: controller.ctx.now(), source }]);
    }
}

async fn request_pressure(
    controller: &NodeConfigController,
    request: &NodeRequest<'_>,
    sensor: PressureSensor<'_>,
) -> Result<PressureReading, ValueError> {
    let answer = controller.outbound.web().get(&request.call).await?;
    reading(answer.status, answer.body(), sensor)
}
