//! The dashboard and the alerts of config/monitoring, with a real Prometheus that scrapes an operator at work.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ganglion_api::workload_action::WorkloadAction;
use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::action::{deployment, with};
use testkit::metrics::{differences, documented, read_scrape};
use testkit::plane::Plane;
use testkit::proxy::storm::{Fault, Storm};
use testkit::servers::http::{Manner, Server};
use testkit::servers::prometheus::{PrometheusProcess, PrometheusVersion};
use testkit::testbed::loops::{self, SCALES};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, pools, story_on};
use testkit::{TIMEOUT, block_on, kstatus, root};

use crate::node_configs::{fake, ready, template};
use crate::placement::Scene;

/// Metrics that only appear after a fault that this story does not cause.
const ONLY_AFTER_FAULTS: [&str; 4] = [
    "ganglion_janitor_actions_total",
    "ganglion_unreadable_objects_total",
    "ganglion_unreported_objects",
    // Only if an endpoint is set.
    "ganglion_trace_spans_total",
];

#[test]
fn no_panel_is_empty_while_the_operator_does_one_of_each_kind_of_work() {
    let plane = block_on(Plane::own("monitoring", 3)).expect("a plane of its own");
    story_on(&plane.0, Road::Proxy, "monitoring", async |testbed| {
        manifests_are_accepted(testbed).await?;
        let scene = Scene::open(testbed).await?;
        let rules = RuleFile::create()?;
        let address = testbed.operator.lock().await.address();
        let file = rules.0.path().join("rules.yaml");
        let prometheus = PrometheusProcess::with_rules(PrometheusVersion::V3, &address, &file).await?;
        let server = PrometheusApi(prometheus.url());
        let kubelet = pools::kubelet(testbed, true).await?;
        work(testbed, &scene).await?;
        let pods = schedule_while_scraped(&scene, &server).await?;
        no_panel_is_empty(&server).await?;
        let mut delete = vec!["delete", "pod", "--now"];
        delete.extend(pods.iter().map(String::as_str));
        testbed.kubectl(&delete, None).await?;
        alerts_are_evaluated(&server).await?;
        scrape_is_as_documented(testbed).await?;
        kubelet.stop().await
    });
}

/// The monitors, the rules, and the ConfigMap of the dashboard, by the CRDs of prometheus-operator.
async fn manifests_are_accepted(testbed: &Testbed) -> Result<()> {
    let cluster = &testbed.plane.cluster;
    cluster.install_crds("monitoring").await?;
    let folder = root().join("config/monitoring");
    let (folder, pods) = (folder.display().to_string(), folder.join("podmonitor.yaml").display().to_string());
    for source in [["-k", &folder], ["-f", &pods]] {
        let strict = ["apply", "--server-side", "--validate=strict", source[0], source[1]];
        cluster.kubectl(&strict, None).await?;
    }
    let board = ["get", "configmap", "ganglion-dashboard", "-n", "ganglion-system", "-o", "json"];
    let board: Value = serde_json::from_str(&cluster.kubectl(&board, None).await?)?;
    ensure!(board["metadata"]["labels"]["grafana_dashboard"] == "1", "{}", board["metadata"]);
    let text = board["data"]["ganglion.json"].as_str().context("the ConfigMap has no dashboard")?;
    ensure!(serde_json::from_str::<Value>(text)?["title"] == "Ganglion");
    Ok(())
}

/// The rules, as a file for Prometheus.
struct RuleFile(tempfile::TempDir);

impl RuleFile {
    fn create() -> Result<Self> {
        let home = tempfile::tempdir()?;
        let manifest = fs::read_to_string(root().join("config/monitoring/prometheusrule.yaml"))?;
        let manifest: Value = serde_saphyr::from_str(&manifest)?;
        fs::write(home.path().join("rules.yaml"), manifest["spec"].to_string())?;
        Ok(Self(home))
    }
}

/// One of each kind of work, some of which fails.
async fn work(testbed: &Testbed, scene: &Scene<'_>) -> Result<()> {
    scene.agent(json!({"name": "pack", "pigeon": {"objective": "Consolidate"}})).await?;
    Workload::deployment("web", 2).make(testbed).await?;
    let receiver = Server::start(Manner::Says("204 No Content", String::new())).await;
    values_of_nodes(testbed, scene).await?;
    decisions(testbed).await?;
    moves(testbed, &receiver).await?;
    pools::stateful_set(testbed, 2).await?;
    pools::pool(testbed, pools::WORKERS, pools::reloading(json!({}))).await?;
    pools::converged(testbed, pools::WORKERS, 2, 30).await?;
    faults(testbed).await
}

/// Measured and predicted values of a node, by a template and by a NodeConfig.
async fn values_of_nodes(testbed: &Testbed, scene: &Scene<'_>) -> Result<()> {
    template(testbed, &scene.nodes[0]).await?;
    let all = json!({"inletTemp": fake(), "deltaP": fake(), "usage": fake(), "power": fake()});
    let config = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "one"},
        "spec": {"nodeName": scene.nodes[1], "metricsCollector": all, "predictor": {"powerConsumption": fake()}},
    });
    testbed.create::<ganglion_api::node_config::NodeConfig>(config).await?;
    ready(testbed, "one", "True", "Sampled").await.map(drop)
}

/// A loop that scales the Deployment, and whose alarm stays; one of its values is polled.
async fn decisions(testbed: &Testbed) -> Result<()> {
    loops::account(testbed, SCALES).await?;
    let load = Server::start(Manner::Says("200 OK", json!({"load": 3}).to_string())).await;
    let mut spec = loops::demo();
    let polled =
        json!({"name": "load", "source": {"http": {"url": load.url("/"), "path": "load"}}, "high": {"raise": "9"}});
    spec["metrics"].as_array_mut().context("no metrics")?.push(polled);
    spec["interval"] = json!("1s");
    spec["policy"]["rank"] = json!(["cpu", "memory", "load"]);
    loops::make(testbed, "web", spec).await?;
    let begun = loops::push(testbed, "web", json!({"cpu": "2", "memory": "60"})).await?;
    loops::travelled(testbed, "web", begun).await?;
    loops::has_data(testbed, "web").await
}

/// A move whose end is notified, and an action that fails.
async fn moves(testbed: &Testbed, receiver: &Server) -> Result<()> {
    let away = json!({"move": {"workload": deployment("web"), "count": 1}, "notify": [{"url": receiver.url("/")}]});
    testbed.act("away", away).await?;
    testbed.ends("away", ("True", "Succeeded")).await?;
    testbed.act("missing", with(json!({}), json!({"delete": {"pod": {"name": "made-up"}}}))).await?;
    testbed.ends("missing", ("False", "PodNotFound")).await.map(drop)
}

/// A pool without a workload, a moment in which the API server refuses requests, and watches that break.
async fn faults(testbed: &Testbed) -> Result<()> {
    let orphan = json!({
        "workload": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "made-up"},
        "jobs": {"inline": [{"name": "a"}]}, "output": {"configMap": "orphan"},
    });
    pools::pool(testbed, "orphan", orphan).await?;
    testbed.proxy.storm(Some(Storm::new(100, 1, &[Fault::TooMany])));
    testbed.proxy.streams().cut();
    let shaken = async {
        loop {
            loops::push_at(testbed, "web", Timestamp::now(), json!({"cpu": "1", "memory": "60"})).await?;
            let text = testbed.operator.lock().await.get("/metrics").await?;
            if text.contains("ganglion_api_errors_total{") && text.contains("ganglion_watch_restarts_total{") {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let shaken = tokio::time::timeout(TIMEOUT, shaken).await;
    testbed.proxy.storm(None);
    shaken.context("the faults are not counted")?
}

/// The HTTP API of a Prometheus.
struct PrometheusApi(String);

impl PrometheusApi {
    async fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let url = reqwest::Url::parse_with_params(&format!("{}/api/v1/{path}", self.0), parameters)?;
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build()?;
        let answer: Value = serde_json::from_str(&client.get(url).send().await?.text().await?)?;
        ensure!(answer["status"] == "success", "{path} {parameters:?}: {answer}");
        Ok(answer["data"].clone())
    }

    /// Whether a query returns a series with a number.
    async fn has_series(&self, query: &str) -> Result<bool> {
        let data = self.get("query", &[("query", query)]).await?;
        let series = data["result"].as_array().context("no result")?;
        Ok(series.iter().any(|one| one["value"][1].as_str().is_some_and(|value| value != "NaN")))
    }
}

/// A query of the dashboard with the values that Grafana gives to its variables for "All".
fn substituted(query: &str) -> Result<String> {
    let values = [("$job", ".*"), ("$namespace", ".*"), ("$__rate_interval", "2m")];
    let query = values.iter().fold(query.to_owned(), |query, (name, value)| query.replace(name, value));
    ensure!(!query.contains('$'), "an unknown variable: {query}");
    Ok(query)
}

/// All queries of the dashboard, each with the title of its panel.
fn queries() -> Result<Vec<(String, String)>> {
    let board: Value = serde_json::from_str(&fs::read_to_string(root().join("config/monitoring/dashboard.json"))?)?;
    let panels = board["panels"].as_array().context("no panels")?;
    let mut all = Vec::new();
    for panel in panels {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().context("a target without a query")?;
            all.push((panel["title"].as_str().unwrap_or_default().to_owned(), substituted(query)?));
        }
    }
    // The values of the variables: label_values(METRIC, LABEL).
    for variable in board["templating"]["list"].as_array().context("no variables")? {
        if let Some(inside) = variable["definition"].as_str().and_then(|text| text.strip_prefix("label_values(")) {
            let (metric, _) = inside.rsplit_once(", ").context("no label")?;
            all.push((format!("variable {}", variable["name"]), substituted(metric)?));
        }
    }
    ensure!(all.len() > 40, "{} queries", all.len());
    Ok(all)
}

/// Places more pods once the first requests of the scheduler are scraped: a rate needs an increase.
/// Returns their names.
async fn schedule_while_scraped(scene: &Scene<'_>, server: &PrometheusApi) -> Result<Vec<String>> {
    let scraped = async {
        while !server.has_series("ganglion_extender_request_seconds_count").await? {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(TIMEOUT, scraped).await.context("no request of the scheduler is scraped")??;
    let mut pods = Vec::new();
    for _ in 0..3 {
        pods.push(scene.pod(json!({})).await?);
    }
    Ok(pods)
}

/// Waits until each query has returned a series.
async fn no_panel_is_empty(server: &PrometheusApi) -> Result<()> {
    let mut empty = queries()?;
    let begun = tokio::time::Instant::now();
    while !empty.is_empty() {
        if begun.elapsed() > TIMEOUT {
            let lines: Vec<String> = empty.into_iter().map(|(panel, query)| format!("{panel}: {query}")).collect();
            bail!("empty panels:\n{}", lines.join("\n"));
        }
        let mut still = Vec::new();
        for (panel, query) in empty {
            if !server.has_series(&query).await? {
                still.push((panel, query));
            }
        }
        empty = still;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Waits until Prometheus has evaluated each alert. GanglionDown is pending until the evaluation after the first
/// scrape.
async fn alerts_are_evaluated(server: &PrometheusApi) -> Result<()> {
    let begun = tokio::time::Instant::now();
    loop {
        let groups = server.get("rules", &[("type", "alert")]).await?;
        let groups = groups["groups"].as_array().context("no groups")?;
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().into_iter().flatten());
        let rules: Vec<&Value> = rules.collect();
        ensure!(rules.len() > 20, "{} alerts", rules.len());
        let failed = rules.iter().find(|rule| rule["health"] == "err");
        ensure!(failed.is_none(), "{failed:?}");
        let is_open =
            |rule: &Value| rule["health"] != "ok" || (rule["name"] == "GanglionDown" && rule["state"] != "inactive");
        let open: Vec<&Value> = rules.into_iter().filter(|rule| is_open(rule)).collect();
        if open.is_empty() {
            return Ok(());
        }
        ensure!(begun.elapsed() < TIMEOUT, "{open:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn scrape_is_as_documented(testbed: &Testbed) -> Result<()> {
    let answer = testbed.operator.lock().await.get("/metrics").await?;
    let (_, text) = answer.split_once("\r\n\r\n").context("no body")?;
    // The body may be sent in chunks; their lengths are no series.
    let lines = text.lines().filter(|line| line.starts_with("ganglion_") || line.starts_with('#'));
    let (page, exported) = (documented()?, read_scrape(&lines.collect::<Vec<_>>().join("\n"))?);
    let found = differences(&page, &exported);
    ensure!(found.is_empty(), "{}", found.join("\n"));
    let missing: BTreeSet<&str> =
        page.keys().map(String::as_str).filter(|name| !exported.contains_key(*name)).collect();
    let unexpected: Vec<&&str> = missing.iter().filter(|name| !ONLY_AFTER_FAULTS.contains(name)).collect();
    ensure!(unexpected.is_empty(), "documented, but not exported: {unexpected:?}");
    let actions = testbed.api::<WorkloadAction>().list(&Default::default()).await?;
    ensure!(actions.iter().all(kstatus::is_over), "the actions have ended");
    Ok(())
}
