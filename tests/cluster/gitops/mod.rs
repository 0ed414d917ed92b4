//! Helm, Flux and Argo CD beside the operator, as real programs. `hack/test gitops` builds them and runs these stories.

mod actions;
mod approvals;
mod children;
mod health;
mod moves;
mod ownership;

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::testbed::Testbed;
use testkit::testbed::loops::{ACCOUNT, SCALES};
use testkit::testbed::workload::Workload;

use crate::samples::root;

/// Objects of these samples in the namespace of the testbed.
fn samples(testbed: &Testbed, files: &[&str]) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for file in files {
        let more: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(root().join(file))?)?;
        objects.extend(more.into_iter().map(|object| placed(testbed, object)));
    }
    Ok(objects)
}

/// The manifest with the namespace of the testbed, which Flux requires.
fn placed(testbed: &Testbed, mut manifest: Value) -> Value {
    if manifest["kind"] != "PlacementPolicy" {
        manifest["metadata"]["namespace"] = json!(testbed.ns);
    }
    manifest
}

/// Manifest of the Deployment `web`; None leaves the number of replicas out.
fn web(testbed: &Testbed, replicas: Option<usize>) -> Result<Value> {
    let mut manifest = placed(testbed, Workload::deployment("web", replicas.unwrap_or(1)).manifest());
    if replicas.is_none() {
        manifest["spec"].as_object_mut().context("no spec")?.remove("replicas");
    }
    Ok(manifest)
}

/// Waits until no object of these kinds is left. Children are deleted soon after their owner.
async fn gone(testbed: &Testbed, kinds: &str) -> Result<()> {
    testbed.kubectl(&["wait", kinds, "--all", "--for=delete", "--timeout=120s"], None).await?;
    let left = testbed.kubectl(&["get", kinds, "-o", "name"], None).await?;
    ensure!(left.trim().is_empty(), "left: {left}");
    Ok(())
}

/// Manifests of a loop on the Deployment `web`, and of its account.
fn loop_with_account(testbed: &Testbed, spec: Value) -> Vec<Value> {
    let rules: Vec<Value> = SCALES
        .iter()
        .map(|(group, resource, verb)| json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]}))
        .collect();
    let rbac = "rbac.authorization.k8s.io";
    let objects = [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": {"name": ACCOUNT}, "rules": rules}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": testbed.ns}]}),
        json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "metadata": {"name": "web"}, "spec": spec}),
    ];
    objects.map(|object| placed(testbed, object)).into()
}
