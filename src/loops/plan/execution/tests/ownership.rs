//! Tests of fields that somebody else applies.

use jiff::Timestamp;
use kube::core::DynamicObject;
use rstest::rstest;
use serde_json::{Value, json};

use crate::execution::ownership::{TargetObject, owned_replicas, refusal, remembered, seen_owner, template_paths};
use crate::execution::{ObjectVersion, OwnedField, ResizeTarget, TargetState, Trial, trial};
use crate::rung;
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::status::SeenOwner;
use ganglion_api::workload_action::OnReplicaOwner;
use ganglion_core::facts::{ApplyMethod, FieldOwner};

const APPLIED_AT: &str = "2026-11-26T10:00:00Z";

fn target() -> TargetRef {
    TargetRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name: "web".into() }
}

fn rung(value: Value) -> Rung {
    serde_json::from_value(value).unwrap()
}

fn scale() -> Value {
    json!({"scale": {"by": 1, "max": 9}})
}

fn resize(template: bool) -> Value {
    json!({"resize": {"container": "app", "resource": "memory", "factor": "2", "max": "1Gi", "template": template}})
}

fn patch(path: &str) -> Value {
    json!({"patch": {"path": path, "by": "1", "min": "0", "max": "9"}})
}

/// A Deployment whose manifest has replicas and memory, after these managers have written it.
fn deployment(managers: &[(&str, &str, &str, Value)], last_applied: Option<Value>) -> DynamicObject {
    let managers: Vec<Value> = managers
        .iter()
        .map(|(manager, operation, time, fields)| {
            json!({"manager": manager, "operation": operation, "time": time, "fieldsV1": {"f:spec": fields}})
        })
        .collect();
    let last_applied = last_applied.map(|manifest| manifest.to_string());
    serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "uid": "u", "managedFields": managers,
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": last_applied.unwrap_or_default()}},
        "spec": {"replicas": 5, "color": "secret", "template": {"spec": {"containers": [
            {"name": "app", "resources": {"limits": {"memory": "64Mi"}}}]}}},
    }))
    .unwrap()
}

fn owned(object: &DynamicObject, rung: &Rung, path: &str, remembered: &[SeenOwner]) -> Option<OwnedField> {
    let fields = TargetObject { target: &target(), namespace: "shop", object };
    fields.owned_field(&rung::dimension(rung), &[path.to_owned()], remembered)
}

fn version(owned: Option<OwnedField>) -> ObjectVersion {
    ObjectVersion { uid: "u".into(), generation: 1, owned: owned.map(Box::new), ..ObjectVersion::default() }
}

fn flux() -> OwnedField {
    owned_replicas(&target(), "shop", &FieldOwner::server_side("flux", APPLIED_AT.parse().ok()), 5)
}

/// State of the target for the rung, with this owner of the field.
fn seen(rung: &Rung, owned: Option<OwnedField>) -> TargetState {
    let memory = serde_json::from_value(json!({"limit": "64Mi"})).unwrap();
    let target = version(owned);
    match (&rung.scale, &rung.resize) {
        (Some(_), _) => TargetState::Scale(target, 5),
        (None, Some(_)) => {
            let template = Some((Some(0), memory));
            TargetState::Resources(Box::new(ResizeTarget { target, template, ..ResizeTarget::default() }))
        }
        (None, None) => TargetState::Field(target, Some(json!(5))),
    }
}

#[rstest]
#[case::scale(scale(), Some(LoopReason::ReplicasOwnedElsewhere))]
#[case::template(resize(true), Some(LoopReason::FieldOwnedElsewhere))]
#[case::only_pods(resize(false), None)]
#[case::patched_replicas(patch("spec.replicas"), Some(LoopReason::ReplicasOwnedElsewhere))]
#[case::patched_field(patch("spec.rate"), Some(LoopReason::FieldOwnedElsewhere))]
fn a_field_that_somebody_applies_is_left_alone_unless_forced(
    #[case] value: Value,
    #[case] expected: Option<LoopReason>,
) {
    let tried = |value: &Value, owned| {
        let rung = rung(value.clone());
        match trial("web", &target(), &rung, &seen(&rung, owned)) {
            Trial::Possible { .. } => None,
            Trial::Impossible(reason, _) => Some(reason),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(tried(&value, None), None);
    assert_eq!(tried(&value, Some(flux())), expected);
    for (word, expected) in [("Yield", expected), ("Force", None)] {
        let mut value = value.clone();
        value["onReplicaOwner"] = json!(word);
        assert_eq!(tried(&value, Some(flux())), expected, "{word}");
    }
}

#[test]
fn the_refusal_says_how_the_replicas_are_kept_for_each_way_of_applying() {
    let rung = rung(scale());
    let says = |owned| refusal(&target(), &rung, &seen(&rung, Some(owned))).unwrap().1;
    let server_side = says(flux());
    let command = "`echo '{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"web\",\
                   \"namespace\":\"shop\"},\"spec\":{\"replicas\":5}}' | kubectl apply --server-side \
                   --field-manager=ganglion/handover --validate=false -f -`; only then delete it";
    assert!(server_side.starts_with("spec.replicas of Deployment web belongs to flux, which applies it."));
    assert!(server_side.contains(command), "{server_side}");
    assert!(server_side.contains("apply only objects that differ, so change an annotation in the same commit"));
    let kubectl = FieldOwner { manager: "kubectl".into(), method: ApplyMethod::ClientSide, applied_at: None };
    let client_side = says(owned_replicas(&target(), "shop", &kubectl, 5));
    let command = "first run `kubectl apply edit-last-applied deployment.apps/web -n shop` and delete the field there; \
                   only then delete it from the manifest that kubectl applies, or it goes back to 1.";
    assert!(client_side.contains(command) && !client_side.contains("Flux"), "{client_side}");
    assert!(client_side.ends_with("set onReplicaOwner: Force on the rung instead"), "{client_side}");
}

#[test]
fn a_template_is_handed_over_by_container_and_a_text_is_not_shown() {
    let all = json!({"f:color": {}, "f:template": {"f:spec": {"f:containers": {
        "k:{\"name\":\"app\"}": {"f:resources": {"f:limits": {"f:memory": {}}}}}}}});
    let object = deployment(&[("argocd-controller", "Apply", APPLIED_AT, all)], None);
    let resize = rung(resize(true));
    let paths = template_paths(resize.resize.as_ref().unwrap(), Some(0));
    assert_eq!(paths.len(), 2, "{paths:?}");
    assert_eq!(owned(&object, &resize, &paths[0], &[]), None, "the manifest has no request");
    let found = owned(&object, &resize, &paths[1], &[]).unwrap();
    let containers = "\"containers\":[{\"name\":\"app\",\"resources\":{\"limits\":{\"memory\":\"64Mi\"}}}]";
    assert!(found.command.as_ref().is_some_and(|command| command.contains(containers)), "{found:?}");
    let color = owned(&object, &rung(patch("spec.color")), "spec.color", &[]).unwrap();
    assert_eq!(color.command, None);
}

#[test]
fn an_owner_is_remembered_when_somebody_else_writes_the_field_until_it_leaves_it_out() {
    let rung = rung(scale());
    let (with, without) = (json!({"f:replicas": {}}), json!({"f:template": {}}));
    let before = deployment(&[("flux", "Apply", APPLIED_AT, with.clone())], None);
    let found = owned(&before, &rung, "spec.replicas", &[]).unwrap();
    let memory: Vec<SeenOwner> = seen_owner(&rung, &seen(&rung, Some(found))).into_iter().collect();
    assert_eq!((memory[0].manager.as_str(), memory[0].dimension.as_str()), ("flux", "replicas"));

    // kubectl scale takes the field over; the time of the other entry stays.
    let scaled =
        [("flux", "Apply", APPLIED_AT, without.clone()), ("kubectl", "Update", "2026-11-26T10:05:00Z", with.clone())];
    let scaled = deployment(&scaled, None);
    assert_eq!(owned(&scaled, &rung, "spec.replicas", &[]), None);
    let still = owned(&scaled, &rung, "spec.replicas", &memory).unwrap();
    assert_eq!(still.taken_over_by.as_deref(), Some("kubectl"));
    let state = seen(&rung, Some(still));
    let (reason, message) = refusal(&target(), &rung, &state).unwrap();
    assert_eq!(reason, LoopReason::ReplicasOwnedElsewhere);
    assert!(
        message.contains("belongs to flux, which applied it at 2026-11-26T10:00:00Z; kubectl has changed it since")
    );
    assert_eq!(seen_owner(&rung, &state), Some(memory[0].clone()), "the time is that of the owner");

    // Times have a resolution of one second.
    let left_out = ("flux", "Apply", APPLIED_AT, without.clone());
    let handed_over = ("ganglion/handover", "Apply", APPLIED_AT, with.clone());
    let scaled_since = ("kubectl", "Update", "2026-11-26T10:07:00Z", with.clone());
    for managers in [
        vec![left_out.clone()],
        vec![left_out, handed_over],
        vec![("flux", "Apply", "2026-11-26T10:06:00Z", without), scaled_since],
    ] {
        assert_eq!(owned(&deployment(&managers, None), &rung, "spec.replicas", &memory), None, "{managers:?}");
    }
    let another = [SeenOwner { uid: "another".into(), ..memory[0].clone() }];
    assert_eq!(owned(&scaled, &rung, "spec.replicas", &another), None);
    let other_field = self::rung(patch("spec.rate"));
    assert_eq!(owned(&scaled, &other_field, "spec.rate", &memory), None);
}

/// A custom resource whose scale subresource has another path than `spec.replicas`.
fn cache(manager: &str, operation: &str) -> DynamicObject {
    let fields = json!({"f:spec": {"f:size": {}}});
    serde_json::from_value(json!({
        "apiVersion": "shop.example/v1", "kind": "Cache",
        "metadata": {"name": "web", "uid": "u", "managedFields": [
            {"manager": manager, "operation": operation, "time": APPLIED_AT, "fieldsV1": fields}]},
        "spec": {"size": 5, "minReplicas": 5},
    }))
    .unwrap()
}

#[test]
fn the_replicas_of_a_custom_resource_are_owned_by_who_applies_their_path() {
    let target = TargetRef { api_version: "shop.example/v1".into(), kind: "Cache".into(), name: "web".into() };
    let object = cache("flux", "Apply");
    let fields = TargetObject { target: &target, namespace: "shop", object: &object };
    let path = ["spec.size".to_owned()];
    let version = ObjectVersion {
        owned: fields.owned_field("replicas", &path, &[]).map(Box::new),
        replicas_path: Some("spec.size".into()),
        ..version(None)
    };
    let scale = rung(scale());
    let patch = rung(patch("spec.size"));
    for (rung, state) in [
        (&scale, TargetState::Scale(version.clone(), 5)),
        (&patch, TargetState::Field(version.clone(), Some(json!(5)))),
    ] {
        let (reason, message) = refusal(&target, rung, &state).unwrap();
        assert_eq!(reason, LoopReason::ReplicasOwnedElsewhere);
        assert!(message.starts_with("spec.size of Cache web belongs to flux, which applies it."), "{message}");
        assert!(message.contains(r#""spec":{"size":5}}' | kubectl apply --server-side"#), "{message}");
        let seen = seen_owner(rung, &state).unwrap();
        assert_eq!((seen.dimension.as_str(), seen.manager.as_str()), ("replicas", "flux"));
    }
    let object = cache("hpa", "Update");
    let fields = TargetObject { target: &target, namespace: "shop", object: &object };
    assert_eq!(fields.owned_field("replicas", &path, &[]), None);
    assert_eq!(fields.last_writer(&path).as_deref(), Some("hpa"));
}

/// A rung that creates or deletes replicas by a WorkloadAction leaves them to their owner as a scale does.
#[rstest]
#[case(json!({"create": {"to": {"nodeName": "a"}}}))]
#[case(json!({"delete": {"count": 2}}))]
fn an_action_on_replicas_yields_to_their_owner_and_remembers_it(#[case] template: Value) {
    let rung = rung(json!({"workloadAction": template}));
    let state = |owned| TargetState::Workload(version(owned), 5);
    assert_eq!(refusal(&target(), &rung, &state(None)), None);
    let (reason, message) = refusal(&target(), &rung, &state(Some(flux()))).unwrap();
    assert_eq!(reason, LoopReason::ReplicasOwnedElsewhere);
    assert!(message.contains("belongs to flux"), "{message}");
    let memory: Vec<SeenOwner> = seen_owner(&rung, &state(Some(flux()))).into_iter().collect();
    assert_eq!((memory[0].manager.as_str(), memory[0].dimension.as_str()), ("flux", "replicas"));
    let scaled = [
        ("flux", "Apply", APPLIED_AT, json!({"f:template": {}})),
        ("kubectl", "Update", "2026-11-26T10:05:00Z", json!({"f:replicas": {}})),
    ];
    let taken_over = owned(&deployment(&scaled, None), &rung, "spec.replicas", &memory);
    assert!(taken_over.is_some_and(|owned| owned.taken_over_by.as_deref() == Some("kubectl")));
    let forced = Rung { on_replica_owner: Some(OnReplicaOwner::Force), ..rung };
    assert_eq!(refusal(&target(), &forced, &state(Some(flux()))), None);
}

#[test]
fn only_an_owner_that_a_check_could_have_found_is_forgotten() {
    let owner = |dimension: &str| SeenOwner {
        dimension: dimension.to_owned(),
        paths: Vec::new(),
        manager: "flux".to_owned(),
        uid: "u".into(),
        applied_at: crate::common::micro_time(Timestamp::UNIX_EPOCH),
    };
    let before = [owner("replicas"), owner("spec.rate")];
    let dimensions = |found: &[SeenOwner]| -> Vec<String> {
        let owners = remembered(&before, |dimension| dimension == "replicas", found);
        owners.into_iter().map(|seen| seen.dimension).collect()
    };
    assert_eq!(dimensions(&[]), ["spec.rate"]);
    assert_eq!(dimensions(&[owner("replicas")]), ["replicas", "spec.rate"]);
    let many: Vec<SeenOwner> = (0..40).map(|number| owner(&format!("spec.field{number}"))).collect();
    assert_eq!(dimensions(&many).len(), 16);
}

/// A manifest with limits says nothing about requests that somebody else sets later.
#[rstest]
#[case::limits_only(&["limits"], &["requests", "limits"], Some("limits"))]
#[case::only_others(&["limits"], &["requests"], None)]
#[case::both(&["requests", "limits"], &["requests", "limits"], Some("requests"))]
#[case::one_handed_over(&["requests", "limits"], &["limits"], Some("limits"))]
fn the_owner_of_one_resource_of_a_container_is_not_that_of_another(
    #[case] applied: &[&str],
    #[case] taken_over: &[&str],
    #[case] expected: Option<&str>,
) {
    let fields = |parts: &[&str]| {
        let parts: Vec<(String, Value)> =
            parts.iter().map(|part| (format!("f:{part}"), json!({"f:memory": {}}))).collect();
        let resources = Value::Object(parts.into_iter().collect());
        json!({"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {"f:resources": resources}}}}})
    };
    let resize = rung(resize(true));
    let dimension = rung::dimension(&resize);
    let find = |object: &DynamicObject, index: usize, memory: &[SeenOwner]| {
        let paths = template_paths(resize.resize.as_ref().unwrap(), Some(index));
        TargetObject { target: &target(), namespace: "shop", object }.owned_field(&dimension, &paths, memory)
    };
    let first = find(&deployment(&[("flux", "Apply", APPLIED_AT, fields(applied))], None), 0, &[]);
    let memory: Vec<SeenOwner> = seen_owner(&resize, &seen(&resize, first)).into_iter().collect();
    assert_eq!(memory[0].paths.len(), applied.len());

    let since = [
        ("flux", "Apply", APPLIED_AT, json!({"f:replicas": {}})),
        ("kubectl", "Update", "2026-11-26T10:05:00Z", fields(taken_over)),
    ];
    let mut later = deployment(&since, None);
    let path = |found: Option<OwnedField>| found.map(|owned| owned.path.split('.').nth(6).unwrap().to_owned());
    assert_eq!(path(find(&later, 0, &memory)).as_deref(), expected);
    // Somebody adds a container before the one that is resized.
    let containers = later.data["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap();
    containers.insert(0, json!({"name": "first"}));
    assert_eq!(path(find(&later, 1, &memory)).as_deref(), expected);
    // An earlier version has stored the dimension only.
    let earlier = [SeenOwner { paths: Vec::new(), ..memory[0].clone() }];
    assert_eq!(path(find(&later, 1, &earlier)).as_deref(), Some(taken_over[0]));
}
