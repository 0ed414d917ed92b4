//! A policy publishes the usage of nodes, from a real Prometheus.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::placement_policy::PlacementPolicy;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::plane::Plane;
use testkit::servers::http::{Manner, Server};
use testkit::servers::prometheus::{PrometheusProcess, PrometheusVersion};
use testkit::testbed::guard::WriteGuard;
use testkit::testbed::loops::condition;
use testkit::testbed::{Road, Testbed, story_on};
use testkit::{TIMEOUT, block_on};

const FIRST: &str = "first";
const SECOND: &str = "second";

/// Field manager of the published annotations.
const MANAGER: &str = "ganglion/placement-policy/usage";

const SAMPLED_AT: &str = "ganglion.dev/usage-sampled-at";

/// Input for promtool: steady usage of these nodes, 8 of 32 cores and 16 GiB, from a while ago until long after now.
fn history(nodes: &[String], now: i64) -> String {
    let times: Vec<i64> = (now - 600..now + 1800).step_by(15).collect();
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, labels: &str, value: &dyn Fn(i64) -> f64| {
        if !kind.is_empty() {
            writeln!(text, "# TYPE {} {kind}", name.trim_end_matches("_total")).expect("text");
        }
        for node in nodes {
            for time in &times {
                let value = value(*time - now + 600);
                writeln!(text, "{name}{{instance=\"{node}:9100\"{labels}}} {value} {time}").expect("text");
            }
        }
    };
    let gibibytes = |count: u64| (count << 30) as f64;
    metric("node_cpu_seconds_total", "counter", ",cpu=\"0\",mode=\"idle\"", &|time| time as f64);
    metric("node_cpu_seconds_total", "", ",cpu=\"0\",mode=\"user\"", &|time| 8.0 * time as f64);
    metric("node_memory_MemAvailable_bytes", "gauge", "", &|_| gibibytes(48));
    metric("node_memory_MemTotal_bytes", "gauge", "", &|_| gibibytes(64));
    text + "# EOF\n"
}

/// A policy that polls this server every second.
fn publishing(max_age: &str, prometheus: Value) -> Value {
    json!({
        "agents": [{"name": "safe", "safe": {}}], "maxAge": max_age,
        "publishUsage": {"prometheus": prometheus, "window": "150s", "step": "15s", "interval": "1s"},
    })
}

struct Scene<'a> {
    testbed: &'a Testbed,
    nodes: Vec<String>,
}

impl Scene<'_> {
    fn policies(&self) -> Api<PlacementPolicy> {
        Api::all(self.testbed.client.clone())
    }

    fn api(&self) -> Api<Node> {
        Api::all(self.testbed.client.clone())
    }

    async fn put(&self, name: &str, spec: Value) -> Result<()> {
        let policy = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy", "metadata": {"name": name}, "spec": spec,
        });
        self.policies().patch(name, &PatchParams::apply("test").force(), &Patch::Apply(policy)).await?;
        Ok(())
    }

    /// Message of a condition, once it has this status and reason.
    async fn says(&self, policy: &str, kind: &str, (status, reason): (&str, &str)) -> Result<String> {
        let mut last = None;
        let told = async {
            loop {
                let found = self.policies().get(policy).await?;
                let state = found.status.unwrap_or_default();
                last = condition(&state.conditions, kind);
                if let Some(one) = last.as_ref().filter(|_| state.observed_generation == found.metadata.generation)
                    && (one.status.as_str(), one.reason.as_str()) == (status, reason)
                {
                    return anyhow::Ok(one.message.clone());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        match tokio::time::timeout(TIMEOUT, told).await {
            Ok(message) => message,
            Err(_) => anyhow::bail!("{kind} of {policy} is not {status} {reason}, but {last:?}"),
        }
    }

    /// Waits until the annotations of every node satisfy `test`.
    async fn nodes(&self, what: &str, test: impl Fn(&Node) -> bool) -> Result<()> {
        let look = async {
            loop {
                if self.api().list(&ListParams::default()).await?.iter().all(&test) {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, look).await.with_context(|| format!("timed out waiting for {what}"))?
    }

    /// Number of annotation writes of the operator.
    async fn writes(&self) -> Result<u64> {
        let metrics = self.testbed.operator.lock().await.get("/metrics").await?;
        let line = metrics.lines().find(|line| {
            line.contains("effects_total{") && line.contains("effect=\"AnnotateNode\"") && line.contains("\"ok\"")
        });
        let count = line.and_then(|line| line.rsplit(' ').next());
        Ok(count.map_or(Ok(0), str::parse)?)
    }
}

fn number(node: &Node, key: &str) -> Option<f64> {
    node.annotations().get(key)?.parse().ok()
}

fn is_annotated(node: &Node) -> bool {
    node.annotations().contains_key(SAMPLED_AT)
}

#[test]
fn a_policy_publishes_the_usage_of_nodes() {
    let plane = block_on(Plane::own("usage", 2)).expect("a plane of its own");
    story_on(&plane.0, Road::Direct, "usage", async |testbed| {
        let nodes: Vec<String> = Api::<Node>::all(testbed.client.clone())
            .list(&ListParams::default())
            .await?
            .iter()
            .map(Node::name_any)
            .collect();
        let scene = Scene { testbed, nodes };
        let now = Timestamp::now().as_second();
        let samples = history(&scene.nodes, now);
        let mut prometheus = PrometheusProcess::with_history(PrometheusVersion::V2_42, &samples).await?;
        published(&scene, &prometheus).await?;
        steady(&scene).await?;
        refused(&scene, &prometheus).await?;
        lost(&scene, &mut prometheus).await?;
        login(&scene).await?;
        tenant(&scene).await?;
        swept(&scene).await
    });
}

/// Without usage the agent abstains; once it is published, the agent decides.
async fn published(scene: &Scene<'_>, prometheus: &PrometheusProcess) -> Result<()> {
    scene.put(FIRST, json!({"agents": [{"name": "safe", "safe": {}}]})).await?;
    scene.says(FIRST, "Ready", ("True", "Serving")).await?;
    scene.says(FIRST, "DataAvailable", ("False", "AgentsWithoutData")).await?;
    scene.put(FIRST, publishing("1h", json!({"url": prometheus.url()}))).await?;
    let said = scene.says(FIRST, "UsagePublished", ("False", "NodeNotWritten")).await?;
    ensure!(said.contains("install kustomize/components/publish-usage"), "{said}");
    let rights = testkit::root().join("kustomize/components/publish-usage/rights.yaml");
    scene.testbed.kubectl(&["apply", "-f", &rights.display().to_string()], None).await?;
    let said = scene.says(FIRST, "UsagePublished", ("True", "Published")).await?;
    ensure!(said.contains("has the usage of all nodes"), "{said}");
    scene.says(FIRST, "DataAvailable", ("True", "AgentsHaveData")).await?;
    for node in scene.api().list(&ListParams::default()).await? {
        let near = |key: &str, expected: f64| {
            let found = number(&node, key).with_context(|| format!("no {key}: {:?}", node.annotations()))?;
            ensure!((found - expected).abs() <= expected / 100.0 + 1.0, "{key} is {found}, not {expected}");
            Ok(())
        };
        near("mean-used-cpu", 8000.0)?;
        near("std-used-cpu", 0.0)?;
        near("mean-free-cpu", 24_000.0)?;
        near("mean-used-memory", (16_u64 << 30) as f64)?;
        near("ganglion.dev/usage-samples", 10.0)?;
        let managers = node.managed_fields();
        ensure!(managers.iter().any(|one| one.manager.as_deref() == Some(MANAGER)), "{managers:?}");
    }
    Ok(())
}

/// Nothing is written while nothing changes; a changed answer is written; a second policy does not publish as well.
async fn steady(scene: &Scene<'_>) -> Result<()> {
    let before = scene.writes().await?;
    ensure!(before == scene.nodes.len() as u64, "{before} writes of {} nodes", scene.nodes.len());
    let first = scene.policies().get(FIRST).await?;
    scene.put(SECOND, serde_json::to_value(&first.spec)?).await?;
    let said = scene.says(SECOND, "UsagePublished", ("False", "PublishedByAnother")).await?;
    ensure!(said.contains("PlacementPolicy first is older") && said.contains("remove publishUsage"), "{said}");
    scene.says(SECOND, "Ready", ("True", "Serving")).await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    ensure!(scene.writes().await? == before, "written though nothing changed");
    // Changes by another client are corrected.
    let wrong = Patch::Merge(json!({"metadata": {"annotations": {"mean-used-cpu": "1"}}}));
    scene.api().patch(&scene.nodes[0], &PatchParams::default(), &wrong).await?;
    scene.nodes("the right number", |node| number(node, "mean-used-cpu").is_some_and(|cpu| cpu > 7000.0)).await
}

/// If the annotations of one node are rejected, those of the other nodes remain unchanged.
async fn refused(scene: &Scene<'_>, prometheus: &PrometheusProcess) -> Result<()> {
    let [first, second] = [&scene.nodes[0], &scene.nodes[1]];
    scene.put(FIRST, publishing("10s", json!({"url": prometheus.url()}))).await?;
    scene.says(FIRST, "UsagePublished", ("True", "Published")).await?;
    let same = "has(object.metadata.annotations) == has(oldObject.metadata.annotations) && \
                (!has(object.metadata.annotations) || object.metadata.annotations == oldObject.metadata.annotations)";
    let updates = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"], "operations": ["UPDATE"], "resourceNames": [first],
    });
    let guard = WriteGuard::place(scene.testbed, updates, same, "annotations are not for you").await?;
    let said = scene.says(FIRST, "UsagePublished", ("False", "NodeNotWritten")).await?;
    ensure!(said.contains(first), "{said}");
    // Exponential backoff would exceed the maximum age by then.
    for _ in 0..350 {
        let node = scene.api().get(second).await?;
        ensure!(is_annotated(&node), "the annotations of {second} were removed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    guard.remove().await?;
    scene.says(FIRST, "UsagePublished", ("True", "Published")).await?;
    Ok(())
}

/// Without Prometheus, outdated annotations are removed. If the publishing policy is deleted, the next one takes over.
async fn lost(scene: &Scene<'_>, prometheus: &mut PrometheusProcess) -> Result<()> {
    scene.put(FIRST, publishing("10s", json!({"url": prometheus.url()}))).await?;
    scene.says(FIRST, "UsagePublished", ("True", "Published")).await?;
    prometheus.end();
    let said = scene.says(FIRST, "UsagePublished", ("False", "Unreachable")).await?;
    ensure!(said.contains("127.0.0.1"), "{said}");
    scene.nodes("no annotations", |node| !is_annotated(node) && number(node, "mean-used-cpu").is_none()).await?;
    scene.says(FIRST, "DataAvailable", ("False", "AgentsWithoutData")).await?;
    prometheus.again().await?;
    scene.policies().delete(FIRST, &DeleteParams::default()).await?;
    scene.says(SECOND, "UsagePublished", ("True", "Published")).await?;
    scene.nodes("annotations again", is_annotated).await
}

/// A wrong password is sent once, until the Secret changes.
async fn login(scene: &Scene<'_>) -> Result<()> {
    let secret = async |password: &str| {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"},
            "stringData": {"username": "me", "password": password},
        });
        scene.testbed.kubectl(&["apply", "-f", "-"], Some(&secret.to_string())).await
    };
    secret("wrong").await?;
    let nothing = json!({"status": "success", "data": {"resultType": "vector", "result": []}});
    // User me, password right.
    let server = Server::start(Manner::Guarded("authorization: Basic bWU6cmlnaHQ=\r\n", nothing.to_string())).await;
    let auth = json!({"basic": {"name": "login"}});
    let prometheus = json!({"url": server.url(""), "namespace": scene.testbed.ns, "auth": auth});
    scene.put(SECOND, publishing("1h", prometheus)).await?;
    let said = scene.says(SECOND, "UsagePublished", ("False", "LoginRefused")).await?;
    ensure!(said.contains("refuses the login of Secret login: it is tried again at"), "{said}");
    tokio::time::sleep(Duration::from_secs(12)).await;
    let asked = server.asked.lock().expect("not poisoned").len();
    ensure!(asked == 1, "the wrong password was sent {asked} times");
    secret("right").await?;
    let said = scene.says(SECOND, "UsagePublished", ("False", "UsageUnknown")).await?;
    ensure!(said.contains("has the usage of no node") && said.contains("set nodeLabel"), "{said}");
    Ok(())
}

/// A server for several tenants is sent the header of one.
async fn tenant(scene: &Scene<'_>) -> Result<()> {
    let nothing = json!({"status": "success", "data": {"resultType": "vector", "result": []}});
    let server = Server::start(Manner::Guarded("x-scope-orgid: shop\r\n", nothing.to_string())).await;
    scene.put(SECOND, publishing("1h", json!({"url": server.url("")}))).await?;
    scene.says(SECOND, "UsagePublished", ("False", "LoginRefused")).await?;
    let headers = json!([{"name": "X-Scope-OrgID", "value": "shop"}]);
    scene.put(SECOND, publishing("1h", json!({"url": server.url(""), "headers": headers}))).await?;
    scene.says(SECOND, "UsagePublished", ("False", "UsageUnknown")).await?;
    Ok(())
}

/// Even without a publishing policy, outdated annotations are removed. Annotations of other owners stay, and their
/// removal is not retried endlessly.
async fn swept(scene: &Scene<'_>) -> Result<()> {
    scene.put(SECOND, json!({"agents": [{"name": "safe", "safe": {}}]})).await?;
    scene.says(SECOND, "Ready", ("True", "Serving")).await?;
    let state = scene.policies().get(SECOND).await?.status.unwrap_or_default();
    ensure!(condition(&state.conditions, "UsagePublished").is_none(), "{:?}", state.conditions);
    // An hour passes.
    let old = json!({SAMPLED_AT: "2026-01-01T00:00:00Z", "mean-used-cpu": "1"});
    for (manager, node) in [(MANAGER, &scene.nodes[0]), ("others", &scene.nodes[1])] {
        let aged = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "annotations": old}});
        scene.api().patch(node, &PatchParams::apply(manager).force(), &Patch::Apply(aged)).await?;
    }
    let before = scene.writes().await?;
    let ours = scene.nodes[0].clone();
    scene.nodes("no annotations of ours", |node| node.name_any() != ours || !is_annotated(node)).await?;
    tokio::time::sleep(Duration::from_secs(12)).await;
    let theirs = scene.api().get(&scene.nodes[1]).await?;
    ensure!(number(&theirs, "mean-used-cpu") == Some(1.0), "{:?}", theirs.annotations());
    let after = scene.writes().await?;
    ensure!(after - before == 2, "{} writes, of one node each", after - before);
    Ok(())
}
