//! The distribution of several replicas: as the scheduler would place them among the nodes that an action allows.

use super::*;
use crate::nodes::Load;
use crate::rank::{NodeRanking, RankError, RankedPod};
use ganglion_core::facts::{NodeName, PodHold};

/// Gives every node the same score, except `n3` with policy `n3`.
#[derive(Debug)]
struct Scores;

struct ScoresOf(bool);

impl NodeRanker for Scores {
    fn begin(
        &self,
        _: &World,
        policy: &str,
        _: RankedPod<'_>,
        _: Timestamp,
    ) -> Result<Box<dyn NodeRanking>, RankError> {
        Ok(Box::new(ScoresOf(policy == "n3")))
    }
}

impl NodeRanking for ScoresOf {
    fn add(&mut self, _: &NodeName, _: Load) {}

    fn assign(&mut self, _: &NodeName) {}

    fn rank(&self, nodes: &[&NodeName]) -> Vec<Result<f64, String>> {
        nodes.iter().map(|node| Ok(if self.0 && **node == "n3" { 9.0 } else { 5.0 })).collect()
    }

    fn words(&self, _: &NodeName) -> String {
        String::new()
    }
}

/// Four replicas on node n0; n1 and n2 are half full, n3 is empty.
fn stage(template: serde_json::Value) -> Stage {
    let now = NOW + SignedDuration::from_hours(1000);
    let mut stage = Stage { world: registered(), version: 0, now, limits: Limits::default(), ranker: &Scores };
    for node in ["n0", "n1", "n2", "n3"] {
        put_node(&mut stage, node, "a");
    }
    for node in ["n1", "n2"] {
        fill(&mut stage, node);
    }
    stage.put_deployment(|deployment| {
        deployment.scale.replicas = 4;
        (deployment.status_replicas, deployment.updated_replicas) = (4, 4);
    });
    stage.put_set_with(4, template);
    for pod in PODS {
        stage.put_pod(pod, "n0", |_| {});
    }
    stage
}

const PODS: [&str; 4] = ["web-a", "web-b", "web-c", "web-d"];

fn put_node(stage: &mut Stage, node: &str, zone: &str) {
    stage.put_node(node, |fact| {
        fact.pod_capacity = 110;
        fact.labels.insert("kubernetes.io/hostname".into(), node.into());
        fact.labels.insert("topology.kubernetes.io/zone".into(), zone.into());
        fact.labels.insert("target".into(), if node == "n0" { "no" } else { "yes" }.into());
    });
}

/// Puts a pod of another workload that takes half of the node.
fn fill(stage: &mut Stage, node: &str) {
    stage.put_pod(&format!("other-{node}"), node, |pod| {
        pod.controller = None;
        pod.labels = BTreeMap::from([("app".to_owned(), "other".to_owned())]);
        pod.hold = PodHold { requests: Requests { cpu: 2000, memory: 4 << 30, ..Requests::default() }, ..pod.hold };
    });
}

fn workload() -> serde_json::Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})
}

fn move_all(to: serde_json::Value) -> serde_json::Value {
    json!({"move": {"workload": workload(), "from": {"nodeName": "n0"}, "to": to, "count": 4}})
}

fn small() -> serde_json::Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]})
}

fn with(mut template: serde_json::Value, more: serde_json::Value) -> serde_json::Value {
    json_patch::merge(&mut template, &more);
    template
}

/// Preferred anti-affinity between the replicas by this label of nodes.
fn shy(label: &str) -> serde_json::Value {
    let term = json!({"topologyKey": label, "labelSelector": {"matchLabels": {"app": "web"}}});
    let preferred = json!([{"weight": 100, "podAffinityTerm": term}]);
    json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}})
}

fn spread(max_skew: i32, when: &str) -> serde_json::Value {
    json!({"topologySpreadConstraints": [{"maxSkew": max_skew, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": when, "labelSelector": {"matchLabels": {"app": "web"}}}]})
}

fn sorted(nodes: impl IntoIterator<Item = NodeName>) -> Vec<String> {
    let mut nodes: Vec<String> = nodes.into_iter().map(|node| node.to_string()).collect();
    nodes.sort();
    nodes
}

/// The nodes that the action would use, each as often as it gets a replica.
fn planned(stage: &mut Stage, spec: &serde_json::Value) -> Vec<String> {
    stage.act("go", spec.clone());
    let status = stage.settle_until_admitted("go").unwrap_or_else(|| panic!("begins: {:?}", stage.next("go")));
    sorted(status.slots.into_iter().filter_map(|slot| slot.replacement).map(|new| new.node))
}

#[rstest]
#[case::an_expression(json!({"where": "node.labels.target == 'yes'"}))]
#[case::a_policy(json!({"policy": "equal"}))]
#[case::a_preference(json!({"preferences": [{"nodeSelector": {"target": "yes"}}]}))]
fn replicas_are_spread_over_the_nodes_that_the_action_allows(
    #[case] to: serde_json::Value,
    #[values(json!({}), shy("kubernetes.io/hostname"), spread(1, "ScheduleAnyway"), spread(2, "DoNotSchedule"))]
    more: serde_json::Value,
) {
    let template = with(small(), more);
    let expected = ["n1", "n2", "n3", "n3"];
    assert_eq!(planned(&mut stage(template.clone()), &move_all(to.clone())), expected);
    assert_eq!(one_after_another(&mut stage(template), to), expected);
}

/// Moves the replicas one after another: each is on its new node when the next one is planned.
fn one_after_another(stage: &mut Stage, to: serde_json::Value) -> Vec<String> {
    let mut nodes = Vec::new();
    for pod in PODS {
        let spec = json!({"move": {"pod": {"name": pod}, "to": to}});
        stage.act("go", spec);
        let status = stage.settle_until_admitted("go").expect("it begins");
        let node = status.slots[0].replacement.as_ref().expect("a node").node.clone();
        stage.put_pod(pod, node.as_str(), |_| {});
        nodes.push(node);
    }
    sorted(nodes)
}

/// The replicas move at the same time, each by an action of its own: their new pods do not exist yet.
#[rstest]
#[case::an_expression(json!({"where": "node.labels.target == 'yes'"}))]
#[case::a_policy(json!({"policy": "equal"}))]
fn replicas_that_are_on_their_way_count(#[case] to: serde_json::Value) {
    let mut stage = stage(small());
    let mut nodes = Vec::new();
    for pod in PODS {
        let name = format!("go-{pod}");
        stage.act(&name, json!({"move": {"pod": {"name": pod}, "to": to}}));
        stage.settle(&name);
        let slots = stage.action(&name).status.unwrap().slots;
        nodes.push(slots[0].replacement.as_ref().expect("a node").node.clone());
    }
    assert_eq!(sorted(nodes), ["n1", "n2", "n3", "n3"]);
}

#[test]
fn a_wide_spread_without_a_target_leaves_the_choice_to_the_planner() {
    let template = with(small(), spread(2, "DoNotSchedule"));
    let moving = json!({"move": {"workload": workload(), "from": {"nodeName": "n0"}, "count": 4}});
    assert_eq!(planned(&mut stage(template), &moving), ["n1", "n2", "n3", "n3"]);
}

#[test]
fn new_replicas_of_a_create_are_spread() {
    let mut stage = stage(small());
    for pod in PODS {
        stage.put_pod(pod, "n0", |pod| pod.terminating = pod.id.key.name != "web-a");
    }
    let spec = json!({"create": {"workload": workload(), "to": {"where": "node.labels.target == 'yes'"}, "count": 4}});
    assert_eq!(planned(&mut stage, &spec), ["n1", "n2", "n3", "n3"]);
}

#[test]
fn the_moves_of_an_application_are_spread() {
    let mut stage = stage(small());
    stage.act(
        "app",
        json!({"moveApplication": {"selector": {"app": "web"}, "from": {"nodeName": "n0"}}, "mode": "Plan"}),
    );
    stage.settle("app");
    let plan = stage.action("app").status.unwrap().plan.unwrap();
    assert_eq!(sorted(plan.replicas.into_iter().filter_map(|replica| replica.to)), ["n1", "n2", "n3", "n3"]);
}

/// Declarations of the user come before preferences of the scheduler.
#[rstest]
#[case::a_policy(json!({"policy": "n3"}))]
#[case::a_preference(json!({"preferences": [{"where": "node.name == 'n3'"}]}))]
fn the_declared_order_comes_first(#[case] to: serde_json::Value) {
    assert_eq!(planned(&mut stage(small()), &move_all(to)), ["n3"; 4]);
}

/// Nodes n1 and n3 are in a zone with a replica already; n2 is alone in its zone.
#[test]
fn replicas_in_the_zone_count() {
    let mut stage = stage(small());
    put_node(&mut stage, "n2", "b");
    put_node(&mut stage, "n4", "a");
    stage.put_pod("web-a", "n4", |_| {});
    let spec = json!({"move": {"pod": {"name": "web-b"}, "to": {"where": "node.name != 'n0' && node.name != 'n4'"}}});
    assert_eq!(planned(&mut stage, &spec), ["n2"]);
}

/// Without preferences of its own, a replica goes to the node with most room; each preference draws it to n1.
#[rstest]
#[case::none(json!({}), "n3")]
#[case::node_affinity(
    json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}}]}}}), "n1")]
#[case::pod_affinity(
    json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"cache": "yes"}}}}]}}}), "n1")]
#[case::anti_affinity_weighs_less(
    json!({"affinity": {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 10, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"cache": "yes"}}}}]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 9, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"cache": "yes"}}}}]}}}), "n1")]
#[case::anti_affinity_weighs_more(
    json!({"affinity": {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 10, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"cache": "yes"}}}}]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 11, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"cache": "yes"}}}}]}}}), "n3")]
fn preferred_terms_count(#[case] more: serde_json::Value, #[case] expected: &str) {
    let mut stage = stage(with(small(), more));
    stage.change_pod("other-n1", |pod| drop(pod.labels.insert("cache".into(), "yes".into())));
    let spec = json!({"move": {"pod": {"name": "web-a"}, "to": {"where": "node.labels.target == 'yes'"}}});
    assert_eq!(planned(&mut stage, &spec), [expected]);
}

/// A taint that the scheduler would rather avoid.
#[rstest]
#[case::not_tolerated(json!({}), "n1")]
#[case::tolerated(json!({"tolerations": [{"key": "slow", "operator": "Exists"}]}), "n3")]
fn preferred_taints_count(#[case] more: serde_json::Value, #[case] expected: &str) {
    let mut stage = stage(with(small(), more));
    put_node(&mut stage, "n3", "a");
    let mut tainted = stage.world.node(&"n3".into()).expect("the node").clone();
    tainted.id.version = stage.id("n3").version;
    tainted.taints = vec![serde_json::from_value(json!({"key": "slow", "effect": "PreferNoSchedule"})).unwrap()];
    stage.world.apply(tainted, Origin::Watch);
    let spec = json!({"move": {"pod": {"name": "web-a"}, "to": {"where": "node.labels.target == 'yes'"}}});
    assert_eq!(planned(&mut stage, &spec), [expected]);
}
