//! New pods must not preempt pods that nobody named.

use super::troubles::slot;
use super::*;

impl Stage {
    /// Gives the pods of `web` this priority, as admission does by their class or by the default class.
    fn prioritize(&mut self, priority: i32) {
        for pod in ["web-a", "web-b", "web-c"] {
            self.change_pod(pod, |pod| pod.hold.priority = priority);
        }
    }

    /// Puts a pod of another app with this priority on each of the nodes b, c and d.
    fn put_bystanders(&mut self, priority: i32) {
        for node in ["b", "c", "d"] {
            self.put_pod(&format!("other-{node}"), node, |pod| {
                (pod.labels, pod.controller) = (labels_of("other"), None);
                pod.hold.priority = priority;
            });
        }
    }
}

fn labels_of(app: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("app".to_owned(), app.to_owned())])
}

/// A full cluster: in between, the ReplicaSet creates a pod that would preempt others, whatever gives it its priority.
#[rstest]
#[case::a_replacement(false, 1000, 0)]
#[case::a_successor(true, 1000, 0)]
#[case::others_have_a_negative_priority(false, 0, -1)]
fn a_pod_is_not_created_where_it_would_preempt_others(
    #[case] is_cordoned: bool,
    #[case] own: i32,
    #[case] of_others: i32,
) {
    let mut stage = Stage::new();
    stage.prioritize(own);
    stage.put_bystanders(of_others);
    stage.put_deployment(|deployment| deployment.max_unavailable = 1);
    let target = if is_cordoned { json!({}) } else { json!({"to": {"nodeName": "d"}}) };
    stage.put_node("a", |node| node.cordoned = is_cordoned);
    let mut change = json!({"pod": {"name": "web-a"}});
    json_patch::merge(&mut change, &target);
    stage.act("go", json!({ "move": change }));
    let fill = |stage: &mut Stage, is_full: bool| {
        for node in ["b", "c", "d"] {
            stage.put_node(node, |node| node.pod_capacity = if is_full { 1 } else { 4 });
        }
    };
    fill(&mut stage, false);
    if is_cordoned {
        let status = stage.settle_until_admitted("go").expect("it is admitted");
        let mut action = stage.action("go");
        action.status = Some(status);
        stage.put_action(action);
    } else {
        let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("a new pod") };
        stage.put_pod(&new.key.name, "d", |pod| {
            (pod.controller, pod.generated, pod.labels) = (None, false, labels(false));
            let role = Some(marks::ROLE_REPLACEMENT.into());
            pod.marks = Marks { slot: Some(new.slot.clone()), role, ..Marks::default() };
        });
    }
    fill(&mut stage, true);
    stage.put_node("a", |node| (node.cordoned, node.pod_capacity) = (is_cordoned, 1));
    stage.settle("go");
    stage.now += SignedDuration::from_secs(5);
    stage.settle("go");
    assert!(slot(&stage).message.unwrap().contains("would preempt other pods"), "{:?}", slot(&stage));
    fill(&mut stage, false);
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::ChangePod { change: PodChange::Detach { .. }, .. })));
}

/// Where nobody can be preempted, a full cluster is no reason to wait.
#[rstest]
#[case::nobody_is_lower(0, 0, json!({}), false)]
#[case::it_preempts_nobody(1000, 0, json!({}), true)]
#[case::the_others_are_on_nodes_that_are_closed(1000, 0, apart_by_host(), false)]
fn a_pod_that_preempts_nobody_is_created(
    #[case] own: i32,
    #[case] of_others: i32,
    #[case] template: serde_json::Value,
    #[case] non_preempting: bool,
) {
    let mut stage = Stage::new();
    let mut spec = json!({"containers": []});
    json_patch::merge(&mut spec, &template);
    for name in ["a", "b", "c", "d"] {
        stage.put_node(name, |node| drop(node.labels.insert("host".into(), name.into())));
    }
    stage.put_template(spec);
    stage.prioritize(own);
    for pod in ["web-a", "web-b", "web-c"] {
        stage.change_pod(pod, |pod| pod.non_preempting = non_preempting);
    }
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}}));
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("a new pod") };
    stage.put_pod(&new.key.name, "d", |pod| {
        (pod.controller, pod.generated, pod.labels) = (None, false, labels(false));
        let role = Some(marks::ROLE_REPLACEMENT.into());
        pod.marks = Marks { slot: Some(new.slot.clone()), role, ..Marks::default() };
        (pod.hold.priority, pod.non_preempting) = (own, non_preempting);
    });
    stage.put_bystanders(of_others);
    for name in ["a", "b", "c", "d"] {
        stage.put_node(name, |node| {
            node.labels.insert("host".into(), name.into());
            node.pod_capacity = 1;
        });
    }
    let next = stage.settle("go");
    assert!(
        matches!(&next, NextStep::Do(Effect::ChangePod { change: PodChange::Detach { .. }, .. })),
        "{next:?} {:?}",
        slot(&stage).message
    );
}

/// Each node has a replica or the new pod, so that no pod that leaves makes room.
fn apart_by_host() -> serde_json::Value {
    let term = json!({"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "web"}}});
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

/// The ReplicaSet creates a pod for one more replica, too, before it adopts the operator's.
#[test]
fn a_create_preempts_nobody_either() {
    let mut stage = Stage::new();
    stage.prioritize(1000);
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    stage.act("go", json!({"create": {"workload": workload, "to": {"nodeName": "d"}}}));
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("a new pod") };
    stage.put_pod(&new.key.name, "d", |pod| {
        (pod.controller, pod.generated, pod.labels) = (None, false, labels(false));
        let role = Some(marks::ROLE_REPLACEMENT.into());
        pod.marks = Marks { slot: Some(new.slot.clone()), role, ..Marks::default() };
    });
    stage.put_bystanders(0);
    for node in ["a", "b", "c", "d"] {
        stage.put_node(node, |node| node.pod_capacity = 1);
    }
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "no node has room for one more pod");
    stage.put_node("c", |_| {});
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::Scale { replicas: 4, .. })));
}

impl Stage {
    /// Puts an action that moves a replica of the Deployment `big`, which also has a pod without a node. Its template
    /// has this spec.
    fn put_rival(&mut self, spec: serde_json::Value, pending: impl FnOnce(&mut PodFact)) {
        let owner =
            |kind: &str, name: &str| Owner { kind: kind.into(), name: name.into(), uid: format!("uid-{name}").into() };
        let mut set = self.world.get::<ReplicaSetFact>(&Key::new(NAMESPACE, "web-h1")).unwrap().clone();
        let mut deployment = self.world.get::<DeploymentFact>(&Key::new(NAMESPACE, "web")).unwrap().clone();
        (deployment.id, deployment.labels) = (self.id("big"), labels_of("big"));
        set.controller = Some(owner("Deployment", "big"));
        set.scale.replicas = 2;
        (deployment.scale.replicas, deployment.status_replicas, deployment.updated_replicas) = (2, 2, 2);
        let hashed: BTreeMap<_, _> = labels(true).into_iter().chain(labels_of("big")).collect();
        set.selector.labels = hashed.clone();
        self.world.apply(deployment, Origin::Watch);
        let mut put_set = |stage: &mut Self, spec: serde_json::Value| {
            let template = json!({"metadata": {"labels": hashed}, "spec": spec});
            set.id = stage.id("big-h1");
            set.template = Some(Arc::new(serde_json::from_str(&template.to_string()).expect("a pod template")));
            stage.world.apply(set.clone(), Origin::Watch);
        };
        put_set(self, json!({"containers": []}));
        self.put_pod("big-a", "a", |pod| {
            (pod.labels, pod.controller) = (hashed.clone(), Some(owner("ReplicaSet", "big-h1")));
        });
        self.act("rival", json!({"move": {"pod": {"name": "big-a"}, "to": {"nodeName": "d"}}}));
        let next = self.settle("rival");
        assert!(matches!(next, NextStep::Do(Effect::CreatePod(_))), "{next:?}");
        let now = self.now;
        self.put_pod("big-b", "a", |pod| {
            (pod.labels, pod.controller) = (hashed.clone(), Some(owner("ReplicaSet", "big-h1")));
            (pod.node, pod.ready_since, pod.created) = (None, None, now);
            pending(pod);
        });
        put_set(self, spec);
    }
}

/// A pod that waits for a node, and one that the scheduler has found no node for.
fn new(_: &mut PodFact) {}
fn tried(pod: &mut PodFact) {
    pod.unschedulable = Some("0/4 nodes are available".into());
}
fn gated(pod: &mut PodFact) {
    pod.created -= SignedDuration::from_mins(3);
}

/// There is room for one pod, and pods of lower priority. Tenants must not delay each other by pods that cannot take
/// that room.
#[rstest]
#[case::it_may_be_scheduled_first(json!({}), new, true)]
#[case::others_made_room_since(json!({}), tried, true)]
#[case::no_node_is_for_it(json!({"nodeSelector": {"gpu": "yes"}}), tried, false)]
#[case::no_node_is_large_enough(
    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "64"}}}]}), tried, false
)]
#[case::no_scheduler_takes_it(json!({}), gated, false)]
fn a_pod_waits_for_others_that_may_take_its_room(
    #[case] template: serde_json::Value,
    #[case] pending: fn(&mut PodFact),
    #[case] waits: bool,
) {
    let mut stage = Stage::new();
    stage.put_node("a", |node| node.pod_capacity = 4);
    stage.prioritize(1000);
    let mut spec = json!({"containers": []});
    json_patch::merge(&mut spec, &template);
    stage.put_rival(spec, pending);
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}}));
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("{:?}", stage.ready("go")) };
    stage.put_pod(&new.key.name, "d", |pod| {
        (pod.controller, pod.generated, pod.labels) = (None, false, labels(false));
        let role = Some(marks::ROLE_REPLACEMENT.into());
        pod.marks = Marks { slot: Some(new.slot.clone()), role, ..Marks::default() };
        pod.hold.priority = 1000;
    });
    stage.put_bystanders(0);
    for (node, capacity) in [("a", 2), ("b", 2), ("c", 3), ("d", 2)] {
        stage.put_node(node, |node| node.pod_capacity = capacity);
    }
    let next = stage.settle("go");
    let detaches = matches!(&next, NextStep::Do(Effect::ChangePod { change: PodChange::Detach { .. }, .. }));
    // A wait is shown once it has lasted.
    stage.now += SignedDuration::from_secs(5);
    stage.settle("go");
    let message = slot(&stage).message.unwrap_or_default();
    assert_eq!(detaches, !waits, "{next:?} {message}");
    assert_eq!(message.contains("new pods of other replicas may take the room"), waits, "{message}");
}
