//! Loops that track a target on a real control plane: beside an autoscaler with the same measurements, with pushed
//! values, and without the rights.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::monitoring::Monitoring;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use serde_json::{Value, json};
use testkit::block_on;
use testkit::plane::Plane;
use testkit::servers::load::SharedLoad;
use testkit::servers::usage;
use testkit::testbed::loops::{
    ACCOUNT, SCALES, account, decision_status, grant_more, loop_story, make, push, put, replicas, says, until,
    with_loops,
};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, story_on};

/// A loop on `web` whose queue is 10 for each replica.
fn queue(changes: &Value) -> Value {
    let mut scale = json!({"track": {"type": "AverageValue", "target": "10"}, "max": 40, "up": {
        "policies": [{"pods": 100, "per": "1s"}]}, "down": {"window": "0s"}});
    for (key, value) in changes.as_object().into_iter().flatten() {
        scale[key] = value.clone();
    }
    json!({
        "interval": "1s",
        "serviceAccountName": ACCOUNT,
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [{"name": "queue", "source": {"push": {}}}],
        "actions": [{"when": {"metric": "queue", "side": "Target"}, "ladder": [{"scale": scale}]}],
    })
}

/// Waits until a Deployment has this number of replicas.
async fn scaled(testbed: &Testbed, name: &str, number: i32) -> Result<()> {
    until::<Deployment, _>(testbed, name, &format!("{name} to have {number} replicas"), |deployment| {
        (deployment.spec?.replicas? == number).then_some(())
    })
    .await
}

#[test]
fn a_queue_sets_the_number_in_one_decision_and_explain_says_why() {
    loop_story("track-queue", async |testbed| {
        Workload::deployment("web", 3).create(testbed).await?;
        account(testbed, SCALES).await?;
        make(testbed, "web", queue(&json!({"forecast": {"ahead": "1m", "season": "12m"}}))).await?;
        push(testbed, "web", json!({"queue": "300"})).await?;
        scaled(testbed, "web", 30).await?;
        // The memory of the forecast is written at the first value.
        let memory =
            until::<ClosedLoop, _>(testbed, "web", "a memory of the forecast", |one| one.status?.forecast).await?;
        ensure!(memory.memory.starts_with("1;60;12;"), "{}", memory.memory);
        let (generation, _) = replicas(testbed, "web").await?;
        ensure!(generation == 2, "it was written {} times", generation - 1);
        ensure!(decision_status(testbed, "web").await?.seq == 1, "{:?}", decision_status(testbed, "web").await?);
        let message = says(testbed, "web", "Tracking", ("True", "Tracking")).await?;
        ensure!(message == "the number of replicas follows the metrics", "{message}");
        // The same number from another value, and a bound.
        push(testbed, "web", json!({"queue": "900"})).await?;
        scaled(testbed, "web", 40).await?;
        says(testbed, "web", "Tracking", ("True", "AtMax")).await?;
        let (_, text) = testbed.ganglion(&["explain", "loop", "web"]).await?;
        for words in [
            "metric       queue: 900, target 10 for each replica",
            "proposal     90 replicas by queue",
            "not used: 0 of 12 horizons are judged",
            "bounds       40 replicas; min 1, max 40",
        ] {
            ensure!(text.contains(words), "{words} is not in {text}");
        }
        push(testbed, "web", json!({"queue": "20"})).await?;
        scaled(testbed, "web", 2).await
    });
}

#[test]
fn zero_wakes_by_itself_and_a_zero_of_a_person_stays() {
    loop_story("track-zero", async |testbed| {
        Workload::deployment("web", 2).create(testbed).await?;
        account(testbed, SCALES).await?;
        make(testbed, "web", queue(&json!({"min": 0, "cooldown": "1s"}))).await?;
        push(testbed, "web", json!({"queue": "0"})).await?;
        scaled(testbed, "web", 0).await?;
        says(testbed, "web", "Tracking", ("True", "Inactive")).await?;
        testbed.kill_and_restart().await?;
        push(testbed, "web", json!({"queue": "50"})).await?;
        scaled(testbed, "web", 5).await?;
        // A person scales to 0, and the queue is long.
        testbed.kubectl(&["scale", "deployment", "web", "--replicas=0"], None).await?;
        push(testbed, "web", json!({"queue": "70"})).await?;
        let message = says(testbed, "web", "Tracking", ("False", "StoppedAtZero")).await?;
        ensure!(message.contains("scale it to 1 or more"), "{message}");
        ensure!(replicas(testbed, "web").await?.1 == 0, "{:?}", replicas(testbed, "web").await?);
        testbed.kubectl(&["scale", "deployment", "web", "--replicas=1"], None).await?;
        push(testbed, "web", json!({"queue": "60"})).await?;
        scaled(testbed, "web", 6).await
    });
}

#[test]
fn an_account_that_may_not_get_the_target_is_told_of() {
    loop_story("track-rights", async |testbed| {
        Workload::deployment("web", 2).create(testbed).await?;
        account(testbed, &[]).await?;
        put(testbed, "web", queue(&json!({}))).await?;
        let message = says(testbed, "web", "Tracking", ("False", "TargetUnknown")).await?;
        ensure!(message.contains("may not get deployments"), "{message}");
        ensure!(replicas(testbed, "web").await?.1 == 2, "{:?}", replicas(testbed, "web").await?);
        Ok(())
    });
}

#[test]
fn a_loop_and_an_autoscaler_reach_the_same_numbers() {
    // A separate plane, because it registers an API for the whole plane.
    let plane = block_on(Plane::own("loop-tracking", 2)).expect("a plane of its own");
    story_on(&plane.0, Road::Proxy, "loop-tracking", async |testbed| {
        let server = usage::start(testbed, Duration::from_secs(10)).await?;
        let told = beside_an_autoscaler(testbed).await.map_err(|error| error.context(server.log()));
        match told {
            Ok(()) => Ok(()),
            Err(error) => Err(with_loops(testbed, error).await),
        }
    });
}

async fn beside_an_autoscaler(testbed: &Testbed) -> Result<()> {
    let mut loads = Vec::new();
    for name in ["hpa", "loop"] {
        let web = Workload::deployment(name, 4).requests(json!({"cpu": "1"}));
        web.annotate(usage::CPU, "475m").make(testbed).await?;
        loads.push(SharedLoad::start(&testbed.client, &testbed.ns, name, 1900));
    }
    account(testbed, SCALES).await?;
    grant_more(testbed, "reads", &[("metrics.k8s.io", "pods", "list"), ("", "pods", "list")]).await?;
    let resource = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}});
    let now = json!({"stabilizationWindowSeconds": 0});
    testbed
        .create::<HorizontalPodAutoscaler>(json!({
            "metadata": {"name": "hpa"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "hpa"},
                "minReplicas": 2, "maxReplicas": 20, "metrics": [{"type": "Resource", "resource": resource}],
                "behavior": {"scaleDown": now},
            },
        }))
        .await?;
    let scale =
        json!({"track": {"type": "Utilization", "target": "50"}, "min": 2, "max": 20, "down": {"window": "0s"}});
    let spec = json!({
        "interval": "2s",
        "serviceAccountName": ACCOUNT,
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "loop"},
        "metrics": [{"name": "cpu", "source": {"resource": {"resource": "cpu", "unit": "Utilization"}}}],
        "actions": [{"when": {"metric": "cpu", "side": "Target"}, "ladder": [{"scale": scale}]}],
    });
    put(testbed, "loop", spec).await?;
    until::<Monitoring, _>(testbed, "loop", "the loop to see 50 %", |monitoring| {
        monitoring.status?.tracking.filter(|state| state.wants == 4).map(|_| ())
    })
    .await?;
    for (together, expected) in [(3800, 8), (1900, 4), (800, 2)] {
        loads.iter().for_each(|load| load.set(together));
        for name in ["loop", "hpa"] {
            scaled(testbed, name, expected).await.with_context(|| format!("{name} with {together}m together"))?;
        }
    }
    let shown = until::<ClosedLoop, _>(testbed, "loop", "a status", |one| one.status).await?;
    ensure!(shown.conditions.iter().any(|one| one.type_ == "Tracking" && one.status == "True"), "{shown:?}");
    Ok(())
}
