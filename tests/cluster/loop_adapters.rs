//! Sources of loops behind the API server's aggregation layer: metrics of the real prometheus-adapter, and of a server
//! that answers as other adapters do, or worse.

use anyhow::{Context, Result, ensure};
use ganglion_api::monitoring::Monitoring;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;
use testkit::plane::Plane;
use testkit::servers::adapter;
use testkit::servers::aggregation::aggregate;
use testkit::servers::http::{Authority, Manner, Server};
use testkit::servers::prometheus::{PrometheusProcess, PrometheusVersion};
use testkit::testbed::loops::{ACCOUNT, grant_more, put, says, until, with_loops};
use testkit::testbed::{Road, Testbed, story_on};
use testkit::{block_on, wait_for};

use super::loop_sources::{known, loop_on, scaled, scene, unknown, until_running, watcher};

/// Rules of prometheus-adapter: `web_queue` and `web_total` as external metrics, with and without a namespace, and
/// `web_hits` as a custom metric of pods, Deployments and namespaces.
const RULES: &str = r"
externalRules:
- {seriesQuery: 'web_queue', resources: {overrides: {namespace: {resource: namespace}}}, metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'}
- {seriesQuery: 'web_total', resources: {namespaced: false}, metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'}
rules:
- seriesQuery: 'web_hits'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}, deployment: {group: apps, resource: deployment}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
";

/// Permissions for the metrics of the rules.
const METRICS: [(&str, &str, &str); 6] = [
    ("external.metrics.k8s.io", "*", "list"),
    ("custom.metrics.k8s.io", "pods/web_hits", "get"),
    ("custom.metrics.k8s.io", "deployments.apps/web_hits", "get"),
    ("custom.metrics.k8s.io", "pods/web_none", "get"),
    ("custom.metrics.k8s.io", "metrics", "get"),
    ("", "pods", "list"),
];

fn external(more: Value) -> Value {
    let mut source = json!({"metric": "web_queue"});
    source.as_object_mut().zip(more.as_object()).into_iter().for_each(|(all, more)| all.extend(more.clone()));
    json!({"external": source})
}

fn of_q(q: &str) -> Value {
    json!({"matchLabels": {"q": q}})
}

/// Waits until the metric has this value.
async fn has_value(testbed: &Testbed, name: &str, metric: &str, value: &str) -> Result<()> {
    until::<Monitoring, _>(testbed, name, &format!("{metric} of {name} to be {value}"), |one| {
        let status = one.status?;
        let is_known = status.unknown.iter().all(|unknown| unknown.metric != metric);
        let found = status.values.iter().find(|reading| reading.metric == metric)?;
        (is_known && found.value.as_str() == value).then_some(())
    })
    .await
}

/// Exports the series: queues a and b of the testbed's namespace, queue c of another one, and hits of these objects.
fn export(prometheus: &PrometheusProcess, ns: &str, queue: &str, pod: &str) -> Result<()> {
    let series =
        |q: &str, namespace: &str, value: &str| format!("web_queue{{q=\"{q}\",namespace=\"{namespace}\"}} {value}\n");
    let queues =
        [series("a", ns, queue), series("b", ns, "50"), series("nan", ns, "NaN"), series("c", "elsewhere", "7")];
    prometheus.export("web_queue", &format!("# TYPE web_queue gauge\n{}", queues.concat()))?;
    prometheus.export("web_total", "# TYPE web_total gauge\nweb_total{namespace=\"elsewhere\"} 3\n")?;
    let hits = format!("web_hits{{namespace=\"{ns}\",pod=\"{pod}\",deployment=\"web\"}} 2.5\n");
    prometheus.export("web_hits", &format!("# TYPE web_hits gauge\n{hits}"))
}

#[test]
fn metrics_of_a_real_prometheus_adapter_are_read_as_the_loops_account() {
    // A separate plane, because it registers APIs for the whole plane.
    let plane = block_on(Plane::own("adapter", 1)).expect("a plane of its own");
    story_on(&plane.0, Road::Proxy, "sources-adapter", async |testbed| match metrics_are_read(testbed).await {
        Ok(()) => Ok(()),
        Err(error) => Err(with_loops(testbed, error).await),
    });
}

async fn metrics_are_read(testbed: &Testbed) -> Result<()> {
    scene(testbed).await?;
    let pod = until_running(testbed).await?;
    let ns = testbed.ns.as_str();
    put(testbed, "web", loop_on(external(json!({"selector": of_q("a")})))).await?;
    unknown(testbed, "web", "load", "the API server does not serve external.metrics.k8s.io: install an adapter")
        .await?;
    let message = says(testbed, "web", "Preflight", ("False", "Forbidden")).await?;
    let refused = format!(
        "metric load: grant service account {ACCOUNT} this verb on this resource in namespace {ns}, and create the account \
         if there is none: User \"system:serviceaccount:{ns}:{ACCOUNT}\" cannot list resource \"web_queue\" in API group \
         \"external.metrics.k8s.io\" in the namespace \"{ns}\""
    );
    ensure!(message == refused, "{message}");

    let home = TempDir::new()?;
    let rules = home.path().join("rules.yaml");
    std::fs::write(&rules, RULES)?;
    let prometheus = PrometheusProcess::start(PrometheusVersion::V3).await?;
    export(&prometheus, ns, "3", &pod)?;
    let rules = rules.to_str().context("a path that is no text")?;
    let server = adapter::start(testbed, &prometheus.url(), rules, &adapter::ALL).await?;
    // T32
    unknown(testbed, "web", "load", "cannot list resource \"web_queue\" in API group \"external.metrics.k8s.io\"")
        .await?;
    grant_more(testbed, "metrics", &METRICS).await?;
    let named = |namespace: &str| json!({"namespace": namespace, "selector": of_q("c")});
    let custom = |metric: &str, of: Value| {
        let mut source = json!({"metric": metric});
        source.as_object_mut().zip(of.as_object()).into_iter().for_each(|(all, more)| all.extend(more.clone()));
        json!({"custom": source})
    };
    let object =
        |version: &str, kind: &str, name: &str| json!({"object": {"apiVersion": version, "kind": kind, "name": name}});
    let metrics = [
        ("none", json!({"external": {"metric": "web_none"}})),
        ("empty", external(json!({"selector": of_q("z")}))),
        (
            "several",
            external(json!({"selector": {"matchExpressions": [{"key": "q", "operator": "In", "values": ["a", "b"]}]}})),
        ),
        (
            "sum",
            external(
                json!({"several": "Sum", "selector": {"matchExpressions": [{"key": "q", "operator": "NotIn", "values": ["nan"]}]}}),
            ),
        ),
        ("nan", external(json!({"selector": of_q("nan")}))),
        ("elsewhere", external(named("elsewhere"))),
        // T31
        ("total", json!({"external": {"metric": "web_total"}})),
        ("pods", custom("web_hits", json!({"pods": {}, "of": "Sum"}))),
        ("nopods", custom("web_none", json!({"pods": {}}))),
        ("deployment", custom("web_hits", object("apps/v1", "Deployment", "web"))),
        ("namespace", custom("web_hits", object("v1", "Namespace", ns))),
        ("foreign", custom("web_hits", object("v1", "Namespace", "default"))),
    ];
    put(testbed, "others", watcher(&metrics)).await?;
    if let Err(error) = has_value(testbed, "web", "load", "3").await {
        return Err(error.context(server.log()));
    }
    says(testbed, "web", "Preflight", ("True", "Passed")).await?;
    for (metric, value) in
        [("sum", "53"), ("total", "3"), ("pods", "2.5"), ("deployment", "2500m"), ("namespace", "2500m")]
    {
        has_value(testbed, "others", metric, value).await?;
    }
    for (metric, words) in [
        ("none", "the adapter behind external.metrics.k8s.io has no metric web_none in namespace"),
        // T29
        ("empty", "the adapter answers an empty list, which is no zero"),
        ("several", "the adapter answers 2 values that match the selector: narrow it, or set several: Sum"),
        ("nan", "metric web_queue is the result of an overflow, probably of NaN or infinity"),
        ("elsewhere", "grant service account web-loop this verb on this resource in namespace elsewhere"),
        ("nopods", "the adapter behind custom.metrics.k8s.io has no metric web_none of pods in namespace"),
        ("foreign", "only the metrics of the loop's own namespace can be read"),
    ] {
        unknown(testbed, "others", metric, words).await?;
    }
    ensure!(testkit::testbed::loops::replicas(testbed, "web").await?.1 == 1, "it acted on a calm value");

    grant_elsewhere(testbed).await?;
    has_value(testbed, "others", "elsewhere", "7").await?;
    export(&prometheus, ns, "10", &pod)?;
    scaled(testbed).await?;
    drop(server);
    for metric in ["sum", "total", "pods", "deployment"] {
        let group = if matches!(metric, "sum" | "total") { "external" } else { "custom" };
        let words = format!(
            "answers 503 Service Unavailable for {group}.metrics.k8s.io, so the adapter behind it is down or not reached"
        );
        unknown(testbed, "others", metric, &words).await?;
    }
    let values = testbed.api::<Monitoring>().get("others").await?.status.unwrap_or_default();
    let why = values.unknown.iter().find(|one| one.metric == "pods").context("pods is known")?.message.clone();
    ensure!(why.contains("kubectl describe apiservice v1beta2.custom.metrics.k8s.io"), "{why}");
    let _server = adapter::start(testbed, &prometheus.url(), rules, &adapter::ALL).await?;
    known(testbed, "web").await
}

/// Lets the account read external metrics of the namespace `elsewhere`.
async fn grant_elsewhere(testbed: &Testbed) -> Result<()> {
    let client = || testbed.client.clone();
    let params = PostParams::default();
    let namespace = json!({"metadata": {"name": "elsewhere"}});
    Api::<Namespace>::all(client()).create(&params, &serde_json::from_value(namespace)?).await?;
    let role = json!({"metadata": {"name": "metrics"},
        "rules": [{"apiGroups": ["external.metrics.k8s.io"], "resources": ["web_queue"], "verbs": ["list"]}]});
    Api::<Role>::namespaced(client(), "elsewhere").create(&params, &serde_json::from_value(role)?).await?;
    let binding = json!({"metadata": {"name": "metrics"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "metrics"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": testbed.ns}]});
    Api::<RoleBinding>::namespaced(client(), "elsewhere").create(&params, &serde_json::from_value(binding)?).await?;
    Ok(())
}

/// Answer of an external metric with these items.
fn items(items: Value) -> Manner {
    let list = json!({"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {}, "items": items});
    Manner::Says("200 OK\nContent-Type: application/json\r\n", list.to_string())
}

/// Behavior of an adapter for a path. All answers have the time `at`, except that of the metric `stale`.
fn adapter(path: &str) -> Manner {
    let now = Timestamp::now();
    let item = |labels: Value, value: Value, at: Timestamp| json!({"metricName": "", "metricLabels": labels, "timestamp": at.to_string(), "value": value});
    let of = |value: Value| items(json!([item(json!({}), value, now)]));
    let (path, _) = path.split_once('?').unwrap_or((path, ""));
    match path.rsplit('/').next().unwrap_or_default() {
        "v1beta1" => Manner::Says("200 OK\nContent-Type: application/json\r\n",
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "external.metrics.k8s.io/v1beta1", "resources": []}).to_string()),
        // T28: it ignores the selector. T30: items have no name.
        "ignoring" => items(json!([item(json!({"q": "a"}), json!("5"), now), item(json!({"q": "b"}), json!("50"), now)])),
        "small" => of(json!("400u")),
        "negative" => of(json!("-3")),
        "number" => of(json!(5)),
        "null" => of(json!(null)),
        "text" => of(json!("hunter2")),
        // Its measurements lag behind by an hour, and go on.
        "stale" => items(json!([item(json!({}), json!("5"), now - SignedDuration::from_hours(1))])),
        "broken" => Manner::Says("500 Internal Server Error", "hunter2".to_owned()),
        "garbage" => Manner::Says("200 OK", "<html>hunter2".to_owned()),
        "large" => Manner::Says("200 OK", " ".repeat(3 << 20)),
        "endless" => Manner::Floods,
        "hanging" => Manner::Hangs,
        _ => Manner::Says("404 Not Found", String::new()),
    }
}

#[test]
fn an_adapter_that_misbehaves_makes_its_own_metrics_unknown_and_no_others() {
    let plane = block_on(Plane::own("misbehaving", 1)).expect("a plane of its own");
    story_on(&plane.0, Road::Proxy, "sources-misbehaving", async |testbed| match misbehaving_adapter(testbed).await {
        Ok(()) => Ok(()),
        Err(error) => Err(with_loops(testbed, error).await),
    });
}

async fn misbehaving_adapter(testbed: &Testbed) -> Result<()> {
    scene(testbed).await?;
    grant_more(testbed, "metrics", &[("external.metrics.k8s.io", "*", "list")]).await?;
    let server = Server::secure(Manner::Routes(Arc::new(adapter)), &Authority::create()).await;
    aggregate(testbed, "external.metrics.k8s.io", "v1beta1", server.address.port()).await?;
    let names =
        ["small", "negative", "number", "null", "text", "stale", "broken", "garbage", "large", "endless", "hanging"];
    let mut metrics: Vec<(&str, Value)> =
        names.iter().map(|name| (*name, json!({"external": {"metric": name}}))).collect();
    metrics.push(("ignoring", json!({"external": {"metric": "ignoring", "selector": of_q("a")}})));
    put(testbed, "others", watcher(&metrics)).await?;
    for (metric, value) in [("ignoring", "5"), ("small", "400u"), ("negative", "-3"), ("number", "5")] {
        has_value(testbed, "others", metric, value).await?;
    }
    for (metric, words) in [
        ("null", "metric null has no value"),
        ("text", "metric text is a text of 7 characters, not a quantity"),
        ("stale", "the last value is too old"),
        ("broken", "the adapter behind external.metrics.k8s.io answers 500 Internal Server Error: its log says why"),
        ("garbage", "metric garbage in namespace"),
        ("large", "has more than 2097152 bytes (setting outbound.maxBytes)"),
        ("endless", "no answer within 1 s"),
        ("hanging", "no answer within 1 s"),
    ] {
        unknown(testbed, "others", metric, words).await?;
    }
    // T26: the time since which it is unknown stands still, although its measurements go on.
    let since =
        |one: Monitoring| one.status?.unknown.into_iter().find(|one| one.metric == "stale").map(|one| one.since);
    let first = since(testbed.api::<Monitoring>().get("others").await?).context("stale is known")?;
    let asked = || server.heard().matches("/stale").count();
    let polls = asked();
    wait_for("four more polls", || asked() >= polls + 4).await?;
    ensure!(since(testbed.api::<Monitoring>().get("others").await?).as_ref() == Some(&first), "it moved");
    let all = testbed.kubectl(&["get", "loop,mon,dec,exe,events", "-o", "yaml"], None).await?;
    ensure!(!all.contains("hunter2"), "the content of an answer is shown");
    ensure!(server.heard().contains(&format!("/namespaces/{}/small", testbed.ns)), "a path without a namespace");
    Ok(())
}
