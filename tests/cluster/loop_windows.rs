//! Metrics with values of a period of time: when they are known, and what a restart of the operator means for them.

use anyhow::{Context, Result, ensure};
use ganglion_api::monitoring::Monitoring;
use serde_json::{Value, json};
use testkit::servers::http::{Manner, Server};
use testkit::testbed::Testbed;
use testkit::testbed::loops::{loop_story, put, replicas, until};

use super::loop_sources::{loop_on, scaled, scene, unknown};

fn says(load: &str) -> Manner {
    Manner::Says("200 OK", json!({"load": load}).to_string())
}

/// Metric with this function over six seconds.
fn over(server: &Server, name: &str, function: &str) -> Value {
    json!({"name": name, "source": {"http": {"url": server.url("/"), "path": "load"}},
        "over": {"window": "6s", "as": function}, "high": {"raise": "5"}})
}

/// Waits until the metric has this value.
async fn value_of(testbed: &Testbed, name: &str, metric: &str, value: &str) -> Result<()> {
    until::<Monitoring, _>(testbed, name, &format!("{metric} to be {value}"), |one| {
        let status = one.status?;
        let is_known = status.unknown.iter().all(|unknown| unknown.metric != metric);
        let found = status.values.iter().find(|reading| reading.metric == metric)?;
        (is_known && found.problem.is_none() && found.value.as_str() == value).then_some(())
    })
    .await
}

#[test]
fn a_period_is_unknown_until_it_is_covered_also_after_a_restart() {
    loop_story("windows", async |testbed| {
        let server = Server::start(says("3")).await;
        scene(testbed).await?;
        let mut spec = loop_on(json!({"push": {}}));
        spec["metrics"] =
            json!([over(&server, "load", "mean"), over(&server, "most", "max"), over(&server, "rate", "rate")]);
        put(testbed, "web", spec).await?;
        for (metric, function) in [("load", "mean"), ("most", "max"), ("rate", "rate")] {
            unknown(testbed, "web", metric, &format!("the {function} over 6s will be known at ")).await?;
        }
        for (metric, value) in [("load", "3"), ("most", "3"), ("rate", "0")] {
            value_of(testbed, "web", metric, value).await?;
        }
        // One restart later, the values of the period are not known, except that a maximum is at least the new value.
        testbed.kill_and_restart().await?;
        server.turn(says("8"));
        until::<Monitoring, _>(testbed, "web", "the maximum to raise its alarm at once", |one| {
            let status = one.status?;
            let most = status.values.iter().find(|reading| reading.metric == "most")?;
            let load = status.values.iter().find(|reading| reading.metric == "load")?;
            let is_held = load.problem.as_deref().is_some_and(|why| why.contains("the mean over 6s will be known at "));
            (status.message? == "High most" && most.at_least.is_some() && most.at_most.is_none() && is_held)
                .then_some(())
        })
        .await?;
        ensure!(replicas(testbed, "web").await?.1 == 1, "it acted on a period that is not known");
        scaled(testbed).await?;
        let load = testbed.api::<Monitoring>().get("web").await?.status.context("no status")?;
        ensure!(load.alarms.iter().any(|alarm| alarm.metric == "load"), "{:?}", load.alarms);
        Ok(())
    });
}
