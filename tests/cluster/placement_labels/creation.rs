//! Pods created without a pause, while the policy of the API server, its binding, its parameters and labels change: in
//! the same second, too. None is refused.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use ganglion_api::marks::{DEFAULT_POLICY, LABEL_POLICY, POD_POLICY};
use http::Request;
use kube::api::{Patch, PatchParams};
use kube::{Client, Error};
use serde_json::{Value, json};
use testkit::plane::namespace;
use testkit::testbed::Testbed;
use testkit::testbed::loops::condition;
use tokio::task::JoinHandle;

use super::scene::{POLICY, Scene, keys_read};

/// The second policy of these stories. Its rejections are required; it has no label on pods by default.
pub const STRICT: &str = "strict";
pub const STRICT_KEY: &str = "ganglion.node-restriction.kubernetes.io/strict";

/// Pause between two pods.
const PAUSE: Duration = Duration::from_millis(40);

/// A client that reports each refusal: the default one tries again after a 503.
pub fn impatient(testbed: &Testbed) -> Result<Client> {
    let mut config = testbed.plane.cluster.config.clone();
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Answer to a pod that is created by a dry run.
pub async fn dry_run(client: &Client, namespace: &str, pod: &Value) -> Result<Value, Error> {
    let request = Request::post(format!("/api/v1/namespaces/{namespace}/pods?dryRun=All"))
        .header("content-type", "application/json")
        .body(pod.to_string().into_bytes())
        .expect("a valid request");
    client.request(request).await
}

/// A pod without anything special, with these labels.
pub fn pod(labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "probe-", "labels": labels},
        "spec": {
            "automountServiceAccountToken": false, "containers": [{"name": "main", "image": "registry.example/app:1"}],
        },
    })
}

/// A namespace whose pods get no terms.
pub async fn plain(scene: &Scene<'_>) -> Result<String> {
    let name = format!("{}-plain", scene.testbed.ns);
    namespace(&scene.testbed.client, &name).await?;
    Ok(name)
}

/// Number of pods that were created, of those with terms, and what the API server answered to the others.
#[derive(Default)]
struct Created {
    all: usize,
    with_terms: usize,
    refused: Vec<String>,
}

impl Created {
    fn add(&mut self, labels: &Value, answer: Result<Value, Error>) {
        self.all += 1;
        match answer {
            Ok(pod) => self.with_terms += usize::from(!keys_read(&pod).is_empty()),
            Err(error) => self.refused.push(format!("{labels}: {error}")),
        }
    }
}

/// Creates pods until it is dropped.
pub struct PodStream {
    created: Arc<Mutex<Created>>,
    task: JoinHandle<()>,
}

impl PodStream {
    fn start(testbed: &Testbed) -> Result<Self> {
        let created = Arc::<Mutex<Created>>::default();
        let (client, namespace, shared) = (impatient(testbed)?, testbed.ns.clone(), Arc::clone(&created));
        let task = tokio::spawn(async move {
            let all = [json!({}), json!({POD_POLICY: STRICT})];
            for labels in all.iter().cycle() {
                let answer = dry_run(&client, &namespace, &pod(labels)).await;
                shared.lock().unwrap_or_else(PoisonError::into_inner).add(labels, answer);
                tokio::time::sleep(PAUSE).await;
            }
        });
        Ok(Self { created, task })
    }

    fn none_refused(self) -> Result<()> {
        let created = self.created.lock().unwrap_or_else(PoisonError::into_inner);
        println!("{} pods created during changes, {} with terms", created.all, created.with_terms);
        let refused = &created.refused;
        ensure!(refused.is_empty(), "{} pods were refused, such as {:?}", refused.len(), refused.first());
        Ok(())
    }
}

impl Drop for PodStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Creates everything at once, while pods are created.
pub async fn begin(scene: &Scene<'_>) -> Result<()> {
    scene.ranks(["10", "8", "5", "0"]).await?;
    scene.opt(&scene.testbed.ns, Some("labels")).await?;
    let pods = PodStream::start(scene.testbed)?;
    let (soft, strict) = (json!({}), json!({"labels": {"rejections": "Required"}}));
    tokio::try_join!(
        scene.component("placement-labels/rights.yaml"),
        scene.component("placement-labels/policy.yaml"),
        scene.policy(POLICY, &soft),
        scene.policy(STRICT, &strict),
    )?;
    scene.says(POLICY, "LabelsCurrent", ("True", "Labeled")).await?;
    scene.labeled_by(STRICT_KEY, &scene.each(["15", "12", "8", "0"])).await?;
    pods.none_refused()
}

/// Changes the binding, the namespace, the parameters and their status, while pods are created.
pub async fn changed(scene: &Scene<'_>) -> Result<()> {
    let pods = PodStream::start(scene.testbed)?;
    // An informer of parameters that ends with its last binding has to start again (kubernetes/kubernetes#130887).
    for _ in 0..2 {
        let kind = "mutatingadmissionpolicybinding";
        scene.testbed.plane.cluster.kubectl(&["delete", kind, LABEL_POLICY], None).await?;
        scene.until_terms(&json!({}), 0).await?;
        let told = scene.says(POLICY, "LabelsApplied", ("False", "NotInstalled")).await?;
        let said = condition(&told.conditions, "LabelsApplied").map(|one| one.message).unwrap_or_default();
        ensure!(said.contains("install kustomize/components/placement-labels"), "{said}");
        scene.component("placement-labels/policy.yaml").await?;
        scene.until_terms(&json!({}), 4).await?;
    }
    // The time until which labels are valid passes, and is renewed.
    for age in ["10s", "5m"] {
        let long_ago = Patch::Merge(json!({"status": {"validUntil": "2020-01-01T00:00:00Z"}}));
        scene.policies().patch_status(POLICY, &PatchParams::default(), &long_ago).await?;
        scene.policy(POLICY, &json!({"maxAge": age})).await?;
        scene.until_terms(&json!({}), 4).await?;
    }
    let marked = |value: &str| Patch::Merge(json!({"metadata": {"labels": {DEFAULT_POLICY: value}}}));
    for (is_default, terms) in [("false", 0), ("true", 4)] {
        scene.policies().patch(POLICY, &PatchParams::default(), &marked(is_default)).await?;
        scene.until_terms(&json!({}), terms).await?;
    }
    for (label, terms) in [(None, 0), (Some("labels"), 4)] {
        scene.opt(&scene.testbed.ns, label).await?;
        scene.until_terms(&json!({}), terms).await?;
    }
    pods.none_refused()
}
