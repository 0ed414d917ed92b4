//! Checks of every testbed once its actions have ended: nothing of the operator may be left.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use ganglion_api::marks;
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};

use crate::eye::Seen;
use crate::kstatus;
use crate::testbed::Testbed;

/// Annotations of pods that are workers of a SwarmPool; they remain.
const OF_POOLS: [&str; 3] = [marks::WORKER, marks::JOB_VERSION, marks::OBSERVED_VERSION];

/// Label of pods that a test created without a controller on purpose.
pub const BARE: &str = "test.ganglion.dev/bare";

/// Maximum time until the last surplus pod is gone, or until the last write if another operator takes over before it.
const MOMENT: Duration = Duration::from_secs(60);

/// Waits until nothing is left in the whole testbed. The error lists the leftovers.
pub async fn rest_clean(testbed: &Testbed) -> Result<()> {
    clean(testbed, |seen| [of_workloads(seen, |_| true), of_actions(seen)].concat()).await
}

/// Waits until nothing is left on the pods and the workload of this app, regardless of other workloads.
pub async fn app_clean(testbed: &Testbed, app: &str) -> Result<()> {
    clean(testbed, |seen| of_workloads(seen, |name| name == app || name.starts_with(&format!("{app}-")))).await
}

async fn clean(testbed: &Testbed, leftovers: impl Fn(&Seen) -> Vec<String>) -> Result<()> {
    let clean = |seen: &Seen| leftovers(seen).is_empty().then_some(());
    if testbed.eye.within(MOMENT, "rest", clean).await.is_ok() {
        return Ok(());
    }
    bail!("not at rest:\n  {}", leftovers(&testbed.eye.now()).join("\n  "))
}

/// Leftovers on pods and workloads with these names.
fn of_workloads(seen: &Seen, named: impl Fn(&str) -> bool) -> Vec<String> {
    let mut left = Vec::new();
    let pods = seen.pods.values().filter(|pod| named(&pod.name_any()) && !pod.labels().contains_key(BARE));
    for pod in pods {
        left.extend(of_pod(pod).into_iter().map(|what| format!("pod {}: {what}", pod.name_any())));
    }
    let ledgers = seen.deployments.values().map(|object| (object.name_any(), object.annotations()));
    let ledgers = ledgers.chain(seen.sets.values().map(|object| (object.name_any(), object.annotations())));
    let ledgers = ledgers.filter(|(name, annotations)| named(name) && annotations.contains_key(marks::LEDGER));
    for (name, annotations) in ledgers {
        left.push(format!("workload {name}: ledger {:?}", annotations.get(marks::LEDGER)));
    }
    left
}

fn of_actions(seen: &Seen) -> Vec<String> {
    let mut left = Vec::new();
    for action in seen.actions.values() {
        left.extend(of_action(action).into_iter().map(|what| format!("action {}: {what}", action.name_any())));
    }
    // Its action may be the owner, if the receipt is for this object only.
    let is_stranger = |receipt: &&Arc<WorkloadActionReceipt>| {
        receipt.owner_references().iter().any(|owner| receipt.spec.action_uid != *owner.uid)
    };
    for receipt in seen.receipts.values().filter(is_stranger) {
        left.push(format!("receipt {}: it has another owner than its action", receipt.name_any()));
    }
    left
}

fn of_pod(pod: &Pod) -> Vec<String> {
    let mut left = Vec::new();
    if pod.metadata.deletion_timestamp.is_some() {
        return left;
    }
    let owners = pod.owner_references();
    let controlled = owners.iter().any(|owner| owner.controller == Some(true));
    if !controlled {
        left.push(if is_pinned(pod) { "pinned, without a controller" } else { "without a controller" }.to_owned());
    }
    for owner in owners.iter().filter(|owner| owner.kind == WorkloadAction::kind(&())) {
        left.push(format!("owned by action {}", owner.name));
    }
    // Others may own the pod besides its ReplicaSet.
    let sets = owners.iter().filter(|owner| owner.kind == "ReplicaSet").count();
    if sets > 1 {
        left.push(format!("{sets} ReplicaSets"));
    }
    for (key, value) in pod.annotations() {
        let cost = key == marks::DELETION_COST && value == marks::LOWEST_COST;
        if key.starts_with("ganglion.dev/") && !OF_POOLS.contains(&key.as_str()) || cost {
            left.push(format!("{key}={value}"));
        }
    }
    left
}

/// Whether its affinity names a node; only replacements of the operator are pinned like this.
fn is_pinned(pod: &Pod) -> bool {
    let spec = serde_json::to_value(&pod.spec).unwrap_or_default();
    spec.pointer("/affinity/nodeAffinity").is_some_and(|affinity| affinity.to_string().contains("matchFields"))
}

fn of_action(action: &WorkloadAction) -> Vec<String> {
    let mut left = kstatus::complaints(action);
    if kstatus::is_over(action) && action.finalizers().iter().any(|name| name == marks::FINALIZER) {
        left.push("it has ended and still has its finalizer".to_owned());
    }
    left
}

#[cfg(test)]
mod tests {
    //! Checks that each kind of leftover is detected.

    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn left_of(metadata: Value, spec: Value) -> Vec<String> {
        let mut pod = json!({"metadata": metadata, "spec": spec});
        pod["metadata"]["name"] = json!("p");
        pod["spec"]["containers"] = json!([]);
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        of_workloads(&Seen { pods: [("p".to_owned(), Arc::new(pod))].into(), ..Seen::default() }, |_| true)
    }

    fn set() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "s", "uid": "1", "controller": true})
    }

    #[test]
    fn a_replica_at_rest_leaves_nothing() {
        assert_eq!(left_of(json!({"ownerReferences": [set()]}), json!({})), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_leftover_is_seen() {
        let pin = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}});
        let action = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction", "name": "a", "uid": "2"});
        for (metadata, spec, what) in [
            (json!({}), json!({}), "pod p: without a controller"),
            (json!({}), pin, "pod p: pinned, without a controller"),
            (json!({"ownerReferences": [set(), action]}), json!({}), "pod p: owned by action a"),
            (
                json!({"ownerReferences": [set()], "annotations": {marks::SLOT: "x"}}),
                json!({}),
                "pod p: ganglion.dev/slot=x",
            ),
            (
                json!({"ownerReferences": [set()], "annotations": {marks::DELETION_COST: marks::LOWEST_COST}}),
                json!({}),
                "pod p: controller.kubernetes.io/pod-deletion-cost=-2147483648",
            ),
        ] {
            let left = left_of(metadata, spec);
            assert!(left.iter().any(|one| one == what), "{what} is not in {left:?}");
        }
    }
}
