//! Predicted power beside measured power: a model that is worse than a straight line over the usage.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::node_config::NodeConfig;
use ganglion_api::node_config::status::PowerAccuracy;
use ganglion_core::exporter_series::ExporterSeries;
use ganglion_outbound::node_usage::UsageStatistic;
use ganglion_outbound::prometheus::query_url;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};
use testkit::servers::http::{Manner, Server};
use testkit::servers::inference::{Linear, ModelServer};
use testkit::testbed::Testbed;
use testkit::testbed::loops::{condition, until};
use testkit::testbed::nodes::Size;
use testkit::testbed::story;
use testkit::wait_for;

use super::node_configs::{fake, ready};
use super::node_sources::bmc;

/// Number of measurements at each usage: together more than the verdict needs.
const MEASUREMENTS: usize = 10;

/// Time range over which Prometheus averages the usage, if the spec names none.
const WINDOW: Duration = Duration::from_secs(300);

/// A Prometheus server that answers the queries for the usage of this node with this percentage.
fn used(node: &str, percent: i32) -> Result<Manner> {
    let series = ExporterSeries::new("node", &[].into())?;
    let answer = |result: Value| {
        let body = json!({"status": "success", "data": {"resultType": "vector", "result": result}});
        Manner::Says("200 OK", body.to_string())
    };
    let path = |query: &str| -> Result<&'static str> {
        let url = query_url("http://prometheus", query)?;
        Ok(format!("{}?{}", url.path(), url.query().unwrap_or_default()).leak())
    };
    let mut paths = vec![(path(&series.ambiguous())?, answer(json!([])))];
    for statistic in UsageStatistic::ALL {
        let sample = json!([{"metric": {"node": node}, "value": [0, percent.to_string()]}]);
        paths.push((path(&statistic.query(&series, WINDOW))?, answer(sample)));
    }
    Ok(Manner::Paths(paths))
}

/// A machine that draws 100 W when it is idle, and 300 W when it is fully used.
fn drawing(percent: i32) -> Manner {
    bmc(json!([{"Name": "System Power Control", "PowerConsumedWatts": 100 + 2 * percent}]))
}

/// Waits until the BMC has measured the power this many times more.
async fn measured(machine: &Server, times: usize) -> Result<()> {
    let count = || machine.heard().matches("GET /redfish/v1/Chassis/1/Power ").count();
    let before = count();
    wait_for("more measurements of the power", || count() >= before + times).await
}

fn watts(text: &str) -> Result<f64> {
    text.parse().with_context(|| format!("{text} W"))
}

/// Waits until the predictor is named. Returns the condition and its grounds.
async fn inaccurate(testbed: &Testbed) -> Result<(Condition, PowerAccuracy)> {
    until::<NodeConfig, _>(testbed, "one", "the model to be named", |one| {
        let status = one.status?;
        let found = condition(&status.conditions, "Inaccurate").filter(|found| found.status == "True")?;
        Some((found, status.power_accuracy?))
    })
    .await
}

#[test]
fn a_model_that_is_worse_than_a_straight_line_is_named_until_it_is_corrected() {
    story("ncfg-worse", async |testbed| {
        let nodes = testbed.nodes(1, Size::default()).await?;
        let node = &nodes.names[0];
        // It predicts less when the machine is used more.
        let wrong = Linear { base: 900.0, cpu: -5.0, inlet: 0.0, pressure: 0.0, ..Linear::ZERO };
        let model = ModelServer::start(&[("v0.1.0", wrong)]).await?;
        let (machine, prometheus) = (Server::start(drawing(10)).await, Server::start(used(node, 10)?).await);
        let source =
            |type_: &str, server: &Server| json!({"type": type_, "endpoint": server.url(""), "fetchInterval": "1s"});
        let (mut usage, mut power) = (source("Prometheus", &prometheus), source("Redfish", &machine));
        usage["nodeLabel"] = json!("node");
        power["window"] = json!("1m");
        let endpoint = model.url("/v2/models/power/versions/v0.1.0/infer");
        let predictor = json!({"type": "V2InferenceProtocol", "endpoint": endpoint, "fetchInterval": "1s"});
        let collector = json!({"inletTemp": fake(), "deltaP": fake(), "usage": usage, "power": power});
        testbed
            .create::<NodeConfig>(json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "one"},
                "spec": {
                    "nodeName": node, "metricsCollector": collector, "predictor": {"powerConsumption": predictor},
                },
            }))
            .await?;
        let status = ready(testbed, "one", "True", "Sampled").await?;
        // At one usage every line is as good as another.
        measured(&machine, MEASUREMENTS).await?;
        ensure!(condition(&status.conditions, "Inaccurate").is_none(), "{:?}", status.conditions);

        prometheus.turn(used(node, 80)?);
        machine.turn(drawing(80));
        let (found, accuracy) = inaccurate(testbed).await?;
        ensure!(found.reason == "WorseThanLine", "{found:?}");
        ensure!(found.message.contains("correct predictor.powerConsumption"), "{}", found.message);
        ensure!(accuracy.worse_than_line == Some(true), "{accuracy:?}");
        let line = accuracy.line.context("no line")?;
        let of_line = watts(line.mean_absolute_error.as_deref().unwrap_or_default())?;
        let own = watts(accuracy.mean_absolute_error.as_deref().unwrap_or_default())?;
        ensure!(own > 200.0 && of_line < own / 2.0, "{own} W, and {of_line} W of the line");
        // A wrong prediction makes no value unknown.
        ready(testbed, "one", "True", "Sampled").await?;
        let (good, said) = testbed.ganglion(&["explain", "node", node]).await?;
        ensure!(good && said.contains("straight line"), "{said}");

        // The watts of the line are a predictor, and a corrected predictor is not judged by the past.
        let (idle, full) = (watts(&line.idle_watts)?.round(), watts(&line.full_watts)?.round());
        let straight =
            json!({"type": "Linear", "idleWatts": idle as i64, "fullWatts": full as i64, "fetchInterval": "1s"});
        let mut patch = json!({"spec": {"predictor": {"powerConsumption": straight}}});
        patch["spec"]["predictor"]["powerConsumption"]["endpoint"] = Value::Null;
        testbed.kubectl(&["patch", "ncfg", "one", "--type=merge", "-p", &patch.to_string()], None).await?;
        until::<NodeConfig, _>(testbed, "one", "the line to be judged by itself", |one| {
            let status = one.status?;
            let error = status.power_accuracy?.mean_absolute_error?.parse::<f64>().ok()?;
            (condition(&status.conditions, "Inaccurate").is_none() && error < own / 2.0).then_some(())
        })
        .await?;
        Ok(())
    });
}
