//! Resizes that the API server or a kubelet would refuse: the loop says why and sends none.

use anyhow::{Context, Result, ensure};
use ganglion_api::decision::Decision;
use ganglion_api::execution::{Execution, ExecutionState};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::testbed::Testbed;
use testkit::testbed::loops::{account, ended, loop_story, make, on, push, travelled, until};
use testkit::testbed::nodes::Size;
use testkit::testbed::workload::Workload;

use crate::loop_rungs::RESIZES;

async fn limited(testbed: &Testbed) -> Result<String> {
    until::<Execution, _>(testbed, "web", "the reason", |one| {
        let status = one.status?;
        (status.state? == ExecutionState::Limited).then_some(status.message?)
    })
    .await
}

fn resizes(testbed: &Testbed) -> usize {
    testbed.proxy.writes().iter().filter(|write| write.is_on("pods/resize")).count()
}

/// Resizes the only pod as an administrator. Returns the API server's refusal.
async fn refused_to_an_administrator(testbed: &Testbed, resources: Value) -> Result<String> {
    let pods = testbed.api::<Pod>().list(&ListParams::default()).await?.items;
    let name = pods.first().context("no pod")?.name_any();
    let patch = json!({"spec": {"containers": [{"name": "main", "resources": resources}]}});
    let patch = Patch::Strategic(patch);
    let done = testbed.api::<Pod>().patch_subresource("resize", &name, &PatchParams::default(), &patch).await;
    match done {
        Err(kube::Error::Api(status)) => Ok(format!("{} {status:?}", status.code)),
        other => anyhow::bail!("the API server did not refuse it: {other:?}"),
    }
}

/// Case R4. The API server refuses such a resize from Kubernetes 1.36 on.
#[test]
fn a_pod_that_its_node_cannot_hold_is_not_resized_before_the_node_changes() {
    loop_story("resize-node", async |testbed| {
        let nodes = testbed.nodes(1, Size { memory: "400Mi", ..Size::default() }).await?;
        let node = nodes.names.first().context("no node")?;
        let workload = Workload::deployment("web", 1).requests(json!({"memory": "256Mi"}));
        workload.spec(nodes.terms()).make(testbed).await?;
        account(testbed, RESIZES).await?;
        let ladder =
            |max: &str| json!([{"resize": {"container": "main", "resource": "memory", "factor": "2", "max": max}}]);
        make(testbed, "web", on("Low", ladder("1Gi"))).await?;
        push(testbed, "web", json!({"cpu": "2"})).await?;
        let message = limited(testbed).await?;
        let expected = "would request 512Mi memory, and node ";
        ensure!(message.contains(expected) && message.contains(node.as_str()), "{message}");
        ensure!(resizes(testbed) == 0, "{} resizes were sent", resizes(testbed));
        let refusal = refused_to_an_administrator(testbed, json!({"requests": {"memory": "512Mi"}})).await?;
        ensure!(refusal.starts_with("403") && refusal.contains("NodeCapacity"), "{refusal}");

        // The ladder rests for some minutes, unless it is changed.
        let larger = json!({"status": {"allocatable": {"memory": "1Gi"}, "capacity": {"memory": "1Gi"}}});
        let all: Api<Node> = Api::all(testbed.client.clone());
        all.patch_status(node, &PatchParams::default(), &Patch::Merge(larger)).await?;
        testbed.patch_loop("web", json!({"spec": on("Low", ladder("900Mi"))})).await?;
        until::<Decision, _>(testbed, "web", "the new ladder", |one| {
            let resize = one.spec.actions.first()?.ladder.first()?.resize.clone()?;
            (resize.max?.as_str() == "900Mi").then_some(())
        })
        .await?;
        let time = push(testbed, "web", json!({"cpu": "3"})).await?;
        let execution = travelled(testbed, "web", time).await?.2.context("it did not act")?;
        ensure!(ended(&execution) == (Some(ExecutionState::Done), "request 256Mi", "request 512Mi"), "{execution:?}");
        Ok(())
    });
}

#[test]
fn a_resize_that_would_change_the_qos_class_is_not_sent() {
    loop_story("resize-class", async |testbed| {
        let equal = json!({"cpu": "100m", "memory": "256Mi"});
        let main = json!({"name": "main", "image": "registry.example/app:1",
            "resources": {"requests": equal, "limits": equal}});
        Workload::deployment("web", 1).spec(json!({"containers": [main]})).make(testbed).await?;
        account(testbed, RESIZES).await?;
        let resize = json!({"container": "main", "resource": "memory", "factor": "2", "max": "1Gi", "what": "Limits"});
        make(testbed, "web", on("Low", json!([{"resize": resize}]))).await?;
        push(testbed, "web", json!({"cpu": "2"})).await?;
        let message = limited(testbed).await?;
        let expected = "has the QoS class Guaranteed and would get Burstable";
        ensure!(message.contains(expected), "{message}");
        ensure!(resizes(testbed) == 0, "{} resizes were sent", resizes(testbed));
        let refusal = refused_to_an_administrator(testbed, json!({"limits": {"memory": "512Mi"}})).await?;
        ensure!(refusal.starts_with("422") && refusal.contains("QOS Class may not change"), "{refusal}");
        Ok(())
    });
}
