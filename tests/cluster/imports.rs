//! `ganglion import` on a live control plane: a HorizontalPodAutoscaler of the real kube-controller-manager with real
//! measurements, and a ScaledObject with the real CRD of KEDA.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ganglion_api::closed_loop::{ClosedLoop, LoopMode};
use ganglion_api::marks;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::block_on;
use testkit::plane::{Plane, kubeconfig};
use testkit::proxy::gate::HoldPoint;
use testkit::servers::usage::{self, uses};
use testkit::testbed::loops::{ACCOUNT, SCALES, account, grant_more, loop_story, replicas, until, with_loops};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, story_on};
use testkit::verdict::APP;

/// Runs `ganglion import` for the autoscaler `web`; its output, if it succeeds.
pub(super) async fn import(testbed: &Testbed, kind: &str, args: &[&str]) -> Result<String> {
    let (good, said) = testbed.ganglion(&[&["import", kind, "web"], args].concat()).await?;
    ensure!(good, "ganglion import {kind} web {args:?}: {said}");
    Ok(said)
}

pub(super) const APPLY: &[&str] = &["--apply", "--service-account", ACCOUNT];

/// Waits until a Deployment has this number of replicas.
pub(super) async fn scaled(testbed: &Testbed, number: i32) -> Result<()> {
    until::<Deployment, _>(testbed, "web", &format!("web to have {number} replicas"), |deployment| {
        (deployment.spec?.replicas? == number).then_some(())
    })
    .await
}

/// All pods of `web` use this much cpu.
async fn use_each(testbed: &Testbed, cpu: &str) -> Result<()> {
    let pods = testbed.api::<Pod>().list(&ListParams::default().labels(&format!("{APP}=web"))).await?;
    for pod in pods.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        uses(testbed, &pod.name_any(), cpu, "64Mi").await?;
    }
    Ok(())
}

/// `spec.behavior` of the autoscaler.
async fn behavior(testbed: &Testbed) -> Result<Value> {
    let hpa = testbed.api::<HorizontalPodAutoscaler>().get("web").await?;
    Ok(json!(hpa.spec.context("no spec")?.behavior))
}

/// Whether both directions of the autoscaler are switched off.
async fn is_off(testbed: &Testbed) -> Result<bool> {
    let behavior = behavior(testbed).await?;
    Ok(["scaleUp", "scaleDown"].iter().all(|direction| behavior[direction]["selectPolicy"] == "Disabled"))
}

pub(super) async fn mode(testbed: &Testbed) -> Result<Option<LoopMode>> {
    Ok(testbed.api::<ClosedLoop>().get_opt("web").await?.map(|one| one.spec.mode))
}

/// A separate plane, because the server of usage registers an API for the whole plane.
fn with_usage(name: &str, body: impl AsyncFnOnce(&Testbed) -> Result<()>) {
    let plane = block_on(Plane::own(name, 2)).expect("a plane of its own");
    story_on(&plane.0, Road::Proxy, name, async |testbed| {
        let server = usage::start(testbed, Duration::from_secs(10)).await?;
        let told = async {
            scene(testbed).await?;
            body(testbed).await
        };
        match told.await {
            Ok(()) => Ok(()),
            Err(error) => Err(with_loops(testbed, error.context(server.log())).await),
        }
    });
}

/// A Deployment of four pods at their target, and its autoscaler, which works. It has no window, so that it lowers at
/// once.
async fn scene(testbed: &Testbed) -> Result<()> {
    let web = Workload::deployment("web", 4).requests(json!({"cpu": "1"}));
    web.annotate("kwok.x-k8s.io/usage-cpu", "500m").make(testbed).await?;
    account(testbed, SCALES).await?;
    grant_more(testbed, "reads", &[("metrics.k8s.io", "pods", "list"), ("", "pods", "list")]).await?;
    let resource = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}});
    let spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2, "maxReplicas": 20, "metrics": [{"type": "Resource", "resource": resource}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    });
    testbed.create::<HorizontalPodAutoscaler>(json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    until::<HorizontalPodAutoscaler, _>(testbed, "web", "the autoscaler to see 50 %", |hpa| {
        let metric = hpa.status?.current_metrics?.into_iter().next()?;
        (metric.resource?.current.average_utilization? == 50).then_some(())
    })
    .await
}

/// I1, I8.
#[test]
fn a_live_autoscaler_hands_over_without_a_jump_and_takes_back() {
    with_usage("import-hpa", async |testbed| {
        let before = behavior(testbed).await?;
        // The manifest alone changes nothing, and the API server accepts it.
        let printed = import(testbed, "hpa", &["--service-account", ACCOUNT]).await?;
        ensure!(printed.contains("# Differs from the autoscaler:"), "{printed}");
        testbed.kubectl(&["apply", "--dry-run=server", "-f", "-"], Some(&printed)).await?;
        ensure!(mode(testbed).await?.is_none() && behavior(testbed).await? == before, "something was changed");

        let said = import(testbed, "hpa", APPLY).await?;
        ensure!(said.contains("ClosedLoop web scales in place of HorizontalPodAutoscaler web"), "{said}");
        ensure!(replicas(testbed, "web").await? == (1, 4), "{:?}", replicas(testbed, "web").await?);
        ensure!(is_off(testbed).await? && mode(testbed).await? == Some(LoopMode::Auto), "{said}");
        // The load changes, and the loop follows it. The autoscaler is off.
        use_each(testbed, "900m").await?;
        scaled(testbed, 8).await?;
        let deployment = testbed.api::<Deployment>().get("web").await?;
        let mut writers = deployment
            .metadata
            .managed_fields
            .iter()
            .flatten()
            .filter(|entry| entry.subresource.as_deref() == Some("scale"));
        ensure!(
            writers.all(|entry| entry.manager.as_deref() == Some(marks::EXECUTION_MANAGER)),
            "{:?}",
            deployment.metadata.managed_fields
        );
        use_each(testbed, "500m").await?;
        // Somebody switches it on again: that is a conflict, until it is off.
        let on = json!({"spec": {"behavior": {"scaleUp": {"selectPolicy": "Max"}}}}).to_string();
        testbed.kubectl(&["patch", "hpa", "web", "--type=merge", "-p", &on], None).await?;
        testkit::testbed::loops::ready(testbed, "web", "False", "AutoscalerConflict").await?;
        import(testbed, "hpa", APPLY).await?;
        // A second import under another name is refused.
        let (good, said) = testbed.ganglion(&["import", "hpa", "web", "--apply", "--name", "other"]).await?;
        ensure!(!good && said.contains("already imported as ClosedLoop web"), "{said}");

        let said = import(testbed, "hpa", &["--undo"]).await?;
        ensure!(said.contains("HorizontalPodAutoscaler web scales again"), "{said}");
        ensure!(mode(testbed).await?.is_none(), "the loop is there");
        ensure!(behavior(testbed).await? == before, "{} is not {before}", behavior(testbed).await?);
        ensure!(replicas(testbed, "web").await?.1 == 8, "{:?}", replicas(testbed, "web").await?);
        use_each(testbed, "200m").await?;
        scaled(testbed, 4).await
    });
}

/// Token of an administrator, whose requests can go through the proxy.
async fn administrator(testbed: &Testbed) -> Result<String> {
    testbed.create::<ServiceAccount>(json!({"metadata": {"name": "administrator"}})).await?;
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": format!("administrator-{}", testbed.ns)},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "administrator", "namespace": testbed.ns}],
    }))?;
    Api::<ClusterRoleBinding>::all(testbed.client.clone()).create(&PostParams::default(), &binding).await?;
    testbed.token("administrator").await
}

/// The writes of both directions: option, resource, method.
const WRITES: [(&str, &str, &str); 6] = [
    ("--apply", "closedloops", "POST"),
    ("--apply", "horizontalpodautoscalers", "PUT"),
    ("--apply", "closedloops", "PATCH"),
    ("--undo", "closedloops", "PATCH"),
    ("--undo", "horizontalpodautoscalers", "PUT"),
    ("--undo", "closedloops", "DELETE"),
];

#[test]
fn a_handover_that_is_killed_between_two_steps_continues() {
    with_usage("import-kill", async |testbed| {
        let before = behavior(testbed).await?;
        let through = kubeconfig::through(&testbed.proxy.address, &administrator(testbed).await?);
        for (direction, resource, method) in WRITES {
            for when in [HoldPoint::Before, HoldPoint::After] {
                let words = format!("{direction} {method} {resource} {when:?}");
                let undo = direction == "--undo";
                if undo {
                    import(testbed, "hpa", APPLY).await?;
                }
                let mut held =
                    testbed.proxy.hold(1, when, move |write| write.is_on(resource) && write.method.as_str() == method);
                let args = ["import", "hpa", "web", direction, "--service-account", ACCOUNT];
                tokio::select! {
                    // Its end drops the process, which is killed.
                    ended = testbed.ganglion_as(&through, &args, "") => bail!("{words}: not held: {ended:?}"),
                    reached = held.reached() => drop(reached.context("the proxy went away")?),
                }
                held.lose();
                let (off, mode) = (is_off(testbed).await?, mode(testbed).await?);
                ensure!(off || mode != Some(LoopMode::Auto), "{words}: both act");
                if undo {
                    import(testbed, "hpa", &["--undo"]).await.context(words.clone())?;
                } else {
                    import(testbed, "hpa", APPLY).await.context(words.clone())?;
                    ensure!(is_off(testbed).await?, "{words}");
                    import(testbed, "hpa", &["--undo"]).await.context(words.clone())?;
                }
                ensure!(behavior(testbed).await? == before, "{words}: {}", behavior(testbed).await?);
                ensure!(testbed.api::<ClosedLoop>().get_opt("web").await?.is_none(), "{words}: the loop is there");
            }
        }
        ensure!(replicas(testbed, "web").await? == (1, 4), "{:?}", replicas(testbed, "web").await?);
        Ok(())
    });
}

/// KEDA itself does not run here, only its CRD is installed: the test creates the HorizontalPodAutoscaler that KEDA
/// would create, and deletes it when the ScaledObject is paused, as KEDA does. The module `keda` has a story with the
/// real one.
#[test]
fn a_scaled_object_is_paused_and_the_loop_waits_until_keda_lets_go() {
    loop_story("import-keda", async |testbed| {
        Workload::deployment("web", 3).make(testbed).await?;
        account(testbed, SCALES).await?;
        testbed.plane.cluster.install_crds("autoscalers").await?;
        let cron = json!({"type": "cron", "metadata": {
            "timezone": "UTC", "start": "0 0 1 1 *", "end": "1 0 1 1 *", "desiredReplicas": "5"}});
        let spec = json!({"scaleTargetRef": {"name": "web"}, "minReplicaCount": 3, "maxReplicaCount": 9, "cooldownPeriod": 60,
            "triggers": [cron]});
        let object = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "web"}, "spec": spec});
        testbed.kubectl(&["apply", "-f", "-"], Some(&object.to_string())).await?;
        let of_keda = json!({
            "metadata": {"name": "keda-hpa-web", "labels": {"scaledobject.keda.sh/name": "web"}},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 3, "maxReplicas": 9},
        });
        testbed.create::<HorizontalPodAutoscaler>(of_keda).await?;
        let (good, said) = testbed.ganglion(&["import", "hpa", "keda-hpa-web"]).await?;
        ensure!(!good && said.contains("ganglion import scaledobject web"), "{said}");
        let printed = import(testbed, "scaledobject", &["--service-account", ACCOUNT]).await?;
        ensure!(printed.contains("cooldownPeriod is left out"), "{printed}");
        testbed.kubectl(&["apply", "--dry-run=server", "-f", "-"], Some(&printed)).await?;

        let paused = async || {
            let text = testbed.kubectl(&["get", "scaledobject", "web", "-o", "json"], None).await?;
            let object: Value = serde_json::from_str(&text)?;
            anyhow::Ok(object["metadata"]["annotations"][marks::KEDA_PAUSED].clone())
        };
        let lets_go = async {
            while paused().await? != "true" {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            // Its HorizontalPodAutoscaler exists: the loop does not act.
            ensure!(mode(testbed).await? == Some(LoopMode::DryRun), "{:?}", mode(testbed).await?);
            let hpas: Api<HorizontalPodAutoscaler> = testbed.api();
            hpas.delete("keda-hpa-web", &DeleteParams::default()).await?;
            anyhow::Ok(())
        };
        let (said, ()) = tokio::try_join!(import(testbed, "scaledobject", APPLY), lets_go)?;
        ensure!(said.contains("paused ScaledObject web"), "{said}");
        ensure!(mode(testbed).await? == Some(LoopMode::Auto), "{:?}", mode(testbed).await?);
        ensure!(replicas(testbed, "web").await? == (1, 3), "{:?}", replicas(testbed, "web").await?);
        import(testbed, "scaledobject", &["--undo"]).await?;
        ensure!(paused().await?.is_null() && mode(testbed).await?.is_none(), "{}", paused().await?);

        // I7: somebody applies the replicas, so the loop would not act.
        let applied = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 3}});
        let apply =
            ["apply", "--server-side", "--force-conflicts", "--field-manager=argocd", "--validate=false", "-f", "-"];
        testbed.kubectl(&apply, Some(&applied.to_string())).await?;
        let printed = import(testbed, "scaledobject", &[]).await?;
        ensure!(
            printed.contains("belongs to argocd") && printed.contains("--field-manager=ganglion/handover"),
            "{printed}"
        );
        let (good, said) = testbed.ganglion(&[&["import", "scaledobject", "web"], APPLY].concat()).await?;
        ensure!(!good && said.contains("belongs to argocd") && mode(testbed).await?.is_none(), "{said}");
        Ok(())
    });
}
