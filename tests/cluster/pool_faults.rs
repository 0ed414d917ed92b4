//! SwarmPools with invalid input, with deleted dependencies, or with objects that others change. The pods are
//! simulated; workers are restarted and do not report.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::swarm_pool::{SwarmPool, SwarmPoolStatus};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::testbed::Testbed;
use testkit::testbed::loops::until;
use testkit::testbed::pools::{JOBS, WORKERS, converged, file, inline, is, message, patch, pool, pool_story, spec};

/// Creates the StatefulSet of simulated pods with these annotations.
pub async fn workers(testbed: &Testbed, replicas: u32, annotations: Value) -> Result<()> {
    let template = json!({
        "metadata": {"labels": {"app": WORKERS}, "annotations": annotations},
        "spec": {"containers": [{"name": "worker", "image": "worker"}], "terminationGracePeriodSeconds": 1},
    });
    let spec = json!({
        "serviceName": WORKERS, "replicas": replicas, "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": WORKERS}}, "template": template,
    });
    testbed.create::<StatefulSet>(json!({"metadata": {"name": WORKERS}, "spec": spec})).await.map(drop)
}

async fn map(testbed: &Testbed, name: &str, text: &str) -> Result<()> {
    let map = json!({"metadata": {"name": name, "labels": {"jobs": "yes"}}, "data": {"jobs": text}});
    testbed.create::<ConfigMap>(map).await.map(drop)
}

async fn change(testbed: &Testbed, name: &str, key: &str, text: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"data": {key: text}}));
    testbed.api::<ConfigMap>().patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

fn says(status: &SwarmPoolStatus, parts: &[&str]) -> Result<()> {
    let text = message(status);
    for part in parts {
        ensure!(text.contains(part), "{part:?} is not in {text:?}");
    }
    Ok(())
}

/// Number of jobs in the file.
async fn listed(testbed: &Testbed) -> Result<usize> {
    Ok(file(testbed).await?.matches("\n      - ").count())
}

#[test]
fn one_source_that_cannot_be_read_stops_no_other_and_loses_no_job() {
    pool_story("pool-sources", async |testbed| {
        workers(testbed, 2, json!({})).await?;
        map(testbed, "a", "a-1\na-2\n# none\n\na-2\n").await?;
        map(testbed, "b", "- b-1\n- {name: b-2, weight: 3}\n- {name: b-3}\n").await?;
        let sources = json!({"configMaps": {"names": ["a"], "selector": {"matchLabels": {"jobs": "yes"}}}});
        pool(testbed, WORKERS, spec(json!({"jobs": sources}))).await?;
        says(&converged(testbed, WORKERS, 2, 5).await?, &["listed more than once: 1 job, such as a-2", "ConfigMap a"])?;
        for (text, words) in [
            ("- b-1\n- {name: b-2, weight: 0}\n", "weight"),
            ("- b-1\n- [", "ConfigMap b, key jobs"),
            (&format!("- {}\n", "x".repeat(300)), "300 characters"),
        ] {
            change(testbed, "b", "jobs", text).await?;
            until::<SwarmPool, _>(testbed, WORKERS, words, |pool| message(&pool.status?).contains(words).then_some(()))
                .await?;
            says(&is(testbed, WORKERS, "False", "SourceInvalid").await?, &["ConfigMap b", "stay"])?;
            ensure!(listed(testbed).await? >= 5, "{}", file(testbed).await?);
        }
        // The other jobs continue.
        change(testbed, "a", "jobs", "a-1\na-2\na-3\n").await?;
        until::<SwarmPool, _>(testbed, WORKERS, "six jobs", |pool| (pool.status?.jobs == Some(6)).then_some(()))
            .await?;
        change(testbed, "b", "jobs", "- b-1\n").await?;
        converged(testbed, WORKERS, 2, 4).await?;
        testbed.api::<ConfigMap>().delete("a", &DeleteParams::default()).await?;
        says(&is(testbed, WORKERS, "False", "SourceNotFound").await?, &["ConfigMap a"])?;
        ensure!(listed(testbed).await? == 4);
        map(testbed, "a", "").await?;
        converged(testbed, WORKERS, 2, 1).await.map(drop)
    });
}

#[test]
fn a_file_that_is_too_large_is_not_written_and_fits_where_each_worker_has_one() {
    pool_story("pool-large", async |testbed| {
        workers(testbed, 4, json!({})).await?;
        let lines = |count: usize| (0..count).map(|nth| format!("{nth:08}-{}\n", "x".repeat(90))).collect::<String>();
        map(testbed, "many", &lines(10_000)).await?;
        pool(testbed, WORKERS, spec(json!({"jobs": {"configMaps": {"names": ["many"]}}}))).await?;
        let status = is(testbed, WORKERS, "False", "OutputTooLarge").await?;
        says(&status, &["PerWorker", "1 MiB"])?;
        testbed.api::<SwarmPool>().delete(WORKERS, &DeleteParams::default()).await?;
        let output = json!({"configMap": "each", "layout": "PerWorker"});
        let handover = json!({"policy": "Immediate"});
        let members = json!({"jobs": {"configMaps": {"names": ["many"]}}, "output": output, "handover": handover});
        pool(testbed, "each", spec(members)).await?;
        converged(testbed, "each", 4, 10_000).await?;
        let maps = testbed.kubectl(&["get", "cm", "-l", "ganglion.dev/swarm-pool=each", "-o", "name"], None).await?;
        ensure!(maps.lines().count() == 4, "{maps}");
        testbed.kubectl(&["scale", "sts", WORKERS, "--replicas=3"], None).await?;
        converged(testbed, "each", 3, 10_000).await?;
        until::<SwarmPool, _>(testbed, "each", "the fourth ConfigMap to go", |pool| {
            (pool.status?.workers.len() == 3).then_some(())
        })
        .await?;
        let maps = testbed.kubectl(&["get", "cm", "-l", "ganglion.dev/swarm-pool=each", "-o", "name"], None).await?;
        ensure!(maps.lines().count() == 3, "{maps}");
        Ok(())
    });
}

#[test]
fn too_few_workers_of_each_kind_are_told() {
    pool_story("pool-few", async |testbed| {
        pool(testbed, WORKERS, spec(json!({}))).await?;
        says(&is(testbed, WORKERS, "False", "WorkloadNotFound").await?, &["StatefulSet swarm-worker"])?;
        workers(testbed, 0, json!({})).await?;
        says(&is(testbed, WORKERS, "False", "NoWorkers").await?, &["30 jobs"])?;
        patch(testbed, WORKERS, json!({"replicas": 2})).await?;
        converged(testbed, WORKERS, 2, 30).await?;
        patch(testbed, WORKERS, json!({"assignment": {"maxJobsPerWorker": 10}})).await?;
        let status = is(testbed, WORKERS, "False", "JobsUnassigned").await?;
        says(&status, &["10 of 30 jobs"])?;
        ensure!(
            status.unassigned.as_ref().is_some_and(|left| left.count == 10 && left.names.len() == 10),
            "{status:?}"
        );
        patch(testbed, WORKERS, json!({"replicas": 3})).await?;
        converged(testbed, WORKERS, 3, 30).await?;
        let jobs: Vec<Value> = (0..5).map(|nth| json!({"name": format!("vip-{nth}"), "qos": "Dedicated"})).collect();
        patch(testbed, WORKERS, json!({"jobs": {"inline": jobs}, "assignment": null})).await?;
        says(&is(testbed, WORKERS, "False", "WorkersMissing").await?, &["dedicated"])?;
        patch(testbed, WORKERS, json!({"replicas": 5})).await?;
        let status = converged(testbed, WORKERS, 5, 5).await?;
        ensure!(status.workers.iter().all(|one| one.jobs == 1), "{status:?}");
        testbed.api::<StatefulSet>().delete(WORKERS, &DeleteParams::default()).await?;
        is(testbed, WORKERS, "False", "WorkloadNotFound").await?;
        ensure!(listed(testbed).await? == 5, "the lists stay");
        Ok(())
    });
}

#[test]
fn what_somebody_else_writes_is_put_back_or_left_alone() {
    pool_story("pool-foreign", async |testbed| {
        workers(testbed, 2, json!({})).await?;
        map(testbed, JOBS, "mine").await?;
        pool(testbed, WORKERS, spec(json!({}))).await?;
        says(&is(testbed, WORKERS, "False", "NotOwned").await?, &[JOBS, "delete it"])?;
        ensure!(testbed.api::<ConfigMap>().get(JOBS).await?.data.is_some_and(|data| data["jobs"] == "mine"));
        testbed.api::<ConfigMap>().delete(JOBS, &DeleteParams::default()).await?;
        converged(testbed, WORKERS, 2, 30).await?;
        let before = testbed.api::<ConfigMap>().get(JOBS).await?.data;
        change(testbed, JOBS, "config.yml", "workloads: {}\n").await?;
        same(testbed, &before).await?;
        testbed.api::<ConfigMap>().delete(JOBS, &DeleteParams::default()).await?;
        same(testbed, &before).await?;
        // Changes made while the operator was down count as well.
        testbed.operator.lock().await.kill();
        let text = file(testbed).await?.replacen("      - stream:0003\n", "", 1);
        change(testbed, JOBS, "config.yml", &text).await?;
        testbed.operator.lock().await.start()?;
        until::<SwarmPool, _>(testbed, WORKERS, "a new version", |pool| (pool.status?.version > Some(1)).then_some(()))
            .await?;
        converged(testbed, WORKERS, 2, 30).await?;
        ensure!(listed(testbed).await? == 30);
        pool(testbed, "second", spec(json!({"output": {"configMap": "other"}}))).await?;
        says(&is(testbed, "second", "False", "WorkloadTaken").await?, &["SwarmPool swarm-worker"])?;
        testbed.api::<SwarmPool>().delete(WORKERS, &DeleteParams::default()).await?;
        converged(testbed, "second", 2, 30).await.map(drop)
    });
}

/// Waits until the ConfigMap has these bytes.
async fn same(testbed: &Testbed, before: &Option<std::collections::BTreeMap<String, String>>) -> Result<()> {
    until::<ConfigMap, _>(testbed, JOBS, "the same bytes", |map| (map.data == *before).then_some(())).await
}

/// Waits until the scale subresource of the pool has this number of replicas.
async fn shows(testbed: &Testbed, replicas: i32) -> Result<()> {
    until::<SwarmPool, _>(testbed, WORKERS, "the replicas of the workload in the pool", |pool| {
        (pool.spec.replicas == Some(replicas)).then_some(())
    })
    .await?;
    let scale = testbed.api::<SwarmPool>().get_scale(WORKERS).await?;
    ensure!(scale.spec.as_ref().and_then(|spec| spec.replicas) == Some(replicas), "{scale:?}");
    Ok(())
}

#[test]
fn replicas_that_somebody_else_writes_are_followed() {
    pool_story("pool-replicas", async |testbed| {
        let applied = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": WORKERS},
            "spec": {"replicas": 2, "serviceName": WORKERS, "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": WORKERS}},
                "template": {"metadata": {"labels": {"app": WORKERS}},
                    "spec": {"containers": [{"name": "worker", "image": "worker"}]}}},
        });
        let params = PatchParams::apply("flux").force();
        testbed.api::<StatefulSet>().patch(WORKERS, &params, &Patch::Apply(&applied)).await?;
        pool(testbed, WORKERS, spec(json!({"replicas": 3}))).await?;
        says(&is(testbed, WORKERS, "False", "ReplicasOwnedElsewhere").await?, &["flux", "leave replicas out"])?;
        let patched = Patch::Merge(json!({"spec": {"replicas": null}}));
        testbed.api::<SwarmPool>().patch(WORKERS, &PatchParams::default(), &patched).await?;
        converged(testbed, WORKERS, 2, 30).await?;
        shows(testbed, 2).await?;
        testbed.kubectl(&["scale", "statefulset", WORKERS, "--replicas=3"], None).await?;
        shows(testbed, 3).await?;
        converged(testbed, WORKERS, 3, 30).await?;
        testbed.kubectl(&["scale", "statefulset", WORKERS, "--replicas=2"], None).await?;
        shows(testbed, 2).await?;
        let target = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": WORKERS});
        let hpa = json!({"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target, "maxReplicas": 5}});
        testbed.create::<HorizontalPodAutoscaler>(hpa).await?;
        let free = json!({"metadata": {"managedFields": [{}]}});
        testbed.api::<StatefulSet>().patch(WORKERS, &PatchParams::default(), &Patch::Merge(&free)).await?;
        patch(testbed, WORKERS, json!({"replicas": 4})).await?;
        // The operator may observe later that Flux no longer owns the field.
        until::<SwarmPool, _>(testbed, WORKERS, "the autoscaler to be named", |pool| {
            message(&pool.status?).contains("belongs to the autoscaler web").then_some(())
        })
        .await?;
        // An autoscaler of the pool itself writes the pool's replicas.
        testbed.api::<HorizontalPodAutoscaler>().delete("web", &DeleteParams::default()).await?;
        testbed.kubectl(&["scale", "swp", WORKERS, "--replicas=3"], None).await?;
        converged(testbed, WORKERS, 3, 30).await?;
        // The workload's status may be updated later than its workers.
        until::<SwarmPool, _>(testbed, WORKERS, "three replicas in the status", |pool| {
            (pool.status?.replicas == Some(3)).then_some(())
        })
        .await
    });
}

#[test]
fn budgets_hold_and_workers_that_are_not_ready_are_told() {
    pool_story("pool-budget", async |testbed| {
        workers(testbed, 2, json!({})).await?;
        let budget = json!({"minAvailable": 2, "selector": {"matchLabels": {"app": WORKERS}}});
        testbed.create::<PodDisruptionBudget>(json!({"metadata": {"name": "all"}, "spec": budget})).await?;
        // The disruption controller must observe the pods first.
        until::<PodDisruptionBudget, _>(testbed, "all", "the budget to count", |budget| {
            (budget.status?.current_healthy == 2).then_some(())
        })
        .await?;
        let uids = uids(testbed).await?;
        pool(testbed, WORKERS, spec(json!({}))).await?;
        is(testbed, WORKERS, "Unknown", "BudgetBlocked").await?;
        ensure!(self::uids(testbed).await? == uids, "a worker was restarted");
        testbed.api::<PodDisruptionBudget>().delete("all", &DeleteParams::default()).await?;
        converged(testbed, WORKERS, 2, 30).await?;
        ensure!(self::uids(testbed).await? != uids);
        patch(testbed, WORKERS, json!({"handover": {"timeoutSeconds": 2}})).await?;
        let unready = json!({"metadata": {"annotations": {"kwok.ganglion.dev/behavior": "unready"}}});
        testbed.patch_pod(&format!("{WORKERS}-1"), unready).await?;
        says(&is(testbed, WORKERS, "False", "WorkerNotReady").await?, &["1 of 2 workers", "swarm-worker-1 in drain"])?;
        patch(testbed, WORKERS, json!({"drain": [format!("{WORKERS}-1")]})).await?;
        let status = converged(testbed, WORKERS, 1, 30).await?;
        ensure!(status.workers.iter().any(|one| one.name.ends_with("-0") && one.jobs == 30), "{status:?}");
        Ok(())
    });
}

async fn uids(testbed: &Testbed) -> Result<Vec<String>> {
    let pods = testkit::kubelet::pods(&testbed.client, &testbed.ns).await?;
    let mut uids: Vec<String> = pods.into_iter().filter_map(|pod| pod.metadata.uid).collect();
    uids.sort();
    Ok(uids)
}

#[test]
fn scaling_back_and_forth_ends_in_one_consistent_deal() {
    pool_story("pool-waver", async |testbed| {
        workers(testbed, 2, json!({})).await?;
        pool(testbed, WORKERS, spec(json!({"replicas": 2}))).await?;
        converged(testbed, WORKERS, 2, 30).await?;
        for replicas in [5, 1, 4, 2, 6, 3] {
            testbed.kubectl(&["scale", "swp", WORKERS, &format!("--replicas={replicas}")], None).await?;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let status = converged(testbed, WORKERS, 3, 30).await?;
        ensure!(status.workers.iter().all(|one| one.jobs == 10), "{status:?}");
        ensure!(listed(testbed).await? == 30);
        Ok(())
    });
}

#[test]
fn jobs_that_cannot_be_are_refused_at_apply() {
    pool_story("pool-refused", async |testbed| {
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": WORKERS});
        for (members, words) in [
            (json!({"workload": deployment}), "refresh.policy must be HotReload or None"),
            (json!({"refresh": {"policy": "HotReload"}}), "set version"),
            (json!({"jobs": {}}), "set inline, configMaps or both"),
            (json!({"jobs": {"inline": [{"name": "a"}, {"name": "a"}]}}), "Duplicate"),
            (json!({"jobs": {"inline": [{"name": ""}]}}), "name"),
            (json!({"jobs": {"inline": [{"name": "x".repeat(300)}]}}), "name"),
            (json!({"jobs": {"inline": [{"name": "a\nb"}]}}), "name"),
            (json!({"jobs": {"inline": [{"name": "a", "weight": 0}]}}), "weight"),
            (json!({"version": {"source": "Probe"}}), "source Probe needs probe"),
            (json!({"replicas": -1}), "replicas"),
            (json!({"output": {"configMap": JOBS, "key": "handover.json"}}), "choose another"),
        ] {
            let refused = pool(testbed, "one", spec(members.clone())).await;
            let error = refused.err().with_context(|| format!("{members} is accepted"))?;
            ensure!(format!("{error:#}").contains(words), "{members}: {error:#}");
        }
        pool(testbed, "one", spec(json!({"jobs": inline(1)}))).await?;
        let moved = testbed.api::<SwarmPool>();
        let patch = Patch::Merge(json!({"spec": {"output": {"configMap": "elsewhere"}}}));
        let refused = moved.patch("one", &PatchParams::default(), &patch).await;
        ensure!(refused.is_err_and(|error| error.to_string().contains("output is immutable")));
        Ok(())
    });
}
