//! The source `scaler` of loops: an external scaler that is made with KEDA's package, and what it does wrong.

use anyhow::{Result, ensure};
use ganglion_api::monitoring::Monitoring;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testkit::servers::http::Authority;
use testkit::servers::scaler::{ScalerProcess, TOKEN, queue};
use testkit::testbed::Testbed;
use testkit::testbed::loops::{ACCOUNT, grant_more, has_data, loop_story, put, replicas, until};
use testkit::wait_for;

use super::loop_sources::{scene, unknown, watcher};

/// A scaler that is not asked for long.
const SOON: &str = "1s";

/// A loop that scales the Deployment `web` to two replicas, and no more, while the metric `load` is above this.
fn loop_on(interval: &str, metrics: &[(&str, Value)], raise: &str) -> Value {
    let metrics: Vec<Value> = metrics
        .iter()
        .map(|(name, source)| json!({"name": name, "source": source, "high": {"raise": raise}}))
        .collect();
    json!({
        "interval": interval,
        "serviceAccountName": ACCOUNT,
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": metrics,
        "actions": [{"when": {"metric": "load", "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 2}}]}],
    })
}

/// Waits until the metric has this value.
async fn reads(testbed: &Testbed, name: &str, metric: &str, value: &str) -> Result<()> {
    until::<Monitoring, _>(testbed, name, &format!("{metric} of {name} to be {value}"), |one| {
        one.status?.values.iter().find(|one| one.metric == metric && one.value.as_str() == value).map(drop)
    })
    .await
}

async fn scaled(testbed: &Testbed) -> Result<()> {
    until::<Deployment, _>(testbed, "web", "the Deployment to be scaled", |one| {
        (one.spec?.replicas? == 2).then_some(())
    })
    .await
}

#[test]
fn an_external_scaler_drives_a_loop_and_a_metric_that_hangs_stops_itself_only() {
    loop_story("scaler-hangs", async |testbed| {
        let server = ScalerProcess::start(&json!({"": queue(3.0, 10.0, true)})).await?;
        scene(testbed).await?;
        let scaler = |more: Value| {
            let mut source = json!({"address": server.address()});
            source.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
            json!({"scaler": source})
        };
        let metrics = [
            ("load", scaler(json!({"metadata": {"region": "north"}}))),
            ("hangs", scaler(json!({"metric": "queue", "metadata": {"GetMetrics": "hang"}}))),
            ("target", scaler(json!({"value": "Target"}))),
            ("active", scaler(json!({"value": "Active"}))),
            ("share", json!({"formula": {"expression": "load / target"}})),
        ];
        put(testbed, "web", loop_on(SOON, &metrics, "5")).await?;
        for (metric, value) in [("load", "3"), ("target", "10"), ("active", "1"), ("share", "0.3")] {
            reads(testbed, "web", metric, value).await?;
        }
        let hangs = format!("external scaler {}: no answer within 1 s", server.address());
        unknown(testbed, "web", "hangs", &hangs).await?;
        let asked = server.calls("GetMetrics");
        let first = asked.iter().find(|call| call["metadata"]["region"] == "north");
        ensure!(first.is_some_and(|call| call["name"] == "web" && call["namespace"] == *testbed.ns), "{asked:?}");
        ensure!(replicas(testbed, "web").await?.1 == 1, "it acted below the level");
        // The next poll uses the new value and the new target.
        server.set(&json!({"": queue(8.0, 20.0, false)}))?;
        scaled(testbed).await?;
        for (metric, value) in [("target", "20"), ("active", "0"), ("share", "0.4")] {
            reads(testbed, "web", metric, value).await?;
        }
        Ok(())
    });
}

#[test]
fn what_a_scaler_does_wrong_is_said_and_is_no_number() {
    loop_story("scaler-wrong", async |testbed| {
        let two = json!({"active": true, "spec": {"metricSpecs": [{"metricName": "a"}, {"metricName": "b"}]},
            "metrics": {"metricValues": []}});
        let nan = json!({"active": true, "spec": {"metricSpecs": [{"metricName": "queue"}]},
            "metrics": {"metricValues": [{"metricName": "queue", "metricValueFloat": "NaN"}]}});
        let answers = json!({"": queue(3.0, 10.0, true), "two": two, "nan": nan});
        let server = ScalerProcess::start(&answers).await?;
        scene(testbed).await?;
        let scaler = |metric: Option<&str>, metadata: Value| json!({"scaler": {"address": server.address(), "metric": metric, "metadata": metadata}});
        let cases = [
            ("garbage", scaler(Some("queue"), json!({"GetMetrics": "garbage"})), "its message cannot be decoded"),
            ("wrong", scaler(Some("s0-queue"), json!({})), "KEDA adds the prefix"),
            ("several", scaler(None, json!({"of": "two"})), "it offers 2 metrics, a, b: name one of them in metric"),
            ("empty", scaler(Some("a"), json!({"of": "two"})), "the answer has no value of a"),
            ("nan", scaler(None, json!({"of": "nan"})), "queue is NaN, which is not a number"),
            ("down", scaler(None, json!({"GetMetricSpec": "UNAVAILABLE"})), "the server answers Unavailable"),
            ("large", scaler(None, json!({"GetMetricSpec": "large"})), "more than 65536 bytes"),
        ];
        let mut metrics: Vec<(&str, Value)> = cases.iter().map(|(name, source, _)| (*name, source.clone())).collect();
        let mut floods = scaler(None, json!({"StreamIsActive": "flood"}));
        floods["scaler"]["stream"] = json!(true);
        metrics.push(("good", floods));
        put(testbed, "web", watcher(&metrics)).await?;
        reads(testbed, "web", "good", "3").await?;
        let named = format!("external scaler {}: ", server.address());
        for (metric, _, words) in &cases {
            unknown(testbed, "web", metric, words).await?;
            unknown(testbed, "web", metric, &named).await?;
        }
        let more_polls = async || {
            let polls = server.calls("GetMetrics").len();
            wait_for("some more polls of all metrics", || server.calls("GetMetrics").len() > polls + 40).await
        };
        // The first messages fill the windows of the connection.
        more_polls().await?;
        let before = server.calls("flood").len();
        ensure!(before > 0, "no stream was opened");
        more_polls().await?;
        let more = server.calls("flood").len() - before;
        ensure!(more <= 1, "the operator reads a stream without a pause: {more} thousand messages");
        Ok(())
    });
}

#[test]
fn a_scaler_that_starts_late_and_again_is_asked_again() {
    loop_story("scaler-restarts", async |testbed| {
        let mut server = ScalerProcess::stopped(&json!({"": queue(3.0, 10.0, true)}))?;
        scene(testbed).await?;
        let mut spec = loop_on(SOON, &[("load", json!({"scaler": {"address": server.address()}}))], "5");
        spec["metrics"][0]["missing"] = json!({"after": "3s"});
        put(testbed, "web", spec).await?;
        unknown(testbed, "web", "load", "cannot connect").await?;
        ensure!(replicas(testbed, "web").await?.1 == 1, "it acted without a value");
        server.restart().await?;
        reads(testbed, "web", "load", "3").await?;
        server.end();
        unknown(testbed, "web", "load", "cannot connect").await?;
        server.set(&json!({"": queue(8.0, 10.0, true)}))?;
        server.restart().await?;
        scaled(testbed).await?;
        // It answers nothing at all, and goes on later.
        server.pause()?;
        unknown(testbed, "web", "load", "no answer within 1 s").await?;
        server.resume()?;
        has_data(testbed, "web").await
    });
}

#[test]
fn a_stream_wakes_a_loop_at_once_and_its_end_says_nothing() {
    loop_story("scaler-streams", async |testbed| {
        let mut server = ScalerProcess::start(&json!({"": queue(0.0, 10.0, false)})).await?;
        scene(testbed).await?;
        // Without the stream, the next poll would be after an hour.
        let source = json!({"scaler": {"address": server.address(), "value": "Active", "stream": true}});
        put(testbed, "web", loop_on("1h", &[("load", source)], "0")).await?;
        reads(testbed, "web", "load", "0").await?;
        wait_for("the stream to be open", || !server.calls("StreamIsActive").is_empty()).await?;
        server.set(&json!({"": queue(5.0, 10.0, true)}))?;
        reads(testbed, "web", "load", "1").await?;
        scaled(testbed).await?;
        let (polls, streams) = (server.calls("IsActive").len(), server.calls("StreamIsActive").len());
        server.end();
        server.set(&json!({"": queue(0.0, 10.0, false)}))?;
        server.restart().await?;
        wait_for("the stream to be opened again", || server.calls("StreamIsActive").len() > streams).await?;
        ensure!(server.calls("IsActive").len() == polls, "the end of the stream, or false, has woken the loop");
        reads(testbed, "web", "load", "1").await?;
        server.set(&json!({"": queue(5.0, 10.0, true)}))?;
        wait_for("the loop to be woken again", || server.calls("IsActive").len() > polls).await
    });
}

#[test]
fn a_scaler_is_asked_over_tls_with_a_certificate_and_a_token_of_secrets() {
    loop_story("scaler-guarded", async |testbed| {
        let (authority, clients) = (Authority::create(), Authority::create());
        clients.issue_for_client();
        let server = ScalerProcess::guarded(&json!({"": queue(8.0, 10.0, true)}), &authority, Some(&clients)).await?;
        scene(testbed).await?;
        let (certificate, key) = clients.files();
        let pair = json!({"tls.crt": std::fs::read_to_string(certificate)?, "tls.key": std::fs::read_to_string(key)?});
        testbed
            .create::<Secret>(json!({"metadata": {"name": "client"}, "type": "kubernetes.io/tls", "stringData": pair}))
            .await?;
        testbed.create::<Secret>(json!({"metadata": {"name": "token"}, "stringData": {"token": "wrong"}})).await?;
        let pem = String::from_utf8(authority.pem())?;
        testbed.create::<ConfigMap>(json!({"metadata": {"name": "trust"}, "data": {"ca.crt": pem}})).await?;
        grant_more(testbed, "reads", &[("", "configmaps", "get")]).await?;
        let tls = json!({"ca": {"configMap": {"name": "trust", "key": "ca.crt"}}, "certificate": {"name": "client"}});
        let auth = json!({"bearer": {"name": "token", "key": "token"}});
        let source = json!({"scaler": {"address": server.address(), "tls": tls, "auth": auth}});
        put(testbed, "web", loop_on(SOON, &[("load", source)], "5")).await?;
        unknown(testbed, "web", "load", "the server answers Unauthenticated").await?;
        let token = json!({"stringData": {"token": format!("{TOKEN}\n")}});
        testbed.api::<Secret>().patch("token", &PatchParams::default(), &Patch::Merge(token)).await?;
        scaled(testbed).await?;
        let all = testbed.kubectl(&["get", "loop,mon,dec,exe", "-o", "yaml"], None).await?;
        let log = testbed.operator.lock().await.log_tail(usize::MAX);
        ensure!(
            !all.contains("PRIVATE KEY") && !log.contains("PRIVATE KEY") && !log.contains("wrong"),
            "a secret is shown"
        );
        Ok(())
    });
}
