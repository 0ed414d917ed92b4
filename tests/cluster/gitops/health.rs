//! Health: a correct manifest of every kind is healthy for each tool, before the first sample; an action runs once; a
//! wrong manifest fails at once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ganglion_api::node_config::NodeConfig;
use ganglion_api::workload_action::WorkloadAction;
use serde_json::{Value, json};
use testkit::block_on;
use testkit::gitops::GitOpsTool;
use testkit::gitops::argo_cd::ArgoCd;
use testkit::gitops::flux::Flux;
use testkit::gitops::helm::Helm;
use testkit::plane::install::LOOPS;
use testkit::plane::{NODES, Plane};
use testkit::testbed::loops::on;
use testkit::testbed::workload::settled;
use testkit::testbed::{Road, Testbed, story, story_on};

use super::{gone, loop_with_account, placed, samples, web};

/// Samples of every kind whose objects need no server.
const CORRECT: [&str; 11] = [
    "workload.yaml",
    "closedloop/accounts.yaml",
    "closedloop/shop.yaml",
    "closedloop/minimal.yaml",
    "closedloop/minimal-policy.yaml",
    "closedloop/resize.yaml",
    "closedloop/push/push-minimal.yaml",
    "swarmpool/workers.yaml",
    "swarmpool/minimal.yaml",
    "workloadactionreceipt/full.yaml",
    "placementpolicy/minimal.yaml",
];

/// Kinds with a condition Ready.
const KINDS: &str = "loop,mon,dec,exe,swp,ncfg,ncft,plpol";

/// Maximum time of a failure that does not wait for a timeout; the tools have one of ten minutes.
const EARLY: Duration = Duration::from_secs(300);

/// A node whose values need no server, one whose server has no address, and a template for a third one, with an
/// expression that no tool may change.
fn nodes() -> [Value; 3] {
    let api = "ganglion.dev/v1alpha1";
    let inlet = |endpoint: &str| json!({"inletTemp": {"type": "Fake", "endpoint": endpoint}});
    let selector = json!({"matchLabels": {"kubernetes.io/hostname": "node-1"}});
    [
        json!({"apiVersion": api, "kind": "NodeConfig", "metadata": {"name": "one"},
            "spec": {"nodeName": "node-0", "metricsCollector": inlet("https://bmc-0.example.com")}}),
        json!({"apiVersion": api, "kind": "NodeConfig", "metadata": {"name": "dark"},
            "spec": {"nodeName": "node-2", "metricsCollector":
                {"inletTemp": {"type": "Redfish", "endpoint": "https://bmc.invalid"}}}}),
        json!({"apiVersion": api, "kind": "NodeConfigTemplate", "metadata": {"name": "rack"},
            "spec": {"nodeSelector": selector,
                "template": {"metricsCollector": inlet("https://bmc-{{ hostname }}.example.com")}}}),
    ]
}

/// Checks that all objects of these kinds are Ready now.
async fn all_ready(testbed: &Testbed) -> Result<()> {
    let status = r#"{.status.conditions[?(@.type=="Ready")].status}"#;
    let format = format!(r#"jsonpath={{range .items[*]}}{{.kind}} {{.metadata.name}} {status}{{"\n"}}{{end}}"#);
    let listed = testbed.kubectl(&["get", KINDS, "-o", &format], None).await?;
    let kinds: BTreeSet<&str> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    ensure!(kinds.len() == KINDS.split(',').count(), "not every kind is there:\n{listed}");
    ensure!(listed.lines().all(|line| line.ends_with(" True")), "not all are Ready:\n{listed}");
    Ok(())
}

async fn action(testbed: &Testbed) -> Result<WorkloadAction> {
    Ok(testbed.api::<WorkloadAction>().get("move-minimal").await?)
}

async fn every_kind<'a, T: GitOpsTool<'a>>(testbed: &'a Testbed, mut tool: T) -> Result<()> {
    // The samples contain the operator's binding, too.
    testbed.kubectl(&["delete", "rolebinding", LOOPS], None).await?;
    let mut manifests = samples(testbed, &CORRECT)?;
    manifests.extend(nodes().map(|manifest| placed(testbed, manifest)));
    tool.deploy(&manifests).await?.healthy()?;
    // The tool has waited for the operator, not only for the API server.
    all_ready(testbed).await?;
    // Missing data have a condition of their own.
    let missing = ["wait", "nodeconfig/dark", "--for=condition=DataAvailable=False", "--timeout=60s"];
    testbed.kubectl(&missing, None).await?;
    tool.resync().await?.healthy()?;
    all_ready(testbed).await?;
    let rendered = testbed.api::<NodeConfig>().get("rack-node-1").await?.spec.metrics_collector;
    let endpoint = rendered.and_then(|collector| collector.inlet_temp?.endpoint);
    ensure!(endpoint.as_deref() == Some("https://bmc-node-1.example.com"), "{endpoint:?}");

    // The samples leave the number of replicas out, so that a person sets it.
    testbed.kubectl(&["scale", "deployment", "web", "--replicas=3"], None).await?;
    settled(testbed, "web", 3).await?;
    manifests.extend(samples(testbed, &["workloadaction/move-minimal.yaml"])?);
    tool.deploy(&manifests).await?.healthy()?;
    let done = action(testbed).await?;
    ensure!(done.status.as_ref().is_some_and(|status| status.finished_at.is_some()), "{:?}", done.status);
    tool.resync().await?.healthy()?;
    let after = action(testbed).await?;
    ensure!((after.metadata.uid, &after.status) == (done.metadata.uid, &done.status), "{:?}", after.status);

    tool.remove().await?;
    gone(testbed, &format!("{KINDS},wa")).await
}

/// The objects are of all kinds, and some have no namespace, so each tool has a plane of its own.
fn on_own_plane(name: &str, body: impl AsyncFnOnce(&Testbed) -> Result<()>) {
    let own = block_on(Plane::own(name, NODES)).expect("a plane of its own");
    story_on(&own.0, Road::Proxy, name, body);
}

#[test]
fn helm_installs_every_kind() {
    on_own_plane("health-helm", async |testbed| every_kind(testbed, Helm::start(testbed).await?).await);
}

#[test]
fn flux_finds_every_kind_ready() {
    on_own_plane("health-flux", async |testbed| every_kind(testbed, Flux::start(testbed).await?).await);
}

#[test]
fn argo_cd_finds_every_kind_healthy() {
    on_own_plane("health-argo", async |testbed| every_kind(testbed, ArgoCd::start(testbed).await?).await);
}

#[test]
fn argo_cd_with_server_side_apply_finds_every_kind_healthy() {
    on_own_plane("health-argo-ssa", async |testbed| {
        let argo_cd = ArgoCd::start(testbed).await?;
        argo_cd.configure(json!({"syncPolicy": {"syncOptions": ["ServerSideApply=true"]}})).await?;
        every_kind(testbed, argo_cd).await
    });
}

/// A loop that the API server accepts although it cannot work, and the same loop once it is corrected. `word`: how the
/// tool calls its state.
async fn wrong<'a, T: GitOpsTool<'a>>(testbed: &'a Testbed, word: &str) -> Result<()> {
    let mut tool = T::start(testbed).await?;
    let mut spec = on("Low", json!([{"scale": {"by": 1, "max": 9}}]));
    let deployment = web(testbed, None)?;
    let mut manifests = |cron: &str| {
        spec["actions"][0]["during"] = json!([{"cron": cron, "duration": "1h"}]);
        let mut all = loop_with_account(testbed, spec.clone());
        all.push(deployment.clone());
        all
    };
    let begun = Instant::now();
    let report = tool.deploy(&manifests("0 0 31 2 *")).await?.failed()?;
    ensure!(begun.elapsed() < EARLY, "failed only after {:?}: {report}", begun.elapsed());
    ensure!(report.contains("web") && report.contains(word), "{report}");
    tool.deploy(&manifests("0 0 1 2 *")).await?.healthy()?;
    tool.remove().await
}

#[test]
fn helm_fails_at_once_for_a_loop_that_cannot_work() {
    story("wrong-helm", async |testbed| wrong::<Helm>(testbed, "Failed").await);
}

#[test]
fn flux_fails_at_once_for_a_loop_that_cannot_work() {
    story("wrong-flux", async |testbed| wrong::<Flux>(testbed, "Failed").await);
}

#[test]
fn argo_cd_shows_a_loop_that_cannot_work_as_degraded() {
    story("wrong-argo", async |testbed| wrong::<ArgoCd>(testbed, "Degraded").await);
}
