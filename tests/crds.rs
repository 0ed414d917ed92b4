//! The manifests in `crds/` match the types, and the types can parse everything that the schemas accept. The manifest of
//! the admission policies matches their table. Drift fails here instead of at a user's site.

mod schema;

use std::collections::BTreeSet;

use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::{
    closed_loop, decision, execution, monitoring, node_config, placement_policy, receipt, swarm_pool, workload_action,
};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
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

/// Lists, maps and strings of a spec without a maximum, by their path.
fn unbounded(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        unbounded(field, &format!("{path}.{name}"), found);
    }
    let has = |key: &str| !schema[key].is_null();
    let bounded = match schema["type"].as_str() {
        Some("array") => {
            unbounded(&schema["items"], &format!("{path}[]"), found);
            has("maxItems")
        }
        Some("object") => has("properties") || has("maxProperties"),
        Some("string") => has("maxLength") || has("enum") || has("format"),
        Some(_) | None => true,
    };
    if !bounded {
        found.push(path.to_owned());
    }
}

/// The API server estimates the worst-case cost of a rule, and rejects a CRD whose rules read unbounded values.
#[test]
fn everything_that_users_write_is_bounded() {
    for crd in ganglion_api::all() {
        let crd = json!(crd);
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let mut found = Vec::new();
        unbounded(spec, "", &mut found);
        assert!(found.is_empty(), "{}: {found:?}", crd["metadata"]["name"]);
    }
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
