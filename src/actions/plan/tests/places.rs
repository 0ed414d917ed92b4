//! Nodes on which a replacement pod may run: as the action says, and the scheduler chooses among them where it can.

use super::*;
use crate::effect::PodPlace;

fn place(spec: serde_json::Value, template: serde_json::Value) -> PodPlace {
    let mut stage = Stage::new();
    stage.put_template(template);
    stage.act("go", spec);
    let mut next = stage.settle("go");
    if let NextStep::Do(Effect::Scale { .. }) = next {
        next = stage.settle("go");
    }
    let NextStep::Do(Effect::CreatePod(new)) = next else { panic!("a replacement, not {next:?}") };
    new.place
}

fn deployment() -> serde_json::Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})
}

fn any(labels: &[(&str, &str)], except: Option<&str>) -> PodPlace {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    PodPlace::Any { labels, except: except.map(Into::into).into_iter().collect() }
}

fn spread(max_skew: i64) -> serde_json::Value {
    json!({"topologySpreadConstraints": [{"maxSkew": max_skew, "topologyKey": "disk",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]})
}

#[rstest]
#[case::move_to_labels(
    json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeSelector": {"disk": "ssd"}}}}),
    any(&[("disk", "ssd")], Some("a")))]
#[case::move_anywhere(json!({"move": {"pod": {"name": "web-a"}}}), any(&[], Some("a")))]
#[case::create_by_labels(
    json!({"create": {"workload": deployment(), "to": {"nodeSelector": {"disk": "ssd"}}}}),
    any(&[("disk", "ssd")], None))]
fn where_an_affinity_can_express_it_the_scheduler_chooses(#[case] spec: serde_json::Value, #[case] expected: PodPlace) {
    assert_eq!(place(spec, json!({"containers": []})), expected);
}

#[rstest]
#[case::an_expression(json!({"where": "node.pods < 3"}), json!({"containers": []}))]
#[case::a_preference(json!({"preferences": [{"nodeSelector": {"disk": "ssd"}}]}), json!({"containers": []}))]
#[case::labels_that_hide_domains_of_a_spread(json!({"nodeSelector": {"disk": "ssd"}}), spread(1))]
fn otherwise_the_planner_chooses_the_node(#[case] to: serde_json::Value, #[case] template: serde_json::Value) {
    let place = place(json!({"move": {"pod": {"name": "web-a"}, "to": to}}), template);
    assert_eq!(place, PodPlace::On("d".into()));
}

/// Without the nodes that are excluded, a skew of two could be reached beside an empty domain.
#[test]
fn the_planner_chooses_where_a_domain_is_hidden_from_a_wide_spread() {
    let moving = json!({"move": {"pod": {"name": "web-a"}}});
    assert!(matches!(place(moving.clone(), spread(2)), PodPlace::On(_)));
    assert_eq!(place(moving, spread(1)), any(&[], Some("a")));
}

#[test]
fn the_words_do_not_promise_a_node_that_the_scheduler_chooses() {
    let mut stage = Stage::new();
    stage.act("go", json!({"create": {"workload": deployment(), "to": {"nodeSelector": {"disk": "ssd"}}}}));
    stage.settle("go");
    let (_, _, message) = stage.ready("go");
    assert!(message.contains("on a node that the scheduler chooses") && !message.contains("on d"), "{message}");
    let nodes = stage.action("go").status.unwrap().plan.unwrap().nodes;
    let chosen = nodes.iter().find(|node| node.replicas > 0).unwrap();
    assert!(chosen.message.contains("the scheduler may choose another one"), "{}", chosen.message);
}
