//! SwarmPools with real worker processes: what a user sees, and what the workers do.

use std::time::Duration;

use anyhow::{Result, ensure};
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::swarm_pool::status::PoolWorkerState;
use serde_json::json;
use testkit::kubelet::{NO_SYNC, PORT};
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::loops::until;
use testkit::testbed::pools::{
    WORKERS, check, converged, deployment, inline, is, kubelet, message, patch, pool, pool_story, reloading, spec,
    stateful_set,
};
use testkit::testbed::{Testbed, stories};

use crate::crash::kill_at;

async fn scale(testbed: &Testbed, what: &str, replicas: u32) -> Result<()> {
    testbed.kubectl(&["scale", what, &format!("--replicas={replicas}")], None).await.map(drop)
}

#[test]
fn jobs_move_between_workers_that_reload() {
    pool_story("pool-reload", async |testbed| {
        let kubelet = kubelet(testbed, true).await?;
        stateful_set(testbed, 3).await?;
        pool(testbed, WORKERS, reloading(json!({"replicas": 3}))).await?;
        let first = converged(testbed, WORKERS, 3, 30).await?;
        check(&kubelet, 30)?;
        ensure!(first.workers.iter().all(|one| one.jobs == 10 && one.state == PoolWorkerState::Converged), "{first:?}");
        ensure!(first.selector.as_deref() == Some("app=swarm-worker") && first.replicas == Some(3), "{first:?}");
        let (good, text) = testbed.ganglion(&["explain", "swp", WORKERS, "--job", "stream:0001"]).await?;
        ensure!(good && text.starts_with("stream:0001 is with swarm-worker-") && text.contains("first deal"), "{text}");
        let (good, text) = testbed.ganglion(&["explain", "swp", WORKERS]).await?;
        ensure!(good && text.contains("30 jobs with 3 workers") && text.contains("REPORTS"), "{text}");
        for (replicas, moved) in [(5, 12), (4, 6), (2, 15)] {
            scale(testbed, &format!("swp/{WORKERS}"), replicas).await?;
            let status = converged(testbed, WORKERS, usize::try_from(replicas)?, 30).await?;
            let running = check(&kubelet, 30)?;
            ensure!(running.values().filter(|jobs| !jobs.is_empty()).count() == usize::try_from(replicas)?);
            ensure!(status.moved.is_some_and(|count| count <= moved + 2), "{replicas}: {:?} moved", status.moved);
        }
        patch(testbed, WORKERS, json!({"jobs": inline(33)})).await?;
        let status = converged(testbed, WORKERS, 2, 33).await?;
        ensure!(status.moved == Some(0), "jobs that come move no others: {status:?}");
        check(&kubelet, 33)?;
        let table = testbed.kubectl(&["get", "swp", WORKERS], None).await?;
        for part in ["WORKLOAD", "MOVED", "CONVERGED", "2/2", "Converged"] {
            ensure!(table.contains(part), "{part} is not in\n{table}");
        }
        // A pool at rest writes nothing.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = testbed.proxy.writes().len();
        tokio::time::sleep(Duration::from_secs(20)).await;
        let more: Vec<_> = testbed.proxy.writes().drain(before..).filter(|write| !write.is_on("leases")).collect();
        ensure!(more.is_empty(), "{more:?}");
        kubelet.stop().await
    });
}

#[test]
fn jobs_move_between_workers_that_restart() {
    pool_story("pool-restart", async |testbed| {
        let kubelet = kubelet(testbed, false).await?;
        stateful_set(testbed, 3).await?;
        pool(testbed, WORKERS, spec(json!({"replicas": 3, "version": {"probe": {"port": PORT}}}))).await?;
        converged(testbed, WORKERS, 3, 30).await?;
        check(&kubelet, 30)?;
        for replicas in [4, 2] {
            patch(testbed, WORKERS, json!({"replicas": replicas})).await?;
            converged(testbed, WORKERS, replicas, 30).await?;
            check(&kubelet, 30)?;
        }
        kubelet.stop().await
    });
}

#[test]
fn a_worker_that_does_not_confirm_keeps_its_jobs_until_somebody_says_otherwise() {
    pool_story("pool-deadline", async |testbed| {
        let kubelet = kubelet(testbed, true).await?;
        stateful_set(testbed, 2).await?;
        let handover = json!({"timeoutSeconds": 3});
        pool(testbed, WORKERS, reloading(json!({"handover": handover}))).await?;
        converged(testbed, WORKERS, 2, 30).await?;
        let silent = format!("{WORKERS}-0");
        testbed.patch_pod(&silent, json!({"metadata": {"annotations": {NO_SYNC: "true"}}})).await?;
        scale(testbed, &format!("sts/{WORKERS}"), 3).await?;
        let status = is(testbed, WORKERS, "False", "HandoverTimedOut").await?;
        let text = message(&status);
        ensure!(text.contains(&silent), "{text}");
        let running = check(&kubelet, 30)?;
        ensure!(running[&silent].len() == 15, "{running:?}");
        // The remedy that the message names.
        let version = status.workers.iter().find(|one| one.name == silent).and_then(|one| one.desired_version);
        let version = version.unwrap_or_default();
        ensure!(text.contains(&format!("version: {version}")), "{text}");
        let confirmed = json!([{"worker": silent, "version": version}]);
        patch(testbed, WORKERS, json!({"handover": {"timeoutSeconds": 3, "confirmed": confirmed}})).await?;
        until::<SwarmPool, _>(testbed, WORKERS, "the jobs to be given to the third", |pool| {
            let workers = pool.status?.workers;
            workers.iter().any(|one| one.name.ends_with("-2") && one.jobs == 10).then_some(())
        })
        .await?;
        kubelet.stop().await
    });
}

#[test]
fn the_operator_is_killed_at_each_write_of_a_handover() {
    let instants =
        || [HoldPoint::Before, HoldPoint::After].into_iter().flat_map(|when| (1..=6).map(move |nth| (nth, when)));
    let cases = [true, false].into_iter().flat_map(|reload| instants().map(move |(nth, when)| (reload, nth, when)));
    let cases = cases.map(|case @ (reload, nth, when)| {
        let how = if reload { "reload" } else { "restart" };
        (format!("pool-{how}-{nth}-{when:?}").to_lowercase(), case)
    });
    stories(cases.collect(), async |testbed, (reload, nth, when)| {
        let kubelet = kubelet(testbed, *reload).await?;
        stateful_set(testbed, 3).await?;
        let restarting = || spec(json!({"version": {"probe": {"port": PORT}}, "refresh": {"maxUnavailable": 2}}));
        pool(testbed, WORKERS, if *reload { reloading(json!({})) } else { restarting() }).await?;
        converged(testbed, WORKERS, 3, 30).await?;
        let mut held = testbed.proxy.hold(*nth, *when, |write| !write.is_on("leases") && !write.is_on("events"));
        scale(testbed, &format!("sts/{WORKERS}"), 4).await?;
        if held.reached().await.is_some() {
            kill_at(testbed, held).await?;
        }
        converged(testbed, WORKERS, 4, 30).await?;
        check(&kubelet, 30)?;
        kubelet.stop().await
    });
}

#[test]
fn a_pod_of_a_deployment_is_replaced_and_its_successor_has_the_same_jobs() {
    pool_story("pool-deployment", async |testbed| {
        let kubelet = kubelet(testbed, true).await?;
        deployment(testbed, 3).await?;
        let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": WORKERS});
        pool(testbed, WORKERS, reloading(json!({"workload": workload}))).await?;
        converged(testbed, WORKERS, 3, 30).await?;
        let before = check(&kubelet, 30)?;
        let (victim, jobs) = before.iter().next().map(|(name, jobs)| (name.clone(), jobs.clone())).unwrap_or_default();
        testbed.kubectl(&["delete", "pod", &victim, "--wait=false"], None).await?;
        until::<SwarmPool, _>(testbed, WORKERS, "the pod to be replaced", |pool| {
            let workers = pool.status?.workers;
            (workers.len() == 3 && workers.iter().all(|one| one.name != victim)).then_some(())
        })
        .await?;
        converged(testbed, WORKERS, 3, 30).await?;
        let after = check(&kubelet, 30)?;
        ensure!(after.values().any(|new| *new == jobs), "{before:?}\n{after:?}");
        kubelet.stop().await
    });
}
