//! The health scripts for Argo CD (config/argocd), run on every state that the operator writes.
//!
//! Argo CD runs them in its own Lua 5.1, without libraries that open files or run programs; the scripts use none.

use std::collections::BTreeMap;
use std::path::Path;

use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_core::conditions::{Health, Stamp, summary};
use k8s_openapi::jiff::Timestamp;
use mlua::{Lua, LuaSerdeExt, Table};
use rstest::rstest;
use serde::Deserialize;
use serde_json::{Value, json};

/// Kinds with a status. A receipt has none; it is always healthy.
const KINDS: [&str; 9] = [
    "WorkloadAction",
    "ClosedLoop",
    "Monitoring",
    "Decision",
    "Execution",
    "NodeConfig",
    "NodeConfigTemplate",
    "SwarmPool",
    "PlacementPolicy",
];

#[derive(Deserialize)]
struct Settings {
    data: BTreeMap<String, String>,
}

fn scripts() -> BTreeMap<String, String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/argocd/health.yaml");
    let settings: Settings = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    settings.data
}

/// Health and message of this object, from the script of this kind.
fn health(kind: &str, object: &Value) -> (String, String) {
    let script = &scripts()[&format!("resource.customizations.health.ganglion.dev_{kind}")];
    let lua = Lua::new();
    // Argo CD passes objects as plain tables, where null is nil.
    let object = lua
        .to_value_with(
            object,
            mlua::serde::SerializeOptions::new().serialize_none_to_null(false).serialize_unit_to_null(false),
        )
        .unwrap();
    lua.globals().set("obj", object).unwrap();
    let health: Table = lua.load(script).eval().unwrap();
    (health.get("status").unwrap(), health.get("message").unwrap())
}

fn object(spec: &Value, status: Value) -> Value {
    json!({"metadata": {"name": "web", "generation": 2}, "spec": spec, "status": status})
}

fn seen(generation: i64, health: &Health<LoopReason>) -> Value {
    let stamp = Stamp { generation, now: Timestamp::UNIX_EPOCH };
    json!({"observedGeneration": generation, "conditions": summary(&[], health, stamp)})
}

fn text() -> String {
    "in words".to_owned()
}

#[rstest]
#[case::good(Health::Good(LoopReason::Running, text()), "Healthy", "Running: in words")]
#[case::working(Health::working(LoopReason::Starting, text()), "Progressing", "Starting: in words")]
#[case::retrying(Health::Retrying(LoopReason::Forbidden, text()), "Progressing", "Forbidden: in words")]
#[case::stalled(Health::Stalled(LoopReason::SpecInvalid, text()), "Degraded", "SpecInvalid: in words")]
fn every_state_has_its_health(#[case] state: Health<LoopReason>, #[case] expected: &str, #[case] message: &str) {
    for kind in KINDS {
        let told = health(kind, &object(&json!({"mode": "Auto"}), seen(2, &state)));
        assert_eq!(told, (expected.to_owned(), message.to_owned()), "{kind}");
        // A status of an older generation does not count for this one.
        let (told, _) = health(kind, &object(&json!({}), seen(1, &state)));
        assert_eq!(told, "Progressing", "{kind}");
    }
}

#[rstest]
#[case::default(json!({"observedGeneration": -1}))]
#[case::empty(json!({}))]
#[case::conditions_only(json!({"conditions": []}))]
#[case::none(Value::Null)]
fn an_object_that_nobody_has_seen_is_progressing(#[case] status: Value) {
    for kind in KINDS {
        let (told, message) = health(kind, &object(&json!({}), status.clone()));
        assert_eq!((told.as_str(), message.contains("has not seen")), ("Progressing", true), "{kind}");
    }
}

#[test]
fn a_pause_is_no_trouble_and_a_failure_is_even_in_a_pause() {
    let suspended = seen(2, &Health::Suspended(LoopReason::Paused, text()));
    assert_eq!(health("WorkloadAction", &object(&json!({"suspend": true}), suspended.clone())).0, "Suspended");
    let paused = seen(2, &Health::Good(LoopReason::Paused, text()));
    assert_eq!(health("ClosedLoop", &object(&json!({"mode": "Paused"}), paused)).0, "Suspended");
    assert_eq!(health("NodeConfig", &object(&json!({"suspend": true}), suspended.clone())).0, "Suspended");
    let template = json!({"template": {"suspend": true}});
    assert_eq!(health("NodeConfigTemplate", &object(&template, suspended.clone())).0, "Suspended");
    let failed = seen(2, &Health::Stalled(LoopReason::Failed, text()));
    assert_eq!(health("WorkloadAction", &object(&json!({"suspend": true}), failed)).0, "Degraded");
    let mut ended = seen(2, &Health::Good(LoopReason::Done, text()));
    ended["finishedAt"] = json!("2026-11-22T00:00:00Z");
    assert_eq!(health("WorkloadAction", &object(&json!({"suspend": true}), ended)).0, "Healthy");
    // Resumed, but the operator has not updated the status yet.
    assert_eq!(health("WorkloadAction", &object(&json!({"suspend": false}), suspended)).0, "Progressing");
}

#[test]
fn every_kind_with_a_status_has_a_script() {
    let crds = ganglion_api::all();
    let kinds = crds.iter().filter(|crd| crd.spec.versions.iter().any(|version| version.subresources.is_some()));
    let mut kinds: Vec<&str> = kinds.map(|crd| crd.spec.names.kind.as_str()).collect();
    let mut known = KINDS.to_vec();
    kinds.sort_unstable();
    known.sort_unstable();
    assert_eq!(kinds, known);
    assert_eq!(scripts().len(), KINDS.len());
}
