//! The real KEDA: a loop takes over from its ScaledObject, reads the metric of a trigger from it, and goes back.
//! `hack/test keda` builds KEDA and runs this story.

use anyhow::{Context, Result, ensure};
use ganglion_api::closed_loop::LoopMode;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use serde_json::json;
use testkit::block_on;
use testkit::plane::Plane;
use testkit::servers::http::{Manner, Server};
use testkit::servers::keda::KedaProcesses;
use testkit::testbed::loops::{SCALES, account, grant_more, replicas, with_loops};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, story_on};

use super::imports::{APPLY, import, mode, scaled};

/// Name that KEDA gives to the metric of the trigger.
const METRIC: &str = "s0-metric-api-load";

/// Answer of an application with this load, of which each replica takes 10.
fn load(value: i32) -> Manner {
    Manner::Says("200 OK\nContent-Type: application/json\r\n", json!({"load": value}).to_string())
}

/// The HorizontalPodAutoscaler of KEDA exists.
async fn has_autoscaler(testbed: &Testbed) -> Result<bool> {
    Ok(testbed.api::<HorizontalPodAutoscaler>().get_opt("keda-hpa-web").await?.is_some())
}

/// I2, I6.
#[test]
fn a_paused_scaled_object_gives_the_metric_of_its_trigger_also_after_a_restart_of_keda() {
    // A separate plane, because KEDA registers an API for the whole plane.
    let plane = block_on(Plane::own("keda", 2)).expect("a plane of its own");
    story_on(&plane.0, Road::Proxy, "import-real-keda", async |testbed| {
        let application = Server::start(load(30)).await;
        let told = async {
            testbed.plane.cluster.install_crds("keda").await?;
            let first = KedaProcesses::start(testbed).await?;
            hand_over(testbed, &application).await.with_context(|| first.log())?;
            drop(first);
            let second = KedaProcesses::start(testbed).await?;
            follow_and_go_back(testbed, &application).await.with_context(|| second.log())
        };
        match told.await {
            Ok(()) => Ok(()),
            Err(error) => Err(with_loops(testbed, error).await),
        }
    });
}

/// KEDA scales by the load, and then the loop by what it reads from KEDA.
async fn hand_over(testbed: &Testbed, application: &Server) -> Result<()> {
    Workload::deployment("web", 1).make(testbed).await?;
    account(testbed, SCALES).await?;
    grant_more(testbed, "metrics", &[("external.metrics.k8s.io", METRIC, "list")]).await?;
    let trigger = json!({"type": "metrics-api", "metadata": {
        "url": application.url("/"), "valueLocation": "load", "targetValue": "10"}});
    let behavior = json!({"scaleDown": {"stabilizationWindowSeconds": 0}});
    let spec = json!({"scaleTargetRef": {"name": "web"}, "minReplicaCount": 1, "maxReplicaCount": 20, "pollingInterval": 5,
        "triggers": [trigger], "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}}});
    let object =
        json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "web"}, "spec": spec});
    testbed.kubectl(&["apply", "-f", "-"], Some(&object.to_string())).await?;
    scaled(testbed, 3).await?;

    let said = import(testbed, "scaledobject", APPLY).await?;
    ensure!(said.contains("paused ScaledObject web"), "{said}");
    ensure!(!has_autoscaler(testbed).await? && mode(testbed).await? == Some(LoopMode::Auto), "{said}");
    ensure!(replicas(testbed, "web").await?.1 == 3, "{:?}", replicas(testbed, "web").await?);
    application.turn(load(60));
    scaled(testbed, 6).await
}

/// The same loop reads from a KEDA that was started while the ScaledObject was paused.
async fn follow_and_go_back(testbed: &Testbed, application: &Server) -> Result<()> {
    application.turn(load(80));
    scaled(testbed, 8).await?;
    ensure!(!has_autoscaler(testbed).await?, "KEDA has an autoscaler for a paused ScaledObject");
    let said = import(testbed, "scaledobject", &["--undo"]).await?;
    ensure!(said.contains("ScaledObject web scales again") && mode(testbed).await?.is_none(), "{said}");
    application.turn(load(40));
    scaled(testbed, 4).await?;
    ensure!(has_autoscaler(testbed).await?, "KEDA has no autoscaler");
    Ok(())
}
