//! Which node is chosen, which action has the next turn, and which actions are requeued.

use super::*;

#[test]
fn replicas_are_spread_over_nodes_with_room_and_what_is_under_way_counts() {
    let mut stage = Stage::new();
    let spread = json!({"create": {"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "to": {"nodeSelector": {"disk": "ssd"}}, "count": 3}, "mode": "Plan"});
    stage.put_node("e", |node| {
        node.labels.insert("disk".into(), "ssd".into());
        node.pod_capacity = 1;
    });
    stage.act("plan", spread);
    stage.settle("plan");
    let plan = stage.action("plan").status.and_then(|status| status.plan).expect("a plan");
    let chosen: Vec<(&str, i32)> = plan.nodes.iter().map(|node| (node.name.as_str(), node.replicas)).collect();
    assert_eq!(chosen[..2], [("d", 2), ("e", 1)], "{chosen:?}: e has room for one, a to c are not ssd");
    assert_eq!(plan.nodes_total, 5);
    assert!(stage.action("plan").metadata.finalizers.is_none() && stage.ready("plan").1 == "Planned");
}

#[test]
fn limits_hold_and_the_rest_waits_in_order() {
    let mut stage = Stage::new();
    stage.limits.in_all = Some(1);
    for name in ["one", "two"] {
        stage.act(name, move_web(json!({"nodeName": "d"})));
    }
    assert!(matches!(stage.settle("one"), NextStep::Do(Effect::CreatePod(_))));
    assert!(matches!(stage.settle("two"), NextStep::Wait { until: Some(_), .. }));
    let (ready, reason, message) = stage.ready("two");
    assert_eq!((ready.as_str(), reason.as_str()), ("Unknown", "Queued"));
    assert_eq!(message, "waiting: 1 of 1 replicas in the cluster are being changed (setting limits.inAll)");
    stage.now += SignedDuration::from_secs(601);
    stage.settle("two");
    assert_eq!(stage.ready("two").1, "QueueTimedOut");
}

#[test]
fn within_a_namespace_the_turn_goes_by_priority_then_age_then_name() {
    let mut stage = Stage::new();
    stage.limits.in_all = Some(1);
    stage.act("first", move_web(json!({"nodeName": "d"})));
    stage.settle("first");
    let mut put = |name: &str, priority: i32, seconds: i64| {
        let mut spec = move_web(json!({"nodeName": "d"}));
        spec["priority"] = json!(priority);
        stage.act(name, spec);
        let mut action = stage.action(name);
        action.metadata.creation_timestamp = Some(Time(stage.now - SignedDuration::from_secs(seconds)));
        stage.put_action(action);
        stage.settle(name);
    };
    // The order of names puts none of them first by chance.
    for (name, priority, seconds) in [("d-late", 0, 10), ("c-old", 0, 20), ("b-same", 0, 20), ("z-urgent", 5, 5)] {
        put(name, priority, seconds);
    }
    let mut ended = stage.action("first");
    ended.status.as_mut().expect("it has begun").slots[0].step = Step::Succeeded;
    stage.put_action(ended);
    let mut order = Vec::new();
    while order.len() < 4 {
        let open = ["b-same", "c-old", "d-late", "z-urgent"].into_iter().filter(|name| !order.contains(name));
        let next: Vec<&str> = open.filter(|name| stage.settle_until_admitted(name).is_some()).collect();
        let [next] = next.as_slice() else { panic!("after {order:?}: {next:?}") };
        order.push(next);
        let mut done = stage.action(next);
        done.status.as_mut().expect("it waits").finished_at = Some(Time(stage.now));
        stage.put_action(done);
    }
    assert_eq!(order, ["z-urgent", "b-same", "c-old", "d-late"]);
}

#[test]
fn what_changes_the_number_waits_until_the_workload_is_left_alone() {
    let mut stage = Stage::new();
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    stage.act("one", move_web(json!({"nodeName": "d"})));
    stage.act("more", json!({"create": {"workload": web, "to": {"nodeName": "d"}}}));
    // Also while the record of the move is still in progress.
    let begun = stage.settle_until_admitted("one").expect("nothing is in its way");
    stage.world.reserve(&Key::new(NAMESPACE, "one"), begun.slots);
    assert_eq!(stage.settle_until_admitted("more"), None);
    stage.world.release(&Key::new(NAMESPACE, "one"));
    assert!(stage.settle_until_admitted("more").is_some());
    stage.settle("one");
    assert_eq!(stage.settle_until_admitted("more"), None);
    stage.settle("more");
    let (_, reason, message) = stage.ready("more");
    assert_eq!(reason, "Queued");
    assert!(message.contains("WorkloadAction one is at work on the same workload"), "{message}");
    let mut ended = stage.action("one");
    ended.status.as_mut().expect("it has begun").slots[0].step = Step::Succeeded;
    stage.put_action(ended);
    assert!(stage.settle_until_admitted("more").is_some());
}

#[test]
fn what_is_about_to_be_recorded_takes_up_place_and_pod() {
    let mut stage = Stage::new();
    for name in ["one", "two"] {
        let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        stage.act(name, json!({"move": {"workload": workload, "to": {"where": "node.pods < 1"}}}));
    }
    let begins = |stage: &mut Stage, name: &str| match stage.settle_until_admitted(name) {
        Some(status) => status.slots,
        None => panic!("{name} is not admitted"),
    };
    let one = begins(&mut stage, "one");
    stage.world.reserve(&Key::new(NAMESPACE, "one"), one.clone());
    assert_eq!(stage.settle_until_admitted("two"), None, "node d has room for one, by its condition");
    stage.put_node("e", |_| {});
    let two = begins(&mut stage, "two");
    assert_eq!(two[0].replacement.as_ref().map(|pod| pod.node.as_str()), Some("e"));
    assert_ne!(two[0].victim, one[0].victim);
    stage.world.release(&Key::new(NAMESPACE, "one"));
    assert_eq!(begins(&mut stage, "two")[0].victim, one[0].victim);
}

fn as_of(pod: &PodFact, version: &str) -> PodFact {
    PodFact { id: Identity { version: version.to_owned(), ..pod.id.clone() }, ..pod.clone() }
}

#[test]
fn a_fact_that_did_not_change_requeues_nothing() {
    let mut stage = Stage::new();
    stage.act("go", move_web(json!({"nodeName": "d"})));
    stage.settle("go");
    let pod = stage.world.pod(&Key::new(NAMESPACE, "web-a")).expect("there").clone();
    let same = as_of(&pod, "1000000");
    assert!(stage.world.apply(same, Origin::Watch).is_empty());
    let older = as_of(&pod, "1");
    assert!(stage.world.apply(PodFact { terminating: true, ..older }, Origin::Own).is_empty(), "overtaken");
    let worse = PodFact { ready_since: None, ..as_of(&pod, "1000001") };
    assert_eq!(stage.world.apply(worse, Origin::Watch).len(), 1);
}

/// Puts an action of another namespace that waits for this limit.
fn put_waiting(stage: &mut Stage, namespace: &str, name: &str, limit: Reason) {
    let spec = serde_json::from_value(move_web(json!({"nodeName": "d"}))).expect("a valid spec");
    let mut action = WorkloadAction::new(name, spec);
    action.metadata.namespace = Some(namespace.into());
    action.metadata.uid = Some(format!("uid-{namespace}-{name}"));
    // Older than those of the stage.
    action.metadata.creation_timestamp = Some(Time(stage.now - SignedDuration::from_hours(1)));
    let health = Health::Working { reason: Reason::Queued, cause: limit, message: String::new() };
    let stamp = ganglion_core::conditions::Stamp { generation: 1, now: stage.now };
    action.status = Some(WorkloadActionStatus {
        conditions: ganglion_core::conditions::summary(&[], &health, stamp),
        ..WorkloadActionStatus::default()
    });
    stage.put_action(action);
}

#[test]
fn an_action_that_its_workload_or_node_holds_uses_no_turn_of_others() {
    for (limit, starts) in [
        (Reason::LimitReached, false),
        (Reason::NamespaceLimitReached, true),
        (Reason::WorkloadLimitReached, true),
        (Reason::NodeLimitReached, true),
        (Reason::RolloutInProgress, true),
    ] {
        let mut stage = Stage::new();
        stage.limits.in_all = Some(1);
        // Its namespace has not had a turn yet.
        stage.world.reserve(&Key::new(NAMESPACE, "earlier"), Vec::new());
        stage.world.release(&Key::new(NAMESPACE, "earlier"));
        put_waiting(&mut stage, "bank", "theirs", limit);
        stage.act("ours", move_web(json!({"nodeName": "d"})));
        assert_eq!(stage.settle_until_admitted("ours").is_some(), starts, "{limit}");
    }
}

#[test]
fn an_action_at_its_workloads_limit_says_so() {
    let mut stage = Stage::new();
    stage.limits = Limits { in_all: Some(1), per_workload: Some(1), ..Limits::default() };
    for name in ["one", "two"] {
        stage.act(name, move_web(json!({"nodeName": "d"})));
        stage.settle(name);
    }
    let (_, _, message) = stage.ready("two");
    assert_eq!(message, "waiting: 1 of 1 replicas of Deployment web are being changed (setting limits.perWorkload)");
    let conditions = stage.action("two").status.expect("a status").conditions;
    assert!(conditions.iter().any(|one| one.reason == "WorkloadLimitReached"), "{conditions:?}");
}

#[test]
fn turns_go_to_the_namespace_with_the_fewest_replicas_at_work_then_to_the_one_that_waited_longest() {
    let mut stage = Stage::new();
    stage.limits.in_all = Some(2);
    for name in ["a", "b", "c", "d"] {
        put_waiting(&mut stage, "bank", name, Reason::LimitReached);
    }
    stage.act("ours", move_web(json!({"nodeName": "d"})));
    // The four older actions of the other namespace do not come first: of two turns, each namespace gets one.
    let slots = stage.settle_until_admitted("ours").expect("its namespace has a turn").slots;
    stage.limits.in_all = Some(1);
    // Neither namespace has a replica in motion: first the namespace that never had a turn, then the one whose turn was
    // longer ago.
    let turn = |stage: &mut Stage, namespace: &str| {
        stage.world.reserve(&Key::new(namespace, "any"), Vec::new());
        stage.world.release(&Key::new(namespace, "any"));
    };
    turn(&mut stage, NAMESPACE);
    assert_eq!(stage.settle_until_admitted("ours"), None);
    turn(&mut stage, "bank");
    assert!(stage.settle_until_admitted("ours").is_some());
    // One replica of ours is in motion and none of theirs: the second turn is theirs.
    stage.limits.in_all = Some(2);
    stage.world.reserve(&Key::new(NAMESPACE, "ours"), slots);
    stage.act("more", move_web(json!({"nodeName": "d"})));
    stage.settle("more");
    let (_, _, message) = stage.ready("more");
    let expected = "waiting: 1 of 2 replicas in the cluster are being changed, 2 more are ahead in the queue";
    assert!(message.starts_with(expected), "{message}");
}

/// Otherwise moves would take the places of a swap one by one, as long as there are moves.
#[rstest]
#[case::of_its_namespace(NAMESPACE)]
#[case::of_another_namespace("bank")]
fn a_swap_that_waits_has_all_of_its_places_kept(#[case] namespace: &str) {
    let mut stage = Stage::new();
    stage.limits.in_all = Some(3);
    let turn = |stage: &mut Stage, namespace: &str| {
        stage.world.reserve(&Key::new(namespace, "any"), Vec::new());
        stage.world.release(&Key::new(namespace, "any"));
    };
    turn(&mut stage, NAMESPACE);
    put_waiting(&mut stage, namespace, "swap", Reason::LimitReached);
    stage.act("ours", move_web(json!({"nodeName": "d"})));
    assert!(stage.settle_until_admitted("ours").is_some(), "of three places, one is kept for a move");
    let key = Key::new(namespace, "swap");
    let mut swap = stage.world.action(&key).expect("it waits").as_ref().clone();
    let side = || json!({"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}});
    let spec = json!({"swap": {"replica": side(), "with": [side(), side()]}});
    swap.spec = serde_json::from_value(spec).expect("a valid spec");
    stage.put_action(swap);
    assert_eq!(stage.settle_until_admitted("ours"), None, "all three are kept for the swap");
    turn(&mut stage, "bank");
    assert_eq!(
        stage.settle_until_admitted("ours").is_some(),
        namespace == "bank",
        "after the turn of another namespace"
    );
}

#[test]
fn a_suspended_or_stuck_replica_does_not_hold_the_clusters_limit() {
    let mut stage = Stage::new();
    stage.limits = Limits { in_all: Some(1), idle_after: Some(SignedDuration::from_secs(900)), ..Limits::default() };
    for name in ["one", "two"] {
        stage.act(name, move_web(json!({"nodeName": "d"})));
        stage.settle(name);
    }
    assert_eq!(stage.settle_until_admitted("two"), None);
    let mut suspended = stage.action("one");
    suspended.spec.suspend = true;
    stage.put_action(suspended.clone());
    assert!(stage.settle_until_admitted("two").is_some());
    // A deletion resumes a suspended action.
    suspended.metadata.deletion_timestamp = Some(Time(stage.now));
    stage.put_action(suspended);
    assert_eq!(stage.settle_until_admitted("two"), None);
    let mut resumed = stage.action("one");
    (resumed.spec.suspend, resumed.metadata.deletion_timestamp) = (false, None);
    stage.put_action(resumed);
    stage.now += SignedDuration::from_secs(899);
    let mut patient = stage.action("two");
    patient.spec.timeouts = serde_json::from_value(json!({"queueSeconds": 86400})).expect("timeouts");
    stage.put_action(patient);
    assert_eq!(stage.settle_until_admitted("two"), None);
    stage.now += SignedDuration::from_secs(1);
    assert!(stage.settle_until_admitted("two").is_some());
    // The limit of its namespace counts it nevertheless.
    stage.limits.per_namespace = Some(1);
    assert_eq!(stage.settle_until_admitted("two"), None);
}

#[test]
fn a_node_is_evaluated_once_in_a_plan() {
    let mut stage = Stage::new();
    for node in 0..2000 {
        stage.put_node(&format!("n{node:04}"), |node| node.pod_capacity = 50);
    }
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let where_ = "node.pods < 40 && node.name.startsWith('n')";
    stage.act("plan", json!({"create": {"workload": workload, "to": {"where": where_}, "count": 100}, "mode": "Plan"}));
    let begun = std::time::Instant::now();
    stage.settle("plan");
    // 200,000 evaluations, one for each replica and node, take minutes in a debug build.
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    let plan = stage.action("plan").status.and_then(|status| status.plan).expect("a plan");
    assert_eq!(plan.nodes.iter().map(|node| node.replicas).sum::<i32>(), 100);
    assert_eq!((plan.nodes_total, plan.truncated), (2004, true));
}

/// The substitute of a moved replica is on a node for a moment, like the old pod.
#[rstest]
#[case::a_move(move_web(json!({"where": "node.pods < 1"})), "NoCandidateNode")]
#[case::by_name(move_web(json!({"nodeName": "a"})), "NodeFull")]
#[case::a_swap(
    json!({"swap": {"replica": {"pod": {"name": "web-a"}}, "with": [{"pod": {"name": "web-c"}}]}}), "NodeFull"
)]
#[case::an_application(
    json!({"moveApplication": {
        "selector": {"app": "web"}, "from": {"nodeName": "a"}, "to": {"where": "node.pods < 1"},
    }}),
    "NoCandidateNode"
)]
fn what_the_load_refuses_waits_while_replicas_of_others_are_on_their_way(
    #[case] spec: serde_json::Value,
    #[case] refused: &str,
) {
    let mut stage = Stage::new();
    for node in ["a", "c"] {
        stage.put_node(node, |node| node.pod_capacity = 1);
    }
    stage.act("one", json!({"move": {"pod": {"name": "web-b"}, "to": {"nodeName": "d"}}}));
    stage.settle("one");
    stage.act("two", spec.clone());
    let mut plan = spec;
    plan["mode"] = json!("Plan");
    stage.act("plan", plan);
    stage.settle("plan");
    assert_eq!(stage.ready("plan").1, refused, "a plan says how things are now");
    stage.settle("two");
    let (_, reason, message) = stage.ready("two");
    assert_eq!(reason, "Queued");
    assert!(message.ends_with("; replicas of other actions are on their way"), "{message}");
    let mut ended = stage.action("one");
    ended.status.as_mut().expect("it has begun").slots[0].step = Step::Succeeded;
    stage.put_action(ended);
    stage.put_pod("other", "d", |_| {});
    stage.settle("two");
    assert_eq!(stage.ready("two").1, refused);
}

#[rstest]
#[case::label(json!({"nodeSelector": {"disk": "none"}}))]
#[case::expression(json!({"where": "node.name == 'z'"}))]
fn what_no_load_refuses_does_not_wait(#[case] to: serde_json::Value) {
    let mut stage = Stage::new();
    stage.act("one", move_web(json!({"nodeName": "d"})));
    stage.settle("one");
    stage.act("two", move_web(to));
    stage.settle("two");
    let (_, reason, message) = stage.ready("two");
    assert_eq!(reason, "NoCandidateNode");
    assert!(message.ends_with("; see `status.plan.nodes` for each"), "{message}");
}

/// Otherwise one tenant with thousands of actions would keep the store's lock for scans.
#[test]
fn the_cost_of_a_plan_and_of_a_change_does_not_depend_on_the_length_of_the_line() {
    use crate::world::line::VISITED;
    const LONG: usize = 3000;
    let mut stage = Stage::new();
    stage.limits = Limits { in_all: Some(50), per_namespace: Some(25), ..Limits::default() };
    for number in 0..LONG {
        put_waiting(&mut stage, NAMESPACE, &format!("a{number:04}"), Reason::LimitReached);
        put_waiting(&mut stage, "bank", &format!("b{number:04}"), Reason::NamespaceLimitReached);
    }
    stage.act("last", move_web(json!({"nodeName": "d"})));
    VISITED.set(0);
    let NextStep::Wait { until: Some(until), .. } = stage.settle("last") else { panic!("it does not wait") };
    // The line is counted up to the limit.
    assert!(VISITED.get() <= 3 * 25 + 10, "{} actions were visited", VISITED.get());
    let (_, _, message) = stage.ready("last");
    let expected = "waiting: 0 of 25 replicas in namespace shop are being changed, 25 or more are ahead in the queue";
    assert!(message.starts_with(expected), "{message}");
    let pace = until.duration_since(stage.now).as_secs();
    assert!((40..=60).contains(&pace), "{LONG} actions are planned every {pace} s");

    let mut ended = stage.world.action(&Key::new("bank", "b0000")).expect("it waits").as_ref().clone();
    ended.metadata.resource_version = Some((LONG * 10).to_string());
    let mut slots = stage.settle_until_admitted("last").map(|status| status.slots).unwrap_or_default();
    assert!(slots.is_empty(), "others are first");
    slots.push(slot_at_work(&stage));
    ended.status.get_or_insert_default().slots = slots;
    stage.world.apply(ended.clone(), Origin::Watch);
    ended.metadata.resource_version = Some((LONG * 10 + 1).to_string());
    ended.status.get_or_insert_default().slots.clear();
    VISITED.set(0);
    let requeued = stage.world.apply(ended, Origin::Watch);
    assert!(VISITED.get() <= 32, "{} actions were visited", VISITED.get());
    let requeued: Vec<&Key> = requeued.of::<WorkloadAction>().collect();
    for first in [Key::new(NAMESPACE, "a0000"), Key::new("bank", "b0001")] {
        assert!(requeued.contains(&&first), "{first} has the next turn: {requeued:?}");
    }
    assert!(requeued.len() <= 17, "{requeued:?}");
}

fn slot_at_work(stage: &Stage) -> ganglion_api::workload_action::status::Slot {
    let set = stage.world.get::<ReplicaSetFact>(&Key::new(NAMESPACE, "web-h1")).expect("a set");
    let value = json!({
        "id": "0123456789abcdef", "index": 0, "attempt": 0, "step": "Creating", "since": stage.now.to_string(),
        "label": "h", "replicaSet": {"name": "web-h1", "uid": set.id.uid},
        "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    });
    serde_json::from_value(value).expect("a slot")
}
