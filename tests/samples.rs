//! The samples are valid: each is parsed into its kind without loss and obeys the kind's rules. Together they show
//! every field and every action.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ganglion_actions_plan::identity;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::monitoring::Monitoring;
use ganglion_api::node_config::{NodeConfig, NodeConfigTemplate};
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::NodeFact;
use ganglion_loops_plan::import::{ImportOptions, convert_hpa};
use ganglion_nodes_plan::template::{compile, render};
use ganglion_placement_plan::policy::CompiledPolicy;
use ganglion_pools_plan::jobs;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("samples")
}

/// All documents of all samples below this directory, with the file name.
fn samples(below: &str) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    collect(&root().join(below), &mut found);
    assert!(!found.is_empty(), "no samples in {below}");
    found
}

fn collect(path: &Path, found: &mut Vec<(String, Value)>) {
    if path.is_dir() {
        let mut entries: Vec<_> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        entries.iter().for_each(|entry| collect(entry, found));
        return;
    }
    if path.extension() != Some("yaml".as_ref()) {
        return;
    }
    let text = std::fs::read_to_string(path).unwrap();
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    found.extend(documents.into_iter().map(|document| (path.display().to_string(), document)));
}

/// Parses the document as its kind, and fails if the kind does not have one of its fields.
fn read<K: DeserializeOwned + Serialize>(file: &str, document: &Value) -> K {
    let object: K = serde_json::from_value(document.clone()).unwrap_or_else(|error| panic!("{file}: {error}"));
    let back = serde_json::to_value(&object).unwrap();
    kept(file, "", document, &back);
    object
}

fn kept(file: &str, path: &str, written: &Value, read: &Value) {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            for (key, value) in written {
                let there = read.get(key).unwrap_or_else(|| panic!("{file}: {path}.{key} is no field of its kind"));
                kept(file, &format!("{path}.{key}"), value, there);
            }
        }
        (Value::Array(written), Value::Array(read)) => {
            assert_eq!(written.len(), read.len(), "{file}: {path}");
            written.iter().zip(read).for_each(|(written, read)| kept(file, path, written, read));
        }
        _ => assert_eq!(written, read, "{file}: {path}"),
    }
}

#[test]
fn every_action_parses_whole_and_obeys_the_rules() {
    let mut names = BTreeSet::new();
    for (file, document) in samples("workloadaction") {
        let action: WorkloadAction = read(&file, &document);
        kube::core::cel::validate_cel(&action).unwrap_or_else(|errors| panic!("{file}: {errors:?}"));
        assert!(file.ends_with(&format!("/{}.yaml", action.name_any())), "{file} is called {}", action.name_any());
        assert!(names.insert(action.name_any()), "{file}: its name is taken");
    }
}

/// All samples of loops.
fn loops() -> Vec<(String, ClosedLoop)> {
    let all = samples("closedloop").into_iter().filter(|(_, document)| document["kind"] == "ClosedLoop");
    all.map(|(file, document)| (file.clone(), read(&file, &document))).collect()
}

#[test]
fn every_loop_parses_whole_and_obeys_the_rules() {
    for (file, object) in loops() {
        kube::core::cel::validate_cel(&object).unwrap_or_else(|errors| panic!("{file}: {errors:?}"));
        assert!(file.ends_with(&format!("/{}.yaml", object.name_any())), "{file} is called {}", object.name_any());
    }
}

#[test]
fn every_pushed_sample_is_for_a_loop_that_takes_it() {
    let loops: Vec<ClosedLoop> = loops().into_iter().map(|(_, object)| object).collect();
    for (file, document) in samples("monitoring") {
        let object: Monitoring = read(&file, &document);
        kube::core::cel::validate_cel(&object).unwrap_or_else(|errors| panic!("{file}: {errors:?}"));
        let parent = loops.iter().find(|parent| parent.name_any() == object.name_any());
        let parent = parent.unwrap_or_else(|| panic!("{file}: no sample {}", object.name_any()));
        for key in object.spec.sample.unwrap_or_default().values.keys() {
            assert!(parent.spec.metrics.iter().any(|metric| &metric.name == key), "{file}: what is {key}?");
        }
    }
}

#[test]
fn the_accounts_beside_the_loops_parse_whole_and_are_theirs() {
    let loops = loops();
    for (file, account) in [("closedloop/accounts.yaml", "web-loop"), ("sender.yaml", "my-sensor")] {
        let documents = samples(file);
        let [(_, first), (_, second), (_, third), operator @ ..] = documents.as_slice() else {
            panic!("{file}: too few")
        };
        let made: ServiceAccount = read(file, first);
        let role: Role = read(file, second);
        let binding: RoleBinding = read(file, third);
        let subject = binding.subjects.unwrap_or_default().remove(0);
        assert_eq!((made.name_any(), role.name_any(), subject.name), (account.into(), account.into(), account.into()));
        let names = role.rules.unwrap_or_default().remove(0).resource_names.unwrap_or_default();
        for name in names {
            assert!(loops.iter().any(|(_, one)| one.name_any() == name), "{file}: no sample {name}");
        }
        for (_, binding) in operator {
            let binding: RoleBinding = read(file, binding);
            assert_eq!(binding.role_ref.name, "ganglion-namespace", "{file}");
        }
    }
    for (file, one) in loops {
        assert_eq!(one.spec.service_account_name.as_deref(), Some("web-loop"), "{file}");
    }
}

#[test]
fn the_workloads_beside_the_loops_parse_whole_and_are_their_targets() {
    let (queue, shop) = (samples("closedloop/push/queue.yaml"), samples("closedloop/import/hpa.yaml"));
    let ([(file, workers), (_, follower)], [(other, app), (_, scaler)]) = (queue.as_slice(), shop.as_slice()) else {
        panic!("each has two documents")
    };
    let workers: Deployment = read(file, workers);
    let follower: ClosedLoop = read(file, follower);
    assert_eq!(workers.name_any(), follower.spec.target.name);
    assert_eq!(workers.spec.unwrap_or_default().replicas, None, "the loop sets the number");
    let app: Deployment = read(other, app);
    assert_eq!(app.spec.clone().unwrap_or_default().replicas, None, "the autoscaler sets the number");
    let whole: HorizontalPodAutoscaler = read(other, scaler);
    assert_eq!(whole.spec.unwrap_or_default().scale_target_ref.name, app.name_any());
    let import = convert_hpa(&serde_json::from_value(scaler.clone()).unwrap(), &ImportOptions::default()).unwrap();
    assert_eq!(import.spec.target.name, app.name_any());
    assert_eq!(import.warnings, Vec::<String>::new());
}

/// Edits a sample so that it breaks a rule, and checks that the rule rejects it.
#[track_caller]
fn refused(file: &str, edit: impl FnOnce(&mut Value), expected: &str) {
    let (file, mut document) = samples(&format!("closedloop/{file}")).remove(0);
    edit(&mut document["spec"]);
    let object: ClosedLoop = serde_json::from_value(document).unwrap_or_else(|error| panic!("{file}: {error}"));
    let errors = kube::core::cel::validate_cel(&object).expect_err(expected);
    assert!(format!("{errors:?}").contains(expected), "{errors:?} does not say {expected}");
}

#[test]
fn a_loop_that_could_not_work_is_refused() {
    use serde_json::json;
    refused(
        "push/web.yaml",
        |spec| spec["metrics"][0]["source"]["http"] = json!({"url": "http://a.b", "path": "a"}),
        "exactly one of push",
    );
    refused("push/web.yaml", |spec| spec["metrics"][0]["low"]["clear"] = json!("4"), "low.clear must not be under");
    refused("push/web.yaml", |spec| spec["metrics"][0]["high"]["clear"] = json!("81"), "high.clear must not be above");
    refused(
        "push/web.yaml",
        |spec| spec["metrics"][0]["low"] = json!({"raise": "900m", "clear": "800m"}),
        "low.clear must not be under",
    );
    refused(
        "push/web.yaml",
        |spec| spec["metrics"][0]["low"] = json!({"raise": "80"}),
        "low.raise must be under high.raise",
    );
    refused(
        "push/web.yaml",
        |spec| spec["metrics"][1]["missing"] = json!({"then": "Hold", "value": "3"}),
        "value goes with then: Assume",
    );
    refused("push/web.yaml", |spec| spec["policy"]["select"] = json!("Weighted"), "Weighted needs weights");
    refused("push/web.yaml", |spec| spec["policy"]["select"] = json!("Expression"), "Expression needs an expression");
    refused("push/web.yaml", |spec| spec["interval"] = json!("10ms"), "interval must be 1s");
    refused("push/web.yaml", |spec| spec["interval"] = json!("25h"), "interval must be 1s");
    refused(
        "push/web.yaml",
        |spec| spec["actions"][0]["ladder"] = json!([{"scale": {"by": 1}}]),
        "by upwards needs max",
    );
    refused(
        "push/web.yaml",
        |spec| spec["actions"][0]["ladder"] = json!([{"scale": {"by": -1}}]),
        "by downwards needs min",
    );
    refused(
        "push/web.yaml",
        |spec| spec["actions"][0]["ladder"] = json!([{"scale": {"factor": "2", "max": 3}}]),
        "factor needs min and max",
    );
    refused(
        "push/web.yaml",
        |spec| spec["actions"][0]["ladder"][0]["tune"] = json!({"raiseRank": "LeastServed"}),
        "exactly one of scale",
    );
    refused("push/web.yaml", |spec| spec["tunable"]["thresholds"][0]["min"] = json!("11"), "min must not be above max");
    refused(
        "push/weighted.yaml",
        |spec| spec["actions"][0]["ladder"] = json!([{"resize": {"container": "a", "resource": "cpu", "factor": "2"}}]),
        "needs max",
    );
    for (members, words) in [
        (json!({}), "exactly one of container, pod: true"),
        (json!({"pod": false}), "exactly one of container, pod: true"),
        (json!({"container": "a", "pod": true}), "exactly one of container, pod: true"),
        (json!({"pod": true, "takeBackAfter": "9s"}), "takeBackAfter must be 10s to 1h"),
        (json!({"pod": true, "takeBackAfter": "61m"}), "takeBackAfter must be 10s to 1h"),
    ] {
        let mut resize = json!({"resource": "cpu", "factor": "2", "max": "4"});
        resize.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        refused("push/weighted.yaml", |spec| spec["actions"][0]["ladder"] = json!([{"resize": resize}]), words);
    }
}

#[test]
fn the_rules_are_looked_at() {
    let (file, mut document) = samples("workloadaction/move-minimal.yaml").remove(0);
    document["spec"]["delete"] = serde_json::json!({"pod": {"name": "p"}});
    let action: WorkloadAction = read(&file, &document);
    kube::core::cel::validate_cel(&action).expect_err("two actions in one");
}

#[test]
fn every_receipt_parses_whole_and_is_that_of_a_sample() {
    let actions: Vec<WorkloadAction> =
        samples("workloadaction").iter().map(|(file, document)| read(file, document)).collect();
    for (file, document) in samples("workloadactionreceipt") {
        let receipt: WorkloadActionReceipt = read(&file, &document);
        kube::core::cel::validate_cel(&receipt).unwrap_or_else(|errors| panic!("{file}: {errors:?}"));
        let action = actions.iter().find(|action| action.name_any() == receipt.spec.action_name);
        let action = action.unwrap_or_else(|| panic!("{file}: no sample {}", receipt.spec.action_name));
        assert_eq!(receipt.name_any(), identity::receipt_name(action), "{file}");
        assert_eq!(receipt.spec.spec_hash, identity::spec_hash(action), "{file}");
    }
}

#[test]
fn every_node_config_parses_whole_and_obeys_the_rules() {
    for (file, document) in samples("nodeconfig") {
        let config: NodeConfig = read(&file, &document);
        kube::core::cel::validate_cel(&config).unwrap_or_else(|errors| panic!("{file}: {errors:?}"));
        assert!(file.ends_with(&format!("/{}.yaml", config.name_any())), "{file} is called {}", config.name_any());
    }
}

#[test]
fn every_pool_parses_whole_and_obeys_the_rules() {
    let pools = samples("swarmpool").into_iter().filter(|(_, document)| document["kind"] == "SwarmPool");
    for (file, document) in pools {
        let pool: SwarmPool = read(&file, &document);
        kube::core::cel::validate_cel(&pool).unwrap_or_else(|errors| panic!("{file}: {errors:?}"));
        assert!(file.ends_with(&format!("/{}.yaml", pool.name_any())), "{file} is called {}", pool.name_any());
    }
}

#[test]
fn every_policy_parses_whole_obeys_the_rules_and_can_be_asked() {
    for (file, document) in samples("placementpolicy") {
        let policy: PlacementPolicy = read(&file, &document);
        kube::core::cel::validate_cel(&policy).unwrap_or_else(|errors| panic!("{file}: {errors:?}"));
        CompiledPolicy::compile(&policy).unwrap_or_else(|error| panic!("{file}: {error:?}"));
    }
}

#[test]
fn what_a_policy_could_not_publish_is_refused() {
    use serde_json::json;
    let refused = |edit: &dyn Fn(&mut Value), expected: &str| {
        let (file, mut document) = samples("placementpolicy/full.yaml").remove(0);
        edit(&mut document["spec"]["publishUsage"]);
        let object: PlacementPolicy =
            serde_json::from_value(document).unwrap_or_else(|error| panic!("{file}: {error}"));
        let said =
            kube::core::cel::validate_cel(&object).map_or_else(|errors| format!("{errors:?}"), |()| String::new());
        assert!(if expected.is_empty() { said.is_empty() } else { said.contains(expected) }, "{expected:?}: {said:?}");
    };
    let set = |member: &'static str, value: Value| move |publish: &mut Value| publish[member] = value.clone();
    for (window, step, expected) in [
        ("10m", "1m", ""),
        ("9m59s", "1m", "at least 10 steps"),
        ("24h", "1m", ""),
        ("24h1s", "1m", "at most 1440 steps"),
        ("150s", "15s", ""),
        ("150s", "14s", "step must be whole seconds, and at least 15s"),
        ("1h", "15.5s", "step must be whole seconds"),
        ("1h", "60000ms", "step must be whole seconds"),
        ("1.5h", "1m", "window must be whole seconds"),
    ] {
        refused(&|publish| (publish["window"], publish["step"]) = (json!(window), json!(step)), expected);
    }
    refused(&set("interval", json!("999ms")), "interval must be 1s to 1h");
    refused(&set("interval", json!("1m40s")), "");
    refused(&set("interval", json!("1m41s")), "at most a third of maxAge");
    refused(&|publish| publish["prometheus"]["namespace"] = Value::Null, "set namespace");
    refused(&|publish| publish["prometheus"]["insecureSkipVerify"] = json!(true), "ca has no effect");
    refused(&set("prometheus", json!({"url": "http://a"})), "");
    refused(&|publish| *publish = json!({"prometheus": {"url": "http://a"}, "step": "10m"}), "at least 10 steps");
}

#[test]
fn the_workers_and_jobs_beside_the_pools_parse_whole() {
    let documents = samples("swarmpool/workers.yaml");
    let [(file, workers), (_, jobs)] = documents.as_slice() else { panic!("too few, or too many") };
    let workers: StatefulSet = read(file, workers);
    assert_eq!(workers.name_any(), "swarm-worker");
    let jobs: ConfigMap = read(file, jobs);
    let texts = jobs.data.unwrap_or_default();
    let names: Vec<_> = texts.values().flat_map(|text| jobs::parse(text).unwrap()).map(|job| job.name).collect();
    assert_eq!(
        names.iter().map(|name| &**name).collect::<Vec<_>>(),
        ["stream:north-1", "stream:north-2", "stream:north-3"]
    );
}

#[test]
fn every_template_parses_whole_and_is_rendered_to_what_the_rules_allow() {
    let labels = [("example.com/bmc", "10.0.100.7"), ("example.com/vendor", "acme"), ("kubernetes.io/os", "linux")];
    let mut node = NodeFact { addresses: vec!["10.0.0.7".into()], ..NodeFact::default() };
    node.id.key.name = "worker-0".into();
    node.labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    for (file, document) in samples("nodeconfigtemplate") {
        let template: NodeConfigTemplate = read(&file, &document);
        kube::core::cel::validate_cel(&template).unwrap_or_else(|errors| panic!("{file}: {errors:?}"));
        assert!(file.ends_with(&format!("/{}.yaml", template.name_any())), "{file} is called {}", template.name_any());
        let compiled = compile(&template.spec.template).unwrap_or_else(|error| panic!("{file}: {error}"));
        let spec = render(&compiled, &node).unwrap_or_else(|error| panic!("{file}: {error}"));
        let collector = spec.metrics_collector.clone().unwrap_or_default();
        assert_eq!(
            collector.inlet_temp.and_then(|term| term.endpoint).as_deref(),
            Some("https://10.0.100.7"),
            "{file}"
        );
        let errors = kube::core::cel::validate_cel(&NodeConfig::new("rendered", spec));
        errors.unwrap_or_else(|errors| panic!("{file}: {errors:?}"));
    }
}

#[test]
fn the_workload_parses_whole() {
    for (file, document) in samples("workload.yaml") {
        match document["kind"].as_str() {
            Some("Deployment") => drop(read::<Deployment>(&file, &document)),
            Some("Service") => drop(read::<Service>(&file, &document)),
            Some("PodDisruptionBudget") => drop(read::<PodDisruptionBudget>(&file, &document)),
            other => panic!("{file}: what is a {other:?}?"),
        }
    }
}

/// Paths of all fields of a schema, below `spec`.
fn fields(schema: &Value, path: &str, all: &mut BTreeSet<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        fields(field, &path, all);
        fields(&field["items"], &path, all);
        all.insert(path);
    }
}

/// Paths of all fields that a document sets.
fn set(document: &Value, path: &str, all: &mut BTreeSet<String>) {
    match document {
        Value::Object(members) => {
            for (name, value) in members {
                let path = format!("{path}.{name}");
                set(value, &path, all);
                all.insert(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| set(item, path, all)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Path within a source of a NodeConfig; all sources have the same fields.
fn of_source(path: &str) -> Option<&str> {
    let sources = ["inletTemp", "deltaP", "usage", "power", "powerConsumption", "powerConsumptionEndpointProvider"];
    sources.iter().find_map(|source| path.split_once(&format!(".{source}.")).map(|(_, field)| field))
}

#[test]
fn together_they_show_every_field() {
    let shown_by_samples = [
        "WorkloadAction",
        "WorkloadActionReceipt",
        "ClosedLoop",
        "NodeConfig",
        "NodeConfigTemplate",
        "SwarmPool",
        "PlacementPolicy",
    ];
    for crd in ganglion_api::all() {
        let kind = crd.spec.names.kind.as_str();
        if !shown_by_samples.contains(&kind) {
            continue;
        }
        let below = kind.to_lowercase();
        let crd = serde_json::to_value(&crd).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let (mut there, mut shown) = (BTreeSet::new(), BTreeSet::new());
        fields(schema, "", &mut there);
        samples(&below).iter().for_each(|(_, document)| set(&document["spec"], "", &mut shown));
        // If a part is shown once, its other uses need not be shown.
        let mut anywhere = shown.clone();
        samples("workloadaction").iter().for_each(|(_, document)| set(&document["spec"], "", &mut anywhere));
        let common = |path: &&String| {
            let mut parts = path.rsplitn(3, '.');
            let (name, part) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            anywhere.iter().any(|one| one.ends_with(&format!(".{part}.{name}")))
        };
        let of_another = |path: &&String| {
            let field = of_source(path);
            field.is_some() && anywhere.iter().any(|one| of_source(one) == field)
        };
        let known = |path: &&String| shown.contains(*path) || common(path) || of_another(path);
        let missing: Vec<&String> = there.iter().filter(|path| !known(path)).collect();
        assert!(missing.is_empty(), "no sample of {below} shows {missing:?}");
    }
}
