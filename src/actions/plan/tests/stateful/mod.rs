//! Replicas of StatefulSets: the refusals before anything is done, the steps of a slot one by one, and the gated pods.

mod claims;
mod counts;
mod gated;
mod targets;
mod unpinned;

use super::*;
use ganglion_api::workload_action::status::PodOnNode;
use ganglion_core::facts::{ClaimFact, PinBindingFact, PinPolicyFact, StatefulSetFact, Uid, VolumeFact};

/// How a pod gets its node.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Policy,
    Gate,
    Neither,
}

fn stateful_labels() -> BTreeMap<String, String> {
    [("app".to_owned(), "db".to_owned())].into()
}

impl Stage {
    /// The nodes a to d, and a StatefulSet `db` of three replicas on a, b and c.
    fn stateful(way: Way) -> Self {
        let mut stage = Self::new();
        if way == Way::Policy {
            let id = Identity { key: Key::new("", marks::PIN_POLICY), version: "1".into(), ..Identity::default() };
            stage.world.apply(PinPolicyFact { id: id.clone() }, Origin::Watch);
            stage.world.apply(PinBindingFact { id, policy: marks::PIN_POLICY.into() }, Origin::Watch);
        }
        stage.put_stateful(3, way, |_| {});
        for (ordinal, node) in ["a", "b", "c"].into_iter().enumerate() {
            stage.put_replica(&format!("db-{ordinal}"), "", |pod| pod.node = Some(node.into()));
        }
        stage
    }

    fn put_stateful(&mut self, replicas: i32, way: Way, change: impl FnOnce(&mut StatefulSetFact)) {
        let gates = if way == Way::Gate { json!([{"name": marks::GATE}]) } else { json!([]) };
        let template =
            json!({"metadata": {"labels": stateful_labels()}, "spec": {"containers": [], "schedulingGates": gates}});
        let template: TemplateFact = serde_json::from_str(&template.to_string()).expect("a pod template");
        self.put(
            |id| {
                let mut set = StatefulSetFact {
                    set: ReplicaSetFact {
                        id: id.clone().unversioned(),
                        scale: ScaleFact { replicas, ..ScaleFact::default() },
                        selector: Selector { labels: stateful_labels(), ..Selector::default() },
                        template: Some(Arc::new(template)),
                        ..ReplicaSetFact::default()
                    },
                    id,
                    ..StatefulSetFact::default()
                };
                change(&mut set);
                set
            },
            "db",
        );
    }

    /// Puts the pod of this name. Each life of the pod has its own uid.
    fn put_replica(&mut self, name: &str, life: &str, change: impl FnOnce(&mut PodFact)) {
        let id = self.id(name);
        let mut pod = PodFact {
            id: Identity { uid: format!("uid-{name}{life}").into(), ..id },
            created: self.now,
            labels: stateful_labels(),
            controller: Some(Owner { kind: "StatefulSet".into(), name: "db".into(), uid: "uid-db".into() }),
            ready_since: Some(self.now - SignedDuration::from_mins(1)),
            ..PodFact::default()
        };
        change(&mut pod);
        self.world.apply(pod, Origin::Watch);
    }

    fn lose_replica(&mut self, name: &str) {
        let id = self.world.pod(&Key::new(NAMESPACE, name)).expect("the pod is there").id.clone();
        self.world.remove::<PodFact>(&id);
    }

    fn slot(&self, name: &str) -> Slot {
        self.action(name).status.expect("a status").slots.first().expect("a slot").clone()
    }
}

fn move_db(pod: &str, to: serde_json::Value) -> serde_json::Value {
    json!({"move": {"pod": {"name": pod}, "to": to}, "disruption": "Allowed"})
}

fn db() -> serde_json::Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"})
}

fn evicts(next: &NextStep) -> Option<&str> {
    match next {
        NextStep::Do(Effect::Evict { pod, .. }) => Some(pod.key.name.as_str()),
        _ => None,
    }
}

#[rstest]
#[case::no_break(Way::Policy, json!({"move": {"pod": {"name": "db-1"}, "to": {"nodeName": "d"}}}), Reason::DisruptionNeeded)]
#[case::no_way(Way::Neither, move_db("db-1", json!({"nodeName": "d"})), Reason::PinNotInstalled)]
#[case::no_way_to_create(Way::Neither, json!({"create": {"workload": db(), "to": {"nodeName": "d"}}}), Reason::PinNotInstalled)]
#[case::lower_ordinal(Way::Policy, json!({"delete": {"pod": {"name": "db-1"}}}), Reason::NotHighestOrdinal)]
#[case::lower_ordinal_by_node(Way::Policy, json!({"delete": {"workload": db(), "from": {"nodeName": "a"}}}), Reason::NotHighestOrdinal)]
#[case::too_many(Way::Policy, json!({"delete": {"workload": db(), "count": 4}}), Reason::NotEnoughReplicas)]
#[case::at_home(Way::Policy, move_db("db-1", json!({"nodeName": "b"})), Reason::AlreadyOnTarget)]
#[case::swap(Way::Policy, json!({"swap": {"replica": {"pod": {"name": "db-0"}}, "with": [{"pod": {"name": "db-1"}}]}, "disruption": "Allowed"}), Reason::NotSupported)]
fn what_cannot_be_done_is_refused_first(#[case] way: Way, #[case] spec: serde_json::Value, #[case] reason: Reason) {
    let mut stage = Stage::stateful(way);
    stage.act("go", spec);
    stage.settle("go");
    let (ready, why, message) = stage.ready("go");
    assert_eq!((ready.as_str(), why.as_str()), ("False", reason.as_str()), "{message}");
    assert!(stage.action("go").status.unwrap().slots.is_empty(), "a slot was recorded");
}

#[test]
fn a_delete_needs_no_way_to_pin() {
    let mut stage = Stage::stateful(Way::Neither);
    stage.act("go", json!({"delete": {"workload": db()}}));
    let NextStep::Do(Effect::Scale { workload, replicas, .. }) = stage.settle("go") else {
        panic!("no change of replicas")
    };
    assert_eq!((workload.kind, replicas), (effect::ScalableKind::StatefulSet, 2));
}

#[test]
fn the_node_is_recorded_before_the_eviction() {
    let mut stage = Stage::stateful(Way::Policy);
    stage.act("go", move_db("db-1", json!({"nodeName": "d"})));
    let next = stage.settle("go");
    assert_eq!(evicts(&next), Some("db-1"));
    let slot = stage.slot("go");
    let pin = PodOnNode { name: "db-1".into(), uid: None, node: "d".into() };
    assert_eq!((slot.replacement, slot.evicting, slot.step), (Some(pin), true, Step::Evicting));
}

#[test]
fn a_pod_that_comes_on_the_target_ends_the_move() {
    let mut stage = Stage::stateful(Way::Policy);
    stage.act("go", move_db("db-1", json!({"nodeName": "d"})));
    stage.settle("go");
    stage.lose_replica("db-1");
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }));
    stage.put_replica("db-1", "-2", |pod| {
        (pod.node, pod.pin, pod.ready_since) = (Some("d".into()), Some("d".into()), None);
    });
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }));
    assert_eq!(stage.slot("go").step, Step::Readying);
    stage.put_replica("db-1", "-2", |pod| (pod.node, pod.pin) = (Some("d".into()), Some("d".into())));
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "Succeeded");
}

#[test]
fn a_pod_without_the_pin_comes_again_within_a_limit() {
    let mut stage = Stage::stateful(Way::Policy);
    stage.act("go", move_db("db-1", json!({"nodeName": "d"})));
    assert_eq!(evicts(&stage.settle("go")), Some("db-1"));
    let mut evictions = 1;
    for life in 2..20 {
        stage.put_replica("db-1", &format!("-{life}"), |pod| pod.node = Some("b".into()));
        if evictions < 4 {
            assert_eq!(evicts(&stage.settle("go")), None, "evicted without a pause");
            let (_, reason, message) = stage.ready("go");
            assert!(message.contains("pod db-1 was created without a pin to node d"), "{reason}: {message}");
            stage.now += SignedDuration::from_mins(1);
        }
        if evicts(&stage.settle("go")).is_none() {
            break;
        }
        evictions += 1;
    }
    assert_eq!(evictions, 4);
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "PinMissed"), "{message}");
    assert!(message.contains("pod db-1 runs on b"), "{message}");
}

#[test]
fn a_pod_that_the_target_allows_elsewhere_stays() {
    let mut stage = Stage::stateful(Way::Policy);
    stage.act("go", json!({"move": {"pod": {"name": "db-1"}}, "disruption": "Allowed"}));
    stage.settle("go");
    assert_eq!(stage.slot("go").replacement.unwrap().node, "d");
    stage.put_replica("db-1", "-2", |pod| pod.node = Some("c".into()));
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "Succeeded");
    assert_eq!(stage.slot("go").replacement.unwrap().node, "c");
}

#[test]
fn where_no_node_takes_the_pod_it_is_let_go_without_a_pin() {
    let mut stage = Stage::stateful(Way::Policy);
    stage.act("go", move_db("db-1", json!({"nodeSelector": {"disk": "hdd"}})));
    stage.settle("go");
    let mut nodes = Vec::new();
    for life in 2..20 {
        let target = stage.slot("go").replacement.unwrap().node;
        let full = |pod: &mut PodFact| {
            (pod.node, pod.ready_since, pod.unschedulable) = (None, None, Some("0/4 nodes are available".into()));
            pod.pin = Some(target.clone());
        };
        stage.put_replica("db-1", &format!("-{life}"), full);
        nodes.push(target.clone());
        let mut next = stage.settle("go");
        if matches!(next, NextStep::Wait { .. }) {
            // The last candidate gets the whole time.
            stage.now += SignedDuration::from_secs(121);
            next = stage.settle("go");
        }
        let NextStep::Do(Effect::Evict { pod, .. }) = next else { panic!("not evicted: {next:#?}") };
        assert_eq!(pod.uid, Uid::from(format!("uid-db-1-{life}")));
        if stage.slot("go").step == Step::RollingBack {
            break;
        }
    }
    assert_eq!(nodes, ["a", "c"], "every candidate, once");
    assert_eq!(stage.slot("go").step, Step::RollingBack);
    stage.put_replica("db-1", "-free", |pod| pod.node = Some("b".into()));
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "Unschedulable"), "{message}");
    assert!(message.contains("pod db-1 runs on b"), "{message}");
}

#[test]
fn before_the_eviction_nothing_is_left_of_an_abort() {
    let mut stage = Stage::stateful(Way::Policy);
    stage.put(budget_of_db(0), "db");
    stage.act("go", move_db("db-1", json!({"nodeName": "d"})));
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "the budget allows nothing");
    assert_eq!(stage.slot("go").step, Step::Planned);
    let mut action = stage.action("go");
    action.spec.abort = true;
    stage.put_action(action);
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "Aborted");
    assert_eq!(stage.slot("go").step, Step::Aborted);
}

fn budget_of_db(allowed: i32) -> impl FnOnce(Identity) -> BudgetFact {
    let selector = Some(Selector { labels: stateful_labels(), ..Selector::default() });
    move |id| BudgetFact { selector, id, ..budget(allowed, 3)(Identity::default()) }
}

#[test]
fn a_budget_is_waited_for_and_the_move_undone_in_time() {
    let mut stage = Stage::stateful(Way::Policy);
    stage.put(budget_of_db(0), "db");
    stage.act("go", move_db("db-1", json!({"nodeName": "d"})));
    stage.settle("go");
    stage.now += SignedDuration::from_secs(301);
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "BudgetBlocked"), "{message}");
    assert_eq!(stage.slot("go").step, Step::RolledBack);
}

#[rstest]
#[case::missing(|stage: &mut Stage| stage.lose_replica("db-2"), Reason::ReplicasNotReady)]
#[case::not_ready(|stage: &mut Stage| stage.put_replica("db-0", "", |pod| (pod.node, pod.ready_since) = (Some("a".into()), None)), Reason::ReplicasNotReady)]
fn another_replica_that_is_not_ready_holds_a_move(#[case] happens: fn(&mut Stage), #[case] reason: Reason) {
    let mut stage = Stage::stateful(Way::Policy);
    happens(&mut stage);
    stage.act("go", move_db("db-1", json!({"nodeName": "d"})));
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }));
    stage.now += SignedDuration::from_secs(5);
    stage.settle("go");
    assert_eq!(stage.slot("go").reason, Some(reason));
}

#[test]
fn replicas_go_one_after_the_other_the_highest_first() {
    let mut stage = Stage::stateful(Way::Policy);
    let spec = json!({"move": {"workload": db(), "to": {"nodeName": "d"}, "count": 2}, "disruption": "Allowed"});
    stage.act("go", spec);
    assert_eq!(evicts(&stage.settle("go")), Some("db-2"));
    assert_eq!(stage.action("go").status.unwrap().slots.len(), 1);
    stage.put_replica("db-2", "-2", |pod| (pod.node, pod.pin) = (Some("d".into()), Some("d".into())));
    assert_eq!(evicts(&stage.settle("go")), Some("db-1"));
    stage.put_replica("db-1", "-2", |pod| (pod.node, pod.pin) = (Some("d".into()), Some("d".into())));
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "Succeeded");
    assert_eq!(stage.action("go").status.unwrap().slots.len(), 2);
}

#[test]
fn another_action_on_the_set_waits() {
    let mut stage = Stage::stateful(Way::Policy);
    stage.act("first", move_db("db-1", json!({"nodeName": "d"})));
    stage.settle("first");
    stage.act("second", move_db("db-2", json!({"nodeName": "d"})));
    stage.settle("second");
    let (_, reason, message) = stage.ready("second");
    assert!(message.contains("replica db-1 is at work"), "{reason}: {message}");
}

#[test]
fn a_bound_volume_keeps_a_replica_where_it_can_be_used() {
    let mut stage = Stage::stateful(Way::Policy);
    stage.put_stateful(3, Way::Policy, |set| set.claims = vec!["data".into()]);
    stage.put(
        |id| ClaimFact {
            id,
            access_modes: vec!["ReadWriteOnce".into()],
            volume: Some("pv".into()),
            ..ClaimFact::default()
        },
        "data-db-1",
    );
    let affinity = json!({"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "disk", "operator": "In", "values": ["hdd"]}]}]});
    let affinity = serde_json::from_value(affinity).expect("a node selector");
    let id = Identity { key: Key::new("", "pv"), version: "1".into(), ..Identity::default() };
    stage.world.apply(VolumeFact { id, affinity: Some(affinity) }, Origin::Watch);
    stage.act("away", move_db("db-1", json!({"nodeName": "d"})));
    stage.settle("away");
    let (ready, reason, message) = stage.ready("away");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "VolumeOnOtherNode"), "{message}");
    assert!(message.contains("volume pv of claim data-db-1"), "{message}");
    stage.act("other", move_db("db-2", json!({"nodeName": "d"})));
    assert_eq!(evicts(&stage.settle("other")), Some("db-2"), "its volume is not bound");
    stage.put_replica("db-2", "-2", |pod| (pod.node, pod.pin) = (Some("d".into()), Some("d".into())));
    stage.settle("other");
    stage.act("anywhere", move_db("db-1", json!({"where": "node.name != 'c'"})));
    stage.settle("anywhere");
    assert_eq!(stage.slot("anywhere").replacement.unwrap().node, "a");
}

#[rstest]
#[case::no_break(Way::Policy, json!({}), "DisruptionNeeded", "disruption: Allowed")]
#[case::no_way(Way::Neither, json!({"disruption": "Allowed"}), "PinNotInstalled", "pin-statefulsets")]
fn an_application_none_of_which_may_move_is_refused_with_a_list(
    #[case] way: Way,
    #[case] more: serde_json::Value,
    #[case] reason: &str,
    #[case] words: &str,
) {
    let mut stage = Stage::stateful(way);
    stage.put_stateful(3, way, |set| set.set.labels = stateful_labels());
    let mut spec =
        json!({"moveApplication": {"selector": stateful_labels(), "from": {"nodeName": "a"}, "to": {"nodeName": "d"}}});
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    stage.act("app", spec);
    stage.settle("app");
    let plan = stage.action("app").status.and_then(|status| status.plan).expect("a plan");
    let pod = plan.pods.iter().find(|pod| pod.name == "db-0").expect("db-0 is listed");
    assert!(!pod.chosen && pod.message.contains(words), "{pod:?}");
    let (ready, found, message) = stage.ready("app");
    assert_eq!((ready.as_str(), found.as_str()), ("False", reason), "{message}");
    assert!(message.contains(words), "{message}");
}

#[test]
fn an_application_moves_replicas_of_a_stateful_set_that_may_stop() {
    let mut stage = Stage::stateful(Way::Policy);
    stage.put_stateful(3, Way::Policy, |set| set.set.labels = stateful_labels());
    let leaves = json!({"selector": stateful_labels(), "from": {"nodeName": "a"}, "to": {"nodeName": "d"}});
    stage.act("app", json!({"moveApplication": leaves, "disruption": "Allowed"}));
    let made = match stage.settle("app") {
        NextStep::Do(effect) => vec![effect],
        NextStep::DoAll(effects) => effects,
        NextStep::Wait { report, .. } => panic!("waits: {report:#?}"),
    };
    let [Effect::CreatePart { part, .. }] = made.as_slice() else { panic!("no move is made: {made:#?}") };
    let workload = part.spec.move_.as_ref().and_then(|one| one.workload.as_ref()).expect("a move of a workload");
    assert_eq!((workload.kind.as_str(), part.spec.disruption), ("StatefulSet", Disruption::Allowed));
}

/// Replicas that are scheduled as a group, or hold devices, stay, whatever names them.
#[rstest]
fn replicas_that_belong_together_stay(#[values(true, false)] in_template: bool) {
    let labels = json!({"app": "db", "leaderworkerset.sigs.k8s.io/name": "g"});
    let object = json!({"metadata": {"labels": labels}, "spec": {"containers": []}});
    let pod: ganglion_core::facts::SlimPod = serde_json::from_value(object).expect("a pod");
    let membership = PodFact::from(pod).membership.expect("a member");
    let db = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"});
    for mut spec in [
        json!({"move": {"workload": db, "to": {"nodeName": "d"}}}),
        json!({"move": {"pod": {"name": "db-0"}, "to": {"nodeName": "d"}}}),
        json!({"move": {"pod": {"name": "db-0"}}}),
        json!({"move": {"workload": db, "from": {"nodeName": "a"}, "count": "All"}}),
        json!({"create": {"workload": db, "to": {"nodeName": "d"}}}),
        json!({"delete": {"workload": db}}),
        json!({"moveApplication": {"selector": {"app": "db"}, "from": {"nodeName": "a"}, "to": {"nodeName": "d"}}}),
    ] {
        if !in_template && spec.get("create").is_some() {
            continue;
        }
        spec["disruption"] = json!("Allowed");
        let mut stage = Stage::stateful(Way::Policy);
        stage.put_stateful(3, Way::Policy, |set| {
            set.set.labels = stateful_labels();
            let template = set.set.template.as_deref().expect("a template").clone();
            let membership = in_template.then_some(membership);
            set.set.template = Some(Arc::new(TemplateFact { membership, ..template }));
        });
        for (ordinal, node) in ["a", "b", "c"].into_iter().enumerate() {
            stage.put_replica(&format!("db-{ordinal}"), "", |pod| {
                (pod.node, pod.membership) = (Some(node.into()), Some(membership));
            });
        }
        stage.act("go", spec.clone());
        stage.settle("go");
        let (ready, reason, message) = stage.ready("go");
        let is_refused = ["NotSupported", "NotEnoughReplicas"].contains(&reason.as_str());
        assert!(ready == "False" && is_refused, "{spec}: {ready} {reason} {message}");
        let plan = stage.action("go").status.and_then(|status| status.plan).unwrap_or_default();
        let told = message.contains("LeaderWorkerSet")
            || plan.pods.iter().all(|pod| !pod.chosen && pod.message.contains("LeaderWorkerSet"));
        assert!(told, "{spec}: {message} {:?}", plan.pods);
    }
}
