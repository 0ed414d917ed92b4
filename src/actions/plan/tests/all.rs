//! `count: All`, moves without a target, and preferences.

use super::*;
use ganglion_core::conditions;

fn web() -> serde_json::Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})
}

fn off(node: &str) -> serde_json::Value {
    json!({"move": {"workload": web(), "from": {"nodeName": node}, "count": "All"}})
}

fn targets(status: &WorkloadActionStatus) -> Vec<&str> {
    status.slots.iter().filter_map(|slot| slot.replacement.as_ref()).map(|pod| pod.node.as_str()).collect()
}

#[test]
fn all_that_are_there_leave_for_any_other_node() {
    let mut stage = Stage::new();
    stage.put_pod("web-d", "a", |_| {});
    stage.act("go", off("a"));
    let status = stage.settle_until_admitted("go").expect("it begins");
    assert_eq!((status.replicas, status.slots.len()), (Some(2), 2));
    assert!(!targets(&status).contains(&"a"), "{:?}", targets(&status));
    assert_eq!(status.summary.map(|summary| summary.done), Some("0/2".into()));
    let plan = status.plan.unwrap();
    let left = plan.nodes.iter().find(|node| node.name == "a").unwrap();
    assert_eq!((left.refused, left.message.as_str()), (Some(Reason::NodeExcluded), "the replicas leave it"));
}

#[test]
fn none_is_a_success_with_nothing_to_do() {
    let mut stage = Stage::new();
    stage.act("go", off("d"));
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("True", "Succeeded"));
    assert_eq!(message, "nothing to do: no replica of Deployment web on d");
    let summary = stage.action("go").status.and_then(|status| status.summary).unwrap();
    assert_eq!(summary.done, "0/0");
}

#[test]
fn replicas_that_are_on_targets_already_stay() {
    let mut stage = Stage::new();
    stage.act(
        "go",
        json!({"move": {"workload": web(), "to": {"where": "node.name != 'd'"}, "count": "All", "upTo": 1}}),
    );
    stage.settle("go");
    let (ready, _, message) = stage.ready("go");
    assert_eq!(ready, "True");
    let expected = "nothing to do: no replica of Deployment web on a node that does not match `to` (node.name != 'd')";
    assert_eq!(message, expected);
}

#[rstest]
#[case::succeeded(off("d"), "True")]
#[case::refused(move_web(json!({"nodeName": "nowhere"})), "False")]
#[case::planned(json!({"mode": "Plan", "move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}}), "True")]
#[case::aborted(json!({"abort": true, "move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}}), "False")]
fn every_end_is_finished(#[case] spec: serde_json::Value, #[case] ready: &str) {
    let mut stage = Stage::new();
    stage.act("go", spec);
    stage.settle("go");
    let status = stage.action("go").status.unwrap();
    let [is_ready, finished] = ["Ready", "Finished"]
        .map(|kind| conditions::find(&status.conditions, kind).unwrap_or_else(|| panic!("{:?}", status.conditions)));
    assert_eq!((is_ready.status.as_str(), finished.status.as_str()), (ready, "True"));
    assert_eq!((&finished.reason, &finished.message), (&is_ready.reason, &is_ready.message));
}

#[test]
fn an_action_that_runs_is_not_finished() {
    let mut stage = Stage::new();
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}}));
    stage.settle("go");
    let status = stage.action("go").status.unwrap();
    assert!(!status.slots.is_empty());
    assert_eq!(conditions::find(&status.conditions, "Finished"), None);
}

/// The limit admits one of two replicas; somebody deletes the other one while it waits.
#[test]
fn one_that_has_gone_by_itself_is_not_missed() {
    let mut stage = Stage::new();
    stage.put_pod("web-d", "a", |_| {});
    stage.limits.per_workload = Some(1);
    stage.act("go", off("a"));
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("the first begins") };
    let status = stage.action("go").status.unwrap();
    assert_eq!((status.replicas, status.slots.len()), (Some(2), 1));
    let victim = status.slots[0].victim.clone().unwrap().name;
    for name in ["web-a", "web-d"] {
        let gone = stage.id(name);
        stage.world.remove::<PodFact>(&gone);
    }
    stage.put_pod(&new.key.name, "d", |_| {});
    let mut action = stage.action("go");
    action.status.as_mut().unwrap().slots[0].evicting = true;
    stage.put_action(action);
    stage.settle("go");
    let (ready, _, message) = stage.ready("go");
    assert!(ready == "True" && message.contains(&victim), "{ready} {message}");
    assert_eq!(stage.action("go").status.unwrap().replicas, Some(1));
}

#[rstest]
#[case::some(json!(2), Some(2))]
#[case::more_than_there_are(json!(9), Some(3))]
#[case::no_bound(serde_json::Value::Null, Some(3))]
fn up_to_so_many_of_all(#[case] up_to: serde_json::Value, #[case] found: Option<i32>) {
    let mut stage = Stage::new();
    let mut spec = json!({"move": {"workload": web(), "to": {"nodeName": "d"}, "count": "All"}});
    if !up_to.is_null() {
        spec["move"]["upTo"] = up_to;
    }
    stage.act("go", spec);
    let status = stage.settle_until_admitted("go").expect("it begins");
    assert_eq!(status.replicas, found);
}

#[test]
fn more_than_an_action_may_hold_are_refused_unless_bounded() {
    let mut stage = Stage::new();
    stage.put_node("a", |node| node.pod_capacity = 500);
    stage.put_node("d", |node| node.pod_capacity = 500);
    for number in 0..101 {
        stage.put_pod(&format!("more-{number}"), "a", |_| {});
    }
    stage.act("go", off("a"));
    stage.settle("go");
    let (ready, _, message) = stage.ready("go");
    assert!(ready == "False" && message.contains("102 replicas") && message.contains("upTo"), "{message}");

    let mut spec = off("a");
    spec["move"]["upTo"] = json!(100);
    stage.act("bounded", spec);
    assert_eq!(stage.settle_until_admitted("bounded").and_then(|status| status.replicas), Some(100));
}

/// Nodes of zone x first, then those with ssd, then any.
#[test]
fn preferred_nodes_are_first_and_others_when_they_are_full() {
    let mut stage = Stage::new();
    stage.put_node("c", |node| drop(node.labels.insert("zone".into(), "x".into())));
    let preferences = json!([{"nodeSelector": {"zone": "x"}}, {"where": "node.labels['disk'] == 'ssd'"}]);
    let to = json!({"preferences": preferences});
    stage.act("go", json!({"create": {"workload": web(), "to": to, "count": 7}}));
    let status = stage.settle_until_admitted("go").expect("it begins");
    assert_eq!(targets(&status)[..5], ["c", "c", "d", "d", "d"]);
    let plan = status.plan.unwrap();
    let words = |name: &str| plan.nodes.iter().find(|node| node.name == name).unwrap().message.clone();
    assert!(words("c").starts_with("meets preference 1; "), "{}", words("c"));
    assert!(words("a").starts_with("meets no preference; "), "{}", words("a"));
}

/// A receipt would prevent the action from running when there are replicas again.
#[test]
fn one_that_did_nothing_in_the_end_keeps_no_receipt() {
    let mut stage = Stage::new();
    stage.act("go", off("a"));
    let NextStep::Do(Effect::CreatePod(_)) = stage.settle("go") else { panic!("it begins") };
    let mut action = stage.action("go");
    action.status.as_mut().unwrap().slots[0].step = Step::Queued;
    stage.put_action(action);
    let gone = stage.id("web-a");
    stage.world.remove::<PodFact>(&gone);
    let NextStep::Do(Effect::DeleteReceipt { .. }) = stage.settle("go") else { panic!("the receipt stays") };
    assert_eq!(stage.ready("go").1, "Succeeded");
}
