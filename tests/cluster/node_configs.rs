//! NodeConfigs: the values of nodes that users see, machines that fail and recover, rejected logins, and costs.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::http::StatusCode;
use ganglion_api::node_config::status::NodeReading;
use ganglion_api::node_config::{NodeConfig, NodeConfigStatus, NodeConfigTemplate};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::proxy::gate::HoldPoint;
use testkit::servers::http::{Authority, Manner, Server};
use testkit::testbed::loops::{condition, until};
use testkit::testbed::nodes::Size;
use testkit::testbed::{Testbed, story};

const FAKE: &str = "Fake";

pub(super) fn fake() -> Value {
    json!({"type": FAKE, "fetchInterval": "1s"})
}

/// A pressure source that is polled every second.
pub(super) fn pressure(endpoint: &str) -> Value {
    json!({"type": "DifferentialPressureAPI", "endpoint": endpoint, "fetchInterval": "1s"})
}

pub(super) fn pascals(pressure: f64) -> Manner {
    let sensor = json!({"sensorid": "101037B", "pressure": pressure, "temperature": 28.3});
    Manner::Says("200 OK", json!({"code": 200, "sensor": [sensor]}).to_string())
}

pub(super) async fn put(testbed: &Testbed, name: &str, node: &str, collector: Value) -> Result<NodeConfig> {
    testbed
        .create(json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": name},
            "spec": {"nodeName": node, "metricsCollector": collector},
        }))
        .await
}

/// A template `all` for this node, which polls no real server.
pub(super) async fn template(testbed: &Testbed, node: &str) -> Result<()> {
    testbed.kubectl(&["label", "node", node, &format!("example.com/of={}", testbed.ns)], None).await?;
    let manifest = json!({
        "metadata": {"name": "all"},
        "spec": {
            "nodeSelector": {"matchLabels": {"example.com/of": testbed.ns}},
            "template": {"metricsCollector": {"inletTemp": fake()}},
        },
    });
    testbed.create::<NodeConfigTemplate>(manifest).await.map(drop)
}

async fn patch(testbed: &Testbed, name: &str, spec: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": spec}));
    testbed.api::<NodeConfig>().patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until DataAvailable, or Ready, has this status and reason for the current spec. Returns the status.
pub(super) async fn ready(testbed: &Testbed, name: &str, status: &str, reason: &str) -> Result<NodeConfigStatus> {
    until::<NodeConfig, _>(testbed, name, &format!("NodeConfig {name} to be {status} {reason}"), |one| {
        let found = one.status?;
        let is_now = found.observed_generation == one.metadata.generation;
        let says =
            |kind| condition(&found.conditions, kind).is_some_and(|one| one.status == status && one.reason == reason);
        (is_now && (says("Ready") || says("DataAvailable"))).then_some(found)
    })
    .await
}

pub(super) fn message(status: &NodeConfigStatus) -> String {
    condition(&status.conditions, "DataAvailable").map(|data| data.message).unwrap_or_default()
}

async fn metrics(testbed: &Testbed) -> Result<String> {
    testbed.operator.lock().await.get("/metrics").await
}

fn status_writes(testbed: &Testbed, name: &str) -> usize {
    let of_this = format!("nodeconfigs/{name}/status");
    testbed.proxy.writes().iter().filter(|write| write.target == of_this).count()
}

/// Checks the usage of a node, in percent of its capacity, against the cluster's metrics-server.
pub(super) async fn is_used_as_the_metrics_server_says(testbed: &Testbed, node: &str) -> Result<()> {
    put(testbed, "used", node, json!({"usage": {"type": "MetricsServer", "fetchInterval": "1s"}})).await?;
    let status = ready(testbed, "used", "True", "Sampled").await?;
    let percent = |reading: &Option<NodeReading>| -> Result<f64> {
        Ok(reading.as_ref().and_then(|reading| reading.value.as_ref()).context("no value")?.parse()?)
    };
    // One pod of 64 MiB uses little of a large node.
    let (cpu, memory) = (percent(&status.cpu)?, percent(&status.memory)?);
    ensure!(cpu > 0.0 && cpu < 100.0 && memory < 10.0, "{cpu} %, {memory} %");
    Ok(())
}

#[test]
fn a_node_has_its_values_in_the_table_and_in_the_metrics() {
    story("ncfg-fake", async |testbed| {
        let mut nodes = testbed.nodes(1, Size::default()).await?;
        let node = nodes.names[0].clone();
        let all = json!({"inletTemp": fake(), "deltaP": fake(), "usage": fake(), "power": fake()});
        let object = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "one"},
            "spec": {"nodeName": node, "metricsCollector": all, "predictor": {"powerConsumption": fake()}},
        });
        let begun = Instant::now();
        testbed.create::<NodeConfig>(object).await?;
        ready(testbed, "one", "True", "Sampled").await?;
        ensure!(begun.elapsed() < Duration::from_secs(10), "a user waited {:?}", begun.elapsed());
        let table = testbed.kubectl(&["get", "ncfg", "one"], None).await?;
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        let head = [
            "NAME",
            "NODE",
            "INLET(C)",
            "PRESSURE(PA)",
            "CPU(%)",
            "PREDICTED(W)",
            "MEASURED(W)",
            "SAMPLED",
            "READY",
            "DATA",
            "REASON",
            "AGE",
        ];
        ensure!(lines[0] == head, "{table}");
        ensure!(lines[1][1..6] == [node.as_str(), "15.5", "7.5", "50", "3.14"], "{table}");
        ensure!(lines[1][6] == "3.14", "{table}");
        ensure!(lines[1][8..11] == ["True", "True", "Sampled"], "{table}");
        let seen = metrics(testbed).await?;
        for line in [
            format!("ganglion_node_inlet_temperature_celsius{{node=\"{node}\"}} 15.5"),
            format!("ganglion_node_differential_pressure_pascals{{node=\"{node}\"}} 7.5"),
            format!("ganglion_node_cpu_usage_percent{{node=\"{node}\"}} 50"),
            format!("ganglion_node_memory_usage_percent{{node=\"{node}\"}} 50"),
            format!("ganglion_node_power_watts{{node=\"{node}\"}} 3.14"),
            format!("ganglion_node_measured_power_watts{{node=\"{node}\"}} 3.14"),
            format!("ganglion_node_power_error_watts{{node=\"{node}\"}} 0"),
            format!("ganglion_node_value_age_seconds{{node=\"{node}\",value=\"power\"}} "),
            "ganglion_node_polls_total{poll=\"power\",outcome=\"ok\"} ".to_owned(),
        ] {
            ensure!(seen.contains(&line), "no {line} in\n{seen}");
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        ensure!(
            status_writes(testbed, "one") == 1,
            "{} writes for values that do not change",
            status_writes(testbed, "one")
        );

        patch(testbed, "one", json!({"suspend": true})).await?;
        let suspended = ready(testbed, "one", "Unknown", "Suspended").await?;
        ensure!(suspended.inlet_temperature.is_some(), "the values are missing");
        let stale = |one: NodeConfig| {
            let status = one.status?;
            let power = status.power.as_ref().and_then(|power| power.stale)?;
            (power && condition(&status.conditions, "Stale").is_some()).then_some(())
        };
        until::<NodeConfig, _>(testbed, "one", "the predicted power to be stale", stale).await?;
        ensure!(!metrics(testbed).await?.contains("ganglion_node_power_watts{"), "stale values are in the metrics");
        patch(testbed, "one", json!({"suspend": null})).await?;
        let fresh = ready(testbed, "one", "True", "Sampled").await?;
        ensure!(condition(&fresh.conditions, "Stale").is_none(), "{fresh:?}");

        put(testbed, "absent", &format!("{}-1", testbed.ns), json!({"deltaP": fake()})).await?;
        let absent = ready(testbed, "absent", "False", "NodeNotFound").await?;
        ensure!(
            message(&absent).contains(&format!("the cluster has no node {}-1", testbed.ns)),
            "{}",
            message(&absent)
        );
        nodes.join(None, Size::default()).await?;
        ready(testbed, "absent", "True", "Sampled").await?;

        testbed.kubectl(&["delete", "ncfg", "one"], None).await?;
        // The operator observes it by its watch.
        let gone = async {
            while metrics(testbed).await?.contains(&format!("node=\"{node}\"")) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            anyhow::Ok(())
        };
        let gone = tokio::time::timeout(Duration::from_secs(10), gone).await;
        gone.context("the series of a deleted NodeConfig are still there")?
    });
}

#[test]
fn of_two_for_one_node_the_older_one_is_measured() {
    story("ncfg-two", async |testbed| {
        let nodes = testbed.nodes(1, Size::default()).await?;
        put(testbed, "older", &nodes.names[0], json!({"deltaP": fake()})).await?;
        ready(testbed, "older", "True", "Sampled").await?;
        tokio::time::sleep(Duration::from_millis(1100)).await;
        put(testbed, "a-younger", &nodes.names[0], json!({"inletTemp": fake()})).await?;
        let younger = ready(testbed, "a-younger", "False", "NodeConflict").await?;
        let words = format!("NodeConfig {}/older is older and describes node {} already", testbed.ns, nodes.names[0]);
        ensure!(message(&younger).starts_with(&words), "{}", message(&younger));
        ensure!(
            condition(&younger.conditions, "Stalled").is_some() && younger.inlet_temperature.is_none(),
            "{younger:?}"
        );
        testbed.kubectl(&["delete", "ncfg", "older"], None).await?;
        ready(testbed, "a-younger", "True", "Sampled").await?;
        Ok(())
    });
}

#[test]
fn each_fault_of_an_endpoint_has_its_reason_and_words() {
    story("ncfg-faults", async |testbed| {
        let authority = Authority::create();
        let says = |status, body: &str| Server::start(Manner::Says(status, body.to_owned()));
        let closed = says("200 OK", "").await.address;
        let hangs = Server::start(Manner::Hangs).await;
        let floods = Server::start(Manner::Floods).await;
        let html = says("200 OK", "<html><body>Sign in</body></html>").await;
        let broken = says("200 OK", "{\"code\": 200, \"sensor\": [").await;
        let null = says("200 OK", r#"{"code": 200, "sensor": [{"sensorid": "a", "pressure": null}]}"#).await;
        let beyond = says("200 OK", r#"{"code": 200, "sensor": [{"sensorid": "a", "pressure": 1e9}]}"#).await;
        let none = says("200 OK", r#"{"code": 200, "sensor": []}"#).await;
        let two = r#"{"code": 200, "sensor": [{"sensorid": "a", "pressure": 1}, {"sensorid": "b", "pressure": 2}]}"#;
        let two = says("200 OK", two).await;
        let text = r#"{"code": "200", "sensor": [{"sensorid": 7, "pressure": "7.6"}]}"#;
        let text = says("200 OK", text).await;
        let away = says("302 Found\nLocation: http://192.0.2.1/\r\n", "").await;
        let refuses = says("401 Unauthorized", "").await;
        let failing = says("503 Service Unavailable", "").await;
        let secure = Server::secure(pascals(7.6), &authority).await;
        let http = |server: &Server| server.url("");
        let cases = [
            ("refused", format!("http://127.0.0.1:{}", unused(closed.port())), "Unreachable", "cannot connect"),
            ("hangs", http(&hangs), "Unreachable", "no answer within 10 s"),
            ("before-tls", http(&hangs).replace("http", "https"), "Unreachable", "no answer within 10 s"),
            ("floods", http(&floods), "AnswerInvalid", "(setting outbound.maxBytes)"),
            (
                "html",
                http(&html),
                "AnswerInvalid",
                "check that metricsCollector.deltaP.endpoint is a server of the type",
            ),
            ("broken", http(&broken), "AnswerInvalid", "127.0.0.1"),
            ("null", http(&null), "NoReading", "127.0.0.1"),
            ("beyond", http(&beyond), "AnswerInvalid", "127.0.0.1"),
            ("none", http(&none), "SensorNotFound", "set metricsCollector.deltaP.sensor"),
            ("two", http(&two), "SensorAmbiguous", "set metricsCollector.deltaP.sensor"),
            ("away", http(&away), "AnswerInvalid", "a redirect"),
            ("login", http(&refuses), "LoginRefused", "refuses the request"),
            ("failing", http(&failing), "Unreachable", "503"),
            (
                "metadata",
                "http://169.254.169.254".to_owned(),
                "AddressRefused",
                "allow the address in the operator's settings",
            ),
        ];
        let nodes = testbed.nodes(cases.len() + 2, Size::default()).await?;
        for ((name, url, _, _), node) in cases.iter().zip(&nodes.names) {
            put(testbed, name, node, json!({"deltaP": pressure(url)})).await?;
        }
        let url = secure.url("").replace("http", "https");
        // Only a correction of its source leads to another poll.
        let mut rare = pressure(&url);
        rare["fetchInterval"] = json!("1h");
        put(testbed, "ca", &nodes.names[cases.len()], json!({"deltaP": rare})).await?;
        put(testbed, "text", &nodes.names[cases.len() + 1], json!({"deltaP": pressure(&text.url("/"))})).await?;
        for (name, _, reason, words) in &cases {
            let status = ready(testbed, name, "False", reason).await?;
            ensure!(message(&status).contains(words), "{name}: {}", message(&status));
            let ready = condition(&status.conditions, "Ready");
            ensure!(ready.is_some_and(|ready| ready.status == "True"), "{name}: {status:?}");
            let problem = status.differential_pressure.and_then(|reading| reading.problem).unwrap_or_default();
            ensure!(problem.contains(words), "{name}: {problem}");
            ensure!(!problem.contains("Sign in"), "{name}: what the server answered is shown");
        }
        let text = ready(testbed, "text", "True", "Sampled").await?;
        let reading = text.differential_pressure.unwrap_or_default();
        ensure!((reading.value.as_deref(), reading.source.as_deref()) == (Some("7.6"), Some("7")), "{reading:?}");

        let distrusted = ready(testbed, "ca", "False", "CertificateRefused").await?;
        let advice = "set metricsCollector.deltaP.ca to its certificate or to its authority, or metricsCollector.deltaP.insecureSkipVerify: true";
        ensure!(message(&distrusted).contains(advice), "{}", message(&distrusted));
        let pem = String::from_utf8(authority.pem())?;
        testbed.create::<ConfigMap>(json!({"metadata": {"name": "bmc-ca"}, "data": {"ca.crt": pem}})).await?;
        let ca = json!({"configMap": {"name": "bmc-ca", "key": "ca.crt"}});
        patch(testbed, "ca", json!({"metricsCollector": {"deltaP": {"ca": ca}}})).await?;
        ready(testbed, "ca", "True", "Sampled").await?;
        patch(testbed, "ca", json!({"metricsCollector": {"deltaP": {"ca": null, "insecureSkipVerify": true}}})).await?;
        ready(testbed, "ca", "True", "Sampled").await?;
        Ok(())
    });
}

/// A port without a listener.
fn unused(not: u16) -> u16 {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).map(|one| one.port());
    port.unwrap_or(not)
}

/// Request header `Authorization` of user `admin` with this password.
const RIGHT: &str = "authorization: Basic YWRtaW46cmlnaHQ=";

async fn secret(testbed: &Testbed, password: &str) -> Result<()> {
    let text = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"},
        "stringData": {"username": "admin", "password": password},
    });
    testbed.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], Some(&text.to_string())).await?;
    Ok(())
}

#[test]
fn a_refused_login_is_tried_once_and_again_as_soon_as_the_secret_is_mended() {
    story("ncfg-login", async |testbed| {
        let body = json!({"code": 200, "sensor": [{"sensorid": "a", "pressure": 7.6}]}).to_string();
        let server = Server::start(Manner::Guarded(RIGHT, body)).await;
        let nodes = testbed.nodes(2, Size::default()).await?;
        let mut source = pressure(&server.url(""));
        source["basicAuthSecret"] = json!({"name": "login"});
        put(testbed, "one", &nodes.names[0], json!({"deltaP": source.clone()})).await?;
        let missing = ready(testbed, "one", "False", "SecretUnavailable").await?;
        let words = format!("there is no Secret login in namespace {}", testbed.ns);
        ensure!(message(&missing).contains(&words), "{}", message(&missing));
        ensure!(server.asked.lock().unwrap().is_empty(), "it was asked without the Secret");

        secret(testbed, "wrong-word").await?;
        let refused = ready(testbed, "one", "False", "LoginRefused").await?;
        ensure!(
            message(&refused).contains("refuses the login of Secret login: it is tried again at "),
            "{}",
            message(&refused)
        );
        // Another NodeConfig with the same server and Secret shares the lockout.
        put(testbed, "two", &nodes.names[1], json!({"deltaP": source})).await?;
        ready(testbed, "two", "False", "LoginRefused").await?;
        tokio::time::sleep(Duration::from_secs(12)).await;
        let tries = server.asked.lock().unwrap().len();
        ensure!(tries == 1, "{tries} tries with a wrong password");

        secret(testbed, "right").await?;
        let mended = Instant::now();
        ready(testbed, "one", "True", "Sampled").await?;
        ready(testbed, "two", "True", "Sampled").await?;
        ensure!(mended.elapsed() < Duration::from_secs(25), "mended after {:?}", mended.elapsed());
        // The password is changed on the server, and then in the Secret.
        let _ = testbed.api::<Secret>().get("login").await?;
        let log = std::fs::read_to_string(testbed.operator.lock().await.log())?;
        let all = testbed.kubectl(&["get", "ncfg,events", "-o", "yaml"], None).await?;
        for secret in ["wrong-word", "YWRtaW46", "admin:"] {
            ensure!(!log.contains(secret) && !all.contains(secret), "{secret} is shown");
        }
        Ok(())
    });
}

#[test]
fn a_server_that_fails_leaves_a_stale_value_and_comes_back() {
    story("ncfg-stale", async |testbed| {
        let server = Server::start(pascals(7.6)).await;
        let nodes = testbed.nodes(1, Size::default()).await?;
        let node = &nodes.names[0];
        put(testbed, "one", node, json!({"deltaP": pressure(&server.url(""))})).await?;
        ready(testbed, "one", "True", "Sampled").await?;
        let series = format!("ganglion_node_differential_pressure_pascals{{node=\"{node}\"}} 7.6");
        ensure!(metrics(testbed).await?.contains(&series), "no {series}");
        server.turn(Manner::Says("500 Internal Server Error", String::new()));
        let failed = ready(testbed, "one", "False", "Unreachable").await?;
        let stale = condition(&failed.conditions, "Stale").is_some_and(|stale| stale.status == "True");
        let reading = failed.differential_pressure.clone().unwrap_or_default();
        ensure!(stale && reading.stale == Some(true) && reading.value.as_deref() == Some("7.6"), "{failed:?}");
        let seen = metrics(testbed).await?;
        ensure!(!seen.contains("ganglion_node_differential_pressure_pascals{"), "a stale value is in the metrics");
        ensure!(seen.contains("ganglion_node_value_age_seconds{"), "the age of a stale value is not in the metrics");
        server.turn(pascals(8.0));
        let back = ready(testbed, "one", "True", "Sampled").await?;
        let reading = back.differential_pressure.unwrap_or_default();
        ensure!((reading.value.as_deref(), reading.stale) == (Some("8"), None), "{reading:?}");
        let events = async || -> Result<Vec<String>> {
            let all = testbed.api::<Event>().list(&ListParams::default()).await?;
            Ok(all.items.into_iter().filter_map(|event| event.reason).collect())
        };
        let both = async {
            loop {
                let seen = events().await.unwrap_or_default();
                if ["Unreachable", "Sampled"].iter().all(|reason| seen.iter().any(|one| one == reason)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        ensure!(tokio::time::timeout(Duration::from_secs(20), both).await.is_ok(), "events: {:?}", events().await?);
        Ok(())
    });
}

#[test]
fn status_writes_follow_changes_and_not_polls() {
    story("ncfg-writes", async |testbed| {
        let server = Server::start(pascals(7.60)).await;
        let nodes = testbed.nodes(1, Size::default()).await?;
        put(testbed, "one", &nodes.names[0], json!({"deltaP": pressure(&server.url(""))})).await?;
        ready(testbed, "one", "True", "Sampled").await?;
        ensure!(status_writes(testbed, "one") == 1, "{} first writes", status_writes(testbed, "one"));
        let asked = server.asked.lock().unwrap().len();
        for within in [7.64, 7.56, 7.61] {
            server.turn(pascals(within));
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        let polls = server.asked.lock().unwrap().len() - asked;
        ensure!((7..=11).contains(&polls), "{polls} polls in 9 s");
        ensure!(status_writes(testbed, "one") == 1, "{} writes within the deadband", status_writes(testbed, "one"));
        let connections = *server.connections.lock().unwrap();
        ensure!(connections == 1, "{connections} connections");
        server.turn(pascals(8.0));
        let moved = |one: NodeConfig| one.status?.differential_pressure.filter(|one| one.value.as_deref() == Some("8"));
        until::<NodeConfig, _>(testbed, "one", "8 Pa", moved).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        ensure!(status_writes(testbed, "one") == 2, "{} writes for one change", status_writes(testbed, "one"));
        Ok(())
    });
}

#[test]
fn after_a_crash_values_go_on_from_the_status_and_age() {
    story("ncfg-crash", async |testbed| {
        let server = Server::start(pascals(7.6)).await;
        let nodes = testbed.nodes(1, Size::default()).await?;
        // Its value is fresh for 18 s.
        let mut source = pressure(&server.url(""));
        source["fetchInterval"] = json!("6s");
        put(testbed, "one", &nodes.names[0], json!({"deltaP": source})).await?;
        ready(testbed, "one", "True", "Sampled").await?;
        testbed.kill_and_restart().await?;
        testbed.operator.lock().await.ready().await?;
        tokio::time::sleep(Duration::from_secs(4)).await;
        ensure!(
            status_writes(testbed, "one") == 1,
            "a restart alone costs {} writes",
            status_writes(testbed, "one") - 1
        );
        server.turn(Manner::Says("500 Internal Server Error", String::new()));
        testbed.kill_and_restart().await?;
        let begun = Instant::now();
        let after = ready(testbed, "one", "False", "Unreachable").await?;
        // A failed poll alone makes no value stale, not even the first one of a process.
        let stale_after = begun.elapsed().as_secs();
        ensure!((15..40).contains(&stale_after), "stale after {stale_after} s");
        let reading = after.differential_pressure.unwrap_or_default();
        ensure!((reading.value.as_deref(), reading.stale) == (Some("7.6"), Some(true)), "{reading:?}");
        ensure!(
            !metrics(testbed).await?.contains("ganglion_node_differential_pressure_pascals{"),
            "an old value is a metric"
        );
        server.turn(pascals(7.7));
        ready(testbed, "one", "True", "Sampled").await?;
        Ok(())
    });
}

#[test]
fn a_status_that_comes_too_late_is_written_anew() {
    story("ncfg-late", async |testbed| {
        let nodes = testbed.nodes(1, Size::default()).await?;
        let late =
            |resource: &'static str| testbed.proxy.hold(1, HoldPoint::Before, move |write| write.is_on(resource));
        let annotate = async |kind: &str, name: &str| {
            testbed.kubectl(&["annotate", kind, name, "example.com/note=mine"], None).await.map(drop)
        };
        let mut held = late("nodeconfigtemplates/status");
        let mut held_config = late("nodeconfigs/status");
        template(testbed, &nodes.names[0]).await?;
        held.reached().await.context("the template has no status")?;
        annotate("ncft", "all").await?;
        held.release();
        held_config.reached().await.context("the NodeConfig has no status")?;
        let name = format!("all-{}", nodes.names[0]);
        annotate("ncfg", &name).await?;
        held_config.release();
        ready(testbed, &name, "True", "Sampled").await?;
        let template = until::<NodeConfigTemplate, _>(testbed, "all", "the template to be Ready", |one| {
            let ready = condition(&one.status.as_ref()?.conditions, "Ready")?;
            (ready.status == "True").then_some(one)
        })
        .await?;
        let config = testbed.api::<NodeConfig>().get(&name).await?;
        for annotations in [template.metadata.annotations, config.metadata.annotations] {
            ensure!(annotations.is_some_and(|all| all.contains_key("example.com/note")), "the note is gone");
        }
        let refused = testbed
            .proxy
            .writes()
            .iter()
            .filter(|write| write.is_on("nodeconfigs/status") || write.is_on("nodeconfigtemplates/status"))
            .filter(|write| write.answer == Some(StatusCode::CONFLICT))
            .count();
        ensure!(refused == 2, "{refused} conflicts");
        Ok(())
    });
}
