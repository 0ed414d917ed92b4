//! Faults: the operator is killed between two writes, a policy becomes invalid, the API server restarts; and operators
//! of others that compare pods with their template.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Error, ResourceExt};
use serde_json::{Value, json};
use testkit::hostile::becomes;
use testkit::proxy::Write;
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::guard::WriteGuard;
use testkit::testbed::loops::condition;
use testkit::{root, wait_for};
use tokio::task::JoinHandle;

use super::creation::{dry_run, impatient, pod};
use super::scene::{KEY, POLICY, Scene, keys_read};
use crate::crash::kill_at;

/// Maximum time for which a restarted API server may refuse pods. It reads policies and CRDs first.
const REFUSING: Duration = Duration::from_secs(30);

fn labels_of(write: &Write) -> Option<&serde_json::Map<String, Value>> {
    write.is_on("nodes").then(|| write.body.pointer("/metadata/labels")?.as_object()).flatten()
}

/// Kills the operator between two writes of labels, before and after the API server has one: each node ends with its
/// label, and none loses it meanwhile.
pub async fn killed(scene: &Scene<'_>) -> Result<()> {
    let proxy = &scene.testbed.proxy;
    let before = proxy.writes().len();
    let cases = [
        (HoldPoint::Before, ["0", "5", "8", "10"], ["0", "8", "12", "15"]),
        (HoldPoint::After, ["10", "8", "5", "0"], ["15", "12", "8", "0"]),
    ];
    for (when, ranks, labels) in cases {
        let mut held = proxy.hold(2, when, |write| labels_of(write).is_some_and(|labels| labels.contains_key(KEY)));
        scene.ranks(ranks).await?;
        held.reached().await.context("no second write")?;
        kill_at(scene.testbed, held).await?;
        scene.labeled(&scene.each(labels)).await?;
    }
    let writes = proxy.writes();
    let of_labels: Vec<_> = writes[before..].iter().filter_map(labels_of).collect();
    ensure!(of_labels.len() >= 8, "{} writes", of_labels.len());
    let removed: Vec<_> = of_labels.iter().filter(|labels| labels.values().any(Value::is_null)).collect();
    ensure!(removed.is_empty(), "labels were removed: {removed:?}");
    Ok(())
}

/// While the label of one node is refused, the others follow their scores and stay valid.
pub async fn refused(scene: &Scene<'_>) -> Result<()> {
    let last = &scene.nodes[3];
    scene.ranks(["10", "8", "5", "0"]).await?;
    scene.policy(POLICY, &json!({"maxAge": "10s"})).await?;
    scene.labeled(&scene.each(["15", "12", "8", "0"])).await?;
    let updates = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"], "operations": ["UPDATE"], "resourceNames": [last],
    });
    let same = format!("object.metadata.labels[{KEY:?}] == oldObject.metadata.labels[{KEY:?}]");
    let guard = WriteGuard::place(scene.testbed, updates, &same, "labels are not for you").await?;
    let other = Patch::Merge(json!({"metadata": {"labels": {KEY: "9"}}}));
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    becomes("the guard", async || Ok(scene.nodes().patch(last, &params, &other).await.err())).await?;
    scene.ranks(["2", "8", "10", "8"]).await?;
    scene.labeled(&scene.each(["3", "12", "15", "0"])).await?;
    let status = scene.says(POLICY, "LabelsCurrent", ("False", "LabelsNotWritten")).await?;
    let said = condition(&status.conditions, "LabelsCurrent").map(|one| one.message).unwrap_or_default();
    ensure!(said.starts_with(&format!("node {last} cannot be labeled: ")), "{said}");
    ensure!(said.ends_with("The labels of the other nodes are valid"), "{said}");
    becomes("labels that are valid for longer", async || {
        let found = scene.policies().get(POLICY).await?.status.unwrap_or_default();
        Ok(found.valid_until.filter(|until| Some(until) > status.valid_until.as_ref()))
    })
    .await?;
    // The label that the node has is right again, so nothing is refused.
    scene.rank(last, "0").await?;
    scene.says(POLICY, "LabelsCurrent", ("True", "Labeled")).await?;
    scene.rank(last, "8").await?;
    scene.says(POLICY, "LabelsCurrent", ("False", "LabelsNotWritten")).await?;
    guard.remove().await?;
    scene.labeled(&scene.each(["3", "12", "15", "12"])).await?;
    scene.says(POLICY, "LabelsCurrent", ("True", "Labeled")).await?;
    scene.policy(POLICY, &json!({})).await?;
    scene.ranks(["10", "8", "5", "0"]).await?;
    scene.labeled(&scene.each(["15", "12", "8", "0"])).await
}

/// While a policy is invalid, the labels stay, and pods get terms until they expire.
pub async fn invalid(scene: &Scene<'_>) -> Result<()> {
    let labels = scene.each(["15", "12", "8", "0"]);
    let valid = scene.says(POLICY, "LabelsCurrent", ("True", "Labeled")).await?;
    scene
        .policy(POLICY, &json!({"agents": [{"name": "rank", "expression": {"score": "double(node.labels["}}]}))
        .await?;
    let status = scene.says(POLICY, "Ready", ("False", "ExpressionInvalid")).await?;
    let current = condition(&status.conditions, "LabelsCurrent").context("no condition LabelsCurrent")?;
    ensure!((current.status.as_str(), current.reason.as_str()) == ("Unknown", "NotCompared"), "{current:?}");
    ensure!(current.message.contains("the labels of the nodes stay"), "{}", current.message);
    ensure!(status.valid_until >= valid.valid_until, "{:?} {:?}", status.valid_until, valid.valid_until);
    ensure!(status.labels.is_some_and(|labels| labels.key == KEY), "the status forgets the labels");
    // The operator works on: another policy follows the scores.
    scene.ranks(["0", "5", "8", "10"]).await?;
    scene.labeled_by(super::creation::STRICT_KEY, &scene.each(["0", "8", "12", "15"])).await?;
    scene.labeled(&labels).await?;
    scene.until_terms(&json!({}), 4).await?;
    scene.policy(POLICY, &json!({})).await?;
    scene.labeled(&scene.each(["0", "8", "12", "15"])).await?;
    scene.ranks(["10", "8", "5", "0"]).await?;
    scene.labeled(&labels).await
}

/// Number of pods that an operator creates and deletes again, up to three: it compares their affinity with that of its
/// template (FoundationDB/fdb-kubernetes-operator#950, opensearch-project/opensearch-k8s-operator#1364).
async fn recreated(scene: &Scene<'_>, namespace: &str) -> Result<usize> {
    let pods: Api<Pod> = Api::namespaced(scene.testbed.client.clone(), namespace);
    let mut template = pod(&json!({}));
    template["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "database"}},
    }]}});
    for count in 0..3 {
        let live = pods.create(&PostParams::default(), &serde_json::from_value(template.clone())?).await?;
        let is_equal = serde_json::to_value(&live)?["spec"]["affinity"] == template["spec"]["affinity"];
        pods.delete(&live.name_any(), &DeleteParams::default().grace_period(0)).await?;
        if is_equal {
            return Ok(count);
        }
    }
    Ok(3)
}

/// Operators that compare live pods with their template would create them again and again: namespaces opt in, and the
/// page says so.
pub async fn compared(scene: &Scene<'_>, plain: &str) -> Result<()> {
    ensure!(recreated(scene, plain).await? == 0, "pods of a namespace that does not opt in are changed");
    ensure!(recreated(scene, &scene.testbed.ns).await? == 3, "pods of this namespace are not changed");
    let page = std::fs::read_to_string(root().join("samples/placementpolicy/README.md"))?;
    ensure!(page.contains("compare running pods with their template"), "the page does not say so");
    Ok(())
}

/// Answers to pods after the API server has restarted.
#[derive(Default)]
struct Restart {
    /// Whether the new process is healthy.
    is_back: bool,
    /// First answer after the last failed connection.
    up: Option<Instant>,
    last_refusal: Option<Instant>,
    with_terms: Option<Instant>,
    /// Message by code, and by whether the namespace opts in.
    refusals: BTreeMap<(u16, bool), String>,
}

impl Restart {
    fn record(&mut self, answer: Result<Value, Error>, opts_in: bool) {
        let now = Instant::now();
        match answer {
            Ok(pod) if self.is_back && !keys_read(&pod).is_empty() => self.with_terms = self.with_terms.or(Some(now)),
            Ok(_) => {}
            Err(Error::Api(status)) => {
                self.refusals.entry((status.code, opts_in)).or_insert(status.message);
                if opts_in {
                    self.last_refusal = Some(now);
                }
            }
            Err(_) => {
                (self.up, self.last_refusal) = (None, None);
                return;
            }
        }
        self.up = self.up.or(Some(now));
    }
}

/// Creates pods while the API server restarts, and until it adds terms again.
pub struct RestartProbe {
    restart: Arc<Mutex<Restart>>,
    task: JoinHandle<()>,
}

/// Restarts the API server. Returns once it is healthy.
pub async fn restart(scene: &Scene<'_>, plain: &str) -> Result<RestartProbe> {
    let restart = Arc::<Mutex<Restart>>::default();
    let (client, shared) = (impatient(scene.testbed)?, Arc::clone(&restart));
    let namespaces = [(scene.testbed.ns.clone(), true), (plain.to_owned(), false)];
    let task = tokio::spawn(async move {
        loop {
            for (namespace, opts_in) in &namespaces {
                let answer = dry_run(&client, namespace, &pod(&json!({}))).await;
                shared.lock().unwrap_or_else(PoisonError::into_inner).record(answer, *opts_in);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let probe = RestartProbe { restart, task };
    scene.testbed.plane.cluster.fault(&["restart", "apiserver"]).await?;
    probe.restart.lock().unwrap_or_else(PoisonError::into_inner).is_back = true;
    Ok(probe)
}

impl RestartProbe {
    /// A restarted API server adds no terms until it has found the kind of the parameters, for which it looks every
    /// 30 s. It refuses pods only with 503, and only in the first seconds.
    pub async fn ended(self) -> Result<()> {
        let with_terms = || self.restart.lock().unwrap_or_else(PoisonError::into_inner).with_terms.is_some();
        wait_for("terms after the restart", with_terms).await?;
        let restart = self.restart.lock().unwrap_or_else(PoisonError::into_inner);
        let up = restart.up.context("no answer since the restart")?;
        let since = |at: Option<Instant>| at.map_or(Duration::ZERO, |at| at.saturating_duration_since(up));
        let (refusing, until_terms) = (since(restart.last_refusal), since(restart.with_terms));
        println!(
            "API server restarted: pods refused for {:.1} s, terms after {:.1} s; refusals: {:?}",
            refusing.as_secs_f64(),
            until_terms.as_secs_f64(),
            restart.refusals,
        );
        ensure!(refusing < REFUSING, "pods are refused for {refusing:?}");
        let codes = restart.refusals.keys().filter(|(_, opts_in)| *opts_in).map(|(code, _)| *code);
        for code in codes.filter(|code| *code != 503) {
            let is_general = restart.refusals.contains_key(&(code, false));
            ensure!(is_general, "refused because of the policy: {:?}", restart.refusals);
        }
        Ok(())
    }
}

impl Drop for RestartProbe {
    fn drop(&mut self) {
        self.task.abort();
    }
}
