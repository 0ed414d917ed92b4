//! Pods with the scheduling gate, and how a pod is pinned to its node.

use super::*;
use crate::stateful::gate::{GateVerdict, GatedPod, LONGEST_HOLD, release_patch};

fn gated(pod: &mut PodFact) {
    (pod.gated, pod.ready_since) = (true, None);
}

#[test]
fn a_gated_pod_that_is_wanted_is_bound_and_released() {
    let mut stage = Stage::stateful(Way::Gate);
    stage.act("go", move_db("db-1", json!({"nodeName": "d"})));
    assert_eq!(evicts(&stage.settle("go")), Some("db-1"));
    stage.put_replica("db-1", "-2", gated);
    let key = Key::new(NAMESPACE, "db-1");
    let held = GatedPod::observe(&stage.world, &key).unwrap().decide(stage.now);
    assert_eq!(held, GateVerdict::HoldUntil(stage.now + LONGEST_HOLD), "its slot releases it");
    let NextStep::Do(Effect::ReleasePod { pod, node }) = stage.settle("go") else { panic!("not released") };
    assert_eq!((pod.uid.as_str(), node), ("uid-db-1-2", Some("d".into())));
    let late = GatedPod::observe(&stage.world, &key).unwrap().decide(stage.now + LONGEST_HOLD);
    assert_eq!(late, GateVerdict::Release, "held too long");
}

#[test]
fn a_gated_pod_that_nobody_wants_is_released_at_once() {
    let mut stage = Stage::stateful(Way::Gate);
    stage.put_replica("db-1", "-2", gated);
    let pod = GatedPod::observe(&stage.world, &Key::new(NAMESPACE, "db-1")).unwrap();
    assert_eq!((pod.decide(stage.now), pod.id.uid.as_str()), (GateVerdict::Release, "uid-db-1-2"));
    assert_eq!(GatedPod::observe(&stage.world, &Key::new(NAMESPACE, "db-0")), None);
}

#[test]
fn a_pod_that_its_slot_gave_up_is_released() {
    let mut stage = Stage::stateful(Way::Gate);
    stage.act("go", move_db("db-1", json!({"nodeName": "d"})));
    stage.settle("go");
    stage.put_replica("db-1", "-2", gated);
    stage.put_node("d", |node| node.cordoned = true);
    let next = stage.settle("go");
    assert!(matches!(next, NextStep::Do(Effect::ReleasePod { node: None, .. })), "{next:#?}");
    assert_eq!(stage.slot("go").step, Step::RollingBack);
    let pod = GatedPod::observe(&stage.world, &Key::new(NAMESPACE, "db-1")).unwrap();
    assert_eq!(pod.decide(stage.now), GateVerdict::Release);
}

#[rstest]
#[case::no_affinity(json!(null), json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}))]
#[case::other_affinity(json!({"podAntiAffinity": {"later": 1}}), json!({"podAntiAffinity": {"later": 1}, "nodeAffinity": {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}))]
#[case::every_term(
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["x"]}]}]}}}),
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["x"]},
            {"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}})
)]
fn a_pin_is_in_every_term(#[case] affinity: serde_json::Value, #[case] expected: serde_json::Value) {
    let mut pod = json!({"spec": {"schedulingGates": [{"name": "other"}, {"name": marks::GATE}]}});
    if !affinity.is_null() {
        pod["spec"]["affinity"] = affinity;
    }
    let patch = json!(release_patch(&pod, &"u".into(), Some(&"n".into())).expect("it is gated"));
    let patch = patch.as_array().unwrap();
    let pin = patch.iter().find(|step| step["op"] == "add").expect("a pin");
    assert_eq!(pin["value"], expected);
    assert_eq!(patch.last(), Some(&json!({"op": "remove", "path": "/spec/schedulingGates/1"})));
    let free = json!(release_patch(&pod, &"u".into(), None).expect("it is gated"));
    assert!(free.as_array().unwrap().iter().all(|step| step["op"] != "add"), "{free}");
}
