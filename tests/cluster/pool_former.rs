//! SwarmPools whose workers run the lists of an earlier pool, whose sources are no text, or whose workers hang.

use std::time::Duration;

use anyhow::{Result, ensure};
use ganglion_api::swarm_pool::SwarmPool;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::testbed::Testbed;
use testkit::testbed::loops::until;
use testkit::testbed::pools::{
    WORKERS, check, converged, file, inline, is, kubelet, message, patch, pool, pool_story, reloading, stateful_set,
};

/// ConfigMap with the jobs of a pool.
const SOURCE: &str = "cameras";

/// Deletes the pool, and waits until it and its file are gone.
async fn delete(testbed: &Testbed) -> Result<()> {
    let pools = testbed.api::<SwarmPool>();
    let uid = pools.get(WORKERS).await?.uid().unwrap_or_default();
    pools.delete(WORKERS, &DeleteParams::foreground()).await?;
    tokio::time::timeout(testkit::TIMEOUT, await_condition(pools, WORKERS, conditions::is_deleted(&uid))).await??;
    Ok(())
}

/// The second pool has fewer jobs and another order, so its first lists differ from those that the workers run.
#[test]
fn a_pool_that_is_created_again_runs_no_job_twice_and_begins_above_its_predecessor() {
    pool_story("pool-former", async |testbed| {
        let kubelet = kubelet(testbed, true).await?;
        stateful_set(testbed, 3).await?;
        pool(testbed, WORKERS, reloading(json!({"replicas": 3}))).await?;
        converged(testbed, WORKERS, 3, 30).await?;
        for jobs in [33, 36, 30] {
            patch(testbed, WORKERS, json!({"jobs": inline(jobs)})).await?;
            converged(testbed, WORKERS, 3, i64::try_from(jobs)?).await?;
        }
        let before = testbed.api::<SwarmPool>().get(WORKERS).await?.status.and_then(|status| status.version);
        delete(testbed).await?;
        let confirmed = json!({"confirmed": [{"worker": format!("{WORKERS}-0"), "version": before}]});
        let again = json!({"replicas": 3, "assignment": {"strategy": "Contiguous"}, "handover": confirmed});
        pool(testbed, WORKERS, reloading(again)).await?;
        let status = converged(testbed, WORKERS, 3, 30).await?;
        ensure!(before.is_some() && status.version > before, "{before:?}, then {:?}", status.version);
        // Fails if any job has run twice at any time.
        check(&kubelet, 30)?;
        kubelet.stop().await
    });
}

/// Writes the source as `kubectl create configmap --from-file` would: text under `data`, all else under `binaryData`.
async fn write(testbed: &Testbed, bytes: &[u8]) -> Result<()> {
    let (data, binary): (Value, Value) = match std::str::from_utf8(bytes) {
        Ok(text) => (json!({"jobs.txt": text}), Value::Null),
        Err(_) => (Value::Null, json!({"jobs.txt": ByteString(bytes.to_vec())})),
    };
    let patch = Patch::Merge(json!({"data": data, "binaryData": binary}));
    testbed.api::<ConfigMap>().patch(SOURCE, &PatchParams::default(), &patch).await?;
    Ok(())
}

#[test]
fn jobs_that_are_not_text_stay_with_their_workers_also_after_a_restart_of_the_operator() {
    pool_story("pool-binary", async |testbed| {
        let kubelet = kubelet(testbed, true).await?;
        let text = "- {name: caf\u{e9}, qos: Dedicated}\n- {name: b, weight: 7}\n- c\n- d\n";
        testbed.create::<ConfigMap>(json!({"metadata": {"name": SOURCE}, "data": {"jobs.txt": text}})).await?;
        stateful_set(testbed, 3).await?;
        let jobs = json!({"configMaps": {"names": [SOURCE]}});
        pool(testbed, WORKERS, reloading(json!({"replicas": 3, "jobs": jobs}))).await?;
        converged(testbed, WORKERS, 3, 4).await?;
        let (running, written) = (check(&kubelet, 4)?, file(testbed).await?);
        // The same text in Latin-1.
        let latin: Vec<u8> = text.chars().map(|letter| u8::try_from(u32::from(letter)).unwrap_or(b'?')).collect();
        let utf_16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for bytes in [latin, [vec![0xff, 0xfe], utf_16].concat(), vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0xff]] {
            write(testbed, &bytes).await?;
            until::<SwarmPool, _>(testbed, WORKERS, "a message about binaryData", |pool| {
                message(&pool.status?).contains("binaryData").then_some(())
            })
            .await?;
            testbed.operator.lock().await.kill();
            testbed.operator.lock().await.start()?;
            // It has begun again once it shows a change of the pool.
            patch(testbed, WORKERS, json!({"handover": {"timeoutSeconds": 100 + bytes.len() }})).await?;
            let status = is(testbed, WORKERS, "False", "SourceInvalid").await?;
            ensure!(message(&status).contains("key jobs.txt"), "{}", message(&status));
            ensure!(check(&kubelet, 4)? == running && file(testbed).await? == written, "a job has moved");
        }
        write(testbed, text.as_bytes()).await?;
        converged(testbed, WORKERS, 3, 4).await?;
        ensure!(check(&kubelet, 4)? == running && file(testbed).await? == written, "a job has moved");
        kubelet.stop().await
    });
}

/// Sets the readiness of a pod, as a kubelet does when its readiness probe fails or succeeds again.
async fn set_ready(testbed: &Testbed, pod: &str, ready: bool) -> Result<()> {
    let pods: Api<Pod> = testbed.api();
    let status = if ready { "True" } else { "False" };
    let now = jiff::Timestamp::now().to_string();
    let condition = json!({"type": "Ready", "status": status, "lastTransitionTime": now});
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    pods.patch_status(pod, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// A stopped process accepts connections and answers nothing, like a worker that hangs.
#[test]
fn a_worker_that_recovers_in_the_same_pod_is_seen_when_it_turns_ready() {
    pool_story("pool-hung", async |testbed| {
        let kubelet = kubelet(testbed, true).await?;
        stateful_set(testbed, 3).await?;
        pool(testbed, WORKERS, reloading(json!({"replicas": 3, "handover": {"timeoutSeconds": 5}}))).await?;
        converged(testbed, WORKERS, 3, 30).await?;
        let hung = format!("{WORKERS}-1");
        kubelet.signal(&hung, "STOP").await?;
        set_ready(testbed, &hung, false).await?;
        patch(testbed, WORKERS, json!({"jobs": inline(36)})).await?;
        is(testbed, WORKERS, "False", "WorkerNotReady").await?;
        // Long enough that the pause after failed probes exceeds the time that the recovery may take.
        tokio::time::sleep(Duration::from_secs(45)).await;
        let jobs = check(&kubelet, 34)?;
        ensure!(jobs[&hung].len() == 10, "its process still has its jobs: {jobs:?}");
        kubelet.signal(&hung, "CONT").await?;
        set_ready(testbed, &hung, true).await?;
        let seen = tokio::time::timeout(Duration::from_secs(15), converged(testbed, WORKERS, 3, 36)).await;
        ensure!(seen.is_ok(), "it is not seen within 15 s");
        seen??;
        check(&kubelet, 36)?;
        kubelet.stop().await
    });
}
