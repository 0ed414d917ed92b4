//! Permissions to create SwarmPools, and the operator's report if a namespace has not granted it access to its
//! ConfigMaps.

use anyhow::{Context, ensure};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::DeleteParams;
use serde_json::json;
use testkit::plane::install::LOOPS;
use testkit::testbed::pools::{WORKERS, is, message, pool, pool_story, reloading, spec, stateful_set};

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
