//! Report about a testbed whose story failed.

use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use crate::eye::Happening;
use crate::kstatus::{message, ready};
use crate::operator::Operator;
use crate::plane::audit;
use crate::testbed::Testbed;
use crate::verdict::{node_of, serves};

/// Time within which the operator serves its metrics.
const ANSWER: Duration = Duration::from_secs(5);

/// The complaint, followed by actions, pods, events, writes, the state of the operator, and the end of its log.
pub async fn report_all(testbed: &Testbed, name: &str, complaint: &str) -> String {
    let mut text = format!("\n=== {name} (namespace {}): {complaint}\n", testbed.ns);
    let seen = testbed.eye.now();
    for action in seen.actions.values() {
        let words = (ready(action), message(action));
        let _ = writeln!(text, "--- action {} {words:?} finalizers {:?}", action.name_any(), action.finalizers());
        let _ = writeln!(text, "spec   {}", serde_json::to_string(&action.spec).unwrap_or_default());
        let _ = writeln!(text, "status {}", serde_json::to_string_pretty(&action.status).unwrap_or_default());
    }
    text.push_str("--- who created and deleted actions, and when the eye saw changes\n");
    for one in audit::read_kept().into_iter().flatten() {
        if one.namespace == testbed.ns && one.resource == "workloadactions" {
            let _ =
                writeln!(text, "{} {} {} by {}, failed: {}", one.received, one.verb, one.name, one.user, one.failed);
        }
    }
    for happening in &seen.history {
        if let Happening::Action(action) = happening {
            let (version, ends) = (action.resource_version(), &action.metadata.deletion_timestamp);
            let _ = writeln!(text, "{} at version {version:?}, deleted: {}", action.name_any(), ends.is_some());
        }
    }
    for (name, object) in &seen.deployments {
        let replicas = object.spec.as_ref().and_then(|spec| spec.replicas);
        let _ =
            writeln!(text, "--- Deployment {name} generation {:?} replicas {replicas:?}", object.metadata.generation);
    }
    for (name, object) in &seen.sets {
        let replicas = object.spec.as_ref().and_then(|spec| spec.replicas);
        let _ = writeln!(text, "--- ReplicaSet {name} replicas {replicas:?} annotations {:?}", object.annotations());
    }
    text.push_str("--- pods\n");
    for pod in seen.pods.values() {
        let _ = writeln!(text, "{}", line_of(pod));
    }
    text.push_str("--- events\n");
    for event in Api::<Event>::namespaced(testbed.client.clone(), &testbed.ns)
        .list(&ListParams::default())
        .await
        .into_iter()
        .flatten()
    {
        let kind = event.involved_object.kind.unwrap_or_default();
        let on = event.involved_object.name.unwrap_or_default();
        let (reason, message) = (event.reason.unwrap_or_default(), event.message.unwrap_or_default());
        if !matches!(reason.as_str(), "Scheduled" | "SuccessfulCreate" | "SuccessfulDelete" | "ScalingReplicaSet") {
            let _ = writeln!(text, "{kind}/{on} {reason}: {message}");
        }
    }
    text.push_str("--- writes of the operator\n");
    for write in testbed.proxy.writes() {
        let _ = writeln!(text, "{write}");
    }
    let operator = testbed.operator.lock().await;
    let _ = writeln!(text, "--- {}", life_signs(testbed, &operator).await);
    let _ = writeln!(text, "--- log of the operator\n{}", operator.log_tail(60));
    text
}

/// Whether the operator renews its lease, and its metrics without histograms: an operator that hangs looks like one
/// that has nothing to do.
async fn life_signs(testbed: &Testbed, operator: &Operator) -> String {
    let now = Timestamp::now();
    let lease = testbed.lease().await.map(|lease| match lease.and_then(|lease| lease.spec) {
        Some(spec) => {
            format!("lease of {:?}, renewed at {:?}", spec.holder_identity, spec.renew_time.map(|time| time.0))
        }
        None => "no lease".to_owned(),
    });
    let metrics = match tokio::time::timeout(ANSWER, operator.get("/metrics")).await {
        Ok(Ok(metrics)) => {
            let is_told =
                |line: &&str| line.starts_with("ganglion_") && !line.contains("_bucket{") && !line.ends_with(" 0");
            metrics.lines().filter(is_told).collect::<Vec<_>>().join("\n")
        }
        Ok(Err(error)) => format!("no metrics: {error:#}"),
        Err(_) => format!("no metrics within {} s", ANSWER.as_secs()),
    };
    format!("at {now}: {}\n{metrics}", lease.unwrap_or_else(|error| format!("{error:#}")))
}

/// One pod, with the fields that a person would look at.
fn line_of(pod: &Pod) -> String {
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let state = match (pod.metadata.deletion_timestamp.is_some(), serves(pod)) {
        (true, _) => "Terminating",
        (false, true) => "Ready",
        (false, false) => "NotReady",
    };
    let owners: Vec<String> = pod
        .owner_references()
        .iter()
        .map(|owner| format!("{}/{}{}", owner.kind, owner.name, if owner.controller == Some(true) { "*" } else { "" }))
        .collect();
    format!(
        "{} on {} {phase} {state} owners {owners:?} labels {:?} annotations {:?}",
        pod.name_any(),
        node_of(pod),
        pod.labels(),
        pod.annotations(),
    )
}
