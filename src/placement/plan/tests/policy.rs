//! Tests of policies: the combination of agents, and the result of each agent for a question.

use k8s_openapi::api::core::v1::{Node, Pod};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::inventory::{at, hold, node, pod, policy};
use crate::explain::{explain, worst_labels};
use crate::inventory::Inventory;
use crate::labels::labeling::NodeVerdict;
use crate::learned::{FAILURE, LearnedRewards, RewardRules};
use crate::pigeon::SMOOTHING;
use crate::policy::CompiledPolicy;
use crate::preempted::LeavingLoads;
use crate::question::{NodeRejection, Opinion, PlacedPod, PlacementQuestion, Siblings};
use crate::record::demand;
use crate::verdicts::verdicts;
use crate::wire::score;
use crate::world::registered;
use ganglion_api::node_config::NodeConfig;
use ganglion_api::placement_policy::PolicyDelivery;
use ganglion_api::placement_policy::labels::{LabelOptions, TypicalRequest};
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::scalars::Number;
use ganglion_core::facts::{
    CONGESTION, CONGESTION_SAMPLED_AT, Identity, Key, NodeFact, Owner, PUBLISHED, PodFact, ReplicaSetFact, Requests,
    ScaleFact,
};
use ganglion_core::world::{Origin, World};

fn asked<R>(
    world: &World,
    policy: &CompiledPolicy,
    pod: &PlacedPod,
    ask: impl FnOnce(&PlacementQuestion<'_>) -> R,
) -> R {
    let mut inventory = Inventory::default();
    inventory.refresh(world, at(1000));
    let mut learned = inventory.learned.demand(&pod.scheduler);
    learned.learn(&demand(pod.requests), SMOOTHING);
    let candidates: Vec<_> = ["a", "b", "c", "unknown"].iter().map(|name| inventory.node(name)).collect();
    let siblings = Siblings::from_world(world, &inventory, pod);
    ask(&PlacementQuestion {
        pod,
        inventory: &inventory,
        arriving: inventory.answered.others(&pod.uid),
        candidates: &candidates,
        now: at(1000),
        rules: policy.rules,
        learned: &learned,
        siblings: siblings.as_ref(),
        rewards: &rewards(),
        leaving: &LeavingLoads::new(),
        narrows: false,
        one_more: false,
        counts_arriving: true,
    })
}

/// Learned values after pods of type web failed on b.
fn rewards() -> LearnedRewards {
    let mut memory = LearnedRewards::default();
    memory.learn(("web", &"b".into()), FAILURE, 5, &RewardRules::default());
    memory
}

fn placed(cpu: i64) -> PlacedPod {
    PlacedPod {
        key: Key::new("n", "new"),
        uid: "new".into(),
        requests: Requests { cpu, ..Requests::default() },
        cores: cpu,
        scheduler: "default-scheduler".into(),
        ..PlacedPod::default()
    }
}

fn compiled(agents: &Value) -> CompiledPolicy {
    CompiledPolicy::compile(&policy(agents)).expect("a policy")
}

/// Nodes a, b and c; b is congested, c slightly.
fn world() -> World {
    let mut world = registered();
    for (name, factor) in [("a", "0"), ("b", "80"), ("c", "40")] {
        world.apply(node(name, 1, &[(CONGESTION, factor)]), Origin::Watch);
    }
    world
}

/// Rounded scores of a, b, c and a node that is not in the cache.
fn sent(world: &World, agents: &Value) -> Vec<u8> {
    let totals = asked(world, &compiled(agents), &placed(100), |question| compiled(agents).score(question).totals);
    totals.into_iter().map(score).collect()
}

/// Rejection reasons of the same nodes.
fn rejected(world: &World, agents: &Value, pod: &PlacedPod) -> Vec<Option<String>> {
    let found = asked(world, &compiled(agents), pod, |question| compiled(agents).filter(question));
    found.into_iter().map(|one| one.map(|NodeRejection(reason)| reason)).collect()
}

fn constant(name: &str, weight: i32, score: &str) -> Value {
    json!({"name": name, "weight": weight, "expression": {"score": score}})
}

#[rstest]
#[case::one(json!([constant("x", 1, "7")]), [7, 7, 7, 0])]
#[case::the_weighted_mean(json!([constant("x", 1, "8"), constant("y", 3, "4")]), [5, 5, 5, 0])]
#[case::rounded_once(json!([constant("x", 1, "4.6"), constant("y", 1, "4.3")]), [4, 4, 4, 0])]
#[case::halves_up(json!([constant("x", 1, "4.6"), constant("y", 1, "4.4")]), [5, 5, 5, 0])]
#[case::out_of_bounds(json!([constant("x", 1, "-3"), constant("y", 1, "99")]), [5, 5, 5, 0])]
#[case::beside_another(json!([{"name": "c", "congestion": {}}, constant("y", 1, "10")]), [10, 6, 8, 0])]
#[case::abstainers_are_left_out(json!([{"name": "s", "weight": 9, "safe": {}}, constant("y", 1, "6")]), [6, 6, 6, 0])]
#[case::so_are_filters(json!([{"name": "s", "podSpread": {"rate": "1"}}, constant("y", 1, "6")]), [6, 6, 6, 0])]
#[case::weight_0_only_filters(json!([constant("x", 0, "10"), constant("y", 1, "6")]), [6, 6, 6, 0])]
#[case::nobody_knows(json!([{"name": "s", "safe": {}}, constant("x", 1, "node.power")]), [0, 0, 0, 0])]
#[case::a_node_without_a_value_is_worst(
    json!([constant("x", 1, "node.name == 'a' ? 10.0 : node.power"), constant("y", 1, "4")]), [7, 2, 2, 0])]
fn scores_are_combined(#[case] agents: Value, #[case] expected: [u8; 4]) {
    assert_eq!(sent(&world(), &agents), expected);
}

#[test]
fn the_first_agent_that_rejects_a_node_gives_the_reason() {
    let filter = |name: &str, filter: &str| json!({"name": name, "expression": {"filter": filter}});
    let agents =
        json!([filter("one", "node.name != 'a'"), filter("two", "node.name == 'c'"), constant("score", 1, "5"),]);
    let found = rejected(&world(), &agents, &placed(100));
    let reason = |text: &str| Some(text.to_owned());
    let expected = [reason("one: node.name != 'a' is false"), reason("two: node.name == 'c' is false"), None, None];
    assert_eq!(found, expected);
}

#[test]
fn safe_rejects_risk_and_leaves_alone_what_it_does_not_know() {
    let mut world = registered();
    world.apply(node("a", 1, &[("mean-used-cpu", "7600"), ("std-used-cpu", "400")]), Origin::Watch);
    world.apply(node("b", 1, &[("mean-free-cpu", "6000"), ("std-free-cpu", "400")]), Origin::Watch);
    world.apply(node("c", 1, &[("mean-used-cpu", "NaN")]), Origin::Watch);
    let agents = json!([{"name": "safe", "safe": {}}]);
    let found = rejected(&world, &agents, &placed(200));
    let reason = found[0].as_deref().unwrap_or_default();
    assert!(reason.starts_with("safe: cpu risk ") && reason.contains("mu 0.97"), "{reason}");
    assert_eq!(found[1..], [None, None, None]);
    assert_eq!(sent(&world, &agents), [0, 10, 0, 0]);
    let lenient = json!([{"name": "safe", "safe": {"filter": false}}]);
    assert_eq!(rejected(&world, &lenient, &placed(200)), vec![None; 4]);
}

/// Nodes are overloaded from 7.2 cores on. The pods request 0.6 cores.
#[rstest]
#[case::room_for_two("5000", [NodeVerdict::NearlyFull, NodeVerdict::Scored(10.0), NodeVerdict::Rejected])]
#[case::one_counts_if_no_node_has_room_for_two("6500", [NodeVerdict::Scored(10.0), NodeVerdict::Scored(10.0), NodeVerdict::Rejected])]
fn labels_leave_room_for_another_pod(#[case] used: &str, #[case] expected: [NodeVerdict; 3]) {
    let mut world = registered();
    for (name, used) in [("a", "6500"), ("b", used), ("c", "7600")] {
        world.apply(node(name, 1, &[("mean-used-cpu", used), ("std-used-cpu", "1")]), Origin::Watch);
    }
    let policy = compiled(&json!([{"name": "safe", "safe": {}}]));
    let (pod, pair) = (placed(600), placed(1200));
    let found = asked(&world, &policy, &pod, |question| verdicts(&policy, question, &pair));
    assert_eq!(found, [&expected[..], &[NodeVerdict::Unknown]].concat());
}

/// The same nodes: a has room for one pod, c for none.
#[test]
fn the_worst_label_has_a_reason() {
    let mut world = registered();
    for (name, used) in [("a", "6500"), ("b", "5000"), ("c", "7600")] {
        world.apply(node(name, 1, &[("mean-used-cpu", used), ("std-used-cpu", "1")]), Origin::Watch);
    }
    let mut policy = policy(&json!([{"name": "safe", "safe": {}}]));
    policy.spec.delivery = vec![PolicyDelivery::Labels];
    let typical_request = Some(TypicalRequest { cpu: Some(Number("600m".into())), memory: None });
    policy.spec.labels = Some(LabelOptions { typical_request, ..LabelOptions::default() });
    let policy = CompiledPolicy::compile(&policy).expect("a policy");
    let reasons = worst_labels(&world, &policy, None, None, at(1000));
    assert_eq!(reasons.keys().collect::<Vec<_>>(), ["a", "c"]);
    assert!(reasons["a"].starts_with("room for one typical pod, not for two: safe: cpu risk "), "{reasons:?}");
    assert!(reasons["c"].starts_with("rejected: safe: cpu risk "), "{reasons:?}");
    assert_eq!(
        worst_labels(&world, &compiled(&json!([{"name": "safe", "safe": {}}])), None, None, at(1000)),
        [].into()
    );
}

#[test]
fn pigeon_packs_or_spreads_over_all_nodes() {
    let mut world = world();
    world.apply(pod("big", 2, Some("b"), hold(4000, 1)), Origin::Watch);
    world.apply(pod("full", 2, Some("c"), hold(8000, 1)), Origin::Watch);
    let agents = |objective: &str| json!([{"name": "p", "pigeon": {"objective": objective}}]);
    assert_eq!(sent(&world, &agents("LoadBalance")), [10, 1, 0, 0]);
    assert_eq!(sent(&world, &agents("Consolidate")), [1, 10, 0, 0]);
}

#[test]
fn reward_avoids_the_node_where_pods_of_the_type_failed() {
    let agents = json!([{"name": "learn", "reward": {"initial": "0.9"}}]);
    let policy = compiled(&agents);
    let web = PlacedPod { labels: [("app".to_owned(), "web".to_owned())].into(), ..placed(1) };
    let words = |at| asked(&world(), &policy, &web, |question| policy.agents[0].agent.explain(question, at));
    let opinion = |pod: &PlacedPod| asked(&world(), &policy, pod, |question| policy.score(question).opinions);
    let Opinion::Scores(scores) = &opinion(&web)[0] else { panic!("no scores") };
    assert_eq!([scores[0], scores[2], scores[3]], [9.0, 9.0, 0.0]);
    assert!((scores[1] - 5.9049).abs() < 1e-9, "{scores:?}");
    assert_eq!(words(1), "value 0.59 of type web on this node");
    assert_eq!(words(0), "initial value 0.90 of type web on this node");
    let unknown = opinion(&placed(1));
    assert_eq!(unknown, [Opinion::Abstains("no node has a learned value for pods of type new".into())]);
}

/// NodeConfig of a node that is half used and needs `slope` more watts per percent.
fn predicted(node: &str, slope: u32) -> Value {
    let watts: Vec<String> = (0..21).map(|point| (100 + 5 * point * slope).to_string()).collect();
    json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig",
        "metadata": {"namespace": "n", "name": node, "uid": node, "resourceVersion": "5"}, "spec": {"nodeName": node},
        "status": {
            "validUntil": at(2000).to_string(), "cpu": {"value": "50"}, "power": {"value": "150"},
            "powerCurve": {
                "watts": watts, "inletTemperature": "22", "differentialPressure": "10", "predictedAt": at(900).to_string(),
            },
            "powerAccuracy": discounted(false),
        },
    })
}

/// Accuracy of a predictor, with a line of half a watt per percent.
fn discounted(worse_than_line: bool) -> Value {
    json!({
        "meanAbsoluteError": "40", "samples": 60, "sampledAt": at(900).to_string(), "worseThanLine": worse_than_line,
        "line": {"idleWatts": "100", "fullWatts": "150", "meanAbsoluteError": "2"},
    })
}

/// Nodes a and b with predictions; a needs more power. The value at the JSON pointer is replaced in the NodeConfig of
/// a.
fn predicting(path: &str, value: Value) -> World {
    let mut world = world();
    for (name, slope) in [("a", 3), ("b", 1)] {
        let mut config = predicted(name, slope);
        if name == "a" && !path.is_empty() {
            *config.pointer_mut(path).unwrap() = value.clone();
        }
        let config: NodeConfig = serde_json::from_value(config).unwrap();
        world.apply(config, Origin::Watch);
    }
    world
}

#[rstest]
#[case::the_node_whose_power_rises_least("", json!(null), json!({}), [2, 10, 0, 0])]
#[case::without_a_curve("/status/powerCurve", json!(null), json!({}), [0, 2, 0, 0])]
#[case::no_curve("/status/powerCurve/watts", json!(["1"]), json!({}), [0, 2, 0, 0])]
#[case::without_usage("/status/cpu", json!(null), json!({}), [0, 2, 0, 0])]
#[case::stale_inputs("/status/power", json!({"value": "1", "stale": true}), json!({}), [0, 2, 0, 0])]
#[case::no_longer_valid("/status/validUntil", json!(at(999).to_string()), json!({}), [0, 2, 0, 0])]
#[case::another_format(
    "/spec", json!({"nodeName": "a", "predictor": {"powerConsumption": {"type": "Fake", "cpuUsageFormat": "Raw"}}}),
    json!({"cpuUsageFormat": "Percent"}), [0, 2, 0, 0])]
#[case::any_format(
    "/spec", json!({"nodeName": "a", "predictor": {"powerConsumption": {"type": "Fake", "cpuUsageFormat": "Raw"}}}),
    json!({}), [2, 10, 0, 0])]
#[case::a_line_has_no_format(
    "/spec", json!({"nodeName": "a", "predictor": {"powerConsumption": {"type": "Linear", "fullWatts": 2}}}),
    json!({"cpuUsageFormat": "Raw"}), [2, 0, 0, 0])]
#[case::a_line_that_is_better("/status/powerAccuracy", discounted(true), json!({}), [10, 2, 0, 0])]
#[case::a_line_that_is_not_better("/status/powerAccuracy", discounted(false), json!({}), [2, 10, 0, 0])]
#[case::a_line_that_is_missing("/status/powerAccuracy", json!({"worseThanLine": true}), json!({}), [2, 10, 0, 0])]
fn power_prefers(#[case] path: &str, #[case] value: Value, #[case] options: Value, #[case] expected: [u8; 4]) {
    assert_eq!(sent(&predicting(path, value), &json!([{"name": "p", "power": options}])), expected);
}

#[test]
fn power_needs_cpu() {
    let (world, agents) = (predicting("", json!(null)), json!([{"name": "p", "power": {}}]));
    let policy = compiled(&agents);
    let opinion = |cpu: i64| asked(&world, &policy, &placed(cpu), |question| policy.score(question).opinions);
    assert_eq!(opinion(0), [Opinion::Abstains("the pod neither requests nor limits CPU".into())]);
    // Otherwise, overcommitted nodes would score better than nodes without data.
    assert_eq!(opinion(5000), [Opinion::Abstains("the pod needs more CPU than the node has left".into())]);
    let words = asked(&world, &policy, &placed(500), |question| policy.agents[0].agent.explain(question, 0));
    assert!(words.starts_with('+') && words.contains(" W ("), "{words}");
}

#[test]
fn power_says_that_it_uses_the_line() {
    let policy = compiled(&json!([{"name": "p", "power": {}}]));
    let words = |worse| {
        let world = predicting("/status/powerAccuracy", discounted(worse));
        asked(&world, &policy, &placed(500), |question| policy.agents[0].agent.explain(question, 0))
    };
    assert!(words(true).ends_with(", by the straight line of the measured power, which is better than the predictor"));
    assert!(words(false).ends_with(')'), "{}", words(false));
}

fn owner() -> Option<Owner> {
    Some(Owner { kind: "ReplicaSet".into(), name: "set".into(), uid: "set".into() })
}

/// Nodes a and b in one zone and c in another, and a ReplicaSet of 4 with this annotation and one pod on a.
fn zones(rate: Option<&str>) -> World {
    let mut world = registered();
    for (name, zone) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let mut fact = node(name, 1, &[]);
        fact.labels.insert("topology.kubernetes.io/zone".into(), zone.into());
        world.apply(fact, Origin::Watch);
    }
    let id = Identity { key: Key::new("n", "set"), uid: "set".into(), version: "1".into() };
    let scale = ScaleFact { replicas: 4, ..ScaleFact::default() };
    let spread_rate = rate.map(str::to_owned);
    world.apply(ReplicaSetFact { id, scale, spread_rate, ..ReplicaSetFact::default() }, Origin::Watch);
    world.apply(first(), Origin::Watch);
    world
}

fn first() -> PodFact {
    PodFact { controller: owner(), ..pod("first", 2, Some("a"), hold(1, 1)) }
}

fn spreading(rate: &str) -> Value {
    json!([{"name": "s", "podSpread": {"rate": rate}}, constant("x", 1, "1")])
}

#[test]
fn a_part_of_the_replicas_is_spread() {
    let mut world = zones(None);
    let ours = PlacedPod { controller: owner(), ..placed(1) };
    let found = rejected(&world, &spreading("0.5"), &ours);
    assert!(found[0].is_some() && found[1].is_some() && found[2].is_none(), "{found:?}");
    assert_eq!(rejected(&world, &spreading("0.25"), &ours), vec![None; 4], "one of four is spread already");
    assert_eq!(rejected(&world, &spreading("0.5"), &placed(1)), vec![None; 4], "a pod without a ReplicaSet");
    let mut going = first();
    (going.terminating, going.id.version) = (true, "3".into());
    world.apply(going, Origin::Watch);
    assert_eq!(rejected(&world, &spreading("0.5"), &ours), vec![None; 4], "a terminating pod does not count");
}

/// The ReplicaSet was scaled up, and the cache still has the old size.
#[test]
fn a_pod_on_its_way_is_one_replica_more() {
    let mut world = zones(None);
    let id = Identity { key: Key::new("n", "set"), uid: "set".into(), version: "2".into() };
    world.apply(
        ReplicaSetFact { id, scale: ScaleFact { replicas: 1, ..ScaleFact::default() }, ..ReplicaSetFact::default() },
        Origin::Watch,
    );
    let ours = PlacedPod { controller: owner(), ..placed(1) };
    let found = rejected(&world, &spreading("1"), &ours);
    assert!(found[0].is_some() && found[1].is_some() && found[2].is_none(), "{found:?}");
}

/// By the rate of the policy, one of four pods is spread, and it exists already.
#[rstest]
#[case::the_policy(None, None, false)]
#[case::before_it_the_set(None, Some("0.5"), true)]
#[case::before_both_the_pod(Some("0"), Some("0.5"), false)]
#[case::the_pod_without_the_set(Some("0.5"), None, true)]
#[case::what_is_no_rate_does_not_count(Some("x"), Some("0.5"), true)]
#[case::nor_on_the_set(None, Some("2"), false)]
fn the_rate_is_that_of(#[case] of_pod: Option<&str>, #[case] of_set: Option<&str>, #[case] spreads: bool) {
    let ours = PlacedPod { controller: owner(), spread_rate: of_pod.map(str::to_owned), ..placed(1) };
    let found = rejected(&zones(of_set), &spreading("0.25"), &ours);
    assert_eq!(found[0].is_some(), spreads, "{found:?}");
}

#[test]
fn pods_are_spread_over_the_areas_that_no_other_agent_rejects() {
    let only = json!({"name": "only", "expression": {"filter": "node.name != 'c'"}});
    let agents = json!([{"name": "s", "podSpread": {"rate": "1"}}, only, constant("x", 1, "1")]);
    let ours = PlacedPod { controller: owner(), ..placed(1) };
    let found = rejected(&zones(None), &agents, &ours);
    assert_eq!(found, [None, None, Some("only: node.name != 'c' is false".to_owned()), None]);
    let names: Vec<_> = compiled(&agents).agents.into_iter().map(|member| member.name).collect();
    assert_eq!(names, ["s", "only", "x"], "they are shown as in the spec");
}

/// Power and congestion have the same weight. The power rises least on a, which is rejected, and most on c; b is
/// congested.
fn compared() -> (World, CompiledPolicy) {
    let mut world = registered();
    for (name, slope, factor) in [("a", 0, "0"), ("b", 1, "70"), ("c", 2, "0")] {
        world.apply(node(name, 1, &[(CONGESTION, factor)]), Origin::Watch);
        world.apply(serde_json::from_value::<NodeConfig>(predicted(name, slope)).unwrap(), Origin::Watch);
    }
    let only = json!({"name": "only", "expression": {"filter": "node.name != 'a'"}});
    (world, compiled(&json!([{"name": "power", "power": {}}, {"name": "calm", "congestion": {}}, only])))
}

#[test]
fn only_nodes_that_pass_are_compared() {
    let (world, policy) = compared();
    let (rejections, scored) = asked(&world, &policy, &placed(100), |question| policy.judge(question));
    let rejected: Vec<bool> = rejections.iter().map(Option::is_some).collect();
    assert_eq!(rejected, [true, false, false, false]);
    let [_, b, c, _] = scored.totals[..] else { panic!("{scored:?}") };
    // If a were scored as well, power would score 6 on b, and c would be best.
    assert!((b - 6.5).abs() < 1e-6 && (c - 6.0).abs() < 1e-6, "{scored:?}");
}

#[test]
fn an_explanation_compares_the_nodes_that_pass_and_shows_the_others_last() {
    let (world, policy) = compared();
    let explained = explain(&world, &policy, &placed(100), None, at(1000));
    let names: Vec<_> = explained.nodes.iter().map(|node| (node.name.as_str(), node.score)).collect();
    assert_eq!(names, [("b", Some(7)), ("c", Some(6)), ("a", None)]);
    let last = &explained.nodes[2];
    assert_eq!(last.rejected.as_deref(), Some("only: node.name != 'a' is false"));
    assert!(last.total.is_none() && last.agents.iter().all(|agent| agent.score.is_none()), "{last:?}");
    assert!(last.agents[0].reason.contains("+0.00 W"), "a rejected node has reasons, too: {last:?}");
    let text = explained.text();
    assert!(text.contains("2 of 3 nodes pass") && text.contains("b, in detail:"), "{text}");
}

#[test]
fn where_no_node_passes_no_agent_is_said_to_know_nothing() {
    let (world, _) = compared();
    let none = json!({"name": "none", "expression": {"filter": "false"}});
    let policy = compiled(&json!([{"name": "power", "power": {}}, none]));
    let explained = explain(&world, &policy, &placed(100), None, at(1000));
    assert_eq!(explained.agents[0].abstains, None);
    assert!(explained.nodes.iter().all(|node| node.rejected.is_some() && node.score.is_none()), "{explained:?}");
}

#[rstest]
#[case::fresh("1970-01-01T00:16:00Z", [10, 2, 6, 0])]
#[case::blank_around_it(" 1970-01-01T00:16:00Z ", [10, 2, 6, 0])]
#[case::as_old_as_it_may_be("1970-01-01T00:11:40Z", [10, 2, 6, 0])]
#[case::older("1970-01-01T00:11:39Z", [10, 10, 6, 0])]
#[case::far_ahead("1970-01-01T00:21:41Z", [10, 10, 6, 0])]
#[case::no_time("now", [10, 10, 6, 0])]
fn congestion_holds_until_it_is_too_old(#[case] sampled: &str, #[case] expected: [u8; 4]) {
    let mut world = world();
    world.apply(node("b", 2, &[(CONGESTION, "80"), (CONGESTION_SAMPLED_AT, sampled)]), Origin::Watch);
    assert_eq!(sent(&world, &json!([{"name": "c", "congestion": {}}])), expected);
}

#[test]
fn where_all_congestion_is_too_old_the_agent_is_left_out() {
    let mut world = registered();
    world.apply(node("a", 1, &[(CONGESTION, "80"), (CONGESTION_SAMPLED_AT, "1970-01-01T00:00:01Z")]), Origin::Watch);
    assert_eq!(sent(&world, &json!([{"name": "c", "congestion": {}}, constant("x", 1, "4")])), [4, 0, 0, 0]);
    let policy = compiled(&json!([{"name": "c", "congestion": {}}]));
    let words = asked(&world, &policy, &placed(1), |question| policy.agents[0].agent.explain(question, 0));
    assert!(words.starts_with("the factor has expired"), "{words}");
}

/// Its first characters are a valid number.
#[test]
fn a_text_that_is_too_long_is_no_number() {
    let long = format!("0.{}", "9".repeat(70));
    let object = json!({
        "metadata": {"name": "b", "uid": "b", "resourceVersion": "2", "annotations": {CONGESTION: long, "mean-used-cpu": long}},
        "status": {"allocatable": {"cpu": "8", "memory": "16Gi"}},
    });
    let mut world = world();
    world.apply(NodeFact::from(serde_json::from_value::<Node>(object).unwrap()), Origin::Watch);
    assert_eq!(sent(&world, &json!([{"name": "c", "congestion": {}}])), [10, 0, 6, 0]);
    assert_eq!(sent(&world, &json!([{"name": "s", "safe": {}}])), [0, 0, 0, 0], "there is no usage");
}

#[rstest]
#[case(json!({"containers": []}), "default-scheduler")]
#[case(json!({"containers": [], "schedulerName": ""}), "default-scheduler")]
#[case(json!({"containers": [], "schedulerName": "green"}), "green")]
fn a_pod_without_a_scheduler_is_of_the_default_one(#[case] spec: Value, #[case] expected: &str) {
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
    assert_eq!(PlacedPod::from(&pod).scheduler, expected);
}

#[test]
fn a_node_with_too_little_cpu_is_overcommitted_even_without_a_curve() {
    let world = predicting("/status", json!({"validUntil": at(2000).to_string(), "cpu": {"value": "95"}}));
    let policy = compiled(&json!([{"name": "p", "power": {}}]));
    let (scored, words) = asked(&world, &policy, &placed(1000), |question| {
        (policy.score(question).totals, policy.agents[0].agent.explain(question, 0))
    });
    assert_eq!(scored, [1.0, 2.0, 0.0, 0.0]);
    assert_eq!(words, "the pod needs more CPU than the node has left");
}

#[rstest]
#[case(json!([{"name": "x"}]), PolicyReason::SpecInvalid, "agent x: it sets no agent type")]
#[case(json!([{"name": "x", "safe": {"risk": "2"}}]), PolicyReason::SpecInvalid, "agent x: \"2\" is not a number from 0")]
#[case(json!([{"name": "x", "congestion": {"max": "-1"}}]), PolicyReason::SpecInvalid, "agent x: \"-1\" is not a number")]
#[case(json!([{"name": "x", "safe": {"balance": {"sensitivity": "0"}}}]), PolicyReason::SpecInvalid, "balance.sensitivity must be above 0")]
#[case(json!([{"name": "x", "power": {"base": 14}}]), PolicyReason::SpecInvalid, "agent x: base must be 15 to 90")]
#[case(json!([{"name": "x", "pigeon": {"resources": ["cpu"], "prime": "memory"}}]), PolicyReason::SpecInvalid, "prime must be")]
#[case(json!([{"name": "x", "reward": {"learningRate": "0"}}]), PolicyReason::SpecInvalid, "agent x: learningRate must be above 0")]
#[case(json!([{"name": "x", "reward": {"period": "1"}}]), PolicyReason::SpecInvalid, "agent x: \"1\" is not a duration")]
#[case(json!([{"name": "x", "reward": {}}, {"name": "y", "reward": {}}]), PolicyReason::SpecInvalid, "at most one agent")]
#[case(json!([{"name": "x", "expression": {"score": "node.name"}}]), PolicyReason::ExpressionInvalid, "agent x: score: ")]
#[case(json!([{"name": "x", "expression": {"filter": "node.pod < 3"}}]), PolicyReason::ExpressionInvalid, "did you mean")]
fn what_the_schema_lets_through_is_refused_with_words(
    #[case] agents: Value,
    #[case] reason: PolicyReason,
    #[case] words: &str,
) {
    let error = CompiledPolicy::compile(&policy(&agents)).expect_err("a refusal");
    assert_eq!(error.0, reason);
    assert!(error.1.contains(words), "{}", error.1);
}

#[test]
fn a_policy_is_for_the_pods_of_its_schedulers_daemon_sets_aside() {
    let mut object = policy(&json!([constant("x", 1, "1")]));
    let mut daemon = placed(1);
    daemon.controller = Some(Owner { kind: "DaemonSet".into(), name: "d".into(), uid: "d".into() });
    let policy = CompiledPolicy::compile(&object).unwrap();
    assert!(policy.concerns(&placed(1)) && !policy.concerns(&daemon));
    object.spec.scheduler_names = Some(vec!["green".into()]);
    let policy = CompiledPolicy::compile(&object).unwrap();
    assert!(!policy.concerns(&placed(1)) && policy.concerns(&PlacedPod { scheduler: "green".into(), ..placed(1) }));
}

/// All agents, with different weights.
fn every_agent() -> Value {
    json!([
        {"name": "safe", "weight": 5, "safe": {}},
        {"name": "calm", "safe": {"score": "Balance", "filter": false}},
        {"name": "congestion", "congestion": {"max": "7"}},
        {"name": "pack", "pigeon": {"resources": ["cpu", "memory", "pods", "nvidia.com/gpu", "ephemeral-storage"]}},
        {"name": "deviation", "pigeon": {"objective": "Consolidate", "consolidateBy": "Deviation"}},
        {"name": "power", "weight": 20, "power": {}},
        {"name": "learn", "reward": {}},
        {"name": "mine", "expression": {"score": "double(node.cpu.requested) / double(node.cpu.allocatable)"}},
    ])
}

fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), Just(-1), Just(i64::MAX), Just(i64::MIN), 0..100_000_i64]
}

proptest! {
    /// For any nodes, pods and annotations, each candidate gets one whole score from 0 to 10.
    #[test]
    fn no_text_and_no_number_breaks_a_score(
        texts in proptest::collection::vec(proptest::option::of(".{0,12}|-?[0-9]{1,6}(e[0-9]{1,3})?"), PUBLISHED.len()),
        sizes in proptest::collection::vec(amount(), 9),
        asks in proptest::collection::vec(amount(), 4),
    ) {
        let mut world = world();
        let published = PUBLISHED.into_iter().zip(texts).filter_map(|(key, text)| Some((key, text?))).collect();
        let [cpu, memory, gpu, storage] = [sizes[0], sizes[1], sizes[2], sizes[3]];
        let size = Requests { cpu, memory, gpu, storage };
        let odd = NodeFact { published, allocatable: size, capacity: size, pod_capacity: sizes[4], ..node("b", 9, &[]) };
        world.apply(odd, Origin::Watch);
        let mut held = hold(1, 1);
        held.requests = Requests { cpu: sizes[5], memory: sizes[6], gpu: sizes[7], storage: sizes[8] };
        world.apply(pod("odd", 2, Some("b"), held), Origin::Watch);
        let policy = compiled(&every_agent());
        let requests = Requests { cpu: asks[0], memory: asks[1], gpu: asks[2], storage: asks[3] };
        let pod = PlacedPod { requests, ..placed(asks[0]) };
        let (scored, rejections) =
            asked(&world, &policy, &pod, |question| (policy.score(question), policy.filter(question)));
        prop_assert_eq!((scored.totals.len(), rejections.len()), (4, 4));
        for total in scored.totals {
            prop_assert!(score(total) <= 10);
            prop_assert!((0.0..=10.000_001).contains(&total), "{}", total);
        }
        prop_assert!(rejections[3].is_none(), "a node that is not in the cache passes");
    }
}
