//! Usage and measured power of many nodes at once, from a Prometheus server; usage also from metrics.k8s.io, which is
//! read with the operator's own permissions.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};

use super::request::NodeRequest;
use super::{PollTrouble, problem};
use crate::config::NodeConfigController;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_core::exporter_series::ExporterSeries;
use ganglion_core::facts::{NodeName, Requests};
use ganglion_nodes_plan::node_spec::SourceServer;
use ganglion_nodes_plan::readings::{NodeSample, Problem};
use ganglion_outbound::client::objects::{ReadError, api_words};
use ganglion_outbound::node_usage::{
    MeasuredNode, NodeStatistic, PowerMetric, UsageStatistic, measured_nodes, node_watts,
};
use ganglion_outbound::prometheus::query_url;
use ganglion_outbound::value::ValueError;
use ganglion_outbound::web::Call;
use ganglion_runtime::error::Error;

/// Path of the list of node usages.
const NODES: &str = "/apis/metrics.k8s.io/v1beta1/nodes";

/// Maximum age of a measurement of metrics-server, which measures every 15 s, or every minute if so configured.
const OLDEST: SignedDuration = SignedDuration::from_secs(150);

/// Properties of a node by which its numbers are found in an answer.
pub struct Machine {
    pub name: NodeName,
    pub addresses: Vec<IpAddr>,
    pub allocatable: Requests,
}

/// Series to read.
#[derive(Clone, Copy)]
pub struct SeriesWanted<'a> {
    /// Label with the name or address of the node.
    pub label: &'a str,
    /// Labels that the series must have.
    pub matchers: &'a BTreeMap<String, String>,
}

/// Values of each node, such as its CPU usage and its memory usage.
pub type ValuesOfNodes = Vec<Result<Vec<NodeSample>, Problem>>;

/// Reads the usage over a window from Prometheus. An `Err` applies to all nodes.
pub async fn prometheus(
    controller: &NodeConfigController,
    (namespace, server): (&str, &SourceServer),
    (wanted, window): (SeriesWanted<'_>, SignedDuration),
    machines: &[Machine],
) -> Result<ValuesOfNodes, PollTrouble> {
    let window = Duration::try_from(window).unwrap_or_default();
    let limit = controller.outbound.limits.nodes;
    let mut request = NodeRequest::prepare(controller, namespace, server, limit).await?;
    let series = ExporterSeries::new(wanted.label, wanted.matchers);
    let series = series.map_err(|error| request.trouble_of_value(&ValueError::Unfit(error.to_string())))?;
    let [cpu, cpu_deviation, memory, memory_deviation, exporters] = loop {
        let queries = UsageStatistic::ALL.map(|statistic| statistic.query(&series, window));
        let queries = queries.into_iter().chain([series.ambiguous()]);
        let what = "node-exporter";
        let got = join_all(queries.map(|query| ask(controller, &request, query, (wanted.label, what)))).await;
        let failed = got.iter().find_map(|one| one.as_ref().err());
        if request.repeats(failed.and_then(problem::client)).await? {
            continue;
        }
        let got: Result<Vec<NodeStatistic>, ValueError> = got.into_iter().collect();
        let all = got.map_err(|error| request.trouble_of_value(&error))?;
        match <[NodeStatistic; 5]>::try_from(all) {
            Ok(all) => break all,
            Err(_) => return Ok(Vec::new()),
        }
    };
    let at = controller.ctx.now();
    let sample = |of: (&NodeStatistic, &NodeStatistic), machine: &Machine| {
        let value =
            of.0.of(machine.name.as_str(), &machine.addresses)
                .map_err(|error| request.trouble_of_value(&error).problem)?;
        let deviation = of.1.of(machine.name.as_str(), &machine.addresses).ok();
        Ok(NodeSample { value, deviation, at, source: request.host.clone() })
    };
    let of = |machine: &Machine| {
        let unique = exporters.one_exporter(machine.name.as_str(), &machine.addresses);
        unique.map_err(|error| request.trouble_of_value(&error).problem)?;
        Ok(vec![sample((&cpu, &cpu_deviation), machine)?, sample((&memory, &memory_deviation), machine)?])
    };
    Ok(machines.iter().map(of).collect())
}

async fn ask(
    controller: &NodeConfigController,
    request: &NodeRequest<'_>,
    query: String,
    (label, what): (&str, &str),
) -> Result<NodeStatistic, ValueError> {
    let url = query_url(&request.call.url, &query)?;
    let call = Call { url: url.into(), ..request.call.clone() };
    let answer = controller.outbound.web().get(&call).await?;
    NodeStatistic::parse_series(answer.status, answer.body(), label, what)
}

/// Reads the current power from a metric of Prometheus. An `Err` applies to all nodes.
pub async fn prometheus_power(
    controller: &NodeConfigController,
    (namespace, server): (&str, &SourceServer),
    (wanted, metric): (SeriesWanted<'_>, &str),
    machines: &[Machine],
) -> Result<ValuesOfNodes, PollTrouble> {
    let limit = controller.outbound.limits.nodes;
    let mut request = NodeRequest::prepare(controller, namespace, server, limit).await?;
    let series = ExporterSeries::new(wanted.label, wanted.matchers);
    let series = series.map_err(|error| ValueError::Unfit(error.to_string()));
    let query = series.and_then(|series| Ok(PowerMetric::new(metric)?.query(&series)));
    let query = query.map_err(|error| request.trouble_of_value(&error))?;
    let all = loop {
        let got = ask(controller, &request, query.clone(), (wanted.label, metric)).await;
        if request.repeats(got.as_ref().err().and_then(problem::client)).await? {
            continue;
        }
        break got.map_err(|error| request.trouble_of_value(&error))?;
    };
    let at = controller.ctx.now();
    let of = |machine: &Machine| {
        let watts = all.number(machine.name.as_str(), &machine.addresses).and_then(node_watts);
        let value = watts.map_err(|error| request.trouble_of_value(&error).problem)?;
        Ok(vec![NodeSample { value, deviation: None, at, source: request.host.clone() }])
    };
    Ok(machines.iter().map(of).collect())
}

/// Reads the current usage from metrics.k8s.io. An `Err` applies to all nodes.
pub async fn metrics_server(
    controller: &NodeConfigController,
    machines: &[Machine],
) -> Result<ValuesOfNodes, PollTrouble> {
    let outbound = &controller.outbound;
    let request = http::Request::get(NODES).body(Vec::new()).map_err(|error| Error::Malformed(error.to_string()));
    let opened = match request {
        Ok(request) => controller.ctx.writer.send(request).await,
        Err(error) => Err(error),
    };
    let body = outbound.body("", opened, outbound.limits.nodes).await.map_err(unread)?;
    let measured = measured_nodes(&body.bytes)
        .map_err(|error| PollTrouble::failed(problem::of_client("metrics.k8s.io", &error)))?;
    let measured: HashMap<&str, &MeasuredNode> = measured.iter().map(|one| (one.name.as_str(), one)).collect();
    let now = controller.ctx.now();
    Ok(machines
        .iter()
        .map(|machine| measured_usage(measured.get(machine.name.as_str()).copied(), machine, now))
        .collect())
}

fn measured_usage(
    measured: Option<&MeasuredNode>,
    machine: &Machine,
    now: Timestamp,
) -> Result<Vec<NodeSample>, Problem> {
    let none = |words: String| Problem::new(NodeReason::NoReading, words);
    let measured = measured.ok_or_else(|| none(format!("metrics.k8s.io has no usage of node {}", machine.name)))?;
    if let Some(age) = measured.at.map(|at| now.duration_since(at)).filter(|age| *age > OLDEST) {
        return Err(none(format!("metrics.k8s.io measured the node {} s ago", age.as_secs())));
    }
    let sample = |value: Result<f64, ValueError>| {
        let value = value.map_err(|error| none(error.to_string()))?;
        Ok(NodeSample { value, deviation: None, at: now, source: "metrics.k8s.io".to_owned() })
    };
    let Requests { cpu, memory, .. } = machine.allocatable;
    Ok(vec![sample(measured.cpu_percent(cpu))?, sample(measured.memory_percent(memory))?])
}

fn unread(error: ReadError) -> PollTrouble {
    let unreachable = |words: String| Problem::new(NodeReason::Unreachable, words);
    let problem = match &error {
        ReadError::Api(Error::NotFound(_)) => {
            Problem::new(NodeReason::NoMetricsServer, "the API metrics.k8s.io is not available")
        }
        ReadError::Api(Error::Forbidden(_)) => {
            unreachable("the operator may not list nodes in metrics.k8s.io: grant it this permission".to_owned())
        }
        ReadError::Api(error) => unreachable(format!("metrics.k8s.io cannot be read: {}", api_words(error))),
        ReadError::TooLong(limit) => Problem::new(
            NodeReason::AnswerInvalid,
            format!("the answer of metrics.k8s.io has more than {limit} bytes (setting outbound.maxBytes.nodes)"),
        ),
        ReadError::Full => unreachable(ganglion_outbound::Error::Full.to_string()),
    };
    PollTrouble::failed(problem)
}
