//! Moves whose new pod the ReplicaSet creates: step by step, and what makes them wait, go on or back.

use super::*;
use crate::effect::PodPlace;
use ganglion_api::workload_action::status::Protocol;

/// A stage whose node "a" is cordoned, and the action that moves replicas off it.
fn drained() -> Stage {
    let mut stage = Stage::new();
    stage.put_deployment(|deployment| deployment.max_unavailable = 1);
    for name in ["a", "b", "c", "d"] {
        put_node(&mut stage, name, name == "a");
    }
    stage.act("go", move_off("a"));
    stage
}

/// Puts a node of the only zone.
fn put_node(stage: &mut Stage, name: &str, is_cordoned: bool) {
    stage.put_node(name, |node| {
        node.labels
            .extend([("zone", "z"), ("kubernetes.io/hostname", name)].map(|(key, value)| (key.into(), value.into())));
        node.cordoned = is_cordoned;
    });
}

fn move_off(node: &str) -> serde_json::Value {
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    json!({"move": {"workload": workload, "from": {"nodeName": node}, "count": "All"}})
}

/// Carries out the detachment of this pod, and creates its successor.
fn detach(stage: &mut Stage, pod: &str, successor: &str) {
    let slot = slot_of(stage, pod).id;
    stage.change_pod(pod, |pod| {
        pod.labels = labels(false);
        pod.controller = None;
        pod.marks = Marks { slot: Some(slot), role: Some(marks::ROLE_VICTIM.into()), ..Marks::default() };
    });
    stage.put_pod(successor, "d", |pod| {
        (pod.node, pod.ready_since) = (None, None);
        pod.created = NOW + SignedDuration::from_hours(1000);
    });
}

fn slot_of(stage: &Stage, pod: &str) -> Slot {
    let slots = stage.action("go").status.unwrap().slots;
    slots.into_iter().find(|slot| slot.victim.as_ref().is_some_and(|victim| victim.name == pod)).unwrap()
}

fn detaches(next: &NextStep, expected: &str) -> bool {
    matches!(next, NextStep::Do(Effect::ChangePod { pod, change: PodChange::Detach { .. } })
        if pod.key.name == expected)
}

fn evicts(next: &NextStep, expected: &str) -> bool {
    matches!(next, NextStep::Do(Effect::Evict { pod, .. }) if pod.key.name == expected)
}

#[test]
fn the_set_creates_the_new_pod_and_the_old_one_leaves_when_it_is_available() {
    let mut stage = drained();
    assert!(detaches(&stage.settle("go"), "web-a"));
    assert_eq!((slot_of(&stage, "web-a").protocol, slot_of(&stage, "web-a").available), (Protocol::Successor, 3));

    detach(&mut stage, "web-a", "web-x");
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "no node yet");
    stage.change_pod("web-x", |pod| pod.node = Some("d".into()));
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "not Ready yet");
    let now = stage.now;
    stage.change_pod("web-x", |pod| pod.ready_since = Some(now));
    assert!(evicts(&stage.settle("go"), "web-a"));

    let gone = stage.id("web-a");
    stage.world.remove::<PodFact>(&gone);
    stage.settle("go");
    let (ready, _, message) = stage.ready("go");
    assert_eq!((ready.as_str(), message.as_str()), ("True", "moved web-a from a to d"));
}

#[test]
fn availability_counts_and_not_readiness() {
    let mut stage = drained();
    let mut set = stage.world.get::<ReplicaSetFact>(&Key::new(NAMESPACE, "web-h1")).unwrap().clone();
    set.min_ready_seconds = 20;
    stage.world.apply(set, Origin::Watch);
    let long_ago = stage.now - SignedDuration::from_mins(5);
    for pod in ["web-a", "web-b", "web-c"] {
        stage.change_pod(pod, |pod| pod.ready_since = Some(long_ago));
    }
    assert!(detaches(&stage.settle("go"), "web-a"));
    detach(&mut stage, "web-a", "web-x");
    let now = stage.now;
    stage.change_pod("web-x", |pod| (pod.node, pod.ready_since) = (Some("d".into()), Some(now)));
    let NextStep::Wait { until, .. } = stage.settle("go") else { panic!("it is Ready, but not available") };
    assert!(until.is_some_and(|until| until <= now + SignedDuration::from_secs(20)), "{until:?}");
    stage.now = now + SignedDuration::from_secs(20);
    assert!(evicts(&stage.settle("go"), "web-a"));
}

/// A victim that serves is not evicted before its successor is available, however short it has been Ready; the time
/// that new pods have to settle does not concern it.
#[rstest]
#[case::by_the_template(60, json!({}))]
#[case::by_the_action(0, json!({"stableSeconds": 60}))]
fn a_victim_that_serves_is_not_evicted_first(#[case] min_ready: i32, #[case] more: serde_json::Value) {
    let mut stage = drained();
    let mut spec = move_off("a");
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    stage.act("go", spec);
    let mut set = stage.world.get::<ReplicaSetFact>(&Key::new(NAMESPACE, "web-h1")).unwrap().clone();
    set.min_ready_seconds = min_ready;
    stage.world.apply(set, Origin::Watch);
    let just_now = stage.now - SignedDuration::from_secs(10);
    for pod in ["web-a", "web-b", "web-c"] {
        stage.change_pod(pod, |pod| pod.ready_since = Some(just_now));
    }
    assert!(detaches(&stage.settle("go"), "web-a"), "it serves");
    assert_eq!(slot_of(&stage, "web-a").available, 3);
    detach(&mut stage, "web-a", "web-x");
    let now = stage.now;
    stage.change_pod("web-x", |pod| (pod.node, pod.ready_since) = (Some("d".into()), Some(now)));
    stage.now = now + SignedDuration::from_secs(55);
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "the others have settled, and the successor has not");
    stage.now = now + SignedDuration::from_secs(60);
    assert!(evicts(&stage.settle("go"), "web-a"));
}

/// Kubelets have clocks of their own.
#[rstest]
#[case::ahead(3600)]
#[case::behind(-36_000)]
fn the_clock_of_a_kubelet_does_not_matter(#[case] off: i64) {
    let mut stage = drained();
    let mut set = stage.world.get::<ReplicaSetFact>(&Key::new(NAMESPACE, "web-h1")).unwrap().clone();
    set.min_ready_seconds = 20;
    stage.world.apply(set, Origin::Watch);
    let (seen, told) = (stage.now, stage.now + SignedDuration::from_secs(off));
    stage.change_pod("web-a", |pod| (pod.ready_since, pod.ready_seen) = (Some(told), Some(seen)));
    assert!(detaches(&stage.settle("go"), "web-a"), "it serves");
    detach(&mut stage, "web-a", "web-x");
    stage.change_pod("web-x", |pod| {
        (pod.node, pod.ready_since, pod.ready_seen) = (Some("d".into()), Some(told), Some(seen));
    });
    stage.now = seen + SignedDuration::from_secs(19);
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "it has been Ready for 19 s");
    stage.now = seen + SignedDuration::from_secs(20);
    assert!(evicts(&stage.settle("go"), "web-a"));
}

#[test]
fn a_sick_sibling_blocks_nobody_and_a_sick_victim_leaves_at_once() {
    let mut stage = drained();
    stage.change_pod("web-b", |pod| pod.ready_since = None);
    assert!(detaches(&stage.settle("go"), "web-a"), "web-b is not Ready, which does not matter");
    assert_eq!(slot_of(&stage, "web-a").available, 2);

    let mut stage = drained();
    stage.change_pod("web-a", |pod| pod.ready_since = None);
    assert!(evicts(&stage.settle("go"), "web-a"), "it serves nobody");
}

/// The Deployment allows no unavailable replica, but has one.
#[test]
fn a_sick_pod_of_a_small_deployment_blocks_nobody_either() {
    for sick in ["web-a", "web-b"] {
        let mut stage = drained();
        stage.put_deployment(|deployment| deployment.max_unavailable = 0);
        stage.change_pod(sick, |pod| pod.ready_since = None);
        let next = stage.settle("go");
        let expected = if sick == "web-a" { evicts(&next, "web-a") } else { detaches(&next, "web-a") };
        assert!(expected, "{sick}: {next:?}");
    }
}

#[test]
fn two_victims_do_not_leave_for_one_successor() {
    let mut stage = drained();
    stage.put_deployment(|deployment| deployment.max_unavailable = 2);
    stage.put_pod("web-b", "a", |_| {});
    let NextStep::Do(Effect::ChangePod { pod, .. }) = stage.settle("go") else { panic!("one is detached") };
    detach(&mut stage, &pod.key.name, "web-x");
    let NextStep::Do(Effect::ChangePod { pod, .. }) = stage.settle("go") else { panic!("the other one, too") };
    detach(&mut stage, &pod.key.name, "web-y");
    let now = stage.now;
    stage.change_pod("web-x", |pod| (pod.node, pod.ready_since) = (Some("d".into()), Some(now)));
    let NextStep::Do(Effect::Evict { pod, .. }) = stage.settle("go") else { panic!("one may leave") };
    let gone = stage.id(&pod.key.name);
    stage.world.remove::<PodFact>(&gone);
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "the other one waits for web-y");
    stage.change_pod("web-y", |pod| (pod.node, pod.ready_since) = (Some("c".into()), Some(now)));
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::Evict { .. })));
}

#[test]
fn no_more_pods_are_out_than_the_deployment_may_lack() {
    let mut stage = drained();
    stage.put_pod("web-b", "a", |_| {});
    let NextStep::Do(Effect::ChangePod { pod, .. }) = stage.settle("go") else { panic!("one is detached") };
    detach(&mut stage, &pod.key.name, "web-x");
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "maxUnavailable is 1");
}

#[test]
fn a_successor_that_finds_no_node_is_taken_back_in_time() {
    let mut stage = drained();
    stage.settle("go");
    detach(&mut stage, "web-a", "web-x");
    stage.change_pod("web-x", |pod| pod.unschedulable = Some("0/4 nodes are available".into()));
    stage.settle("go");
    stage.now += SignedDuration::from_mins(30);
    let next = stage.settle("go");
    let NextStep::Do(Effect::ChangePod { pod, change: PodChange::Mark { .. } }) = &next else { panic!("{next:?}") };
    assert_eq!(pod.key.name, "web-x");
    assert!(slot_of(&stage, "web-a").message.unwrap().contains("0/4 nodes are available"));
    let slot = slot_of(&stage, "web-a").id;
    stage.change_pod("web-x", |pod| pod.marks.slot = Some(slot));
    let next = stage.settle("go");
    assert!(
        matches!(&next, NextStep::Do(Effect::ChangePod { pod, change: PodChange::Attach { .. } })
            if pod.key.name == "web-a"),
        "{next:?}"
    );
}

/// Somebody scales to 2: the set deletes its youngest pod.
fn scale_down(stage: &mut Stage) {
    let gone = stage.id("web-x");
    stage.world.remove::<PodFact>(&gone);
    stage.put_deployment(|deployment| (deployment.scale.replicas, deployment.max_unavailable) = (2, 1));
    stage.put_set(2);
}

#[test]
fn after_a_scale_down_the_victim_leaves_and_is_not_put_back() {
    let mut stage = drained();
    stage.settle("go");
    detach(&mut stage, "web-a", "web-x");
    stage.settle("go");
    scale_down(&mut stage);
    assert!(evicts(&stage.settle("go"), "web-a"));
}

/// Pods that keep out of the zones of other replicas, and a node in another zone.
fn repel_in_a_zone(stage: &mut Stage) {
    let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}});
    let anti_affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    stage.put_template(json!({"affinity": {"podAntiAffinity": anti_affinity}}));
    stage.put_node("e", |node| drop(node.labels.insert("zone".into(), "y".into())));
}

#[rstest]
#[case::the_source_is_open(|stage: &mut Stage| put_node(stage, "a", false))]
#[case::the_status_would_turn_unavailable(|stage: &mut Stage| stage.put_deployment(|_| {}))]
#[case::the_pods_tolerate_the_cordon(|stage: &mut Stage| stage.put_template(json!({"tolerations": [{"operator": "Exists"}]})))]
#[case::they_are_spread_over_zones(|stage: &mut Stage| stage.put_template(spread_over_zones()))]
#[case::they_repel_each_other_in_a_zone(repel_in_a_zone)]
fn otherwise_a_replacement_that_may_run_anywhere_else_comes_first(#[case] change: fn(&mut Stage)) {
    let mut stage = drained();
    change(&mut stage);
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("a replacement") };
    assert_eq!(new.place, PodPlace::Any { labels: BTreeMap::new(), except: vec!["a".into()] });
}

/// A replica that serves nobody leaves as `kubectl drain` would have it, also where its successor could not run beside
/// it.
#[rstest]
#[case::the_status_would_turn_unavailable(|stage: &mut Stage| stage.put_deployment(|_| {}))]
#[case::they_are_spread_over_zones(|stage: &mut Stage| stage.put_template(spread_over_zones()))]
#[case::they_repel_each_other_in_a_zone(repel_in_a_zone)]
fn a_sick_victim_leaves_at_once_whatever_constrains_its_successor(#[case] change: fn(&mut Stage)) {
    let mut stage = drained();
    change(&mut stage);
    stage.change_pod("web-a", |pod| pod.ready_since = None);
    assert!(evicts(&stage.settle("go"), "web-a"));
    assert_eq!(slot_of(&stage, "web-a").protocol, Protocol::Successor);
}

fn spread_over_zones() -> serde_json::Value {
    json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}}]})
}

#[rstest]
#[case::by_host(json!({"topologySpreadConstraints": [
    {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]}))]
#[case::as_a_preference(json!({"topologySpreadConstraints": [
    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}]}))]
#[case::of_other_pods(json!({"topologySpreadConstraints": [
    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "db"}}}]}))]
fn constraints_that_do_not_count_the_victim_do_not_matter(#[case] spec: serde_json::Value) {
    let mut stage = drained();
    stage.put_template(spec);
    assert!(detaches(&stage.settle("go"), "web-a"));
}

/// A pod with a priority, and room for exactly one: the room that the slot has reserved.
#[test]
fn the_room_of_the_successor_itself_is_enough() {
    let mut stage = drained();
    stage.put_template(json!({"priorityClassName": "high", "containers": []}));
    for (node, capacity) in [("b", 1), ("c", 1), ("d", 1)] {
        stage.put_node(node, |node| node.pod_capacity = capacity);
    }
    assert!(detaches(&stage.settle("go"), "web-a"));
}

#[test]
fn another_pod_without_a_node_does_not_fail_the_move() {
    let mut stage = drained();
    let long_ago = stage.now - SignedDuration::from_hours(1);
    stage.change_pod("web-b", |pod| (pod.node, pod.ready_since, pod.created) = (None, None, long_ago));
    stage.settle("go");
    detach(&mut stage, "web-a", "web-x");
    let now = stage.now;
    stage.change_pod("web-x", |pod| (pod.node, pod.ready_since) = (Some("d".into()), Some(now)));
    assert!(evicts(&stage.settle("go"), "web-a"));
    let gone = stage.id("web-a");
    stage.world.remove::<PodFact>(&gone);
    stage.settle("go");
    assert_eq!(stage.ready("go").0, "True");
}

/// After a scale-down, a budget refuses the eviction of the victim: it goes back, and the set deletes one pod.
#[test]
fn a_victim_that_may_not_be_evicted_goes_back_in_the_end() {
    let mut stage = drained();
    stage.settle("go");
    detach(&mut stage, "web-a", "web-x");
    stage.settle("go");
    scale_down(&mut stage);
    let mut action = stage.action("go");
    action.spec.abort = true;
    stage.put_action(action);
    assert!(evicts(&stage.settle("go"), "web-a"), "the set has its two pods without it");
    stage.now += SignedDuration::from_secs(300);
    let next = stage.settle("go");
    assert!(matches!(next, NextStep::Do(Effect::ChangePod { change: PodChange::Attach { .. }, .. })), "{next:?}");
}
