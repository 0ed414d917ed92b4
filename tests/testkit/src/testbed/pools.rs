//! SwarmPools in a testbed: workloads of real processes, and functions that wait for their state.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow, ensure};
use ganglion_api::swarm_pool::{SwarmPool, SwarmPoolStatus};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::NODE_OWNER;
use crate::kubelet::journal::Journal;
use crate::kubelet::{Kubelet, KubeletOptions, PORT};
use crate::testbed::loops::{condition, until};
use crate::testbed::{Testbed, story};

/// Name of the workload and the pool, and prefix of the pod names.
pub const WORKERS: &str = "swarm-worker";

/// ConfigMap that the workers read.
pub const JOBS: &str = "swarm-worker-config";

/// Runs a story of pools; a failure prints their state.
pub fn pool_story(name: &str, body: impl AsyncFnOnce(&Testbed) -> Result<()>) {
    story(name, async |testbed| match body(testbed).await {
        Ok(()) => Ok(()),
        Err(error) => Err(with_pools(testbed, error).await),
    });
}

/// Adds all pools, ConfigMaps and pods to the error.
pub async fn with_pools(testbed: &Testbed, error: anyhow::Error) -> anyhow::Error {
    let all = testbed.kubectl(&["get", "swp,cm,pods,sts", "-o", "yaml"], None).await;
    anyhow!("{error:#}\n--- pools\n{}", all.unwrap_or_else(|error| error.to_string()))
}

/// Pod template of workers that read this ConfigMap.
pub fn template(namespace: &str, map: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": WORKERS}},
        "spec": {
            "nodeSelector": {NODE_OWNER: namespace},
            "tolerations": [{"key": NODE_OWNER, "operator": "Exists"}],
            "terminationGracePeriodSeconds": 10,
            "containers": [{
                "name": "worker", "image": "worker",
                "volumeMounts": [{"name": "jobs", "mountPath": "/app/config"}],
            }],
            "volumes": [{"name": "jobs", "configMap": {"name": map, "optional": true}}],
        },
    })
}

/// Creates the StatefulSet of workers.
pub async fn stateful_set(testbed: &Testbed, replicas: u32) -> Result<()> {
    let spec = json!({
        "serviceName": WORKERS, "replicas": replicas, "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": WORKERS}}, "template": template(&testbed.ns, JOBS),
    });
    testbed.create::<StatefulSet>(json!({"metadata": {"name": WORKERS}, "spec": spec})).await.map(drop)
}

/// Creates the Deployment of workers.
pub async fn deployment(testbed: &Testbed, replicas: u32) -> Result<()> {
    let spec = json!({
        "replicas": replicas, "selector": {"matchLabels": {"app": WORKERS}}, "template": template(&testbed.ns, JOBS),
    });
    testbed.create::<Deployment>(json!({"metadata": {"name": WORKERS}, "spec": spec})).await.map(drop)
}

/// Starts the kubelet; its processes reload their file if `hot_reload` is set.
pub async fn kubelet(testbed: &Testbed, hot_reload: bool) -> Result<Kubelet> {
    let arguments = if hot_reload { vec!["--hot-reload".to_owned()] } else { Vec::new() };
    let options = KubeletOptions { arguments, ..KubeletOptions::default() };
    Kubelet::start(&testbed.client, &testbed.ns, options).await
}

/// This number of jobs, as `jobs` of a spec.
pub fn inline(jobs: usize) -> Value {
    json!({"inline": (0..jobs).map(|nth| json!({"name": format!("stream:{nth:04}")})).collect::<Vec<_>>()})
}

/// Spec of a pool for the StatefulSet. `members` are added, or replace defaults.
pub fn spec(members: Value) -> Value {
    let mut spec = json!({
        "workload": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": WORKERS},
        "output": {"configMap": JOBS},
        "jobs": inline(30),
    });
    if let (Some(spec), Value::Object(members)) = (spec.as_object_mut(), members) {
        spec.extend(members);
    }
    spec
}

/// Members of a spec for workers that reload their file and report over HTTP.
pub fn reloading(members: Value) -> Value {
    let mut all = json!({"refresh": {"policy": "HotReload"}, "version": {"probe": {"port": PORT}}});
    if let (Some(all), Value::Object(members)) = (all.as_object_mut(), members) {
        all.extend(members);
    }
    spec(all)
}

/// Creates a pool.
pub async fn pool(testbed: &Testbed, name: &str, spec: Value) -> Result<SwarmPool> {
    testbed.create(json!({"metadata": {"name": name}, "spec": spec})).await
}

/// Changes members of a pool's spec.
pub async fn patch(testbed: &Testbed, name: &str, spec: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": spec}));
    testbed.api::<SwarmPool>().patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until the pool's Ready has this status and reason for its current generation. Returns the pool's status.
pub async fn is(testbed: &Testbed, name: &str, status: &str, reason: &str) -> Result<SwarmPoolStatus> {
    until::<SwarmPool, _>(testbed, name, &format!("pool {name} to be {status} {reason}"), |pool| {
        let generation = pool.metadata.generation;
        let found = pool.status.filter(|found| found.observed_generation == generation)?;
        let ready = condition(&found.conditions, "Ready")?;
        (ready.status == status && ready.reason == reason).then_some(found)
    })
    .await
}

/// Message of Ready.
pub fn message(status: &SwarmPoolStatus) -> String {
    condition(&status.conditions, "Ready").map(|ready| ready.message).unwrap_or_default()
}

/// Waits until the pool has converged with this number of workers and jobs.
pub async fn converged(testbed: &Testbed, name: &str, workers: usize, jobs: i64) -> Result<SwarmPoolStatus> {
    until::<SwarmPool, _>(
        testbed,
        name,
        &format!("pool {name} to converge with {workers} workers and {jobs} jobs"),
        |pool| {
            let generation = pool.metadata.generation;
            let found = pool.status.filter(|found| found.observed_generation == generation)?;
            let ready = condition(&found.conditions, "Ready")?;
            let is_so = ready.reason == "Converged"
                && found.jobs == Some(jobs)
                && found.converged == Some(format!("{workers}/{workers}"));
            is_so.then_some(found)
        },
    )
    .await
}

/// Makes a pool of four jobs on two workers, and scales it to three. The workers run until the kubelet is dropped.
pub async fn scaled(testbed: &Testbed, name: &str) -> Result<Kubelet> {
    stateful_set(testbed, 2).await?;
    let kubelet = kubelet(testbed, true).await?;
    pool(testbed, name, reloading(json!({"replicas": 2, "jobs": inline(4)}))).await?;
    converged(testbed, name, 2, 4).await?;
    testbed.kubectl(&["scale", &format!("swp/{name}"), "--replicas=3"], None).await?;
    converged(testbed, name, 3, 4).await?;
    Ok(kubelet)
}

/// Content of the file that workers read.
pub async fn file(testbed: &Testbed) -> Result<String> {
    let map = testbed.api::<ConfigMap>().get(JOBS).await?;
    map.data.and_then(|mut data| data.remove("config.yml")).context("no file")
}

/// Checks that the workers run exactly the jobs in the file, and that no job ever ran twice at the same time.
pub fn check(kubelet: &Kubelet, jobs: usize) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let journal = Journal::read(&kubelet.journal())?;
    ensure!(journal.doubled().is_empty(), "jobs that ran on two workers: {:?}", journal.doubled());
    let running = journal.running();
    let all: usize = running.values().map(BTreeSet::len).sum();
    ensure!(all == jobs, "{all} of {jobs} jobs run: {running:?}");
    Ok(running)
}
