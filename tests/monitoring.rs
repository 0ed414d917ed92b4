//! The dashboard, the alerts and the monitors in config/monitoring: what they name exists. `tests/peers` runs the
//! alerts in virtual time, and `tests/cluster` runs all queries against a Prometheus that scrapes the operator.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde_json::{Value, json};
use testkit::metrics::documented;

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All documents of a YAML file.
fn documents(path: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The document of this kind and name.
fn document(path: &str, kind: &str, name: &str) -> Value {
    let found = documents(path).into_iter().find(|one| one["kind"] == kind && one["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("{path} has no {kind} {name}"))
}

fn dashboard() -> Value {
    serde_json::from_str(&text("config/monitoring/dashboard.json")).unwrap()
}

/// Panels that are not rows.
fn panels(dashboard: &Value) -> Vec<&Value> {
    dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row").collect()
}

fn rules() -> Vec<Value> {
    let all = document("config/monitoring/prometheusrule.yaml", "PrometheusRule", "ganglion");
    let groups = all["spec"]["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).cloned().collect()
}

/// Metrics of these queries that are not on the page. A histogram is named by its parts.
fn undocumented<'a>(queries: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let (page, name) = (documented().unwrap(), Regex::new("ganglion_[a-z_]+").unwrap());
    let is_known = |name: &str| {
        let parts = ["_bucket", "_sum", "_count"].iter().filter_map(|part| name.strip_suffix(part));
        page.contains_key(name)
            || parts.into_iter().any(|base| page.get(base).is_some_and(|row| row.kind == "histogram"))
    };
    let names = queries.flat_map(|query| name.find_iter(query).map(|found| found.as_str()));
    names.filter(|name| !is_known(name)).map(str::to_owned).collect()
}

fn queries(dashboard: &Value) -> Vec<&str> {
    let targets = panels(dashboard).into_iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap()).collect()
}

#[test]
fn every_metric_of_the_dashboard_and_of_the_alerts_is_documented() {
    let (board, rules) = (dashboard(), rules());
    let queries = queries(&board);
    assert!(queries.len() > 30 && rules.len() > 20);
    assert_eq!(undocumented(queries.into_iter()), BTreeSet::new());
    assert_eq!(undocumented(rules.iter().map(|rule| rule["expr"].as_str().unwrap())), BTreeSet::new());
    let made_up = ["rate(ganglion_reconcile_duration_seconds_bucket[5m])", "ganglion_leader_count", "ganglion_made_up"];
    let expected = ["ganglion_leader_count", "ganglion_made_up"].map(str::to_owned);
    assert_eq!(undocumented(made_up.into_iter()), BTreeSet::from(expected));
}

/// Problems of a panel.
fn panel_problems(panel: &Value) -> Vec<&'static str> {
    let mut found = Vec::new();
    let has_text = |field: &str| panel[field].as_str().is_some_and(|text| !text.is_empty());
    if !has_text("title") || !has_text("description") {
        found.push("no title, or no description");
    }
    let uses_variable = |value: &Value| value["uid"] == "${datasource}";
    let targets = panel["targets"].as_array().cloned().unwrap_or_default();
    if !uses_variable(&panel["datasource"]) || !targets.iter().all(|target| uses_variable(&target["datasource"])) {
        found.push("a data source that is not the variable");
    }
    for query in targets.iter().map(|target| target["expr"].as_str().unwrap_or_default()) {
        if !query.contains("job=~\"$job\"") {
            found.push("a query that is not limited to the installation");
        }
        if query.contains("ganglion_loop_") && !query.contains("namespace=~\"$namespace\"") {
            found.push("a query of loops that is not limited to the namespace");
        }
        if query.contains("vector(") {
            found.push("a query that invents a series");
        }
    }
    found
}

#[test]
fn each_panel_explains_itself_and_uses_the_variables() {
    let board = dashboard();
    for panel in panels(&board) {
        assert_eq!(panel_problems(panel), [""; 0], "{}", panel["title"]);
    }
    let ids: BTreeSet<u64> =
        board["panels"].as_array().unwrap().iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), board["panels"].as_array().unwrap().len());
    let variables: Vec<&Value> =
        board["templating"]["list"].as_array().unwrap().iter().map(|variable| &variable["name"]).collect();
    assert_eq!(variables, [&json!("datasource"), &json!("job"), &json!("namespace")]);
    let wrong = json!({"title": "x", "targets": [{"expr": "sum(ganglion_loop_ready) or vector(0)"}]});
    assert_eq!(panel_problems(&wrong).len(), 5);
}

/// Number of a duration in minutes.
fn minutes(text: &str) -> u64 {
    let (number, unit) = text.split_at(text.len() - 1);
    number.parse::<u64>().unwrap() * if unit == "h" { 60 } else { 1 }
}

#[test]
fn each_alert_says_what_to_do() {
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap();
        assert!(name.starts_with("Ganglion"), "{name}");
        assert!((1..=60).contains(&minutes(rule["for"].as_str().unwrap())), "{name}");
        assert!(["critical", "warning", "info"].map(Value::from).contains(&rule["labels"]["severity"]), "{name}");
        let (summary, description) = (&rule["annotations"]["summary"], &rule["annotations"]["description"]);
        assert!(summary.as_str().is_some_and(|text| text.ends_with('.') && text.len() < 160), "{name}: {summary}");
        assert!(description.as_str().is_some_and(|text| text.len() > 60 && text.len() < 400), "{name}: {description}");
    }
}

#[test]
fn each_alert_is_fired_and_kept_silent_in_virtual_time() {
    let cases = documents("tests/peers/alerts.yaml").remove(0);
    let checks: Vec<&Value> = cases["tests"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|case| case["alert_rule_test"].as_array().unwrap())
        .collect();
    for rule in rules() {
        let of_rule: Vec<_> = checks.iter().filter(|check| check["alertname"] == rule["alert"]).collect();
        let alerts = |check: &&&&Value| check["exp_alerts"].as_array().map_or(0, Vec::len);
        assert_eq!(of_rule.iter().map(|check| alerts(&check)).sum::<usize>(), 1, "{} fires", rule["alert"]);
        assert!(of_rule.iter().any(|check| alerts(&check) == 0), "{} is silent before", rule["alert"]);
    }
}

#[test]
fn the_monitors_select_the_pods_of_the_base() {
    let name = "ganglion";
    let service = document("kustomize/base/deployment.yaml", "Service", name);
    let deployment = document("kustomize/base/deployment.yaml", "Deployment", name);
    let base = documents("kustomize/base/kustomization.yaml").remove(0);
    let (labels, namespace) = (&base["labels"][0]["pairs"], &base["namespace"]);

    let monitor = document("config/monitoring/servicemonitor.yaml", "ServiceMonitor", name);
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(monitor["metadata"]["namespace"], *namespace);
    for (key, value) in monitor["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(labels[key], *value, "the label {key} of Services");
    }
    assert!(service["spec"]["ports"].as_array().unwrap().iter().any(|port| port["name"] == endpoint["port"]));

    let monitor = document("config/monitoring/podmonitor.yaml", "PodMonitor", name);
    let pod = &deployment["spec"]["template"];
    let of_pod = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!(monitor["metadata"]["namespace"], *namespace);
    for (key, value) in monitor["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(pod["metadata"]["labels"][key], *value, "the label {key} of pods");
    }
    let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
    assert!(ports.iter().any(|port| port["name"] == of_pod["port"]));
    for endpoint in [endpoint, of_pod] {
        assert_eq!((&endpoint["path"], &endpoint["honorLabels"]), (&json!("/metrics"), &json!(true)));
    }
}

#[test]
fn the_kustomization_names_files_that_exist_and_one_monitor() {
    let all = documents("config/monitoring/kustomization.yaml").remove(0);
    let resources: Vec<&str> = all["resources"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert_eq!(
        resources,
        ["servicemonitor.yaml", "prometheusrule.yaml"],
        "with both monitors, each series exists twice"
    );
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config/monitoring");
    let board = all["configMapGenerator"][0]["files"][0].as_str().unwrap();
    let files = resources.into_iter().chain(board.split_once('=').map(|(_, file)| file));
    for file in files {
        assert!(folder.join(file).exists(), "{file}");
    }
}
