//! Previews of actions before they are created.

use super::*;
use crate::identity::receipt_name;
use crate::preview::{ActionPreview, PreviewOutcome, preview, reserve};

/// An action that does not exist in the world.
fn asked(spec: serde_json::Value) -> WorkloadAction {
    let mut action = WorkloadAction::new("go", serde_json::from_value(spec).expect("a valid spec"));
    action.metadata.namespace = Some(NAMESPACE.into());
    action
}

fn previewed(stage: &mut Stage, action: &WorkloadAction) -> ActionPreview {
    let (now, limits, ranker) = (stage.now, stage.limits.clone(), stage.ranker);
    preview(&mut stage.world, action, now, &limits, ranker)
}

fn many(count: i32, to: serde_json::Value) -> serde_json::Value {
    let mut spec = move_web(to);
    spec["move"]["count"] = json!(count);
    spec
}

#[test]
fn a_move_is_shown_replica_by_replica_with_what_was_not_chosen() {
    let mut stage = Stage::new();
    stage.put_node("e", |node| node.cordoned = true);
    stage.put_pod("web-d", "d", |_| {});
    stage.put_pod("other", "a", |pod| pod.controller = None);
    let found = previewed(&mut stage, &asked(many(2, json!({"where": "node.name in ['d', 'e', 'c']"}))));
    let expected = "\
WorkloadAction shop/go (Move) would start now.
POD    FROM  TO  WHY
web-a  a     c   33.3 % free with one more replica
web-b  b     d   33.3 % free with one more replica
web-a, web-b: first in order: not Ready, lowest deletion cost, youngest

Not chosen, of the nodes: 3
  e: NodeCordoned: node e is cordoned (to use it: kubectl uncordon e)
  a, b: NodeExcluded: `node.name in ['d', 'e', 'c']` does not hold

Not chosen, of the pods: 2
  web-c on c, web-d on d: already on a target node
";
    assert_eq!(found.text(), expected);
    assert!(
        found.starts() && stage.world.all::<WorkloadAction>().next().is_none(),
        "the world still contains the action"
    );
    let again = previewed(&mut stage, &asked(many(2, json!({"where": "node.name in ['d', 'e', 'c']"}))));
    assert_eq!(again, found);
}

#[test]
fn a_create_and_a_delete_have_one_side() {
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let create = json!({"create": {"workload": workload, "to": {"nodeName": "d"}}});
    let text = previewed(&mut Stage::new(), &asked(create)).text();
    let table = "POD    FROM  TO  WHY\n(new)  -     d   66.6 % free with one more replica\n";
    assert!(text.ends_with(table), "{text}");
    let delete = json!({"delete": {"pod": {"name": "web-b"}}});
    let text = previewed(&mut Stage::new(), &asked(delete)).text();
    assert!(text.ends_with("POD    FROM  TO  WHY\nweb-b  b     -   named by the action\n"), "{text}");
}

#[test]
fn where_there_is_no_room_each_node_says_why() {
    let mut stage = Stage::new();
    stage.put_node("d", |node| node.pod_capacity = 0);
    let found =
        previewed(&mut stage, &asked(json!({"move": {"pod": {"name": "web-a"}, "to": {"where": "node.pods < 1"}}})));
    let expected = "\
WorkloadAction shop/go (Move) would not start.
NoCandidateNode: none of 4 nodes can take the replica, for instance: d: pods: 0 of 0; see `status.plan.nodes` for each
-> See status.plan.nodes for each node; apply a new action with another target.

Not chosen, of the nodes: 4
  d: NodeFull: pods: 0 of 0
  a, b, c: NodeExcluded: `node.pods < 1` does not hold
";
    assert_eq!(found.text(), expected);
    assert_eq!((found.outcome, found.reason.as_deref()), (PreviewOutcome::Ends, Some("NoCandidateNode")));
}

#[test]
fn what_is_in_the_way_for_a_time_makes_it_wait() {
    let mut stage = Stage::new();
    let changing = |id| DeploymentFact { id, generation: 2, observed_generation: 1, ..DeploymentFact::default() };
    stage.put(changing, "web");
    let found = previewed(&mut stage, &asked(move_web(json!({"nodeName": "d"}))));
    let expected = "\
WorkloadAction shop/go (Move) would wait.
RolloutInProgress: a rollout of Deployment web is in flight
-> Wait until the rollout has ended: kubectl rollout status.
";
    assert_eq!(found.text(), expected);
    let suspended = asked(json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}, "suspend": true}));
    let found = previewed(&mut Stage::new(), &suspended);
    assert_eq!((found.outcome, found.reason.as_deref()), (PreviewOutcome::Waits, Some("Suspended")));
}

#[test]
fn what_ran_before_would_do_nothing() {
    let mut stage = Stage::new();
    let action = asked(json!({"delete": {"pod": {"name": "web-a"}}, "runPolicy": "Once"}));
    let ran = |id| ReceiptFact { id, action_uid: "another".into(), executed_at: NOW, outcome: None };
    stage.put(ran, &receipt_name(&action));
    let found = previewed(&mut stage, &action);
    assert_eq!((found.outcome, found.reason.as_deref()), (PreviewOutcome::Ends, Some("AlreadyExecuted")));
    assert!(found.text().contains("it ran on 1 Jan 1970"), "{}", found.text());
}

#[test]
fn an_action_that_there_is_already_is_refused_as_the_api_server_would() {
    let mut stage = Stage::new();
    stage.act("go", move_web(json!({"nodeName": "d"})));
    let found = previewed(&mut stage, &asked(json!({"delete": {"pod": {"name": "web-a"}}})));
    let expected = "\
WorkloadAction shop/go (Delete) would not start: the API server does not accept it.
workloadactions.ganglion.dev \"go\" already exists
-> It was made before: ganglion explain wa go shows its result. A new action needs a new name.
";
    assert_eq!((found.text().as_str(), found.outcome), (expected, PreviewOutcome::Refused));
    assert!(stage.action("go").spec.move_.is_some());
}

/// However many nodes and pods there are, the text lists some of each kind and counts the others.
#[test]
fn a_plan_over_many_nodes_is_short_and_counts_the_rest() {
    let mut stage = Stage::new();
    for node in 0..200 {
        stage.put_node(&format!("n{node:03}"), |node| node.cordoned = node.id.key.name.as_str() > "n020");
        stage.put_pod(&format!("web-{node:03}"), &format!("n{node:03}"), |_| {});
    }
    let text = previewed(&mut stage, &asked(move_web(json!({"nodeSelector": {"disk": "ssd"}})))).text();
    assert!(text.lines().count() < 40, "{text}");
    let excluded = "  a, b, c, n000, n001, n002, n003, n004 and 91 more: NodeExcluded: has no label disk=ssd\n";
    let rest = "  and 104 more: which a plan does not list\n";
    assert!(text.contains(&format!("Not chosen, of the nodes: 203\n{excluded}{rest}")), "{text}");
    assert!(
        text.contains("Not chosen, of the pods: 202\n") && text.contains(" and 91 more: later in order\n"),
        "{text}"
    );
}

#[test]
fn a_long_reason_of_a_policy_is_told_in_full() {
    let words = "risk: cpu risk 0.000 (mu 0.1, sigma 0.05), memory risk 0.000 (mu 0.1, sigma 0.05); 62.5 % free with one more replica";
    let plan: Plan = serde_json::from_value(json!({
        "replicas": [{"to": "d"}], "nodes": [{"name": "d", "replicas": 1, "message": words}],
    }))
    .expect("a plan");
    let text = plan_text::replicas(&plan);
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    assert!(text.contains(&format!("\nd: {}", &words[..80])), "{text}");
}

#[test]
fn an_action_for_all_replicas_that_finds_none_does_nothing() {
    let mut spec = move_web(json!({"nodeName": "b"}));
    spec["move"]["count"] = json!("All");
    spec["move"]["from"] = json!({"nodeName": "d"});
    let found = previewed(&mut Stage::new(), &asked(spec));
    assert_eq!((found.outcome, found.starts()), (PreviewOutcome::Nothing, true));
    let text = found.text();
    assert!(text.starts_with("WorkloadAction shop/go (Move) would do nothing.\n"), "{text}");
    assert!(text.contains("nothing to do: no replica of Deployment web on d"), "{text}");
}

#[test]
fn actions_that_are_planned_together_share_the_room() {
    let mut stage = Stage::new();
    for node in ["a", "b", "c"] {
        stage.put_node(node, |node| node.cordoned = true);
    }
    stage.put_node("d", |node| node.pod_capacity = 1);
    let mut outcomes = Vec::new();
    for (name, pod) in [("first", "web-a"), ("second", "web-b")] {
        let mut action = asked(json!({"move": {"pod": {"name": pod}}}));
        action.metadata.name = Some(name.to_owned());
        action.metadata.uid = Some(name.to_owned());
        let found = previewed(&mut stage, &action);
        outcomes.push((found.outcome, found.reason));
        let (now, limits, ranker) = (stage.now, stage.limits.clone(), stage.ranker);
        reserve(&mut stage.world, &action, now, &limits, ranker);
    }
    let none = Some("NoCandidateNode".to_owned());
    assert_eq!(outcomes, [(PreviewOutcome::Starts, None), (PreviewOutcome::Ends, none)]);
    assert_eq!(stage.world.all::<WorkloadAction>().count(), 1, "an action that does not start takes no room");
}
