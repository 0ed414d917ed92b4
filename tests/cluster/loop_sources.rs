//! Sources of loops: real servers, misbehaving servers and objects, and the reaction of a loop to their values.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::monitoring::Monitoring;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};
use testkit::plane::Plane;
use testkit::servers::http::{Authority, Manner, Server};
use testkit::servers::prometheus::PrometheusVersion::{self, V2_42, V2_52, V3};
use testkit::servers::prometheus::{PASSWORD, PrometheusProcess, USER};
use testkit::servers::usage::{self, uses};
use testkit::testbed::loops::{
    ACCOUNT, SCALES, account, grant, grant_more, has_data, loop_story, push, put, replicas, says, until, with_loops,
};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, story_on};
use testkit::{TIMEOUT, block_on};

use super::node_configs::is_used_as_the_metrics_server_says;

/// A loop that scales the Deployment `web` to two replicas, and no more, if this source reports more than 5.
pub(super) fn loop_on(source: Value) -> Value {
    json!({
        "interval": "1s",
        "serviceAccountName": ACCOUNT,
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [{"name": "load", "source": source, "high": {"raise": "5"}}],
        "actions": [{"when": {"metric": "load", "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 2}}]}],
    })
}

/// Name of a story with this version.
fn named(story: &str, version: PrometheusVersion) -> String {
    format!("{story}-{version:?}").to_lowercase().replace('_', "-")
}

/// A loop that only watches.
pub(super) fn watcher(metrics: &[(&str, Value)]) -> Value {
    let metrics: Vec<Value> =
        metrics.iter().map(|(name, source)| json!({"name": name, "source": source, "high": {"raise": "5"}, "missing": {"after": "5s"}})).collect();
    json!({
        "interval": "1s",
        "serviceAccountName": ACCOUNT,
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": metrics,
    })
}

pub(super) async fn scene(testbed: &Testbed) -> Result<()> {
    Workload::deployment("web", 1).create(testbed).await?;
    account(testbed, SCALES).await
}

pub(super) async fn scaled(testbed: &Testbed) -> Result<()> {
    until::<Deployment, _>(testbed, "web", "the Deployment to be scaled", |one| {
        (one.spec?.replicas? == 2).then_some(())
    })
    .await
}

/// Waits until the metric is unknown for this reason.
pub(super) async fn unknown(testbed: &Testbed, name: &str, metric: &str, words: &str) -> Result<()> {
    until::<Monitoring, _>(testbed, name, &format!("{metric} of {name} to be unknown: {words}"), |one| {
        one.status?.unknown.iter().find(|one| one.metric == metric && one.message.contains(words)).map(drop)
    })
    .await
}

/// Waits until every metric is known.
pub(super) async fn known(testbed: &Testbed, name: &str) -> Result<()> {
    until::<Monitoring, _>(testbed, name, &format!("all of {name} to be known"), |one| {
        let status = one.status?;
        (status.unknown.is_empty() && !status.values.is_empty()).then_some(())
    })
    .await
}

#[rstest]
fn prometheus_drives_a_scale_and_whatever_it_does_the_loop_comes_back(
    #[values(V2_42, V2_52, V3)] version: PrometheusVersion,
) {
    loop_story(&named("sources-prometheus", version), async |testbed| {
        let mut server = PrometheusProcess::start(version).await?;
        server.set("web_load", "3")?;
        server.set("web_other", "3")?;
        scene(testbed).await?;
        let query = |query: &str| json!({"prometheus": {"url": server.url(), "query": query}});
        put(testbed, "web", loop_on(query("web_load"))).await?;
        let bad = [
            ("wrong", query("sum(")),
            ("empty", query("no_such_metric")),
            ("nan", query("vector(0) / 0")),
            ("inf", query("1 / 0")),
            ("many", query(r#"{__name__=~"web_.*"}"#)),
            ("text", query(r#""five""#)),
            ("range", query("web_load[1m]")),
            ("good", query("web_load * 10")),
            // The server notes that this is not the name of a counter.
            ("noted", query("0 * sum(rate(web_load[1m]))")),
        ];
        put(testbed, "bad", watcher(&bad)).await?;
        has_data(testbed, "web").await?;
        for (metric, words) in [
            ("wrong", "the server answers 400 Bad Request (bad_data): check the query"),
            ("empty", "the query gives no series: check its names and labels"),
            ("nan", "the query gives NaN, which is not a number"),
            ("inf", "the query gives +Inf, which is not a number"),
            ("many", "the query gives 2 series, not one"),
            ("text", "the query gives a string, not a number"),
            ("range", "the query gives a matrix, not a number"),
        ] {
            unknown(testbed, "bad", metric, words).await?;
        }
        until::<Monitoring, _>(testbed, "bad", "the others to be known", |one| {
            let status = one.status?;
            let known: Vec<_> = status.values.iter().map(|reading| reading.metric.as_str()).collect();
            (known == ["good", "noted"] && status.unknown.len() == 7 && status.message? == "High good").then_some(())
        })
        .await?;
        ensure!(replicas(testbed, "web").await?.1 == 1, "it acted on a calm value");

        server.end();
        unknown(testbed, "web", "load", "cannot connect: Connection refused").await?;
        server.set("web_load", "10")?;
        server.again().await?;
        scaled(testbed).await?;
        known(testbed, "web").await?;
        server.pause()?;
        unknown(testbed, "web", "load", "no answer within 1 s").await?;
        server.resume()?;
        known(testbed, "web").await?;
        ensure!(replicas(testbed, "web").await?.1 == 2, "it was scaled beyond its max");
        Ok(())
    });
}

#[rstest]
fn the_sample_acts(#[values(V2_42, V2_52, V3)] version: PrometheusVersion) {
    loop_story(&named("sources-sample", version), async |testbed| {
        let server = PrometheusProcess::start(version).await?;
        Workload::deployment("web", 1).create(testbed).await?;
        testbed.create::<ServiceAccount>(json!({"metadata": {"name": ACCOUNT}})).await?;
        grant(testbed, SCALES).await?;
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/samples/closedloop/servers/prometheus.yaml");
        let sample: Value = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
        let mut spec = sample["spec"].clone();
        // Uses another address and account, to avoid a wait of a minute.
        spec["serviceAccountName"] = json!(ACCOUNT);
        spec["interval"] = json!("1s");
        spec["metrics"][0]["source"]["prometheus"]["url"] = json!(server.url());
        spec["metrics"][0]["high"]["for"] = json!("1s");
        put(testbed, "prometheus", spec).await?;
        unknown(testbed, "prometheus", "latency", "the query gives no series").await?;
        let slow = async {
            // All requests take between half a second and one second.
            for count in 1.. {
                let name = "http_request_seconds";
                let bucket = |le: &str, count: i32| format!("{name}_bucket{{app=\"web\",le=\"{le}\"}} {count}\n");
                let buckets = [bucket("0.5", 0), bucket("1", count), bucket("+Inf", count)].concat();
                let text = format!("# TYPE {name} histogram\n{buckets}{name}_sum{{app=\"web\"}} {count}\n");
                server.export(name, &format!("{text}{name}_count{{app=\"web\"}} {count}\n"))?;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(())
        };
        tokio::select! {
            outcome = slow => outcome,
            done = scaled(testbed) => done,
        }
    });
}

#[rstest]
fn prometheus_is_asked_over_tls_with_a_password_that_the_account_may_read(
    #[values(V2_42, V2_52, V3)] version: PrometheusVersion,
) {
    loop_story(&named("sources-guarded", version), async |testbed| {
        let (authority, other) = (Authority::create(), Authority::create());
        let server = PrometheusProcess::guarded(version, &authority).await?;
        server.set("web_load", "10")?;
        scene(testbed).await?;
        let secret = json!({"metadata": {"name": "login"}, "stringData": {"username": USER, "password": "wrong"}});
        testbed.create::<Secret>(secret).await?;
        let pem = String::from_utf8(other.pem())?;
        testbed.create::<ConfigMap>(json!({"metadata": {"name": "trust"}, "data": {"ca.crt": pem}})).await?;
        let source = json!({"prometheus": {"url": server.url(), "query": "web_load",
            "auth": {"basic": {"name": "login"}}, "ca": {"configMap": {"name": "trust", "key": "ca.crt"}}}});
        put(testbed, "web", loop_on(source)).await?;
        unknown(testbed, "web", "load", "grant service account web-loop this verb").await?;
        grant_more(testbed, "reads", &[("", "configmaps", "get")]).await?;
        unknown(testbed, "web", "load", "certificate").await?;
        let patch = |patch: Value| (PatchParams::default(), Patch::Merge(patch));
        let (params, trust) = patch(json!({"data": {"ca.crt": String::from_utf8(authority.pem())?}}));
        testbed.api::<ConfigMap>().patch("trust", &params, &trust).await?;
        unknown(testbed, "web", "load", "the server answers 401 Unauthorized").await?;
        let (params, login) = patch(json!({"stringData": {"password": format!("{PASSWORD}\n")}}));
        testbed.api::<Secret>().patch("login", &params, &login).await?;
        scaled(testbed).await?;
        let all = testbed.kubectl(&["get", "loop,mon,dec,exe", "-o", "yaml"], None).await?;
        let log = testbed.operator.lock().await.log_tail(usize::MAX);
        ensure!(!all.contains("password:") && !all.contains("wrong") && !log.contains("wrong"), "a secret is shown");
        Ok(())
    });
}

#[test]
fn a_document_is_asked_with_a_token_beside_what_is_pushed() {
    loop_story("sources-http", async |testbed| {
        let server =
            Server::start(Manner::Guarded("authorization: Bearer open\r\n", r#"{"a": [{"load": 3}]}"#.into())).await;
        scene(testbed).await?;
        testbed.create::<Secret>(json!({"metadata": {"name": "token"}, "stringData": {"token": "open\n"}})).await?;
        let source = json!({"http": {"url": server.url("/load"), "path": "a.0.load",
            "auth": {"bearer": {"name": "token", "key": "token"}}}});
        let mut spec = loop_on(source);
        let pushed = json!({"name": "cpu", "source": {"push": {}}, "low": {"raise": "5"}, "missing": {"after": "1h"}});
        spec["metrics"].as_array_mut().context("no metrics")?.insert(0, pushed);
        spec["policy"] = json!({"rank": ["load", "cpu"]});
        put(testbed, "web", spec).await?;
        until::<Monitoring, _>(testbed, "web", "the document to be read", |one| {
            one.status?.values.iter().any(|reading| reading.value.as_str() == "3").then_some(())
        })
        .await?;
        let time = push(testbed, "web", json!({"cpu": "2"})).await?;
        let tag = until::<Monitoring, _>(testbed, "web", "the sample to be seen", |one| {
            let status = one.status?;
            (status.message? == "Low cpu").then_some(status.tag?)
        })
        .await?;
        ensure!(tag.pushed.as_ref().is_some_and(|pushed| pushed.0 == time), "{tag:?}");
        server.turn(Manner::Says("200 OK", r#"{"a": [{"load": "hi"}]}"#.into()));
        unknown(testbed, "web", "load", "a.0.load is a text of 2 characters, not a number").await?;
        ensure!(replicas(testbed, "web").await?.1 == 1, "it acted on text");
        server.turn(Manner::Says("200 OK", r#"{"a": [{"load": "10"}]}"#.into()));
        scaled(testbed).await?;
        let seen = testbed.api::<Monitoring>().get("web").await?.status.unwrap_or_default();
        ensure!(seen.message.as_deref() == Some("Low cpu,High load"), "{seen:?}");
        ensure!(seen.refused.is_none(), "samples were refused: {:?}", seen.refused);
        Ok(())
    });
}

/// A server that answers 503 to about every fifth poll: the last value stands meanwhile, and so does its level.
#[test]
fn polls_that_fail_now_and_then_stop_no_alarm() {
    loop_story("sources-flaky", async |testbed| {
        let works = Manner::Says("200 OK", r#"{"load": 10}"#.into());
        let fails = Manner::Says("503 Service Unavailable", String::new());
        let server = Server::start(works.clone()).await;
        scene(testbed).await?;
        let mut spec = loop_on(json!({"http": {"url": server.url("/"), "path": "load"}}));
        spec["metrics"][0]["high"]["for"] = json!("8s");
        put(testbed, "web", spec).await?;
        let toggles = async {
            loop {
                tokio::time::sleep(Duration::from_secs(4)).await;
                server.turn(fails.clone());
                tokio::time::sleep(Duration::from_millis(1100)).await;
                server.turn(works.clone());
            }
        };
        tokio::select! {
            done = scaled(testbed) => done,
            () = toggles => Ok(()),
        }
    });
}

#[test]
fn addresses_of_the_cluster_are_not_asked() {
    loop_story("sources-refused", async |testbed| {
        scene(testbed).await?;
        let metrics = [
            ("api", json!({"http": {"url": format!("http://{}/version", testbed.proxy.address), "path": "major"}})),
            ("metadata", json!({"http": {"url": "http://169.254.169.254/latest/meta-data", "path": "a"}})),
            ("endpoint", json!({"http": {"url": "https://192.0.2.7:6443/version", "path": "major"}})),
            ("private", json!({"http": {"url": "http://10.255.255.1:9200/_all", "path": "a"}})),
        ];
        // The plane's API server listens on loopback, which cannot be an endpoint.
        let slices: Api<EndpointSlice> = Api::namespaced(testbed.client.clone(), "default");
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "kubernetes"},
            "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.7"]}], "ports": [{"name": "https", "port": 6443}]});
        slices.patch("kubernetes", &PatchParams::apply("test").force(), &Patch::Apply(slice)).await?;
        testbed.kill_and_restart().await?;
        put(testbed, "web", watcher(&metrics)).await?;
        unknown(testbed, "web", "api", "the address is refused: 127.0.0.1 is the API server's").await?;
        unknown(testbed, "web", "endpoint", "the address is refused: 192.0.2.7 is the API server's").await?;
        unknown(testbed, "web", "metadata", "the address is refused: 169.254.169.254 is a link-local address").await?;
        let ns = &testbed.ns;
        let line = format!("- {{namespaces: [{ns}], networks: [\"10.255.255.1\"], ports: [9200], methods: [GET]}}");
        unknown(testbed, "web", "private", &line).await?;
        // The line permits the request: there is no server at this address.
        testbed.settings(&format!("  privateNetworks:\n    {line}"))?;
        testbed.kill_and_restart().await?;
        until::<Monitoring, _>(testbed, "web", "the private address to be asked", |one| {
            let unknown = one.status?.unknown;
            let private = unknown.iter().find(|one| one.metric == "private")?;
            (!private.message.contains("the address is refused")).then_some(())
        })
        .await
    });
}

#[test]
fn objects_are_read_as_the_loops_account() {
    loop_story("sources-object", async |testbed| {
        scene(testbed).await?;
        let field = |kind: &str, name: &str, path: &str| {
            let version = if kind == "ConfigMap" { "v1" } else { "ganglion.dev/v1alpha1" };
            json!({"object": {"apiVersion": version, "kind": kind, "name": name, "path": path}})
        };
        let condition =
            json!({"object": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "condition": "Available"}});
        testbed
            .create::<ConfigMap>(json!({"metadata": {"name": "wish"}, "data": {"load": "3", "words": "many"}}))
            .await?;
        put(testbed, "web", loop_on(field("ConfigMap", "wish", "data.load"))).await?;
        let metrics = [
            ("available", condition),
            ("words", field("ConfigMap", "wish", "data.words")),
            ("nothing", field("ConfigMap", "wish", "data.none")),
            ("gone", field("ConfigMap", "gone", "data.load")),
            ("own", field("ClosedLoop", "web", "status.observedGeneration")),
            ("unheard", json!({"object": {"apiVersion": "no.such/v1", "kind": "Thing", "name": "a", "path": "b"}})),
            ("astray", field("ConfigMap", "../secrets/a", "data")),
        ];
        put(testbed, "others", watcher(&metrics)).await?;
        unknown(testbed, "web", "load", "grant service account web-loop this verb on this resource").await?;
        let message = says(testbed, "web", "DataAvailable", ("Unknown", "NoSample")).await?;
        ensure!(message.contains("cannot get resource \"configmaps\""), "{message}");
        grant_more(testbed, "reads", &[("", "configmaps", "get"), ("ganglion.dev", "closedloops", "get")]).await?;
        has_data(testbed, "web").await?;
        for (metric, words) in [
            ("words", "data.words is a text of 4 characters, not a number"),
            ("nothing", "there is no data.none"),
            ("gone", "there is no ConfigMap gone in namespace"),
            ("unheard", "the API server does not know a namespaced kind Thing in no.such/v1"),
            ("astray", "is not a valid object name"),
        ] {
            unknown(testbed, "others", metric, words).await?;
        }
        let values = testbed.api::<Monitoring>().get("others").await?.status.unwrap_or_default().values;
        let values: Vec<_> = values.iter().map(|one| (one.metric.as_str(), one.value.as_str())).collect();
        ensure!(values == [("available", "1"), ("own", "1")], "{values:?}");
        let patch = Patch::Merge(json!({"data": {"load": "5100m"}}));
        testbed.api::<ConfigMap>().patch("wish", &PatchParams::default(), &patch).await?;
        scaled(testbed).await
    });
}

#[test]
fn what_a_source_holds_is_not_shown() {
    loop_story("sources-hidden", async |testbed| {
        let server = Server::start(Manner::Says("200 OK", r#"{"a": "hunter2"}"#.into())).await;
        account(testbed, &[("", "secrets", "get"), ("", "configmaps", "get")]).await?;
        testbed
            .create::<Secret>(json!({"metadata": {"name": "login"}, "stringData": {"word": "hunter2", "pin": "1234"}}))
            .await?;
        testbed.create::<ConfigMap>(json!({"metadata": {"name": "login"}, "data": {"word": "hunter2"}})).await?;
        let field = |kind: &str, path: &str| json!({"object": {"apiVersion": "v1", "kind": kind, "name": "login", "path": path}});
        let refused = put(testbed, "secret", watcher(&[("word", field("Secret", "data.word"))])).await;
        let error = refused.err().context("a Secret became a source")?.to_string();
        ensure!(error.contains("a Secret is no source"), "{error}");
        let http = json!({"http": {"url": server.url("/"), "path": "a"}});
        put(testbed, "web", watcher(&[("map", field("ConfigMap", "data.word")), ("http", http)])).await?;
        for (metric, words) in [("map", "data.word is a text of 7 characters"), ("http", "a is a text of 7 characters")]
        {
            unknown(testbed, "web", metric, words).await?;
        }
        let all = testbed.kubectl(&["get", "loop,mon,dec,exe,events", "-o", "yaml"], None).await?;
        let log = testbed.operator.lock().await.log_tail(usize::MAX);
        ensure!(!all.contains("hunter2") && !log.contains("hunter2"), "the content is shown");
        Ok(())
    });
}

/// A document that takes seventy times its size as a parsed tree.
fn wide(bytes: usize) -> String {
    let items = bytes / r#"{"":0},"#.len();
    format!(r#"[{}7]"#, r#"{"":0},"#.repeat(items))
}

#[test]
fn large_answers_take_little_memory() {
    loop_story("sources-memory", async |testbed| {
        let server = Server::start(Manner::Says("200 OK", wide(1 << 20))).await;
        scene(testbed).await?;
        let last = (1 << 20) / r#"{"":0},"#.len();
        let source = json!({"http": {"url": server.url("/"), "path": last.to_string()}});
        put(testbed, "first", watcher(&[("load", source.clone())])).await?;
        unknown(testbed, "first", "load", "the answer has more than 65536 bytes (setting outbound.maxBytes)").await?;
        // With a higher limit, the reader must still not build a tree.
        let mut operator = testbed.operator.lock().await;
        operator.kill();
        testbed.settings("  maxBytes: {sample: 2000000}")?;
        operator.start()?;
        operator.ready().await?;
        let before = operator.memory("VmHWM")?;
        drop(operator);
        for name in ["second", "third"] {
            put(testbed, name, watcher(&[("load", source.clone())])).await?;
        }
        for name in ["first", "second", "third"] {
            known(testbed, name).await?;
        }
        let asked = server.asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner).len();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let now = server.asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner).len();
        ensure!(now > asked + 6, "it was not polled");
        let after = testbed.operator.lock().await.memory("VmHWM")?;
        println!("three loops, 1 MiB each second: at most {after:.1} MiB, {before:.1} MiB before");
        ensure!(after < before + 24.0, "{before} MiB became {after} MiB");
        Ok(())
    });
}

#[test]
fn a_secret_is_read_rarely_and_again_after_a_refusal() {
    loop_story("sources-secret", async |testbed| {
        let guarded = |token: &'static str| Manner::Guarded(token, r#"{"load": 3}"#.into());
        let server = Server::start(guarded("authorization: Bearer one\r\n")).await;
        scene(testbed).await?;
        testbed.create::<Secret>(json!({"metadata": {"name": "token"}, "stringData": {"token": "one"}})).await?;
        let auth = json!({"bearer": {"name": "token", "key": "token"}});
        put(
            testbed,
            "web",
            watcher(&[("load", json!({"http": {"url": server.url("/"), "path": "load", "auth": auth}}))]),
        )
        .await?;
        known(testbed, "web").await?;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let patch = Patch::Merge(json!({"stringData": {"token": "two"}}));
        testbed.api::<Secret>().patch("token", &PatchParams::default(), &patch).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let old = server.heard();
        ensure!(!old.contains("Bearer two") && old.matches("Bearer one").count() > 8, "it was read again: {old}");
        server.turn(guarded("authorization: Bearer two\r\n"));
        tokio::time::sleep(Duration::from_secs(3)).await;
        // The rejected request was repeated at once, so no sample was lost.
        known(testbed, "web").await?;
        ensure!(server.heard().contains("Bearer two"), "{}", server.heard());
        Ok(())
    });
}

#[test]
fn what_pods_use_is_read_off_a_real_metrics_server() {
    // A separate plane, because it registers an API for the whole plane.
    let plane = block_on(Plane::own("usage", 2)).expect("a plane of its own");
    story_on(&plane.0, Road::Proxy, "sources-usage", async |testbed| {
        scene(testbed).await?;
        let pod = until_running(testbed).await?;
        let use_of = |more: Value| {
            let mut source = json!({"resource": "cpu"});
            source.as_object_mut().zip(more.as_object()).into_iter().for_each(|(all, more)| all.extend(more.clone()));
            json!({"resource": source})
        };
        let mut spec = loop_on(use_of(json!({})));
        spec["metrics"][0]["high"] = json!({"raise": "0.5"});
        spec["metrics"][0]["missing"] = json!({"after": "2m"});
        put(testbed, "web", spec).await?;
        let metrics = [
            ("memory", use_of(json!({"resource": "memory", "container": "main", "of": "Sum"}))),
            ("none", use_of(json!({"container": "none"}))),
            ("nobody", use_of(json!({"podLabels": {"app": "nobody"}}))),
        ];
        put(testbed, "others", watcher(&metrics)).await?;
        unknown(testbed, "web", "load", "cannot list resource \"pods\" in API group \"metrics.k8s.io\"").await?;
        grant_more(testbed, "reads", &[("metrics.k8s.io", "pods", "list"), ("", "pods", "list")]).await?;
        unknown(testbed, "web", "load", "there is no API metrics.k8s.io").await?;
        uses(testbed, &pod, "250m", "64Mi").await?;
        let server = usage::start(testbed, Duration::from_secs(10)).await?;
        if let Err(error) = known(testbed, "web").await {
            return Err(with_loops(testbed, error.context(server.log())).await);
        }
        let values = testbed.api::<Monitoring>().get("web").await?.status.unwrap_or_default().values;
        let cores: f64 = values.first().context("no value")?.value.as_str().trim_end_matches('m').parse()?;
        ensure!((0.2..0.3).contains(&cores), "{cores} cores are not 0.25");
        let node = testbed.api::<Pod>().get(&pod).await?.spec.and_then(|spec| spec.node_name).context("no node")?;
        is_used_as_the_metrics_server_says(testbed, &node).await?;
        unknown(testbed, "others", "none", "has no container none").await?;
        unknown(testbed, "others", "nobody", "no pod is measured").await?;
        let others = testbed.api::<Monitoring>().get("others").await?.status.unwrap_or_default();
        ensure!(others.values.first().is_some_and(|one| one.value.as_str() == "67108864"), "{:?}", others.values);
        ensure!(replicas(testbed, "web").await?.1 == 1, "it acted on a calm value");
        uses(testbed, &pod, "2", "64Mi").await?;
        scaled(testbed).await
    });
}

/// With a measurement a minute, which clusters use to spare metrics-server, a level stands longer than a minute.
#[test]
fn a_value_stands_between_the_measurements_of_a_slow_metrics_server() {
    let plane = block_on(Plane::own("usage-slow", 2)).expect("a plane of its own");
    story_on(&plane.0, Road::Proxy, "sources-usage-slow", async |testbed| {
        scene(testbed).await?;
        let pod = until_running(testbed).await?;
        uses(testbed, &pod, "2", "64Mi").await?;
        grant_more(testbed, "reads", &[("metrics.k8s.io", "pods", "list"), ("", "pods", "list")]).await?;
        let server = usage::start(testbed, Duration::from_secs(60)).await?;
        let mut spec = loop_on(json!({"resource": {"resource": "cpu"}}));
        spec["metrics"][0]["high"] = json!({"raise": "0.5", "for": "90s"});
        put(testbed, "web", spec).await?;
        // The first value of a pod needs two measurements.
        let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods/{pod}", testbed.ns);
        let measured = async {
            while testbed.kubectl(&["get", "--raw", &path], None).await.is_err() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(2 * TIMEOUT, measured).await.with_context(|| server.log())?;
        known(testbed, "web").await?;
        scaled(testbed).await
    });
}

/// Name of the Deployment's only pod, once it runs.
pub(super) async fn until_running(testbed: &Testbed) -> Result<String> {
    let look = async {
        loop {
            let all = testbed.api::<Pod>().list(&ListParams::default()).await;
            let found = all.ok().and_then(|all| {
                let mut all = all.items.into_iter();
                all.find(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running"))
            });
            if let Some(name) = found.and_then(|pod| pod.metadata.name) {
                return name;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, look).await.context("no pod runs")
}
