//! The cluster before Ganglion was used, to compare it with what a removal leaves.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Map, Value};
use testkit::testbed::Testbed;
use tokio::time::{Instant, sleep};

/// Kinds in a namespace that Ganglion changes or creates.
const KINDS: &str = "deployments,replicasets,statefulsets,pods,configmaps,secrets,services,poddisruptionbudgets,leases,\
    horizontalpodautoscalers";

/// Maximum time in which the cluster comes to rest: controllers of Kubernetes replace pods and taints.
const REST: Duration = Duration::from_secs(60);

/// Metadata and specs of all objects that Ganglion can touch.
pub struct Before(Value);

impl Before {
    pub async fn of(testbed: &Testbed) -> Result<Self> {
        Ok(Self(snapshot(testbed).await?))
    }

    /// Waits until the cluster is as it was.
    pub async fn compare(&self, testbed: &Testbed) -> Result<()> {
        let deadline = Instant::now() + REST;
        loop {
            let now = snapshot(testbed).await?;
            if now == self.0 {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "not as before:\n{:#}\nbut\n{:#}", self.0, now);
            sleep(Duration::from_millis(200)).await;
        }
    }
}

async fn snapshot(testbed: &Testbed) -> Result<Value> {
    let objects = testbed.kubectl(&["get", KINDS, "-o", "json"], None).await?;
    let nodes = testbed.kubectl(&["get", "nodes", "-o", "json"], None).await?;
    let mut all: Vec<Value> = Vec::new();
    for list in [objects, nodes] {
        let list: Value = serde_json::from_str(&list)?;
        all.extend(list["items"].as_array().into_iter().flatten().map(kept));
    }
    all.sort_by_key(Value::to_string);
    Ok(Value::Array(all))
}

/// The parts of an object that a removal must restore. Pods are equal to their successors: names, nodes and generated
/// volumes do not count.
fn kept(object: &Value) -> Value {
    let meta = &object["metadata"];
    let is_pod = object["kind"] == "Pod";
    let mut kept = Map::new();
    kept.insert("kind".to_owned(), object["kind"].clone());
    for member in ["labels", "annotations", "finalizers", "ownerReferences"] {
        kept.insert(member.to_owned(), meta[member].clone());
    }
    if is_pod {
        // The API server copies the labels of its node's topology to a pod.
        if let Some(labels) = kept.get_mut("labels").and_then(Value::as_object_mut) {
            labels.retain(|label, _| !label.starts_with("topology.kubernetes.io/"));
        }
        kept.insert("gates".to_owned(), object["spec"]["schedulingGates"].clone());
    } else {
        kept.insert("name".to_owned(), meta["name"].clone());
        for member in ["spec", "data"] {
            kept.insert(member.to_owned(), object[member].clone());
        }
    }
    // Absent and empty mean the same.
    kept.retain(|_, value| {
        !(value.is_null() || *value == Value::Array(Vec::new()) || *value == Value::Object(Map::new()))
    });
    Value::Object(kept)
}

/// Checks that no object of Ganglion is left.
pub async fn has_no_objects(testbed: &Testbed) -> Result<()> {
    let mut left = BTreeMap::new();
    for crd in ganglion_api::all() {
        let name = format!("{}.{}", crd.spec.names.plural, crd.spec.group);
        let listed = testbed.plane.cluster.kubectl(&["get", &name, "-A", "-o", "name"], None).await;
        // The kind may be gone.
        let listed = listed.unwrap_or_default();
        if !listed.trim().is_empty() {
            left.insert(name, listed);
        }
    }
    ensure!(left.is_empty(), "objects are left: {left:?}");
    Ok(())
}

/// Checks that nothing of the installation is left.
pub async fn has_no_installation(testbed: &Testbed) -> Result<()> {
    let kinds = "crds,validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicies,\
        clusterroles,clusterrolebindings,namespaces";
    let listed = testbed.plane.cluster.kubectl(&["get", kinds, "-o", "name"], None).await?;
    let left: Vec<&str> = listed.lines().filter(|line| line.contains("ganglion")).collect();
    ensure!(left.is_empty(), "left of the installation: {left:?}");
    Ok(())
}
