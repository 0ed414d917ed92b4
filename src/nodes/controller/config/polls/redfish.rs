//! Polls of a BMC: temperature of the intake air, power that the machine draws, and the model that predicts the power
//! of its node.

use std::time::Duration;

use tokio::time::Instant;

use super::PollTrouble;
use super::request::NodeRequest;
use crate::config::NodeConfigController;
use crate::config::polled::NodeState;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_api::node_config::status::{NodeValue, SensorChoice};
use ganglion_core::facts::Key;
use ganglion_core::power_curve::KnownCurve;
use ganglion_nodes_plan::accuracy::KnownAccuracy;
use ganglion_nodes_plan::known_sensor::KnownSensor;
use ganglion_nodes_plan::node_spec::{Question, SourceServer, ValueSource};
use ganglion_nodes_plan::readings::{NodeSample, Problem};
use ganglion_outbound::client::attempt::host;
use ganglion_outbound::redfish::{self, Bmc, Inlet, MachinePower, ModelEndpoint, SensorPath, SensorSearch};
use ganglion_runtime::polls::PollOutcome;

/// Only supported type of model.
const V2: &str = "V2InferenceProtocol";

/// Interval at which a machine that has named a model is polled again.
const MODEL_PAUSE: Duration = Duration::from_secs(600);

/// Quantity that a BMC measures with one sensor.
#[derive(Clone, Copy)]
pub enum BmcQuantity {
    /// Temperature of the intake air.
    Inlet,
    /// Power that the machine draws.
    Power,
}

/// Reading of a sensor that is known or that a search has found.
struct BmcReading {
    value: f64,
    sensor: SensorPath,
    /// Why a search chose this sensor.
    choice: Option<SensorChoice>,
}

impl BmcQuantity {
    async fn read(
        self,
        bmc: &Bmc<'_>,
        known: Option<&SensorPath>,
        wanted: Option<&str>,
    ) -> Result<BmcReading, redfish::Error> {
        match self {
            Self::Inlet => redfish::inlet(bmc, known, wanted).await.map(|Inlet { celsius, sensor, choice }| {
                let choice = choice.map(|SensorSearch { evidence, runner_up, provisional }| SensorChoice {
                    evidence: Some(evidence),
                    runner_up,
                    provisional: provisional.map(str::to_owned),
                });
                BmcReading { value: celsius, sensor, choice }
            }),
            Self::Power => {
                let read = redfish::power(bmc, known, wanted).await;
                read.map(|MachinePower { watts, sensor }| BmcReading { value: watts, sensor, choice: None })
            }
        }
    }

    /// Sensor that the last search found.
    fn known(self, node: &mut NodeState) -> &mut Option<KnownSensor> {
        match self {
            Self::Inlet => &mut node.sensor,
            Self::Power => &mut node.power_sensor,
        }
    }
}

/// Reads the current value, and caches the path of its sensor.
pub async fn poll(
    controller: &NodeConfigController,
    key: &Key,
    server: &SourceServer,
    sensor: Option<&str>,
    quantity: BmcQuantity,
) -> Result<Vec<NodeSample>, PollTrouble> {
    let limit = controller.outbound.limits.node;
    let known = known(controller, key, quantity);
    let mut request = NodeRequest::prepare(controller, &key.namespace, server, limit).await?;
    loop {
        let bmc = Bmc::new(controller.outbound.web(), request.call.clone());
        let got = quantity.read(&bmc, known.as_ref(), sensor).await;
        if bmc.refuses_basic() && request.opens_session().await || request.repeats(client(&got)).await? {
            continue;
        }
        remember(controller, key, known.as_ref(), (quantity, &got));
        let BmcReading { value, sensor, .. } = got.map_err(|error| request.trouble_of_bmc(&error))?;
        let source = sensor.to_string();
        return Ok(vec![NodeSample { value, deviation: None, at: controller.ctx.now(), source }]);
    }
}

/// Path of the sensor that the last search found. None if a search is due.
fn known(controller: &NodeConfigController, key: &Key, quantity: BmcQuantity) -> Option<SensorPath> {
    let mut state = controller.polled.state();
    quantity.known(state.objects.get_mut(key)?).as_ref()?.path(controller.ctx.now())?.parse().ok()
}

/// Records the sensor that a search found, or whether the known one could be read.
fn remember(
    controller: &NodeConfigController,
    key: &Key,
    known: Option<&SensorPath>,
    (quantity, got): (BmcQuantity, &Result<BmcReading, redfish::Error>),
) {
    let mut state = controller.polled.state();
    let Some(node) = state.objects.get_mut(key) else { return };
    let cached = quantity.known(node);
    match got {
        Ok(BmcReading { sensor, .. }) if known == Some(sensor) => {
            cached.iter_mut().for_each(|known| known.record(true));
        }
        Ok(BmcReading { sensor, choice, .. }) => {
            *cached = Some(KnownSensor::found(sensor.to_string(), choice.clone(), controller.ctx.now()));
        }
        // A search would fail in the same way, or it finds a worse sensor while the right one has no reading.
        Err(error) if error.is_of_the_service() => {}
        Err(_) => cached.iter_mut().for_each(|known| known.record(false)),
    }
}

fn client<T>(got: &Result<T, redfish::Error>) -> Option<&ganglion_outbound::Error> {
    match got {
        Err(redfish::Error::Request(error)) => Some(error),
        _ => None,
    }
}

/// Reads which model predicts the power. If the machine stops answering, the last model remains in use.
pub async fn poll_model(controller: &NodeConfigController, key: &Key, server: &SourceServer) -> PollOutcome {
    let answer = ask_model(controller, key, server).await;
    let outcome = match &answer {
        Ok(_) => PollOutcome::WaitUntil(Instant::now() + MODEL_PAUSE),
        Err(trouble) => trouble.outcome(),
    };
    let power = {
        let mut state = controller.polled.state();
        let Some(known) = state.objects.get_mut(key) else { return outcome };
        match answer {
            Ok(model) => {
                if known.model.as_ref().is_some_and(|before| *before != model) {
                    (known.curve, known.accuracy) = (KnownCurve::default(), KnownAccuracy::default());
                }
                (known.model, known.model_problem) = (Some(model), None);
            }
            Err(trouble) => known.model_problem = Some(trouble.problem),
        }
        let sources = known.plan.measured().map(|parsed| &parsed.sources);
        let is_only = sources
            .and_then(|sources| sources.get(&Question::Power))
            .is_some_and(|power| power.source == ValueSource::NamedModel);
        known.model_problem.clone().filter(|_| is_only && known.model.is_none())
    };
    controller.sync_polls(key);
    // No other poll reports why there is no prediction.
    if let Some(problem) = power {
        controller.record(key, &[NodeValue::Power], &Err(problem));
    }
    outcome
}

async fn ask_model(
    controller: &NodeConfigController,
    key: &Key,
    server: &SourceServer,
) -> Result<SourceServer, PollTrouble> {
    let limit = controller.outbound.limits.node;
    let mut request = NodeRequest::prepare(controller, &key.namespace, server, limit).await?;
    loop {
        let bmc = Bmc::new(controller.outbound.web(), request.call.clone());
        let got = redfish::model(&bmc).await;
        if bmc.refuses_basic() && request.opens_session().await || request.repeats(client(&got)).await? {
            continue;
        }
        let model: ModelEndpoint = got.map_err(|error| request.trouble_of_bmc(&error))?;
        if model.type_ != V2 {
            let words = format!("{} names a model whose type is not {V2}", request.host);
            return Err(PollTrouble::failed(Problem::new(NodeReason::AnswerInvalid, words)));
        }
        return Ok(named(controller, key, model.infer_url().as_str()));
    }
}

/// Server of a model that a machine names. It inherits the TLS settings of `powerConsumption`. It inherits the
/// credentials and headers only if it is the same server: otherwise the machine could have them sent anywhere.
fn named(controller: &NodeConfigController, key: &Key, url: &str) -> SourceServer {
    let state = controller.polled.state();
    let parsed = state.objects.get(key).and_then(|known| known.plan.measured());
    let power = parsed.and_then(|parsed| parsed.sources.get(&Question::Power)).map(|power| &power.source);
    let url = url.to_owned();
    match power {
        Some(ValueSource::V2Inference { server: known, .. }) => {
            let is_same = host(&known.url) == host(&url) && scheme(&known.url) == scheme(&url);
            let secret = known.secret.clone().filter(|_| is_same);
            let headers = if is_same { known.headers.clone() } else { Vec::new() };
            SourceServer { url, secret, ca: known.ca.clone(), insecure: known.insecure, headers }
        }
        _ => SourceServer { url, secret: None, ca: None, insecure: false, headers: Vec::new() },
    }
}

fn scheme(url: &str) -> Option<&str> {
    url.split_once(':').map(|(scheme, _)| scheme)
}
