//! moveApplication: which moves are created and when, what follows from their results, and the refusals before the
//! start.

mod failures;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::*;
use ganglion_api::workload_action::Move;
use ganglion_api::workload_action::status::{ApplicationProgress, PodOnNode, Protocol, SetRef};
use ganglion_core::facts::Uid;
use ganglion_core::world::Requeue;

/// The Deployment `web` with two replicas on node a, and the ReplicaSet `api` with two there and one on b.
fn shop() -> Stage {
    let mut stage = Stage::new();
    for node in ["a", "b", "c", "d"] {
        stage.put_node(node, |node| node.pod_capacity = 20);
    }
    stage.put_pod("web-d", "a", |_| {});
    let api = BTreeMap::from([("app".to_owned(), "web".to_owned()), ("set".to_owned(), "api".to_owned())]);
    let template = json!({"metadata": {"labels": api}, "spec": {"containers": []}});
    let template: TemplateFact = serde_json::from_str(&template.to_string()).expect("a pod template");
    stage.put(
        |id| ReplicaSetFact {
            id,
            labels: labels(false),
            scale: ScaleFact { replicas: 3, ..ScaleFact::default() },
            selector: Selector { labels: api.clone(), ..Selector::default() },
            template: Some(Arc::new(template)),
            ..ReplicaSetFact::default()
        },
        "api",
    );
    for (pod, node) in [("api-a", "a"), ("api-b", "b"), ("api-c", "a")] {
        stage.put_pod(pod, node, |pod| of_api(pod, &api));
    }
    stage
}

fn of_api(pod: &mut PodFact, labels: &BTreeMap<String, String>) {
    pod.labels = labels.clone();
    pod.controller = Some(Owner { kind: "ReplicaSet".into(), name: "api".into(), uid: "uid-api".into() });
}

fn off_a(more: serde_json::Value) -> serde_json::Value {
    let mut spec = json!({"selector": {"app": "web"}, "from": {"nodeName": "a"}, "to": {"nodeName": "d"}});
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    json!({ "moveApplication": spec })
}

impl Stage {
    /// Puts the moves that are created now into the world, until the application waits or ends. Returns their names in
    /// the order of creation.
    fn make_parts(&mut self, name: &str) -> Vec<String> {
        let mut made = Vec::new();
        while let NextStep::DoAll(effects) = self.settle(name) {
            for effect in effects {
                let Effect::CreatePart { part, .. } = effect else { panic!("{effect:?}") };
                let mut part = *part;
                let name = part.metadata.name.clone().unwrap();
                part.metadata.uid = Some(format!("uid-{name}"));
                part.metadata.generation = Some(1);
                part.metadata.creation_timestamp = Some(Time(self.now));
                self.put_action(part);
                made.push(name);
            }
        }
        made
    }

    fn change(&self, part: &str) -> Move {
        self.action(part).spec.move_.unwrap()
    }

    /// The workload or pod that the move changes.
    fn subject(&self, part: &str) -> String {
        let change = self.change(part);
        change.workload.map(|workload| workload.name).or(change.pod.map(|pod| pod.name)).unwrap()
    }

    /// Carries out a move of these pods: each pod goes to node d, or stays if the move fails.
    fn end_part(&mut self, part: &str, pods: &[(&str, Step)]) {
        self.now += SignedDuration::from_secs(1);
        let mut action = self.action(part);
        let workload = action.spec.move_.as_ref().and_then(|change| change.workload.clone());
        let ok = pods.iter().all(|(_, step)| *step == Step::Succeeded);
        let slot = |(index, (pod, step)): (usize, &(&str, Step))| Slot {
            id: identity::slot_id(&Uid::of(&action.metadata), index as i32),
            index: index as i32,
            attempt: 0,
            protocol: Protocol::default(),
            step: *step,
            since: Time(self.now),
            workload: workload.clone().unwrap_or_else(|| {
                serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})).unwrap()
            }),
            replica_set: SetRef::default(),
            label: String::new(),
            victim: Some(PodOnNode { name: (*pod).into(), uid: Some(format!("uid-{pod}").into()), node: "a".into() }),
            replacement: Some(PodOnNode { name: format!("{pod}-new"), uid: None, node: "d".into() }),
            available: 0,
            scheduled: false,
            tried: vec![],
            scaled: false,
            evicting: false,
            break_first: false,
            reason: None,
            obstacle: None,
            message: None,
        };
        let condition = |kind: &str, status: &str| Condition {
            type_: kind.into(),
            status: status.into(),
            reason: if ok { "Succeeded" } else { "NodeFull" }.into(),
            message: "words of the move".into(),
            observed_generation: Some(1),
            last_transition_time: Time(self.now),
        };
        let conditions = vec![condition("Ready", if ok { "True" } else { "False" })];
        let status = WorkloadActionStatus {
            slots: pods.iter().enumerate().map(slot).collect(),
            replicas: Some(i32::try_from(pods.len()).unwrap()),
            started_at: Some(Time(self.now)),
            finished_at: Some(Time(self.now)),
            conditions,
            ..WorkloadActionStatus::default()
        };
        action.status = Some(status);
        self.put_action(action);
        for (pod, _) in pods.iter().filter(|(_, step)| *step == Step::Succeeded) {
            let mut moved = self.world.pod(&Key::new(NAMESPACE, *pod)).expect("the pod is there").clone();
            self.world.remove::<PodFact>(&moved.id.clone());
            moved.id = self.id(&format!("{pod}-new"));
            moved.node = Some("d".into());
            self.world.apply(moved, Origin::Watch);
        }
    }

    fn progress(&self, name: &str) -> ApplicationProgress {
        self.action(name).status.unwrap().application.expect("a progress")
    }

    fn done(&self, name: &str) -> String {
        self.action(name).status.unwrap().summary.unwrap().done
    }
}

const DONE: Step = Step::Succeeded;

#[test]
fn every_workload_leaves_by_a_move_of_its_own() {
    let mut stage = shop();
    stage.act("go", off_a(json!({"maxParallel": 10})));
    let parts = stage.make_parts("go");
    assert_eq!(parts.iter().map(|part| stage.subject(part)).collect::<Vec<_>>(), ["api", "web"], "by uid");
    let action = stage.action(&parts[1]);
    let owner = &action.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.uid.as_str(), owner.controller), ("uid-go", Some(true)));
    assert_eq!(action.metadata.labels.unwrap()[marks::APPLICATION], "go");
    assert_eq!((stage.done("go"), stage.ready("go").1), ("0/4".into(), "Moving".into()));
    assert!(stage.action("go").status.unwrap().receipt.is_some());
    stage.end_part(&parts[0], &[("api-a", DONE), ("api-c", DONE)]);
    assert_eq!(stage.make_parts("go"), [""; 0]);
    let progress = stage.progress("go");
    assert_eq!((progress.workloads, progress.workloads_done, progress.moved, progress.left), (2, 1, 2, 2));
    stage.end_part(&parts[1], &[("web-a", DONE), ("web-d", DONE)]);
    stage.settle("go");
    assert_eq!(stage.ready("go"), ("True".into(), "Succeeded".into(), "4 of 4 replicas of 2 workloads moved".into()));
    assert_eq!(stage.done("go"), "4/4");
}

#[rstest]
#[case::one_after_the_other(json!({}), &["api"])]
#[case::both_have_room(json!({"maxParallel": 3}), &["api", "web"])]
#[case::the_first_takes_all(json!({"maxParallel": 2}), &["api"])]
#[case::a_few_of_each(json!({"maxParallel": 2, "maxParallelPerWorkload": 1}), &["api", "web"])]
#[case::in_the_given_order(json!({"maxParallel": 2, "order": ["web"]}), &["web"])]
fn as_many_moves_are_made_as_may_begin(#[case] more: serde_json::Value, #[case] expected: &[&str]) {
    let mut stage = shop();
    stage.act("go", off_a(more));
    let parts = stage.make_parts("go");
    assert_eq!(parts.iter().map(|part| stage.subject(part)).collect::<Vec<_>>(), expected);
}

/// Each move starts its replicas independently; together they stay within the limits.
#[test]
fn the_moves_together_stay_within_the_limits() {
    let mut stage = shop();
    stage.act("go", off_a(json!({"maxParallel": 3})));
    let parts = stage.make_parts("go");
    for (part, expected) in [(&parts[0], 2), (&parts[1], 1)] {
        let status = stage.settle_until_admitted(part).expect("it begins");
        assert_eq!((status.slots.len(), status.receipt.as_deref()), (expected, None));
        let mut action = stage.action(part);
        action.status = Some(status);
        stage.put_action(action);
    }
    let mut each = shop();
    each.act("go", off_a(json!({"maxParallel": 3, "maxParallelPerWorkload": 1})));
    for part in each.make_parts("go") {
        assert_eq!(each.settle_until_admitted(&part).expect("it begins").slots.len(), 1);
    }
}

#[test]
fn a_limit_that_holds_a_move_is_told() {
    let mut stage = shop();
    stage.act("go", off_a(json!({"maxParallel": 3})));
    let parts = stage.make_parts("go");
    let mut action = stage.action(&parts[1]);
    let mut status = stage.settle_until_admitted(&parts[1]).expect("it begins");
    status.slots = vec![
        status.slots[0].clone(),
        status.slots[1].clone(),
        Slot { id: "more".into(), index: 7, ..status.slots[0].clone() },
    ];
    action.status = Some(status);
    stage.put_action(action);
    stage.settle(&parts[0]);
    let status = stage.action(&parts[0]).status.unwrap();
    let reconciling = status.conditions.iter().find(|one| one.type_ == "Reconciling").unwrap();
    assert_eq!(reconciling.reason, "ApplicationLimitReached");
    assert!(reconciling.message.contains("3 of 3 replicas of the application"), "{}", reconciling.message);
}

#[test]
fn replicas_born_meanwhile_join_the_next_wave() {
    let mut stage = shop();
    stage.act("go", off_a(json!({"maxParallel": 10})));
    let parts = stage.make_parts("go");
    stage.end_part(&parts[0], &[("api-a", DONE), ("api-c", DONE)]);
    stage.put_pod("web-late", "a", |_| {});
    stage.end_part(&parts[1], &[("web-a", DONE), ("web-d", DONE)]);
    let again = stage.make_parts("go");
    assert_eq!(again.iter().map(|part| stage.subject(part)).collect::<Vec<_>>(), ["web"]);
    assert!(!parts.contains(&again[0]), "each has a name of its own");
    stage.end_part(&again[0], &[("web-late", DONE)]);
    stage.settle("go");
    assert_eq!(stage.ready("go").2, "5 of 5 replicas of 2 workloads moved");
}

#[test]
fn replicas_that_keep_coming_are_not_followed_for_ever() {
    let mut stage = shop();
    stage.act("go", off_a(json!({"maxParallel": 10})));
    for wave in 0..200 {
        let parts = stage.make_parts("go");
        if parts.is_empty() {
            break;
        }
        for part in parts {
            let late = format!("late-{wave}");
            stage.put_pod(&late, "a", |_| {});
            stage.end_part(&part, &[(&late, DONE)]);
        }
    }
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "SourceRefilled"), "{message}");
    assert!(stage.world.all::<WorkloadAction>().count() < 110);
}

/// A pod without owner, a pod of a DaemonSet, and a pod whose workload does not have the labels.
#[test]
fn what_stays_is_listed_before_anything_moves() {
    let mut stage = shop();
    stage.put_pod("bare", "a", |pod| pod.controller = None);
    stage.put_pod("agent", "a", |pod| {
        pod.controller = Some(Owner { kind: "DaemonSet".into(), name: "agent".into(), uid: "ds".into() });
    });
    stage.put_pod("elsewhere", "b", |pod| pod.controller = None);
    let spec = off_a(json!({}));
    stage.act("go", json!({"moveApplication": spec["moveApplication"], "mode": "Plan"}));
    stage.settle("go");
    let plan = stage.action("go").status.unwrap().plan.unwrap();
    let of = |name: &str| plan.pods.iter().find(|pod| pod.name == name);
    let (bare, agent) = (of("bare").unwrap(), of("agent").unwrap());
    assert!(!bare.chosen && bare.message.contains("belongs to no workload"), "{}", bare.message);
    assert!(!agent.chosen && agent.message.contains("DaemonSet"), "{}", agent.message);
    assert!(of("elsewhere").is_none());
    assert_eq!((plan.replicas.len(), plan.pods_total), (4, 6));
    assert!(plan.replicas.iter().all(|replica| replica.to == Some("d".into())), "{:?}", plan.replicas);
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("True", "Planned"));
    assert_eq!(message, "would move 4 replicas of 2 workloads from a; 2 pods there cannot move, see status.plan.pods");
    assert_eq!(stage.make_parts("go"), [""; 0]);
}

#[test]
fn pods_and_workloads_whose_labels_are_not_kept_stay_and_are_listed() {
    let mut stage = shop();
    stage.change_pod("web-d", Fact::reduce);
    let mut set = stage.world.get::<ReplicaSetFact>(&Key::new(NAMESPACE, "api")).unwrap().clone();
    set.id.version = stage.id("api").version;
    Fact::reduce(&mut set);
    stage.world.apply(set, Origin::Watch);
    let spec = off_a(json!({}));
    stage.act("go", json!({"moveApplication": spec["moveApplication"], "mode": "Plan"}));
    stage.settle("go");
    let plan = stage.action("go").status.unwrap().plan.unwrap();
    for (name, object) in [("web-d", "pod web-d"), ("api-a", "ReplicaSet api"), ("api-c", "ReplicaSet api")] {
        let pod = plan.pods.iter().find(|pod| pod.name == name).unwrap();
        assert!(!pod.chosen && pod.message.contains(object), "{}", pod.message);
        assert!(pod.message.contains("objects.maxBytesPerNamespace"), "{}", pod.message);
    }
    assert_eq!(plan.replicas.len(), 1);
}

#[test]
fn where_not_all_have_a_place_nothing_begins() {
    let mut stage = shop();
    stage.put_node("d", |node| node.pod_capacity = 3);
    stage.act("go", off_a(json!({})));
    assert_eq!(stage.make_parts("go"), [""; 0]);
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "NodeFull"), "{message}");
    stage.act("nevertheless", off_a(json!({"onFailure": "Continue"})));
    assert_eq!(stage.make_parts("nevertheless").len(), 1);
}

/// Nodes a and d match both.
#[test]
fn no_replica_goes_to_a_node_that_the_application_leaves() {
    let mut stage = shop();
    let from = json!({"where": "node.name in ['a', 'd']"});
    stage.act("go", off_a(json!({"from": from, "to": {"where": "node.name in ['a', 'c', 'd']"}, "maxParallel": 9})));
    let part = stage.make_parts("go").remove(0);
    let status = stage.settle_until_admitted(&part).expect("it begins");
    let to: Vec<&str> = status.slots.iter().map(|slot| slot.replacement.as_ref().unwrap().node.as_str()).collect();
    assert_eq!(to, ["c", "c"]);
}

#[test]
fn nothing_to_do_is_a_success_and_no_such_workload_is_not() {
    let mut stage = shop();
    stage.act("go", off_a(json!({"from": {"nodeName": "d"}, "to": {"nodeName": "a"}})));
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("True", "Succeeded"));
    assert_eq!(message, "nothing to do: no replica of the workloads with app=web is on d");
    assert!(stage.action("go").status.unwrap().receipt.is_none(), "what did nothing may run");
    for (name, more, reason) in [
        ("labels", json!({"selector": {"app": "none"}}), "WorkloadNotFound"),
        ("from", json!({"from": {"nodeName": "none"}}), "NodeNotFound"),
        ("to", json!({"to": {"nodeName": "none"}}), "NodeNotFound"),
        ("where", json!({"from": {"where": "node.none > 1"}}), "ExpressionInvalid"),
    ] {
        stage.act(name, off_a(more));
        stage.settle(name);
        assert_eq!(stage.ready(name).1, reason);
    }
}

#[test]
fn the_moves_and_their_application_wake_one_another() {
    let mut stage = shop();
    stage.act("go", off_a(json!({"maxParallel": 3})));
    let parts = stage.make_parts("go");
    let key = |name: &str| Key::new(NAMESPACE, name);
    let woken = |requeue: Requeue| requeue.of::<WorkloadAction>().cloned().collect::<Vec<Key>>();
    let mut action = stage.action("go");
    action.metadata.generation = Some(2);
    action.spec.abort = true;
    action.metadata.resource_version = Some("9000".into());
    let all = woken(stage.world.apply(action, Origin::Watch));
    assert!(parts.iter().all(|part| all.contains(&key(part))), "{all:?}");
    let mut action = stage.action(&parts[0]);
    action.metadata.resource_version = Some("9001".into());
    action.status =
        Some(WorkloadActionStatus { finished_at: Some(Time(stage.now)), ..WorkloadActionStatus::default() });
    let all = woken(stage.world.apply(action, Origin::Watch));
    assert!(all.contains(&key("go")) && all.contains(&key(&parts[1])), "{all:?}");
}
