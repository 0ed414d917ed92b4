//! SwarmPools whose workers die, lose their node, or do not report their version; and other owners of the number of
//! workers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::swarm_pool::status::PoolWorkerState;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::kubelet::journal::Journal;
use testkit::kubelet::{Kubelet, KubeletOptions, NO_SYNC};
use testkit::testbed::Testbed;
use testkit::testbed::loops::{account, make, on, push, until, with_loops};
use testkit::testbed::pools::{
    JOBS, WORKERS, check, converged, inline, is, kubelet, message, patch, pool, pool_story, reloading, spec,
    stateful_set,
};

use crate::samples::{apply, root};

/// Annotation with the version that a worker reports (`version.source: Annotation`).
const OBSERVED: &str = "ganglion.dev/observed-version";

/// Annotation with the version that the operator assigns to a pod.
const TOLD: &str = "ganglion.dev/job-version";

fn worker(nth: usize) -> String {
    format!("{WORKERS}-{nth}")
}

/// Node of a pod.
async fn node_of(testbed: &Testbed, pod: &str) -> Result<String> {
    testbed.api::<Pod>().get(pod).await?.spec.and_then(|spec| spec.node_name).context("it is on no node")
}

#[test]
fn a_worker_on_a_lost_node_keeps_its_jobs_until_it_is_gone_for_certain() {
    pool_story("pool-lost", async |testbed| {
        let one = kubelet(testbed, true).await?;
        let other = one.join("more-processes").await?;
        stateful_set(testbed, 3).await?;
        let handover = json!({"timeoutSeconds": 3});
        pool(testbed, WORKERS, reloading(json!({"handover": handover}))).await?;
        converged(testbed, WORKERS, 3, 30).await?;
        let node = node_of(testbed, &worker(0)).await?;
        let (lost, left) = if node == one.node { (one, other) } else { (other, one) };
        lost.silence();
        // The node controller waits for most of a minute.
        is(testbed, WORKERS, "False", "WorkerNotReady").await?;
        patch(testbed, WORKERS, json!({"drain": [worker(0)]})).await?;
        let status = is(testbed, WORKERS, "False", "HandoverTimedOut").await?;
        ensure!(message(&status).contains(&worker(0)), "{}", message(&status));
        let running = check(&left, 30)?;
        ensure!(running[&worker(0)].len() == 10, "its process lives, and has its jobs: {running:?}");
        // The machine is off, and an administrator confirms that by deleting its pods.
        testbed.kubectl(&["cordon", &lost.node], None).await?;
        drop(lost);
        let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        for pod in testbed.api::<Pod>().list(&on_node).await? {
            testbed.api::<Pod>().delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
        }
        converged(testbed, WORKERS, 2, 30).await?;
        let running = check(&left, 30)?;
        ensure!(running.get(&worker(0)).is_none_or(|jobs| jobs.is_empty()), "{running:?}");
        left.stop().await
    });
}

/// Number of deaths of workers, from the journal.
fn deaths(kubelet: &Kubelet) -> Result<usize> {
    Ok(Journal::read(&kubelet.journal())?.deaths())
}

#[test]
fn workers_that_are_killed_go_on_with_what_their_file_says_then() {
    pool_story("pool-killed", async |testbed| {
        let arguments = ["--hot-reload", "--stop-delay-ms", "1500"].map(String::from).to_vec();
        let options = KubeletOptions { arguments, ..KubeletOptions::default() };
        let kubelet = Kubelet::start(&testbed.client, &testbed.ns, options).await?;
        stateful_set(testbed, 3).await?;
        pool(testbed, WORKERS, reloading(json!({"replicas": 3}))).await?;
        let before = converged(testbed, WORKERS, 3, 30).await?;
        let running = check(&kubelet, 30)?;
        kubelet.kill(&worker(1)).await?;
        let again = async {
            while deaths(&kubelet)? == 0 || check(&kubelet, 30).is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(testkit::TIMEOUT, again).await.context("it does not run its jobs again")??;
        ensure!(check(&kubelet, 30)? == running, "others have its jobs");
        let after = converged(testbed, WORKERS, 3, 30).await?;
        ensure!(after.version == before.version, "lists were written for a worker that was killed");
        // In the middle of a handover, while it is about to stop jobs.
        patch(testbed, WORKERS, json!({"replicas": 4})).await?;
        let reads = until::<SwarmPool, _>(testbed, WORKERS, "a worker to release jobs", |pool| {
            let workers = pool.status?.workers;
            workers.into_iter().find(|one| one.state == PoolWorkerState::Releasing).map(|one| one.name)
        });
        kubelet.kill(&reads.await?).await?;
        converged(testbed, WORKERS, 4, 30).await?;
        ensure!(deaths(&kubelet)? == 2, "{} died", deaths(&kubelet)?);
        check(&kubelet, 30)?;
        kubelet.stop().await
    });
}

#[test]
fn a_worker_that_reports_an_old_version_for_ever_is_named_and_keeps_nobody_waiting() {
    pool_story("pool-outdated", async |testbed| {
        let kubelet = kubelet(testbed, true).await?;
        stateful_set(testbed, 3).await?;
        pool(testbed, WORKERS, reloading(json!({"handover": {"timeoutSeconds": 3}}))).await?;
        let before = converged(testbed, WORKERS, 3, 30).await?;
        testbed.patch_pod(&worker(1), json!({"metadata": {"annotations": {NO_SYNC: "true"}}})).await?;
        patch(testbed, WORKERS, json!({"jobs": inline(36)})).await?;
        let status = is(testbed, WORKERS, "False", "WorkerOutdated").await?;
        let version = |status: &ganglion_api::swarm_pool::SwarmPoolStatus| {
            status.workers.iter().find(|one| one.name == worker(1)).and_then(|one| one.desired_version)
        };
        let old = version(&before).context("it had no list")?;
        ensure!(version(&status) > Some(old), "{status:?}");
        let text = message(&status);
        ensure!(text.contains(&worker(1)) && text.contains(&format!("reports version {old}")), "{text}");
        ensure!(status.converged.as_deref() == Some("2/3"), "{status:?}");
        // All jobs except the two that only this worker has not received.
        check(&kubelet, 34)?;
        // The command that the message recommends.
        testbed.kubectl(&["delete", "pod", &worker(1)], None).await?;
        converged(testbed, WORKERS, 3, 36).await?;
        check(&kubelet, 36)?;
        kubelet.stop().await
    });
}

#[test]
fn replicas_that_are_undone_again_and_again_are_left_alone() {
    pool_story("pool-undone", async |testbed| {
        let kubelet = kubelet(testbed, true).await?;
        stateful_set(testbed, 2).await?;
        pool(testbed, WORKERS, reloading(json!({"replicas": 3}))).await?;
        let rival = PatchParams { field_manager: Some("rival".to_owned()), ..PatchParams::default() };
        let undo = async {
            loop {
                let set = testbed.api::<StatefulSet>().get(WORKERS).await?;
                if set.spec.and_then(|spec| spec.replicas) == Some(3) {
                    let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
                    testbed.api::<StatefulSet>().patch(WORKERS, &rival, &two).await?;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let told = tokio::select! {
            told = is(testbed, WORKERS, "False", "FieldConflict") => told?,
            failed = undo => return failed,
        };
        let text = message(&told);
        ensure!(text.contains("rival") && text.contains("leave replicas out"), "{text}");
        // The pool continues with the existing workers.
        let two = testbed.api::<StatefulSet>().get(WORKERS).await?.spec.and_then(|spec| spec.replicas);
        ensure!(two == Some(2), "{two:?}");
        patch(testbed, WORKERS, json!({"replicas": null})).await?;
        converged(testbed, WORKERS, 2, 30).await?;
        check(&kubelet, 30)?;
        kubelet.stop().await
    });
}

#[test]
fn an_autoscaler_and_a_loop_scale_the_pool() {
    pool_story("pool-scalers", async |testbed| {
        let kubelet = kubelet(testbed, true).await?;
        stateful_set(testbed, 2).await?;
        // Without replicas, as a manifest in Git has to be if others scale the pool.
        pool(testbed, WORKERS, reloading(json!({}))).await?;
        converged(testbed, WORKERS, 2, 30).await?;
        // The autoscaler of the control plane, which needs no metric to enforce its minimum.
        let target = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "SwarmPool", "name": WORKERS});
        let hpa = json!({"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 6});
        testbed.create::<HorizontalPodAutoscaler>(json!({"metadata": {"name": "cameras"}, "spec": hpa})).await?;
        converged(testbed, WORKERS, 3, 30).await?;
        check(&kubelet, 30)?;
        testbed.api::<HorizontalPodAutoscaler>().delete("cameras", &DeleteParams::default()).await?;
        let pools = [("swarmpools", "get"), ("swarmpools/scale", "get"), ("swarmpools/scale", "patch")];
        let pools = pools.map(|(resource, verb)| ("ganglion.dev", resource, verb));
        let workloads = ["deployments/scale", "statefulsets/scale"].map(|resource| ("apps", resource, "patch"));
        account(testbed, &[pools.as_slice(), &workloads].concat()).await?;
        let mut grows = on("High", json!([{"scale": {"by": 2, "max": 6}}]));
        grows["target"] = target;
        make(testbed, "cameras", grows).await?;
        push(testbed, "cameras", json!({"cpu": "90"})).await?;
        if let Err(error) = converged(testbed, WORKERS, 5, 30).await {
            return Err(with_loops(testbed, error).await);
        }
        check(&kubelet, 30)?;
        kubelet.stop().await
    });
}

/// Simulates the workers of a Deployment, which copy the version assigned to them to their own pods.
async fn confirm(testbed: &Testbed, app: &str) -> Result<()> {
    loop {
        for pod in testbed.api::<Pod>().list(&ListParams::default().labels(&format!("app={app}"))).await? {
            let (told, said) = (pod.annotations().get(TOLD), pod.annotations().get(OBSERVED));
            // A repeated version has a number appended.
            let version = told.and_then(|told| told.split('.').next());
            if let Some(version) = version.filter(|version| said.is_none_or(|said| said != version)) {
                testbed.patch_pod(&pod.name_any(), json!({"metadata": {"annotations": {OBSERVED: version}}})).await?;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// As a user would do it: the workers, then a pool, with simulated pods.
#[test]
fn the_samples_of_pools_converge() {
    pool_story("samples-pools", async |testbed| {
        let folder = root().join("swarmpool");
        apply(testbed, &folder.join("workers.yaml"), &[]).await?;
        apply(testbed, &folder.join("minimal.yaml"), &[]).await?;
        converged(testbed, "minimal", 3, 3).await?;
        testbed.kubectl(&["delete", "swp", "minimal"], None).await?;
        apply(testbed, &folder.join("contiguous.yaml"), &[]).await?;
        converged(testbed, "contiguous", 3, 3).await?;
        for nth in 0..3 {
            let map = testbed.api::<ConfigMap>().get(&format!("swarm-worker-blocks-{}", worker(nth))).await?;
            let text = map.data.unwrap_or_default().remove("config.yml").unwrap_or_default();
            ensure!(text.matches("stream:north-").count() == 1, "{text}");
        }
        let labels = json!({"app": "encoder"});
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "e", "image": "e"}]}});
        let encoder = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
        testbed.create::<Deployment>(json!({"metadata": {"name": "encoder"}, "spec": encoder})).await?;
        apply(testbed, &folder.join("deployment.yaml"), &[]).await?;
        let status = is(testbed, "deployment", "Unknown", "Refreshing").await?;
        ensure!(status.workers.iter().all(|one| one.observed_version.is_none()), "{status:?}");
        let status = tokio::select! {
            done = converged(testbed, "deployment", 2, 3) => done?,
            failed = confirm(testbed, "encoder") => return failed,
        };
        let reported = |one: &Value| one["observedVersion"] == one["desiredVersion"] && one["observedVersion"].is_i64();
        ensure!(serde_json::to_value(&status.workers)?.as_array().is_some_and(|all| all.iter().all(reported)));
        Ok(())
    });
}

/// The operator is killed while workers are simply restarted instead of notified, and each worker has its own
/// ConfigMap.
#[test]
fn lists_of_their_own_survive_a_crash_at_each_write() {
    use testkit::proxy::gate::HoldPoint;
    let cases = [HoldPoint::Before, HoldPoint::After].into_iter().flat_map(|when| (1..=8).map(move |nth| (nth, when)));
    let cases = cases.map(|(nth, when)| (format!("pool-maps-{nth}-{when:?}").to_lowercase(), (nth, when)));
    testkit::testbed::stories(cases.collect(), async |testbed, (nth, when)| {
        crate::pool_faults::workers(testbed, 3, json!({})).await?;
        let output = json!({"configMap": JOBS, "layout": "PerWorker"});
        pool(testbed, WORKERS, spec(json!({"output": output, "refresh": {"policy": "Restart", "maxUnavailable": 2}})))
            .await?;
        converged(testbed, WORKERS, 3, 30).await?;
        let mut held = testbed.proxy.hold(*nth, *when, |write| !write.is_on("leases") && !write.is_on("events"));
        testbed.kubectl(&["scale", "sts", WORKERS, "--replicas=4"], None).await?;
        if held.reached().await.is_some() {
            crate::crash::kill_at(testbed, held).await?;
        }
        converged(testbed, WORKERS, 4, 30).await?;
        let mut jobs = Vec::new();
        for nth in 0..4 {
            let map = testbed.api::<ConfigMap>().get(&format!("{JOBS}-{}", worker(nth))).await?;
            let text = map.data.unwrap_or_default().remove("config.yml").unwrap_or_default();
            jobs.extend(text.split("stream:").skip(1).map(|rest| rest[..4].to_owned()));
        }
        jobs.sort();
        ensure!(jobs.len() == 30 && jobs.windows(2).all(|two| two[0] != two[1]), "{jobs:?}");
        Ok(())
    });
}
