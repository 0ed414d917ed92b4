//! The manifests in `crds/` match the types, and the types can parse everything that the schemas accept. The manifest
//! of the admission policies matches their table. Drift fails here instead of at a user's site.

mod schema;

use std::collections::BTreeSet;

use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::refs::RESERVED_HEADERS;
use ganglion_api::{
    closed_loop, decision, execution, monitoring, node_config, placement_policy, receipt, swarm_pool, workload_action,
};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::testbed::loops::on;
use testkit::wrong_loops::{WrongLoop, wrong_loops};

/// Number of objects per kind.
const OBJECTS: usize = 300;

#[test]
fn the_manifests_are_what_the_types_say() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/crds");
    let mut expected = Vec::new();
    for (name, text) in ganglion::cli::manifests().unwrap() {
        let there = std::fs::read_to_string(format!("{dir}/{name}")).unwrap_or_default();
        assert!(there == text, "crds/{name} is stale: cargo run -- crds");
        expected.push(name);
    }
    let mut there: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "kustomization.yaml")
        .collect();
    there.sort();
    expected.sort();
    assert_eq!(there, expected, "crds/ holds a manifest of no kind, or lacks one");
    let list = std::fs::read_to_string(format!("{dir}/kustomization.yaml")).unwrap();
    for name in expected {
        assert!(list.contains(&format!("- {name}")), "crds/kustomization.yaml lacks {name}");
    }
}

#[test]
fn the_admission_policies_are_what_the_table_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/kustomize/base/admission.yaml");
    let there = std::fs::read_to_string(path).unwrap_or_default();
    let text = ganglion::operator::admission::manifest::text().unwrap();
    assert!(there == text, "kustomize/base/admission.yaml is stale: cargo run -- policies");
}

/// Lists, maps, keys of maps and texts without a maximum, by their path. A format is no bound: a time may have any
/// number of digits.
fn unbounded(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        unbounded(field, &format!("{path}.{name}"), found);
    }
    let has = |key: &str| !schema[key].is_null();
    let is_free = schema["x-kubernetes-preserve-unknown-fields"] == true;
    let bounded = match schema["type"].as_str() {
        _ if schema["x-kubernetes-int-or-string"] == true => has("maxLength"),
        Some("array") => {
            unbounded(&schema["items"], &format!("{path}[]"), found);
            has("maxItems")
        }
        Some("object") if has("additionalProperties") => {
            unbounded(&schema["additionalProperties"], &format!("{path}{{}}"), found);
            has("maxProperties") && bounds_keys(schema)
        }
        Some("object") => has("properties"),
        Some("string") => has("maxLength") || has("enum"),
        Some("integer" | "number" | "boolean") => true,
        _ => false,
    };
    if is_free || !bounded {
        found.push(path.to_owned());
    }
}

/// Whether a rule bounds the keys of this map.
fn bounds_keys(schema: &Value) -> bool {
    let mut rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    rules.any(|rule| rule["rule"].as_str().is_some_and(|rule| rule.starts_with("self.all(key, key.size() <= ")))
}

/// The paths without a maximum of all kinds, in spec and status.
fn unbounded_paths(crds: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    for crd in crds {
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for part in schema.as_object().unwrap().keys() {
            if !matches!(part.as_str(), "apiVersion" | "kind" | "metadata") {
                unbounded(&schema[part], &format!("{} {part}", crd["spec"]["names"]["kind"]), &mut found);
            }
        }
    }
    found
}

fn all_crds() -> Vec<Value> {
    ganglion_api::all().into_iter().map(|crd| json!(crd)).collect()
}

/// Each replica keeps all objects in memory. The API server also rejects a CRD whose rules read unbounded values.
#[test]
fn everything_that_can_be_written_is_bounded() {
    assert_eq!(unbounded_paths(&all_crds()), Vec::<String>::new());
}

/// Removes the bound at this path, and returns the paths without a maximum.
fn unbounded_without(kind: &str, path: &str, bound: &str) -> Vec<String> {
    let mut crds = all_crds();
    let crd = crds.iter_mut().find(|crd| crd["spec"]["names"]["kind"] == kind).unwrap();
    let schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].pointer_mut(path).unwrap();
    assert!(schema.as_object_mut().unwrap().remove(bound).is_some(), "{kind} {path} {bound}");
    unbounded_paths(&crds)
}

#[test]
fn a_bound_that_is_missing_is_found() {
    let selector = "/properties/spec/properties/delete/properties/from/properties/nodeSelector";
    let value = format!("{selector}/additionalProperties");
    let found = |name: &str| vec![format!("\"WorkloadAction\" {name}")];
    assert_eq!(unbounded_without("WorkloadAction", &value, "maxLength"), found("spec.delete.from.nodeSelector{}"));
    for bound in ["maxProperties", "x-kubernetes-validations"] {
        assert_eq!(unbounded_without("WorkloadAction", selector, bound), found("spec.delete.from.nodeSelector"));
    }
    let slots = "/properties/status/properties/slots";
    assert_eq!(unbounded_without("WorkloadAction", slots, "maxItems"), found("status.slots"));
    let after = "/properties/spec/properties/notAfter";
    assert_eq!(unbounded_without("WorkloadAction", after, "maxLength"), found("spec.notAfter"));
    let count = "/properties/spec/properties/delete/properties/count";
    assert_eq!(unbounded_without("WorkloadAction", count, "maxLength"), found("spec.delete.count"));
}

#[test]
fn each_file_is_named_after_its_kind() {
    for (name, text) in ganglion::cli::manifests().unwrap() {
        assert!(name.ends_with(".ganglion.dev.yaml"), "{name}");
        assert!(text.contains(&format!("name: {}", name.trim_end_matches(".yaml"))), "{name}");
    }
}

fn parse<K: DeserializeOwned>(object: &Value) -> Result<(), String> {
    let text = object.to_string();
    let read = serde_path_to_error::deserialize::<_, K>(&mut serde_json::Deserializer::from_str(&text));
    read.map(drop).map_err(|error| error.to_string())
}

/// An object that the API server accepts but the operator cannot parse would get no status.
#[test]
fn every_spec_that_the_schema_accepts_can_be_read() {
    let mut found = BTreeSet::new();
    for crd in ganglion_api::all() {
        let kind = crd.spec.names.kind.as_str();
        let parse = match kind {
            "WorkloadAction" => parse::<workload_action::WorkloadAction>,
            "WorkloadActionReceipt" => parse::<receipt::WorkloadActionReceipt>,
            "ClosedLoop" => parse::<closed_loop::ClosedLoop>,
            "Monitoring" => parse::<monitoring::Monitoring>,
            "Decision" => parse::<decision::Decision>,
            "Execution" => parse::<execution::Execution>,
            "NodeConfig" => parse::<node_config::NodeConfig>,
            "NodeConfigTemplate" => parse::<node_config::NodeConfigTemplate>,
            "SwarmPool" => parse::<swarm_pool::SwarmPool>,
            "PlacementPolicy" => parse::<placement_policy::PlacementPolicy>,
            other => panic!("kind {other} is missing here"),
        };
        let schema = json!(crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema);
        let specs = schema::accepted(&schema["properties"]["spec"]);
        let mut runner = TestRunner::deterministic();
        for _ in 0..OBJECTS {
            let spec = specs.new_tree(&mut runner).unwrap().current();
            let object = json!({"metadata": {"name": "one"}, "spec": spec});
            found.extend(
                parse(&object)
                    .err()
                    .map(|error| format!("{kind} {}", error.split(" at line").next().unwrap_or_default())),
            );
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The API server's evaluator agrees; see the story of the rejected loops on the control plane.
#[test]
fn a_rule_names_what_breaks_it() {
    let mut bad = Vec::new();
    for WrongLoop { name, spec, path, message } in wrong_loops() {
        let object: ClosedLoop = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        let errors = kube::core::cel::validate_cel(&object).err().map(|errors| errors.into_vec()).unwrap_or_default();
        let said: Vec<_> = errors.into_iter().map(|error| (error.field_path, error.message)).collect();
        if said != [(path.clone(), message.clone())] {
            bad.push(format!("{name}: {said:#?} instead of {path}: {message}"));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// Headers by which a receiver tells a signed event from a forged one, and those that the operator sets itself.
#[test]
fn no_webhook_sends_a_header_of_the_operator() {
    let errors = |name: &str| {
        let webhook = json!({"url": "https://hooks.example.com", "headers": [{"name": name, "value": "a"}]});
        let spec = on("Low", json!([{"webhook": webhook}]));
        let object: ClosedLoop = serde_json::from_value(json!({"metadata": {"name": "one"}, "spec": spec})).unwrap();
        let errors = kube::core::cel::validate_cel(&object).err().map(|errors| errors.into_vec()).unwrap_or_default();
        errors.into_iter().map(|error| error.field_path).collect::<Vec<_>>()
    };
    let own = ["Webhook-Id", "webhook-timestamp", "WEBHOOK-SIGNATURE", "Content-Type", "Authorization"];
    for name in own.into_iter().chain(RESERVED_HEADERS) {
        assert_eq!(errors(name), ["spec.actions[0].ladder[0].webhook.headers[0].name"], "{name}");
    }
    for name in ["X-Scope-OrgID", "Webhook-Route", "Accept"] {
        assert_eq!(errors(name), Vec::<String>::new(), "{name}");
    }
}
