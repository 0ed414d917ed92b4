//! `ganglion explain placement` explains pods that were placed by labels.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use testkit::plane::install::NAMESPACE;
use testkit::root;
use testkit::testbed::loops::until;

use super::scene::{KEY, POLICY, Scene};

/// Pod that is explained.
const EXPLAINED: &str = "explained";

impl Scene<'_> {
    /// Creates a pod of this scheduler that stays, and checks its node. Returns when it was scheduled.
    pub async fn placed(&self, scheduler: &str, expected: &str) -> Result<Timestamp> {
        let pod = json!({
            "metadata": {"name": EXPLAINED},
            "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "image": "registry.example/app:1"}]},
        });
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        let scheduled = |pod: Pod| {
            let conditions = pod.status?.conditions.unwrap_or_default();
            let mut scheduled = conditions.into_iter().filter(|one| one.type_ == "PodScheduled");
            Some((pod.spec?.node_name?, scheduled.next()?.last_transition_time?.0))
        };
        let (node, at) = until::<Pod, _>(self.testbed, EXPLAINED, "a node", scheduled).await?;
        ensure!(node == expected, "{EXPLAINED} is on {node}, and {expected} is the best node");
        Ok(at)
    }

    /// Explanation of that pod, as data and as text.
    pub async fn explain(&self, policy: &str) -> Result<(Value, String)> {
        let asked = ["explain", "placement", "--policy", policy, "--pod", EXPLAINED];
        let (done, text) = self.testbed.ganglion(&asked).await?;
        ensure!(done, "{text}");
        let (_, json) = self.testbed.ganglion(&[&asked[..], &["-o", "json"]].concat()).await?;
        Ok((serde_json::from_str(&json).with_context(|| json.clone())?, text))
    }
}

/// Waits until the next second, since a label that is written in the second of a pod may be that before or after it.
pub async fn until_after(at: Timestamp) {
    while Timestamp::now().as_second() <= at.as_second() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A text in one line.
pub fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The label of a node in an explanation.
pub fn then_and_now(found: &Value, node: &str) -> (Value, Value) {
    let nodes = found["labels"]["labels"][0]["nodes"].as_array();
    let node = nodes.into_iter().flatten().find(|one| one["name"] == node);
    node.map(|node| (node["then"].clone(), node["now"].clone())).unwrap_or_default()
}

/// Installs the configuration of the component `scheduler`, as Kustomize names it, without pods.
pub async fn configured(scene: &Scene<'_>, configuration: &Path) -> Result<()> {
    let name = "ganglion-scheduler-config-5k2t9h7c";
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE},
        "data": {"scheduler.yaml": std::fs::read_to_string(configuration)?},
    });
    let component = std::fs::read_to_string(root().join("kustomize/components/scheduler/deployment.yaml"))?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&component)?;
    let mut deployment = objects.into_iter().find(|object| object["kind"] == "Deployment").context("no Deployment")?;
    deployment["spec"]["replicas"] = json!(0);
    deployment["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = json!(name);
    for object in [map, deployment] {
        let cluster = &scene.testbed.plane.cluster;
        cluster.kubectl(&["apply", "--server-side", "-f", "-"], Some(&object.to_string())).await?;
    }
    Ok(())
}

/// The command shows the terms of a pod, and the labels when it was scheduled and now.
pub async fn explained(scene: &Scene<'_>) -> Result<()> {
    let at = scene.placed("default-scheduler", &scene.nodes[0]).await?;
    until_after(at).await;
    scene.rank(&scene.nodes[0], "1").await?;
    let [best, second] = [scene.nodes[0].clone(), scene.nodes[1].clone()];
    scene.labeled(&[(best.clone(), Some("4")), (second.clone(), Some("15"))].into()).await?;
    let (found, text) = scene.explain(POLICY).await?;
    ensure!(then_and_now(&found, &best) == (json!("15"), json!("4")), "{text}");
    ensure!(then_and_now(&found, &second) == (json!("12"), json!("15")), "{text}");
    let terms =
        format!("pod 4 preferred terms (weights 6, 12, 24, 48) read {KEY} scheduler the profile of default-scheduler");
    for said in [terms, format!("on {best} {KEY}: NODE THEN WRITTEN NOW WRITTEN NOTE {best} 15 20")] {
        ensure!(words(&text).contains(&said), "no {said:?} in {text}");
    }
    ensure!(text.contains("  the pod is here\n"), "{text}");
    // The newest entry of the history is the label.
    let node = scene.nodes().get(&best).await?;
    let history = node.annotations().get(KEY).context("no history")?;
    ensure!(history.starts_with("4@") && history.contains(",15@"), "{history}");
    scene.rank(&best, "10").await?;
    scene.labeled(&[(best, Some("15")), (second, Some("12"))].into()).await?;
    scene.clear().await
}

/// A pod that is created after the labels have expired is explained.
pub async fn late(scene: &Scene<'_>) -> Result<()> {
    let late = json!({"metadata": {"name": EXPLAINED}, "spec": {"containers": [{"name": "main", "image": "none"}]}});
    scene.pods().create(&PostParams::default(), &serde_json::from_value(late)?).await?;
    let (_, text) = scene.explain(POLICY).await?;
    let said = words(&text);
    ensure!(said.contains("pod no terms in its spec: created 20") && said.contains(", after validUntil 20"), "{text}");
    scene.clear().await
}

/// The labels of a deleted policy are removed with their histories, and a pod with terms that read them is explained.
pub async fn deleted(scene: &Scene<'_>) -> Result<()> {
    scene.placed("default-scheduler", &scene.nodes[0]).await?;
    scene.policies().delete(POLICY, &DeleteParams::default()).await?;
    scene.labeled(&scene.all(None)).await?;
    let nodes = scene.nodes().list(&ListParams::default()).await?;
    ensure!(nodes.iter().all(|node| !node.annotations().contains_key(KEY)), "a history stays");
    let (found, text) = scene.explain(POLICY).await?;
    ensure!(
        words(&text).contains("policy there is no PlacementPolicy ranked: it was deleted or has another name"),
        "{text}"
    );
    ensure!(words(&text).contains("then is not known, the label has no history"), "{text}");
    ensure!(
        found["nodes"] == json!([]) && then_and_now(&found, &scene.nodes[0]) == (Value::Null, Value::Null),
        "{text}"
    );
    scene.clear().await
}
