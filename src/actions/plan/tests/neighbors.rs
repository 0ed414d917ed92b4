//! Other pods that keep a new pod off a node: host ports, extended resources, affinity and anti-affinity.

use super::*;
use ganglion_core::facts::{OutsidePodFact, SlimPod};

fn labels_of(app: &str) -> serde_json::Value {
    json!({"app": app})
}

/// A term for pods of this app in the same domain.
fn term(app: &str, topology: &str) -> serde_json::Value {
    json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology})
}

fn apart(terms: serde_json::Value) -> serde_json::Value {
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

fn beside(terms: serde_json::Value) -> serde_json::Value {
    json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

fn port(port: u16) -> serde_json::Value {
    json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": port}]}]})
}

fn asks(resource: &str, amount: &str) -> serde_json::Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {resource: amount}}}]})
}

impl Stage {
    /// The stage in two zones: a and b in one, c and d in the other. Pods of `web` have this spec.
    fn with_template(spec: serde_json::Value) -> Self {
        let mut stage = Self::new();
        for (node, zone) in [("a", "1"), ("b", "1"), ("c", "2"), ("d", "2")] {
            stage.put_node(node, |fact| {
                fact.labels.insert("zone".into(), zone.into());
                fact.labels.insert("host".into(), node.into());
                fact.allocatable.gpu = 1;
                fact.extended = [("example.com/fpga".into(), 2)].into();
            });
        }
        stage.use_template(spec);
        stage
    }

    fn use_template(&mut self, mut spec: serde_json::Value) {
        if spec.get("containers").is_none() {
            spec["containers"] = json!([]);
        }
        let template = json!({"metadata": {"labels": labels(true)}, "spec": spec}).to_string();
        let template: TemplateFact = serde_json::from_str(&template).expect("a pod template");
        let mut set = self.world.get::<ReplicaSetFact>(&Key::new(NAMESPACE, "web-h1")).expect("it is there").clone();
        set.id.version = self.id("web-h1").version;
        set.template = Some(Arc::new(template));
        self.world.apply(set, Origin::Watch);
    }

    /// A pod of another app on node d.
    fn guest(&mut self, namespace: &str, app: &str, mut spec: serde_json::Value) {
        if spec.get("containers").is_none() {
            spec["containers"] = json!([]);
        }
        spec["nodeName"] = json!("d");
        let id = self.id("guest");
        let pod = json!({
            "metadata": {"namespace": namespace, "name": "guest", "uid": "uid-guest", "resourceVersion": id.version,
                "labels": labels_of(app)},
            "spec": spec,
        });
        let pod: SlimPod = serde_json::from_value(pod).expect("a pod");
        self.world.apply(PodFact::from(pod), Origin::Watch);
    }

    /// The reason why nothing begins; None if the action begins.
    fn refusal(&mut self, spec: serde_json::Value) -> Option<(String, String)> {
        self.act("go", spec);
        match self.settle("go") {
            NextStep::Do(_) | NextStep::DoAll(_) => None,
            NextStep::Wait { .. } => {
                let (_, reason, message) = self.ready("go");
                Some((reason, message))
            }
        }
    }
}

#[rstest]
#[case::port(port(80), port(80), Some(("NodeOccupied", "host port 80/TCP is taken by pod shop/guest")))]
#[case::other_port(port(80), port(81), None)]
#[case::gpu(asks("nvidia.com/gpu", "1"), asks("nvidia.com/gpu", "1"), Some(("NodeFull", "nvidia.com/gpu: 1 requested, 0 left")))]
#[case::gpu_left(asks("nvidia.com/gpu", "1"), asks("cpu", "1"), None)]
#[case::extended(asks("example.com/fpga", "2"), asks("example.com/fpga", "1"), Some(("NodeFull", "example.com/fpga: 2 requested, 1 left")))]
#[case::extended_left(asks("example.com/fpga", "1"), asks("example.com/fpga", "1"), None)]
#[case::unknown_resource(asks("example.com/other", "1"), json!({}), Some(("NodeFull", "example.com/other: 1 requested, 0 left")))]
#[case::theirs(json!({}), apart(json!([term("web", "host")])), Some(("NodeOccupied", "away from pod shop/guest (host=d)")))]
#[case::theirs_by_zone(json!({}), apart(json!([term("web", "zone")])), Some(("NodeOccupied", "away from pod shop/guest (zone=2)")))]
#[case::theirs_about_others(json!({}), apart(json!([term("db", "zone")])), None)]
#[case::ours(apart(json!([term("guest", "host")])), json!({}), Some(("NodeOccupied", "away from pod shop/guest (host=d)")))]
#[case::ours_about_others(apart(json!([term("db", "zone")])), json!({}), None)]
#[case::label_of_no_node(apart(json!([term("guest", "rack")])), json!({}), None)]
#[case::beside_it(beside(json!([term("guest", "host")])), json!({}), None)]
#[case::beside_another(beside(json!([term("db", "host")])), json!({}), Some(("NodeOccupied", "no pod that its required affinity names runs there (host)")))]
#[case::beside_both(beside(json!([term("guest", "host"), term("web", "zone")])), json!({}), Some(("NodeOccupied", "(host)")))]
#[case::beside_its_own(beside(json!([term("web", "zone")])), json!({}), None)]
#[case::no_rack(beside(json!([term("guest", "rack")])), json!({}), Some(("NodeOccupied", "(rack)")))]
fn what_another_pod_takes_is_no_target(
    #[case] ours: serde_json::Value,
    #[case] theirs: serde_json::Value,
    #[case] expected: Option<(&str, &str)>,
) {
    for disruption in ["Never", "Allowed"] {
        let mut stage = Stage::with_template(ours.clone());
        stage.guest(NAMESPACE, "guest", theirs.clone());
        let mut spec = move_web(json!({"nodeName": "d"}));
        spec["disruption"] = json!(disruption);
        let refusal = stage.refusal(spec);
        match (&refusal, expected) {
            (None, None) => {}
            (Some((reason, message)), Some((word, words))) => {
                assert!(reason == word && message.contains(words), "{reason}: {message}");
            }
            _ => panic!("{refusal:?}, expected {expected:?}"),
        }
    }
}

#[rstest]
#[case::own(json!({}), NAMESPACE, true)]
#[case::other_namespace(json!({}), "other", false)]
#[case::named(json!({"namespaces": [NAMESPACE]}), "other", true)]
#[case::all(json!({"namespaceSelector": {}}), "other", true)]
#[case::selected(json!({"namespaceSelector": {"matchLabels": {"a": "b"}}}), "other", false)]
fn anti_affinity_reaches_the_namespaces_that_it_names(
    #[case] more: serde_json::Value,
    #[case] namespace: &str,
    #[case] refused: bool,
) {
    let mut theirs = term("web", "host");
    theirs.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    let mut stage = Stage::with_template(json!({}));
    stage.guest(namespace, "guest", apart(json!([theirs])));
    assert_eq!(stage.refusal(move_web(json!({"nodeName": "d"}))).is_some(), refused);
}

#[test]
fn a_port_of_a_namespace_that_is_not_watched_counts() {
    let mut stage = Stage::with_template(port(80));
    let pod = json!({"metadata": {"namespace": "x", "name": "p", "uid": "p", "resourceVersion": "1"},
        "spec": {"nodeName": "d", "containers": port(80)["containers"]}});
    let pod: SlimPod = serde_json::from_value(pod).expect("a pod");
    let pod = OutsidePodFact::from(pod);
    stage.world.apply(pod.clone(), Origin::Watch);
    let (reason, message) = stage.refusal(move_web(json!({"nodeName": "d"}))).expect("the port is taken");
    assert_eq!((reason.as_str(), message.as_str()), ("NodeOccupied", "d: host port 80/TCP is taken by pod x/p"));
    stage.world.remove::<OutsidePodFact>(&pod.id);
    assert_eq!(stage.refusal(move_web(json!({"nodeName": "d"}))), None);
}

#[test]
fn where_several_nodes_are_allowed_the_free_one_is_chosen() {
    let mut stage = Stage::with_template(port(80));
    stage.guest(NAMESPACE, "guest", port(80));
    for (pod, node) in [("web-a", "a"), ("web-b", "b"), ("web-c", "c")] {
        stage.put_pod(pod, node, |pod| {
            let with_port = json!({"spec": {"containers": port(80)["containers"]}});
            let slim: SlimPod = serde_json::from_value(json!({"metadata": {}, "spec": with_port["spec"]})).unwrap();
            pod.constraints = PodFact::from(slim).constraints;
        });
    }
    let (reason, message) = stage.refusal(move_web(json!({"where": "node.name != 'a'"}))).expect("all are taken");
    assert_eq!(reason, "NoCandidateNode", "{message}");
    stage.put_node("e", |_| {});
    stage.act("again", move_web(json!({"where": "node.name != 'a'"})));
    let next = stage.settle("again");
    assert!(matches!(&next, NextStep::Do(Effect::CreatePod(pod)) if *pod.node().as_str() == *"e"), "{next:?}");
}

#[test]
fn replicas_of_one_action_keep_apart() {
    let mut stage = Stage::with_template(apart(json!([term("web", "host")])));
    stage.put_node("e", |node| drop(node.labels.insert("host".into(), "e".into())));
    let mut spec = move_web(json!({"where": "node.name in ['d', 'e']"}));
    spec["move"]["count"] = json!(3);
    let (reason, message) = stage.refusal(spec.clone()).expect("two nodes take two replicas");
    assert!(reason == "NoCandidateNode" && message.contains("required anti-affinity"), "{reason}: {message}");
    spec["move"]["count"] = json!(2);
    stage.act("two", spec);
    stage.settle("two");
    let slots = stage.action("two").status.unwrap().slots;
    let mut nodes: Vec<String> =
        slots.iter().filter_map(|slot| Some(slot.replacement.as_ref()?.node.to_string())).collect();
    nodes.sort();
    assert_eq!(nodes, ["d", "e"]);
}

#[test]
fn a_replica_on_its_way_counts() {
    let mut stage = Stage::with_template(apart(json!([term("web", "host")])));
    assert_eq!(stage.refusal(move_web(json!({"nodeName": "d"}))), None);
    stage.act("second", json!({"move": {"pod": {"name": "web-b"}, "to": {"nodeName": "d"}}}));
    stage.settle("second");
    let message = stage.ready("second").2;
    assert!(message.contains("required anti-affinity"), "{message}");
}

/// The old pod keeps its successor out of its zone only while it runs.
#[rstest]
#[case("Never", true)]
#[case("Allowed", false)]
fn the_old_pod_is_in_the_way_unless_it_may_go_first(#[case] disruption: &str, #[case] refused: bool) {
    let mut stage = Stage::with_template(apart(json!([term("web", "zone")])));
    stage.put_pod("web-b", "b", |pod| pod.labels.clear());
    let mut spec = json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "b"}}});
    spec["disruption"] = json!(disruption);
    assert_eq!(stage.refusal(spec).is_some(), refused);
}

/// The old pod goes first only if it is what keeps the new pod off the node: not for something that another pod takes
/// after the plan, and not for a cause that the planner does not see.
#[rstest]
#[case::a_port_that_another_takes(port(80), "d", true, false)]
#[case::a_cause_that_is_not_seen(port(80), "d", false, false)]
#[case::the_old_pod_itself(apart(json!([term("web", "zone")])), "b", false, true)]
#[case::the_old_pod_and_another(apart(json!([term("web", "zone")])), "b", true, false)]
#[case::too_many_in_its_zone(spread_by("zone"), "b", false, true)]
#[case::too_many_even_without_it(spread_by("zone"), "b", true, false)]
fn the_old_pod_goes_first_only_where_that_helps(
    #[case] template: serde_json::Value,
    #[case] target: &str,
    #[case] is_taken_by_another: bool,
    #[case] goes: bool,
) {
    let mut stage = Stage::with_template(template);
    for pod in ["web-b", "web-c"] {
        stage.change_pod(pod, |pod| pod.labels.clear());
    }
    let mut spec = move_web(json!({"nodeName": target}));
    spec["disruption"] = json!("Allowed");
    stage.act("go", spec);
    let next = stage.settle("go");
    let NextStep::Do(Effect::CreatePod(new)) = next else { panic!("no replacement: {next:?}") };
    stage.put_pod(&new.key.name, "", |pod| {
        (pod.node, pod.ready_since, pod.controller) = (None, None, None);
        pod.unschedulable = Some("0/4 nodes are available".into());
        pod.marks =
            Marks { slot: Some(new.slot.clone()), role: Some(marks::ROLE_REPLACEMENT.into()), ..Marks::default() };
    });
    if is_taken_by_another {
        stage.guest(NAMESPACE, "guest", port(80));
        stage.change_pod("web-b", |pod| pod.labels = labels(true));
    }
    let next = stage.settle("go");
    let status = stage.action("go").status.unwrap();
    assert_eq!(status.slots[0].break_first, goes, "{next:?}");
}

fn spread_by(topology: &str) -> serde_json::Value {
    json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": topology,
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]})
}

/// Replica `web-a` on a and `web-d` on d exchange places.
#[rstest]
#[case::a_guest_that_stays(json!({}), apart(json!([term("web", "host")])), Some(("NodeOccupied", "away from pod shop/guest (host=d)")))]
#[case::a_guest_beside_it(beside(json!([term("guest", "host")])), json!({}), Some(("NodeOccupied", "no pod that its required affinity names runs there (host)")))]
#[case::one_another(apart(json!([term("web", "host")])), json!({}), Some(("NodeFull", "neither node has room for one more pod: d: required anti-affinity")))]
#[case::nobody(apart(json!([term("db", "host")])), apart(json!([term("db", "host")])), None)]
fn what_keeps_a_replica_off_a_node_keeps_a_swapped_one_off(
    #[case] ours: serde_json::Value,
    #[case] theirs: serde_json::Value,
    #[case] expected: Option<(&str, &str)>,
) {
    let mut stage = Stage::with_template(ours);
    stage.put_pod("web-d", "d", |_| {});
    stage.guest(NAMESPACE, "guest", theirs);
    let swap = json!({"swap": {"replica": {"pod": {"name": "web-a"}}, "with": [{"pod": {"name": "web-d"}}]}});
    let refused = stage.refusal(swap);
    match (&refused, expected) {
        (Some((reason, message)), Some((expected, words))) => {
            assert!(reason == expected && message.contains(words), "{reason}: {message}");
        }
        _ => assert!(refused.is_none() && expected.is_none(), "{refused:?}"),
    }
}
