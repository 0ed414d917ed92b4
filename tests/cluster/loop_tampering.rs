//! Children of a loop that somebody else has changed: nothing is done by a changed spec or a forged decision, and the
//! loop restores what was changed.

use anyhow::{Context, Result, ensure};
use ganglion_api::decision::Decision;
use ganglion_api::execution::{Execution, ExecutionState};
use ganglion_api::marks;
use ganglion_api::monitoring::Monitoring;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::TIMEOUT;
use testkit::servers::http::{Manner, Server};
use testkit::testbed::Testbed;
use testkit::testbed::loops::{
    SCALES, account, demo, ended, loop_story, make, push, put, ready, replicas, travelled, until,
};
use testkit::testbed::workload::Workload;

async fn scene(testbed: &Testbed) -> Result<()> {
    Workload::deployment("web", 1).create(testbed).await?;
    account(testbed, SCALES).await?;
    make(testbed, "web", demo()).await?;
    ready(testbed, "web", "True", "Running").await.map(drop)
}

/// Whether a pushed sample scales the target by one.
async fn acts(testbed: &Testbed) -> Result<()> {
    let before = replicas(testbed, "web").await?.1;
    let time = push(testbed, "web", json!({"cpu": "2", "memory": "40"})).await?;
    let done = travelled(testbed, "web", time).await?.2.context("the loop does not act")?;
    ensure!(ended(&done).0 == Some(ExecutionState::Done), "{:?}", done.status);
    ensure!(replicas(testbed, "web").await?.1 == before + 1, "the target was not scaled by one");
    Ok(())
}

/// A server of the attacker, and a Secret that it wants.
async fn attacker(testbed: &Testbed) -> Result<(Server, Value)> {
    testbed.create::<Secret>(json!({"metadata": {"name": "login"}, "stringData": {"token": "secret-word"}})).await?;
    let server = Server::start(Manner::Says("200 OK", "{\"value\": 1}".to_owned())).await;
    Ok((server, json!({"bearer": {"name": "login", "key": "token"}})))
}

async fn is_reported(testbed: &Testbed, words: &str) -> Result<()> {
    let wait = async {
        loop {
            let params = ListParams::default().fields("involvedObject.name=web,involvedObject.kind=ClosedLoop");
            let events = testbed.api::<Event>().list(&params).await?;
            let mut restored = events.items.iter().filter(|event| event.reason.as_deref() == Some("ChildRestored"));
            if restored.any(|event| event.message.as_deref().unwrap_or_default().contains(words)) {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.with_context(|| format!("no event with {words}"))?
}

#[test]
fn a_source_that_is_not_the_loops_is_not_asked() {
    loop_story("tampering-source", async |testbed| {
        scene(testbed).await?;
        let (server, auth) = attacker(testbed).await?;
        let source = json!({"http": {"url": server.url("/value"), "path": "value", "auth": auth}});
        let patch = json!({"spec": {"metrics": [{"name": "cpu", "source": source, "low": {"raise": "5"}}]}});
        for _ in 0..5 {
            let changed = testbed.api::<Monitoring>();
            let changed = changed.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await?;
            let generation = changed.metadata.generation;
            until::<Monitoring, _>(testbed, "web", "the metrics to come back", |one| {
                let pushed = one.spec.metrics.iter().all(|metric| metric.source.push.is_some());
                (one.metadata.generation > generation && pushed).then_some(())
            })
            .await?;
        }
        is_reported(testbed, "Monitoring web (spec)").await?;
        acts(testbed).await?;
        ensure!(server.heard().is_empty(), "{}", server.heard());
        Ok(())
    });
}

#[test]
fn a_decision_that_is_not_the_loops_is_not_carried_out() {
    loop_story("tampering-decision", async |testbed| {
        scene(testbed).await?;
        acts(testbed).await?;
        let (server, auth) = attacker(testbed).await?;
        let webhook = json!({"webhook": {"url": server.url("/"), "auth": auth}});
        let decision = testbed.api::<Decision>().get("web").await?;
        let mut chosen = serde_json::to_value(decision.status.and_then(|status| status.chosen))?;
        chosen["seq"] = json!(7);
        chosen["do"] = webhook.clone();
        chosen["outcome"] = Value::Null;
        let patch = json!({"status": {"chosen": chosen}});
        testbed.api::<Decision>().patch_status("web", &PatchParams::default(), &Patch::Merge(&patch)).await?;

        let execution = testbed.api::<Execution>().get("web").await?;
        let at = "2026-11-18T08:26:40.000000Z";
        let claim = json!({"seq": 8, "at": at, "deadline": "2099-01-01T00:00:00.000000Z", "do": webhook,
            "goal": {"event": "forged"}});
        let patch =
            json!({"metadata": {"uid": execution.uid()}, "status": {"state": "Claimed", "seq": 8, "claim": claim}});
        testbed.api::<Execution>().patch_status("web", &PatchParams::default(), &Patch::Merge(&patch)).await?;
        until::<Execution, _>(testbed, "web", "the claim to end", |one| {
            let status = one.status?;
            (status.claim.is_none() && status.state == Some(ExecutionState::Lost)).then_some(())
        })
        .await?;
        ensure!(server.heard().is_empty(), "{}", server.heard());
        Ok(())
    });
}

#[test]
fn a_goal_that_the_rung_does_not_compute_is_not_written() {
    loop_story("tampering-goal", async |testbed| {
        scene(testbed).await?;
        acts(testbed).await?;
        let target = testbed.api::<Deployment>().get("web").await?;
        let claim = json!({
            "seq": 8, "at": "2026-11-18T08:26:40.000000Z", "deadline": "2099-01-01T00:00:00.000000Z",
            "do": demo()["actions"][0]["ladder"][0], "goal": {"replicas": 99},
            "uid": target.uid(), "generation": target.metadata.generation,
        });
        let patch = json!({"status": {"state": "Claimed", "seq": 8, "claim": claim}});
        testbed.api::<Execution>().patch_status("web", &PatchParams::default(), &Patch::Merge(&patch)).await?;
        until::<Execution, _>(testbed, "web", "the claim to end", |one| {
            let status = one.status?;
            (status.claim.is_none() && status.state == Some(ExecutionState::Lost)).then_some(())
        })
        .await?;
        ensure!(replicas(testbed, "web").await?.1 == 2, "the target was scaled");
        Ok(())
    });
}

#[test]
fn metadata_of_a_child_comes_back() {
    loop_story("tampering-metadata", async |testbed| {
        scene(testbed).await?;
        let parent = testbed.api::<ganglion_api::closed_loop::ClosedLoop>().get("web").await?.uid();
        let dead = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "name": "web", "uid": "dead",
            "controller": true});
        for (patch, what) in [
            (json!({"ownerReferences": []}), "owner references"),
            (json!({"ownerReferences": [], "labels": {marks::LOOP: null}}), "owner references"),
            (json!({"ownerReferences": [dead]}), "owner references"),
            (json!({"finalizers": ["example.com/mine"]}), "finalizers"),
        ] {
            let patch = json!({ "metadata": patch });
            testbed.api::<Monitoring>().patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await?;
            until::<Monitoring, _>(testbed, "web", &format!("the {what} to come back after {patch}"), |one| {
                let owned = one.owner_references().iter().all(|owner| Some(&owner.uid) == parent.as_ref());
                let whole = one.owner_references().len() == 1 && one.finalizers().is_empty();
                (owned && whole && one.labels().contains_key(marks::LOOP)).then_some(())
            })
            .await?;
        }
        is_reported(testbed, "finalizers").await?;
        ready(testbed, "web", "True", "Running").await?;
        acts(testbed).await?;

        // A finalizer does not keep the name of the child from the next loop.
        let patch = json!({"metadata": {"finalizers": ["example.com/mine"]}});
        testbed.kubectl(&["delete", "loop", "web", "--wait=false"], None).await?;
        let _ = testbed.api::<Monitoring>().patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await;
        until_gone(testbed).await?;
        put(testbed, "web", demo()).await?;
        ready(testbed, "web", "True", "Running").await?;
        acts(testbed).await
    });
}

/// Waits until the loop is gone.
async fn until_gone(testbed: &Testbed) -> Result<()> {
    testbed.kubectl(&["wait", "--for=delete", "loop/web", "--timeout=60s"], None).await?;
    let _ = testbed.api::<Decision>().delete("web", &DeleteParams::default()).await;
    Ok(())
}
