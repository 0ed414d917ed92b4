//! Permissions to create SwarmPools, and the operator's report if a namespace has not granted it access to its
//! ConfigMaps, or if a policy refuses its writes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::swarm_pool::SwarmPool;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::DeleteParams;
use serde_json::json;
use testkit::plane::install::LOOPS;
use testkit::testbed::Testbed;
use testkit::testbed::guard::WriteGuard;
use testkit::testbed::loops::{condition, until};
use testkit::testbed::pools::{
    WORKERS, check, converged, inline, is, kubelet, message, patch, pool, pool_story, reloading, spec, stateful_set,
};

use crate::admission::{EVICT, KINDS, Right, allowed, creates, refused, says, users};

const WRITES: [Right; 2] = [("", "configmaps", "create", ""), ("", "configmaps", "patch", "")];
const READS: Right = ("", "configmaps", "list", "");
const ANNOTATES: Right = ("", "pods", "patch", "");
const SCALES: Right = ("apps", "statefulsets/scale", "patch", WORKERS);

#[test]
fn the_author_of_a_pool_may_do_what_the_pool_does() {
    pool_story("pool-rights", async |testbed| {
        let [create, patch] = WRITES;
        let who: [(&str, &[Right]); 5] = [
            ("writer", &[KINDS, create, patch]),
            ("restarter", &[KINDS, create, patch, EVICT]),
            ("reader", &[KINDS, create, patch, EVICT, READS]),
            ("scaler", &[KINDS, create, patch, EVICT, SCALES]),
            ("reloader", &[KINDS, create, patch, ANNOTATES]),
        ];
        users(testbed, &who).await?;
        let ns = &testbed.ns;
        let (plain, reload) = (spec(json!({})), reloading(json!({})));
        let reads = spec(json!({"jobs": {"configMaps": {"names": ["a"]}}}));
        let scales = spec(json!({"replicas": 3}));
        refused(&creates(testbed, "nobody", "SwarmPool", &plain).await, "configmaps", ns)?;
        refused(&creates(testbed, "writer", "SwarmPool", &plain).await, "pods/eviction", ns)?;
        allowed(&creates(testbed, "restarter", "SwarmPool", &plain).await)?;
        refused(&creates(testbed, "restarter", "SwarmPool", &reads).await, "list resource \"configmaps\"", ns)?;
        allowed(&creates(testbed, "reader", "SwarmPool", &reads).await)?;
        refused(&creates(testbed, "restarter", "SwarmPool", &scales).await, "statefulsets/scale", ns)?;
        allowed(&creates(testbed, "scaler", "SwarmPool", &scales).await)?;
        refused(&creates(testbed, "restarter", "SwarmPool", &reload).await, "patch resource \"pods\"", ns)?;
        allowed(&creates(testbed, "reloader", "SwarmPool", &reload).await)
    });
}

/// The scale subresource and the status are ways to the same effects.
#[test]
fn who_scales_a_pool_may_scale_its_workload() {
    pool_story("pool-scale", async |testbed| {
        let scale = |resource: &'static str, verb: &'static str| ("apps", resource, verb, "");
        let [sets, deployments] = ["statefulsets/scale", "deployments/scale"];
        let who: [(&str, &[Right]); 3] = [
            ("half", &[KINDS, scale(sets, "patch")]),
            ("scales", &[KINDS, scale(sets, "patch"), scale(deployments, "patch")]),
            // As a HorizontalPodAutoscaler.
            ("updates", &[KINDS, scale(sets, "update"), scale(deployments, "update")]),
        ];
        users(testbed, &who).await?;
        stateful_set(testbed, 2).await?;
        pool(testbed, WORKERS, spec(json!({}))).await?;
        let ns = testbed.ns.as_str();
        let scales = async |user: &str| {
            let args = ["scale", "swarmpool", WORKERS, "--replicas=0"];
            says(testbed, user, &args, None).await
        };
        refused(&scales("nobody").await, "patch or update resource \"deployments/scale\"", ns)?;
        refused(&scales("half").await, "patch or update resource \"deployments/scale\"", ns)?;
        let set = testbed.kubectl(&["get", "statefulset", WORKERS, "-o", "jsonpath={.spec.replicas}"], None).await?;
        ensure!(set == "2", "the set was scaled to {set}");
        allowed(&scales("updates").await)?;
        allowed(&scales("scales").await)?;
        let status = r#"{"status": {"version": 7}}"#;
        let forge = ["patch", "swarmpool", WORKERS, "--subresource=status", "--type=merge", "-p", status];
        refused(&says(testbed, "nobody", &forge, None).await, "pods/eviction", ns)
    });
}

#[test]
fn a_pool_in_a_namespace_without_a_binding_says_which_one_to_make() {
    pool_story("pool-binding", async |testbed| {
        testbed.api::<RoleBinding>().delete(LOOPS, &DeleteParams::default()).await?;
        pool(testbed, WORKERS, spec(json!({}))).await?;
        let status = is(testbed, WORKERS, "False", "Forbidden").await?;
        let text = message(&status);
        let (_, command) = text.split_once("kubectl ").with_context(|| format!("no command in {text}"))?;
        testbed.kubectl(&command.split(' ').collect::<Vec<_>>(), None).await?;
        // Retried every 15 s.
        is(testbed, WORKERS, "False", "WorkloadNotFound").await.map(drop)
    });
}

/// Refuses each write of the scale of a pool in the namespace of the story, until the guard is removed.
async fn refuse_scales(testbed: &Testbed) -> Result<WriteGuard<'_>> {
    let updates = json!({
        "apiGroups": ["ganglion.dev"], "apiVersions": ["v1alpha1"], "resources": ["swarmpools/scale"],
        "operations": ["UPDATE"],
    });
    let guard = WriteGuard::place(testbed, updates, "false", "nobody scales pools here").await?;
    let scale = ["scale", "swarmpool", WORKERS, "--replicas=9", "--dry-run=server"];
    let refused = async {
        while testbed.kubectl(&scale, None).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), refused).await?;
    Ok(guard)
}

#[test]
fn a_pool_that_may_not_follow_its_workload_hands_over_its_jobs_and_says_so() {
    pool_story("pool-follow-refused", async |testbed| {
        let kubelet = kubelet(testbed, true).await?;
        stateful_set(testbed, 2).await?;
        pool(testbed, WORKERS, reloading(json!({"replicas": 2}))).await?;
        converged(testbed, WORKERS, 2, 30).await?;
        let guard = refuse_scales(testbed).await?;
        patch(testbed, WORKERS, json!({"replicas": null, "jobs": inline(40)})).await?;
        converged(testbed, WORKERS, 2, 40).await?;
        check(&kubelet, 40)?;
        let said = until::<SwarmPool, _>(testbed, WORKERS, "the refusal to be reported", |pool| {
            let follows = condition(&pool.status?.conditions, "FollowsWorkload")?;
            (follows.status == "False" && follows.reason == "WriteFailed").then_some(follows.message)
        })
        .await?;
        ensure!(said.contains("nobody scales pools here") && said.contains("set spec.replicas"), "{said}");
        // As the message advises. The workload is scaled by the operator, not by the scale of the pool.
        patch(testbed, WORKERS, json!({"replicas": 3})).await?;
        let status = converged(testbed, WORKERS, 3, 40).await?;
        ensure!(condition(&status.conditions, "FollowsWorkload").is_none(), "{status:?}");
        guard.remove().await?;
        kubelet.stop().await
    });
}
