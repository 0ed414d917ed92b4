//! Resizes that the API server or a kubelet would refuse, for which the loop says why and sends none; resizes at pod
//! level; and resizes that a kubelet defers, which the loop takes back.
//!
//! Where the version of Kubernetes lacks a feature, a story checks that the loop says so before it sends anything.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::Decision;
use ganglion_api::execution::{DeferralState, Execution, ExecutionState};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::block_on;
use testkit::plane::Plane;
use testkit::proxy::gate::HoldPoint;
use testkit::servers::usage::{self, uses};
use testkit::testbed::loops::{account, ended, grant_more, loop_story, make, on, push, ready, says, travelled, until};
use testkit::testbed::nodes::Size;
use testkit::testbed::workload::{Workload, settled};
use testkit::testbed::{Road, Testbed, stories, story_on};

use crate::loop_rungs::RESIZES;

/// Minor version of Kubernetes from which pods are resized in place, and that from which pods with resources at pod
/// level are, and resizes above the node's capacity are refused.
const IN_PLACE: u32 = 33;
const POD_LEVEL: u32 = 36;

/// Minor version of the API server.
async fn minor(testbed: &Testbed) -> Result<u32> {
    Ok(testbed.client.apiserver_version().await?.minor.trim_end_matches('+').parse()?)
}

/// Whether pods can be resized from this minor version on. If not, checks that the loop says so, and that nothing is
/// sent.
async fn can_resize(testbed: &Testbed, from: u32) -> Result<bool> {
    let minor = minor(testbed).await?;
    if minor >= from {
        return Ok(true);
    }
    let words = match minor >= IN_PLACE {
        true => format!("from Kubernetes 1.{from} on, and the API server has version 1.{minor}"),
        false => "does not serve pods/resize".to_owned(),
    };
    let message = ready(testbed, "web", "False", "NotSupported").await?;
    ensure!(message.contains(&words), "{message}");
    push(testbed, "web", json!({"cpu": "2"})).await?;
    let message = until::<Execution, _>(testbed, "web", "the failure", |one| {
        let status = one.status?;
        (status.state? == ExecutionState::Failed).then_some(status.message?)
    })
    .await?;
    ensure!(message.contains(&words) && resizes(testbed) == 0, "{} resizes: {message}", resizes(testbed));
    Ok(false)
}

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
        if !can_resize(testbed, IN_PLACE).await? {
            return Ok(());
        }
        push(testbed, "web", json!({"cpu": "2"})).await?;
        let message = limited(testbed).await?;
        let expected = "would request 512Mi memory, and node ";
        ensure!(message.contains(expected) && message.contains(node.as_str()), "{message}");
        ensure!(resizes(testbed) == 0, "{} resizes were sent", resizes(testbed));
        if minor(testbed).await? >= POD_LEVEL {
            let refusal = refused_to_an_administrator(testbed, json!({"requests": {"memory": "512Mi"}})).await?;
            ensure!(refusal.starts_with("403") && refusal.contains("NodeCapacity"), "{refusal}");
        }

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
        if !can_resize(testbed, IN_PLACE).await? {
            return Ok(());
        }
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

/// The only pod, with its memory request.
async fn only_pod(testbed: &Testbed) -> Result<(Pod, String)> {
    let pods = testbed.api::<Pod>().list(&ListParams::default()).await?.items;
    let pod = pods.into_iter().next().context("no pod")?;
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let requests = container.and_then(|one| one.resources.as_ref()).and_then(|all| all.requests.as_ref());
    let memory = requests.and_then(|requests| requests.get("memory")).context("no request")?.0.clone();
    Ok((pod, memory))
}

/// Makes a loop that doubles 256Mi of a pod whose kubelet defers it, and waits until the kubelet has said so. Returns
/// the name of the node. None: the version does not resize pods.
async fn deferred(testbed: &Testbed) -> Result<Option<String>> {
    let workload = Workload::deployment("web", 1).requests(json!({"memory": "256Mi"}));
    workload.annotate("kwok.ganglion.dev/resize", "deferred").make(testbed).await?;
    account(testbed, RESIZES).await?;
    let resize =
        json!({"container": "main", "resource": "memory", "factor": "2", "max": "1Gi", "takeBackAfter": "10s"});
    make(testbed, "web", on("Low", json!([{"resize": resize}]))).await?;
    if !can_resize(testbed, IN_PLACE).await? {
        return Ok(None);
    }
    push(testbed, "web", json!({"cpu": "2"})).await?;
    until::<Execution, _>(testbed, "web", "the kubelet's words", |one| {
        one.status?.message?.contains("Deferred: Node didn't have enough").then_some(())
    })
    .await?;
    let (pod, memory) = only_pod(testbed).await?;
    ensure!(memory == "512Mi", "{memory}");
    Ok(pod.spec.and_then(|spec| spec.node_name))
}

/// Waits until the resize is taken back. Returns the message of the Execution.
async fn taken_back(testbed: &Testbed) -> Result<String> {
    until::<Execution, _>(testbed, "web", "the resize to be taken back", |one| {
        let status = one.status?;
        let state = status.deferred.first()?.state;
        (state == DeferralState::TakenBack && status.reason? == LoopReason::ResizeTakenBack).then_some(status.message?)
    })
    .await
}

/// Case R1.
#[test]
fn a_resize_that_stays_deferred_is_taken_back_and_not_sent_again() {
    loop_story("resize-deferred", async |testbed| {
        let Some(node) = deferred(testbed).await? else { return Ok(()) };
        let message = taken_back(testbed).await?;
        let (pod, memory) = only_pod(testbed).await?;
        let expected = format!("took back the resize of pod {} on node {node} to request 512Mi, ", pod.name_any());
        ensure!(message.starts_with(&expected) && message.contains("Deferred: Node didn't have"), "{message}");
        ensure!((memory.as_str(), pod.metadata.generation) == ("256Mi", Some(3)), "{memory} {:?}", pod.metadata);
        says(testbed, "web", "LastActionSucceeded", ("False", "ResizeTakenBack")).await?;
        // The ladder rests for a minute, unless it is changed.
        let spec =
            on("Low", json!([{"resize": {"container": "main", "resource": "memory", "factor": "2.5", "max": "1Gi"}}]));
        testbed.patch_loop("web", json!({"spec": spec})).await?;
        until::<Decision, _>(testbed, "web", "the new ladder", |one| {
            let resize = one.spec.actions.first()?.ladder.first()?.resize.clone()?;
            (resize.factor.as_str() == "2.5").then_some(())
        })
        .await?;
        push(testbed, "web", json!({"cpu": "3"})).await?;
        let message = limited(testbed).await?;
        ensure!(message.contains("to request 512Mi was taken back") && message.contains(&node), "{message}");
        ensure!(resizes(testbed) == 2, "{} resizes were sent", resizes(testbed));
        Ok(())
    });
}

/// Case R1, with a crash at each write.
#[test]
fn a_take_back_killed_at_each_write_is_done_once() {
    let both = [HoldPoint::Before, HoldPoint::After];
    let cases = ["TakingBack", "pods/resize", "TakenBack"].into_iter().flat_map(|at| both.map(|when| (at, when)));
    let cases = cases.map(|(at, when)| {
        let name = format!("resize-back-{}-{when:?}", at.replace('/', "-")).to_lowercase();
        (name, (at, when))
    });
    stories(cases.collect(), async |testbed, (at, when)| {
        let (at, when) = (*at, *when);
        if deferred(testbed).await?.is_none() {
            return Ok(());
        }
        let mut held = testbed.proxy.hold(1, when, move |write| {
            write.is_on(at) || write.is_on("executions/status") && write.body.to_string().contains(&format!("\"{at}\""))
        });
        held.reached().await.context("it was not taken back")?;
        {
            let mut operator = testbed.operator.lock().await;
            operator.kill();
            held.lose();
            operator.start()?;
        }
        taken_back(testbed).await?;
        let (pod, memory) = only_pod(testbed).await?;
        ensure!((memory.as_str(), pod.metadata.generation) == ("256Mi", Some(3)), "{memory} {:?}", pod.metadata);
        Ok(())
    });
}

#[test]
fn the_deferred_resize_of_another_client_stays() {
    loop_story("resize-foreign", async |testbed| {
        if deferred(testbed).await?.is_none() {
            return Ok(());
        }
        let (pod, _) = only_pod(testbed).await?;
        let resources = json!({"requests": {"memory": "400Mi"}});
        let patch = Patch::Strategic(json!({"spec": {"containers": [{"name": "main", "resources": resources}]}}));
        let params = PatchParams { field_manager: Some("vpa-updater".to_owned()), ..PatchParams::default() };
        testbed.api::<Pod>().patch_subresource("resize", &pod.name_any(), &params, &patch).await?;
        until::<Execution, _>(testbed, "web", "the resize to be forgotten", |one| {
            let status = one.status?;
            (status.claim.is_none() && status.deferred.is_empty()).then_some(())
        })
        .await?;
        let (_, memory) = only_pod(testbed).await?;
        ensure!(memory == "400Mi" && resizes(testbed) == 1, "{memory}, {} resizes", resizes(testbed));
        Ok(())
    });
}

/// Case R9, with a real metrics-server on a plane of its own.
#[test]
fn a_memory_limit_is_not_lowered_below_the_usage() {
    let plane = block_on(Plane::own("resize-usage", 2)).expect("a plane of its own");
    story_on(&plane.0, Road::Proxy, "resize-usage", async |testbed| {
        let amounts = json!({"requests": {"memory": "64Mi"}, "limits": {"memory": "512Mi"}});
        let main = json!({"name": "main", "image": "registry.example/app:1", "resources": amounts});
        Workload::deployment("web", 1).spec(json!({"containers": [main]})).make(testbed).await?;
        account(testbed, RESIZES).await?;
        let ladder = |min: &str| json!([{"resize": {"container": "main", "resource": "memory", "factor": "0.5", "min": min, "what": "Limits"}}]);
        make(testbed, "web", on("Low", ladder("1Mi"))).await?;
        if minor(testbed).await? < IN_PLACE {
            return can_resize(testbed, IN_PLACE).await.map(drop);
        }
        let message = ready(testbed, "web", "False", "Forbidden").await?;
        ensure!(message.contains("cannot list resource \"pods\" in API group \"metrics.k8s.io\""), "{message}");
        grant_more(testbed, "reads", &[("metrics.k8s.io", "pods", "list")]).await?;
        push(testbed, "web", json!({"cpu": "2"})).await?;
        let message = limited(testbed).await?;
        let expected = "is not lowered from 512Mi to 256Mi: its usage is unknown: the cluster does not serve the API \
                        metrics.k8s.io";
        ensure!(message.contains(expected), "{message}");

        let (pod, _) = only_pod(testbed).await?;
        uses(testbed, &pod.name_any(), "10m", "300Mi").await?;
        let server = usage::start(testbed, Duration::from_secs(10)).await?;
        // Each new ladder is tried at once. Until metrics-server has measured the pod, the usage is unknown.
        let mut tries = 2..100;
        let message = loop {
            let at = tries.next().with_context(|| format!("not measured: {}", server.log()))?;
            let message = tried(testbed, ladder(&format!("{at}Mi")), at).await?.1;
            if !message.contains("usage is unknown") {
                break message;
            }
        };
        let expected = "would be 256Mi, and it uses 300Mi: a limit below the usage ends its processes";
        ensure!(message.contains(expected) && resizes(testbed) == 0, "{message}");
        uses(testbed, &pod.name_any(), "10m", "100Mi").await?;
        loop {
            let at = tries.next().with_context(|| format!("not measured again: {}", server.log()))?;
            let (state, message) = tried(testbed, ladder(&format!("{at}Mi")), at).await?;
            if state == ExecutionState::Done {
                ensure!(message.contains("limit 256Mi"), "{message}");
                return Ok(());
            }
            ensure!(message.contains("uses 300Mi"), "{message}");
        }
    });
}

/// Gives the loop this ladder, whose min is this number of MiB, and a sample. Returns the end of the decision. A pause
/// follows, since the callers try again until metrics-server, which measures at intervals, has new usage.
async fn tried(testbed: &Testbed, ladder: Value, min: usize) -> Result<(ExecutionState, String)> {
    testbed.patch_loop("web", json!({"spec": on("Low", ladder)})).await?;
    let min = format!("{min}Mi");
    until::<Decision, _>(testbed, "web", "the new ladder", |one| {
        let resize = one.spec.actions.first()?.ladder.first()?.resize.clone()?;
        (resize.min?.as_str() == min).then_some(())
    })
    .await?;
    let time = push(testbed, "web", json!({"cpu": "2"})).await?;
    let execution = travelled(testbed, "web", time).await?.2.context("it did not act")?;
    let status = execution.status.context("no status")?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok((status.state.context("no state")?, status.message.unwrap_or_default()))
}

/// A Deployment of one pod of 512Mi as a whole, with a container of 256Mi, on a node of its own, and a loop that
/// multiplies the memory of the pod. `declares`: whether the node declares the feature. Returns the name of the node.
async fn whole(testbed: &Testbed, declares: bool, resize: Value) -> Result<String> {
    let nodes = testbed.nodes(1, Size { memory: "2Gi", ..Size::default() }).await?;
    let node = nodes.names.first().context("no node")?.clone();
    if declares {
        declare(testbed, &node).await?;
    }
    let mut workload = Workload::deployment("web", 1).requests(json!({"memory": "256Mi"})).spec(nodes.terms());
    // The API server of an older version would refuse the field or leave it out.
    if minor(testbed).await? >= POD_LEVEL {
        workload = workload.spec(json!({"resources": {"requests": {"memory": "512Mi"}}}));
    }
    workload.make(testbed).await?;
    account(testbed, &[RESIZES, &[("apps", "deployments", "patch")]].concat()).await?;
    make(testbed, "web", on("Low", json!([{"resize": resize}]))).await?;
    Ok(node)
}

/// Declares that the node's kubelet resizes pods at pod level.
async fn declare(testbed: &Testbed, node: &str) -> Result<()> {
    let declares = json!({"status": {"declaredFeatures": ["InPlacePodLevelResourcesVerticalScaling"]}});
    let all: Api<Node> = Api::all(testbed.client.clone());
    all.patch_status(node, &PatchParams::default(), &Patch::Merge(declares)).await.map(drop)?;
    Ok(())
}

/// Resources of the only pod as a whole, as JSON.
async fn whole_requests(testbed: &Testbed, what: &str) -> Result<String> {
    testbed.kubectl(&["get", "pods", "-o", &format!("jsonpath={{.items[0].{what}.requests.memory}}")], None).await
}

#[test]
fn a_pod_is_resized_as_a_whole_and_so_is_the_template() {
    loop_story("resize-whole", async |testbed| {
        let resize = json!({"pod": true, "resource": "memory", "factor": "2", "max": "1Gi", "template": true});
        whole(testbed, true, resize).await?;
        if !can_resize(testbed, POD_LEVEL).await? {
            return Ok(());
        }
        let mut held = testbed.proxy.hold(1, HoldPoint::Before, |write| write.is_on("deployments"));
        let time = push(testbed, "web", json!({"cpu": "2"})).await?;
        held.reached().await.context("the template was not written")?;
        ensure!(whole_requests(testbed, "spec.resources").await? == "1Gi", "the pod was not resized");
        ensure!(whole_requests(testbed, "status.resources").await? == "1Gi", "the kubelet has not resized the pod");
        held.release();
        let execution = travelled(testbed, "web", time).await?.2.context("it did not act")?;
        ensure!(ended(&execution) == (Some(ExecutionState::Done), "request 512Mi", "request 1Gi"), "{execution:?}");
        settled(testbed, "web", 1).await?;
        let template = "jsonpath={.spec.template.spec.resources.requests.memory}";
        let template = testbed.kubectl(&["get", "deployment", "web", "-o", template], None).await?;
        ensure!(template == "1Gi" && only_pod(testbed).await?.1 == "256Mi", "{template}");
        Ok(())
    });
}

/// Case R11, and a node that does not declare the feature.
#[test]
fn a_pod_is_not_resized_below_its_containers_or_on_an_older_node() {
    loop_story("resize-whole-refused", async |testbed| {
        let rung = |factor: &str, min: usize| {
            json!({"pod": true, "resource": "memory", "factor": factor, "min": format!("{min}Mi"), "max": "1Gi",
                "what": "Requests"})
        };
        let node = whole(testbed, false, rung("2", 1)).await?;
        if !can_resize(testbed, POD_LEVEL).await? {
            return Ok(());
        }
        push(testbed, "web", json!({"cpu": "2"})).await?;
        let message = limited(testbed).await?;
        let expected = format!("node {node} of pod ");
        ensure!(message.starts_with(&expected) && message.contains("does not declare InPlacePodLevel"), "{message}");
        let patch = Patch::Strategic(json!({"spec": {"resources": {"requests": {"memory": "1Gi"}}}}));
        let (pod, _) = only_pod(testbed).await?;
        let pods = testbed.api::<Pod>();
        let done = pods.patch_subresource("resize", &pod.name_any(), &PatchParams::default(), &patch).await;
        let refusal = done.err().context("the API server resized it")?.to_string();
        ensure!(refusal.contains("requires features InPlacePodLevelResourcesVerticalScaling"), "{refusal}");

        declare(testbed, &node).await?;
        // The answer about the node is cached for half a minute.
        let mut tries = 2..100;
        let message = loop {
            let at = tries.next().context("the node counts as old for minutes")?;
            let ladder = json!([{"resize": rung("0.25", at)}]);
            let message = tried(testbed, ladder, at).await?.1;
            if !message.contains("does not declare") {
                break message;
            }
        };
        let expected = "as a whole would have 128Mi memory, less than the requests of its containers, 256Mi";
        ensure!(message.contains(expected) && resizes(testbed) == 0, "{message}");
        Ok(())
    });
}
