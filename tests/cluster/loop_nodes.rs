//! Loops on values of nodes: woken by a change of a NodeConfig, in any namespace that their account may read.

use anyhow::{Context, Result, bail, ensure};
use ganglion_api::monitoring::Monitoring;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};
use testkit::NODE_OWNER;
use testkit::servers::http::{Manner, Server};
use testkit::testbed::Testbed;
use testkit::testbed::loops::{ACCOUNT, has_data, loop_story, put, until};
use testkit::testbed::nodes::Size;

use super::loop_sources::{scene, unknown};

/// The differential pressure of every node.
fn pressure(pascals: f64) -> Manner {
    let body = json!({"code": 200, "sensor": [{"sensorid": "a", "pressure": pascals, "temperature": 20.0}]});
    Manner::Says("200 OK", body.to_string())
}

async fn described(testbed: &Testbed, namespace: &str, node: &str, server: &Server) -> Result<()> {
    let config = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig",
        "metadata": {"name": node, "namespace": namespace},
        "spec": {"nodeName": node, "metricsCollector": {
            "deltaP": {"type": "DifferentialPressureAPI", "endpoint": server.url(""), "fetchInterval": "1s"},
        }},
    });
    testbed.kubectl(&["apply", "-n", namespace, "-f", "-"], Some(&config.to_string())).await.map(drop)
}

/// A loop that polls its sources once a day, and scales the Deployment to two replicas above 5.
fn loop_on(source: Value) -> Value {
    json!({
        "interval": "24h",
        "serviceAccountName": ACCOUNT,
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [{"name": "pressure", "source": {"nodeConfig": source}, "high": {"raise": "5"}}],
        "actions": [{"when": {"metric": "pressure", "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 2}}]}],
    })
}

async fn shows(testbed: &Testbed, name: &str, value: &str) -> Result<()> {
    until::<Monitoring, _>(testbed, name, &format!("{name} to have the value {value}"), |one| {
        one.status?.values.iter().find(|reading| reading.value.as_str() == value).map(drop)
    })
    .await
}

/// Waits until the source of the value has this problem, and the value's alarm is held.
async fn stands(testbed: &Testbed, name: &str, value: &str, problem: &str) -> Result<()> {
    until::<Monitoring, _>(testbed, name, &format!("{value} of {name} to stand: {problem}"), |one| {
        let status = one.status?;
        let reading = status.values.iter().find(|reading| reading.value.as_str() == value)?;
        let is_told = reading.problem.as_ref()?.contains(problem);
        (is_told && status.alarms.iter().all(|alarm| alarm.held)).then_some(())
    })
    .await
}

#[test]
fn a_change_of_a_node_wakes_the_loops_that_read_it() {
    loop_story("loop-nodes", async |testbed| {
        let server = Server::start(pressure(1.5)).await;
        scene(testbed).await?;
        let other = Server::start(pressure(4.5)).await;
        let nodes = testbed.nodes(2, Size::default()).await?;
        let [first, second] = nodes.names.as_slice() else { bail!("not two nodes") };
        put(testbed, "web", loop_on(json!({"nodeName": first, "field": "differentialPressure"}))).await?;
        // It only watches, with an alarm from 2 on, because values that change no alarm are not written.
        let mut mean = loop_on(json!({"nodeSelector": {NODE_OWNER: testbed.ns}, "field": "differentialPressure"}));
        mean["metrics"][0]["high"]["raise"] = json!("2");
        mean.as_object_mut().context("an object")?.remove("actions");
        put(testbed, "mean", mean).await?;
        unknown(testbed, "web", "pressure", "it has no NodeConfig").await?;
        described(testbed, &testbed.ns, first, &server).await?;
        shows(testbed, "web", "1.5").await?;
        shows(testbed, "mean", "1.5").await?;
        described(testbed, &testbed.ns, second, &other).await?;
        shows(testbed, "mean", "3").await?;
        has_data(testbed, "web").await?;
        server.turn(pressure(7.25));
        shows(testbed, "web", "7.25").await?;
        until::<Deployment, _>(testbed, "web", "the Deployment to be scaled", |one| {
            (one.spec?.replicas? == 2).then_some(())
        })
        .await?;
        // The last value stands until it is too old, and triggers no action.
        server.turn(Manner::Says("500 Internal Server Error", String::new()));
        stands(testbed, "web", "7.25", "it is stale").await
    });
}

#[test]
fn nodes_of_another_namespace_are_read_as_the_account_of_the_loop() {
    loop_story("loop-nodes-elsewhere", async |testbed| {
        let server = Server::start(pressure(2.0)).await;
        scene(testbed).await?;
        let elsewhere = format!("{}-machines", testbed.ns);
        testbed.kubectl(&["create", "namespace", &elsewhere], None).await?;
        testbed.watch_too(&elsewhere).await;
        testbed.kill_and_restart().await?;
        let nodes = testbed.nodes(1, Size::default()).await?;
        let node = nodes.names.first().context("a node")?;
        described(testbed, &elsewhere, node, &server).await?;
        let source = json!({"nodeName": node, "namespace": elsewhere, "field": "differentialPressure"});
        put(testbed, "web", loop_on(source)).await?;
        unknown(testbed, "web", "pressure", "may not list nodeconfigs in namespace").await?;
        let account = format!("{}:{ACCOUNT}", testbed.ns);
        testbed
            .kubectl(
                &[
                    "create",
                    "rolebinding",
                    "reads",
                    "-n",
                    &elsewhere,
                    "--clusterrole=ganglion-view",
                    "--serviceaccount",
                    &account,
                ],
                None,
            )
            .await?;
        shows(testbed, "web", "2").await?;
        let gone = testbed.kubectl(&["delete", "namespace", &elsewhere, "--wait=false"], None).await;
        ensure!(gone.is_ok(), "{gone:?}");
        Ok(())
    });
}
