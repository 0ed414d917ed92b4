//! Permissions to create SwarmPools, and the operator's report if a namespace has not granted it access to its
//! ConfigMaps.

use anyhow::Context;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::DeleteParams;
use serde_json::json;
use testkit::plane::install::LOOPS;
use testkit::world::pools::{WORKERS, is, message, pool, pool_story, reloading, spec};

use crate::admission::{EVICT, KINDS, Right, allowed, creates, refused, users};

const WRITES: [Right; 2] = [("", "configmaps", "create", ""), ("", "configmaps", "patch", "")];
const READS: Right = ("", "configmaps", "list", "");
const ANNOTATES: Right = ("", "pods", "patch", "");
const SCALES: Right = ("apps", "statefulsets/scale", "patch", WORKERS);

#[test]
fn the_author_of_a_pool_may_do_what_the_pool_does() {
    pool_story("pool-rights", async |world| {
        let [create, patch] = WRITES;
        let who: [(&str, &[Right]); 5] = [
            ("writer", &[KINDS, create, patch]),
            ("restarter", &[KINDS, create, patch, EVICT]),
            ("reader", &[KINDS, create, patch, EVICT, READS]),
            ("scaler", &[KINDS, create, patch, EVICT, SCALES]),
            ("reloader", &[KINDS, create, patch, ANNOTATES]),
        ];
        users(world, &who).await?;
        let ns = &world.ns;
        let (plain, reload) = (spec(json!({})), reloading(json!({})));
        let reads = spec(json!({"jobs": {"configMaps": {"names": ["a"]}}}));
        let scales = spec(json!({"replicas": 3}));
        refused(&creates(world, "nobody", "SwarmPool", &plain).await, "configmaps", ns)?;
        refused(&creates(world, "writer", "SwarmPool", &plain).await, "pods/eviction", ns)?;
        allowed(&creates(world, "restarter", "SwarmPool", &plain).await)?;
        refused(&creates(world, "restarter", "SwarmPool", &reads).await, "list resource \"configmaps\"", ns)?;
        allowed(&creates(world, "reader", "SwarmPool", &reads).await)?;
        refused(&creates(world, "restarter", "SwarmPool", &scales).await, "statefulsets/scale", ns)?;
        allowed(&creates(world, "scaler", "SwarmPool", &scales).await)?;
        refused(&creates(world, "restarter", "SwarmPool", &reload).await, "patch resource \"pods\"", ns)?;
        allowed(&creates(world, "reloader", "SwarmPool", &reload).await)
    });
}

#[test]
fn a_pool_in_a_namespace_without_a_binding_says_which_one_to_make() {
    pool_story("pool-binding", async |world| {
        world.api::<RoleBinding>().delete(LOOPS, &DeleteParams::default()).await?;
        pool(world, WORKERS, spec(json!({}))).await?;
        let status = is(world, WORKERS, "False", "Forbidden").await?;
        let text = message(&status);
        let (_, command) = text.split_once("kubectl ").with_context(|| format!("no command in {text}"))?;
        world.kubectl(&command.split(' ').collect::<Vec<_>>(), None).await?;
        // Retried every 15 s.
        is(world, WORKERS, "False", "WorkloadNotFound").await.map(drop)
    });
}
