//! Tests of the sweep: each kind of mark goes, and nothing else changes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use super::*;

fn object(members: Value) -> DynamicObject {
    let mut whole = json!({"metadata": {"name": "one", "uid": "u", "resourceVersion": "7"}});
    json_patch::merge(&mut whole, &members);
    serde_json::from_value(whole).expect("an object")
}

/// The object after the sweep.
fn swept(kind: SweptKind, object: &DynamicObject) -> Value {
    let mut whole = json!(object);
    if let Some(step) = step(kind, object) {
        json_patch::patch(&mut whole, &json_patch::Patch::from(step.patch)).expect("a patch that applies");
    }
    whole
}

fn managed(manager: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields})
}

#[test]
fn a_pod_loses_its_marks_and_keeps_all_else() {
    let pod = object(json!({
        "metadata": {
            "annotations": {
                "ganglion.dev/slot": "s", "ganglion.dev/role": "victim", "ganglion.dev/peers": "a,b",
                "ganglion.dev/worker": "3", "controller.kubernetes.io/pod-deletion-cost": "-2147483648",
                "example.com/ganglion.dev": "x", "ganglion.development/slot": "x",
            },
            "labels": {"app": "web", "ganglion.dev/role": "replacement"},
            "ownerReferences": [
                {"apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction", "name": "go", "uid": "1"},
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "2"},
                {"apiVersion": "ganglion.dev/v1", "kind": "WorkloadAction", "name": "go2", "uid": "3"},
            ],
        },
        "spec": {"schedulingGates": [{"name": "example.com/mine"}, {"name": "ganglion.dev/placement"}]},
    }));
    let expected = object(json!({
        "metadata": {
            "annotations": {"example.com/ganglion.dev": "x", "ganglion.development/slot": "x"},
            "labels": {"app": "web"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "2"}],
        },
        "spec": {"schedulingGates": [{"name": "example.com/mine"}]},
    }));
    assert_eq!(swept(SweptKind::Pod, &pod), json!(expected));
    let step = step(SweptKind::Pod, &pod).expect("a step");
    assert!(step.is_in_flight);
    let patch = json!(step.patch);
    assert_eq!(patch[0], json!({"op": "test", "path": "/metadata/uid", "value": "u"}));
    assert_eq!(patch[1], json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"}));
}

#[rstest]
#[case::of_the_user(json!({"controller.kubernetes.io/pod-deletion-cost": "-2147483648"}))]
#[case::another_value(json!({"ganglion.dev/slot": "s", "controller.kubernetes.io/pod-deletion-cost": "7"}))]
fn a_deletion_cost_of_the_user_stays(#[case] annotations: Value) {
    let after = swept(SweptKind::Pod, &object(json!({"metadata": {"annotations": annotations}})));
    let cost = "controller.kubernetes.io/pod-deletion-cost";
    assert_eq!(after["metadata"]["annotations"], json!({cost: annotations[cost]}));
}

#[rstest]
#[case::ledger(json!({"ganglion.dev/ledger": "x"}), true)]
#[case::worker(json!({"ganglion.dev/worker": "1"}), false)]
fn marks_of_actions_are_in_flight(#[case] annotations: Value, #[case] expected: bool) {
    let object = object(json!({"metadata": {"annotations": annotations}}));
    assert_eq!(step(SweptKind::Workload, &object).map(|step| step.is_in_flight), Some(expected));
}

#[rstest]
#[case::owned(json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "1", "controller": true}]), false)]
#[case::victim(json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "1"}]), true)]
#[case::bare(json!([]), true)]
fn a_pod_of_an_action_without_a_controller_is_named(#[case] owners: Value, #[case] expected: bool) {
    let marked = json!({"annotations": {"ganglion.dev/slot": "s"}, "ownerReferences": owners});
    let found = step(SweptKind::Pod, &object(json!({"metadata": marked})));
    assert_eq!(found.map(|step| step.unknown.is_some()), Some(expected));
    let worker = json!({"annotations": {"ganglion.dev/worker": "1"}, "ownerReferences": owners});
    let found = step(SweptKind::Pod, &object(json!({"metadata": worker})));
    assert_eq!(found.map(|step| step.unknown), Some(None));
}

#[rstest]
#[case::by_a_drain(&["kubectl-ganglion"], true, true)]
#[case::by_somebody(&["kubectl-cordon"], true, false)]
#[case::by_both(&["kubectl-ganglion", "kubectl"], true, false)]
#[case::not_cordoned(&["kubectl-ganglion"], false, false)]
fn only_the_cordon_of_a_drain_is_undone(#[case] managers: &[&str], #[case] cordoned: bool, #[case] undone: bool) {
    let fields: Vec<Value> =
        managers.iter().map(|name| managed(name, json!({"f:spec": {"f:unschedulable": {}}}))).collect();
    let node = object(json!({"metadata": {"managedFields": fields}, "spec": {"unschedulable": cordoned}}));
    let after = swept(SweptKind::Node, &node);
    assert_eq!(after["spec"], if undone { json!({}) } else { json!({"unschedulable": cordoned}) });
}

#[test]
fn published_usage_goes_and_that_of_other_publishers_stays() {
    let fields = |keys: &[&str]| {
        let keys: BTreeMap<String, Value> = keys.iter().map(|key| (format!("f:{key}"), json!({}))).collect();
        json!({"f:metadata": {"f:annotations": keys}})
    };
    let node = object(json!({"metadata": {
        "annotations": {"mean-used-cpu": "1", "std-used-cpu": "2", "congestion-factor": "3", "ganglion.dev/x": "4"},
        "managedFields": [
            managed("ganglion/placement-policy/usage", fields(&["mean-used-cpu", "std-used-cpu"])),
            managed("trimaran", fields(&["std-used-cpu", "congestion-factor"])),
        ],
    }}));
    let after = swept(SweptKind::Node, &node);
    assert_eq!(after["metadata"]["annotations"], json!({"std-used-cpu": "2", "congestion-factor": "3"}));
}

#[test]
fn labels_with_scores_of_policies_are_removed_with_their_histories() {
    let labels = json!({"ganglion.node-restriction.kubernetes.io/green": "7", "node-restriction.kubernetes.io/x": "y"});
    let histories = json!({
        "ganglion.node-restriction.kubernetes.io/green": "7@1764364800", "node-restriction.kubernetes.io/x": "y",
    });
    let node = json!({"metadata": {"labels": labels, "annotations": histories}});
    let after = swept(SweptKind::Node, &object(node));
    for kept in [&after["metadata"]["labels"], &after["metadata"]["annotations"]] {
        assert_eq!(*kept, json!({"node-restriction.kubernetes.io/x": "y"}));
    }
}

#[test]
fn a_gated_template_is_found_and_not_changed() {
    let gates = json!({"schedulingGates": [{"name": "ganglion.dev/placement"}]});
    let set = object(json!({"spec": {"template": {"spec": gates}}}));
    assert!(has_gated_template(&set));
    assert_eq!(step(SweptKind::Workload, &set), None);
    assert!(!has_gated_template(&object(json!({"spec": {"template": {"spec": {}}}}))));
}

/// An autoscaler, and the same one after an import has switched it off.
fn imported(kind: ImportedKind, members: Value) -> (DynamicObject, DynamicObject) {
    let before = object(members);
    let scaler = ImportedScaler { kind, object: &before };
    let off = scaler.switched_off("web", &scaler.record().expect("a record").original);
    (before, off)
}

#[rstest]
#[case::bare(json!({"spec": {"maxReplicas": 5}}))]
#[case::rates(json!({"spec": {"maxReplicas": 5, "behavior": {"scaleUp": {"selectPolicy": "Min"}}}}))]
fn a_horizontal_autoscaler_is_switched_on_again(#[case] members: Value) {
    let (before, off) = imported(ImportedKind::HorizontalPodAutoscaler, members);
    let mut expected = json!(before);
    expected["metadata"]["annotations"] = json!({});
    assert_eq!(swept(SweptKind::HorizontalPodAutoscaler, &off), expected);
    let mut meddled = off;
    meddled.data["spec"]["behavior"] = json!({"scaleUp": {"selectPolicy": "Max"}});
    let after = swept(SweptKind::HorizontalPodAutoscaler, &meddled);
    assert_eq!(after["spec"], meddled.data["spec"], "somebody else has switched it on");
}

#[rstest]
#[case::running(json!({"metadata": {"annotations": {"team": "a"}}, "spec": {}}))]
#[case::declared(json!({"metadata": {"annotations": {"autoscaling.keda.sh/paused": "false"}}, "spec": {}}))]
fn a_scaled_object_is_resumed(#[case] members: Value) {
    let (before, off) = imported(ImportedKind::ScaledObject, members);
    assert_eq!(swept(SweptKind::ScaledObject, &off), json!(before));
}

#[test]
fn an_autoscaler_whose_record_cannot_be_read_is_named_and_stays_off() {
    let (_, mut off) = imported(ImportedKind::HorizontalPodAutoscaler, json!({"spec": {"maxReplicas": 5}}));
    off.annotations_mut().insert(marks::IMPORTED_BY.to_owned(), "{".to_owned());
    let step = step(SweptKind::HorizontalPodAutoscaler, &off).expect("a step");
    assert!(step.unknown.is_some_and(|what| what.contains("check whether it is still switched off")));
    assert_eq!(swept(SweptKind::HorizontalPodAutoscaler, &off)["spec"], off.data["spec"]);
}

#[rstest]
#[case::job_list(json!({"ownerReferences": [
    {"apiVersion": "ganglion.dev/v1alpha1", "kind": "SwarmPool", "name": "a", "uid": "1"}]}), true)]
#[case::learned_values(json!({"labels": {"ganglion.dev/memory": "placement-policy"}}), true)]
#[case::orphaned_job_list(json!({"labels": {"ganglion.dev/swarm-pool": "a"}}), false)]
#[case::of_others(json!({"ownerReferences": [
    {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a", "uid": "1"}]}), false)]
fn config_maps_of_ours_go(#[case] meta: Value, #[case] expected: bool) {
    assert_eq!(is_own_map(&object(json!({"metadata": meta})).metadata), expected);
}

/// Keys of labels and annotations, ours and others.
fn keys() -> impl Strategy<Value = BTreeMap<String, String>> {
    let key = prop_oneof![
        "ganglion\\.dev/[a-z]{1,5}",
        Just("ganglion.dev/slot".to_owned()),
        Just("controller.kubernetes.io/pod-deletion-cost".to_owned()),
        "[a-z]{1,4}\\.ganglion\\.dev/[a-z]{1,5}",
        "ganglion[a-z.]{1,4}/[a-z]{1,5}",
        "[a-z/.~]{1,12}",
    ];
    let value = prop_oneof![Just("-2147483648".to_owned()), "[a-z0-9]{0,4}"];
    proptest::collection::btree_map(key, value, 0..6)
}

fn any_object() -> impl Strategy<Value = DynamicObject> {
    let group =
        prop_oneof![Just("ganglion.dev/v1alpha1"), Just("apps/v1"), Just("v1"), Just("ganglion.dev.example/v1")];
    let owners = proptest::collection::vec((group, "[a-z]{1,3}"), 0..5);
    let gate = prop_oneof![Just("ganglion.dev/placement"), Just("example.com/gate"), Just("ganglion.dev/other")];
    (keys(), keys(), owners, proptest::collection::btree_set(gate, 0..4)).prop_map(
        |(labels, annotations, owners, gates)| {
            let owner =
                |(group, uid): &(&str, String)| json!({"apiVersion": group, "kind": "K", "name": uid, "uid": uid});
            object(json!({
                "metadata": {
                    "labels": labels, "annotations": annotations,
                    "ownerReferences": owners.iter().map(owner).collect::<Vec<_>>(),
                    "finalizers": ["example.com/mine"],
                },
                "spec": {
                    "schedulingGates": gates.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
                    "nodeName": "n", "replicas": 3,
                },
                "status": {"phase": "Running"},
            }))
        },
    )
}

/// Removes what the sweep may remove, in the plainest way.
fn without_ours(kind: SweptKind, object: &Value) -> Value {
    let mut object = object.clone();
    let is_marked = object["metadata"]["annotations"].get("ganglion.dev/slot").is_some();
    for map in ["labels", "annotations"] {
        if let Some(map) = object["metadata"][map].as_object_mut() {
            map.retain(|key, _| !key.starts_with("ganglion.dev/"));
        }
    }
    if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
        owners.retain(|owner| !owner["apiVersion"].as_str().unwrap_or_default().starts_with("ganglion.dev/"));
    }
    if kind == SweptKind::Pod {
        let cost = "controller.kubernetes.io/pod-deletion-cost";
        if let Some(map) = object["metadata"]["annotations"].as_object_mut() {
            map.retain(|key, value| !(is_marked && key == cost && value == "-2147483648"));
        }
        if let Some(gates) = object["spec"]["schedulingGates"].as_array_mut() {
            gates.retain(|gate| gate["name"] != "ganglion.dev/placement");
        }
    }
    object
}

proptest! {
    #[test]
    fn nothing_but_our_marks_changes_and_all_of_them_go(
        object in any_object(),
        kind in prop_oneof![Just(SweptKind::Pod), Just(SweptKind::Workload), Just(SweptKind::ConfigMap)],
    ) {
        let after = swept(kind, &object);
        prop_assert_eq!(&after, &without_ours(kind, &json!(object)));
        let again: DynamicObject = serde_json::from_value(after).expect("an object");
        prop_assert_eq!(step(kind, &again), None);
    }
}
