//! A hostile tenant. A user with Kubernetes' own ClusterRole edit in one namespace does, all at once, what once hurt
//! others; a client without credentials does the same to the extender. Meanwhile the testbed's own namespace works as
//! ever, and the memory of the operator stays below half of its limit.

use anyhow::{Context, Result, bail, ensure};
use futures::future::{join, join_all, try_join};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::monitoring::Monitoring;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use testkit::action::move_pod;
use testkit::block_on;
use testkit::hostile::{self, HostileTenant, RefusingPolicy, becomes};
use testkit::plane::Plane;
use testkit::process::free_port;
use testkit::testbed::loops::{SCALES, account, make, on, push, travelled, with_loops};
use testkit::testbed::pools::{self, WORKERS, converged, stateful_set};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, story_on};

use crate::scenes::Scene;

/// Maximum memory of the operator in MiB.
const MEMORY: f64 = 256.0;

/// Number of times that the user repeats each deed.
const TIMES: usize = 12;

/// Objects that the API server must refuse: far too large, or a path instead of an API version.
async fn refused_at_apply(tenant: &HostileTenant) -> Result<()> {
    let (large, path) = (hostile::large_action(), hostile::loop_on_a_path());
    for time in 0..TIMES {
        for (answer, field) in [
            (tenant.create::<WorkloadAction>(&format!("large-{time}"), large.clone()).await.map(drop), "nodeSelector"),
            (tenant.create::<ClosedLoop>(&format!("path-{time}"), path.clone()).await.map(drop), "apiVersion"),
        ] {
            match answer {
                Err(kube::Error::Api(status)) if status.code == 422 && status.message.contains(field) => {}
                other => bail!("time {time}: {}", &format!("{other:?}").chars().take(500).collect::<String>()),
            }
        }
    }
    Ok(())
}

/// Megabytes of names of one letter.
async fn many_jobs(tenant: &HostileTenant) -> Result<()> {
    let names: Vec<String> = (0..TIMES).map(|nth| format!("jobs-{nth}")).collect();
    for name in &names {
        tenant.create::<ConfigMap>(name, hostile::many_jobs(name)).await?;
    }
    tenant.pool("many", &names).await?;
    let refused = becomes("a pool that refuses too many jobs", async || {
        let found = tenant.api::<SwarmPool>().get("many").await?;
        let text = serde_json::to_string(&found.status)?;
        Ok(text.contains("at most 131072 jobs").then_some(()))
    });
    match refused.await {
        Ok(()) => Ok(()),
        Err(error) => {
            let found = tenant.api::<SwarmPool>().get("many").await?;
            Err(error.context(serde_json::to_string(&found.status)?))
        }
    }
}

/// Loops that ask private addresses.
async fn private_addresses(tenant: &HostileTenant) -> Result<()> {
    for number in 0..TIMES {
        tenant.create::<ClosedLoop>(&format!("private-{number}"), hostile::private_loop(number)).await?;
    }
    let last = format!("private-{}", TIMES - 1);
    becomes("a refused address", async || {
        let found = tenant.api::<Monitoring>().get_opt(&last).await?;
        let text = serde_json::to_string(&found.and_then(|found| found.status))?;
        Ok(text.contains("outbound.privateNetworks").then_some(()))
    })
    .await
}

/// Actions that wait for a node that does not exist.
async fn waiting_actions(tenant: &HostileTenant) -> Result<()> {
    for nth in 0..TIMES * 10 {
        tenant.create::<WorkloadAction>(&format!("waits-{nth:03}"), hostile::waiting_action()).await?;
    }
    Ok(())
}

/// Kinds that the user may not write at all.
async fn other_kinds(tenant: &HostileTenant) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"metrics": []}}));
    let answer = tenant.api::<Monitoring>().patch("private-0", &PatchParams::default(), &patch).await;
    ensure!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403), "{answer:?}");
    Ok(())
}

/// Work of the other tenant in the meantime: moves, a loop, a pool, and requests of a scheduler.
async fn works(testbed: &Testbed, scene: &Scene, policy: &RefusingPolicy) -> Result<()> {
    let scheduler = policy.scheduler()?;
    for nth in 0..3 {
        let (pod, to) = (scene.pod(nth).0, scene.free(nth));
        let name = format!("go-{nth}");
        testbed.act(&name, move_pod(&pod, &to)).await?;
        testbed.ends(&name, ("True", "Succeeded")).await?;
        policy.filters(&scheduler, "node-0").await?;
    }
    let time = push(testbed, "web", json!({"cpu": "1"})).await?;
    travelled(testbed, "web", time).await?;
    converged(testbed, WORKERS, 2, 30).await?;
    for _ in 0..TIMES {
        policy.filters(&scheduler, "node-0").await?;
    }
    Ok(())
}

#[test]
fn one_tenant_hurts_no_other() {
    // A PlacementPolicy concerns the operators of all stories on a plane.
    let own = block_on(Plane::own("hostile", 6)).expect("a plane of its own");
    story_on(&own.0, Road::Proxy, "hostile", async |testbed| match beside_a_hostile_tenant(testbed).await {
        Ok(()) => Ok(()),
        Err(error) => Err(with_loops(testbed, error).await),
    });
}

async fn beside_a_hostile_tenant(testbed: &Testbed) -> Result<()> {
    let tenant = HostileTenant::open(&testbed.plane.cluster, &format!("{}-hostile", testbed.ns)).await?;
    testbed.watch_too(&tenant.ns).await;
    let port = free_port()?;
    testbed.settings("placement:\n  serverNames: [127.0.0.1]")?;
    testbed.operator.lock().await.add_options(&["--extender-bind", &format!("127.0.0.1:{port}")]);
    testbed.kill_and_restart().await?;

    let scene = Scene::guarded(testbed, "other", 3).await?;
    Workload::deployment("web", 1).make(testbed).await?;
    account(testbed, SCALES).await?;
    make(testbed, "web", on("Low", json!([{"scale": {"by": 1, "max": 2}}]))).await?;
    let kubelet = pools::kubelet(testbed, true).await?;
    stateful_set(testbed, 2).await?;
    pools::pool(testbed, WORKERS, pools::reloading(json!({}))).await?;
    let policy = RefusingPolicy::create(&testbed.client, &testbed.ns, port, &testbed.ns).await?;

    tenant.workload().await?;
    let marked: Vec<(String, Option<String>)> =
        tenant.forged_pods(TIMES).await?.iter().map(|pod| (pod.name_any(), pod.uid())).collect();
    let (over, is_over) = tokio::sync::oneshot::channel::<()>();
    let hostile = async {
        let deeds = async { refused_at_apply(&tenant).await.context("at apply") };
        let others = async {
            private_addresses(&tenant).await.context("private addresses")?;
            other_kinds(&tenant).await.context("other kinds")
        };
        let ends = async {
            let _ = is_over.await;
        };
        let stranger = policy.stranger()?;
        let bodies = async {
            let large = join_all((0..TIMES).map(|_| policy.large_body(&stranger)));
            join(large, policy.slow_bodies(&stranger, ends)).await;
            anyhow::Ok(())
        };
        let (jobs, waiting) = (many_jobs(&tenant), waiting_actions(&tenant));
        try_join(try_join(deeds, others), try_join(try_join(jobs, waiting), bodies)).await
    };
    let working = async {
        works(testbed, &scene, &policy).await.context("the other tenant")?;
        let _ = over.send(());
        anyhow::Ok(())
    };
    try_join(hostile, working).await?;

    let memory = testbed.operator.lock().await.memory("VmHWM")?;
    ensure!(memory < MEMORY, "the operator has used {memory:.0} MiB");
    // The janitor has had its turn after the start.
    for (name, uid) in &marked {
        let pod = tenant.api::<Pod>().get(name).await?;
        ensure!(pod.uid() == *uid && pod.metadata.deletion_timestamp.is_none(), "{name} was deleted");
    }
    scene
        .moved(
            testbed,
            &[&scene.pod(0).0, &scene.pod(1).0, &scene.pod(2).0],
            &[&scene.free(0), &scene.free(1), &scene.free(2)],
        )
        .await?;
    let (all, none) = (ListParams::default(), DeleteParams::default());
    tenant.api::<WorkloadAction>().delete_collection(&none, &all).await?;
    becomes("the end of the hostile actions", async || {
        Ok(tenant.api::<WorkloadAction>().list(&all).await?.items.is_empty().then_some(()))
    })
    .await?;
    Api::<Namespace>::all(testbed.client.clone()).delete(&tenant.ns, &none).await?;
    kubelet.stop().await
}
