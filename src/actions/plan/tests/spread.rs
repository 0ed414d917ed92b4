//! Required spread constraints: the nodes that are left to a replica whose old pod is gone.

use super::*;
use crate::effect::PodPlace;

/// Replicas on a, b and c, in zones of the same names; d is in zone b. The pods are spread over zones. Node a is
/// cordoned, and the action moves the replica off it.
fn zones(max_skew: i32, more: serde_json::Value) -> Stage {
    let mut stage = Stage::new();
    for (node, zone) in [("a", "a"), ("b", "b"), ("c", "c"), ("d", "b")] {
        put_in_zone(&mut stage, node, zone, node == "a");
    }
    let mut constraint = json!({
        "maxSkew": max_skew, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    });
    json_patch::merge(&mut constraint, &more);
    stage.put_template(json!({"topologySpreadConstraints": [constraint], "containers": []}));
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}}}));
    stage
}

fn put_in_zone(stage: &mut Stage, node: &str, zone: &str, is_cordoned: bool) {
    stage.put_node(node, |fact| {
        fact.labels.insert("zone".into(), zone.into());
        fact.cordoned = is_cordoned;
    });
}

/// The nodes that the plan would use, those that it refuses left out.
fn open_nodes(stage: &mut Stage) -> Vec<String> {
    let status = stage.settle_until_admitted("go");
    let plan = status.and_then(|status| status.plan);
    let nodes = plan.into_iter().flat_map(|plan| plan.nodes).filter(|node| node.refused.is_none());
    let mut names: Vec<String> = nodes.map(|node| node.name.as_str().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_zone_that_loses_its_only_replica_counts_as_empty() {
    let mut stage = zones(1, json!({}));
    stage.settle("go");
    stage.now += SignedDuration::from_secs(60);
    stage.settle("go");
    let (_, reason, message) = stage.ready("go");
    assert!(reason == "Queued" && message.contains("maxSkew 1"), "{reason} {message}");
    // A node in the zone that the replica leaves joins.
    put_in_zone(&mut stage, "e", "a", false);
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("a new pod") };
    assert_eq!(new.place, PodPlace::Any { labels: BTreeMap::new(), except: vec!["a".into()] });
    assert_eq!(stage.action("go").status.unwrap().slots[0].replacement.as_ref().unwrap().node, "e");
}

#[rstest]
#[case::a_wider_skew(2, json!({}), vec!["c", "d"])]
#[case::as_a_preference(1, json!({"whenUnsatisfiable": "ScheduleAnyway"}), vec!["b", "c", "d"])]
#[case::of_other_pods(1, json!({"labelSelector": {"matchLabels": {"app": "db"}}}), vec!["b", "c", "d"])]
#[case::of_this_revision_only(1, json!({"matchLabelKeys": ["pod-template-hash"]}), vec![])]
#[case::more_domains_than_there_are(1, json!({"minDomains": 9}), vec![])]
#[case::as_many_domains_as_there_are(1, json!({"minDomains": 3}), vec![])]
#[case::the_cordoned_zone_does_not_count(1, json!({"nodeTaintsPolicy": "Honor"}), vec!["c", "d"])]
fn what_the_constraint_allows_is_open(#[case] skew: i32, #[case] more: serde_json::Value, #[case] expected: Vec<&str>) {
    assert_eq!(open_nodes(&mut zones(skew, more)), expected);
}

/// The template selects the nodes of zones b and c only, so zone a has no nodes for it.
#[rstest]
#[case::honored("Honor", vec!["c", "d"])]
#[case::ignored("Ignore", vec![])]
fn nodes_that_the_template_excludes_count_by_the_policy(#[case] policy: &str, #[case] expected: Vec<&str>) {
    let mut stage = zones(1, json!({}));
    let constraint = json!({
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "nodeAffinityPolicy": policy,
        "labelSelector": {"matchLabels": {"app": "web"}},
    });
    let selected = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "c"]}]}]);
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": selected}}});
    stage.put_template(json!({"topologySpreadConstraints": [constraint], "affinity": affinity, "containers": []}));
    assert_eq!(open_nodes(&mut stage), expected);
}
