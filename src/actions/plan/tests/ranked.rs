//! Targets by policy: which policies are asked, when, and the result.

use super::*;
use crate::nodes::Load;
use crate::rank::{NodeRanking, RankError, RankedPod};
use ganglion_core::facts::NodeName;

/// Prefers d, then c, then b, with a lower score per assigned replica; rejects a.
#[derive(Debug)]
struct Likes;

struct LikesFor(BTreeMap<String, f64>);

impl NodeRanker for Likes {
    fn begin(
        &self,
        _: &World,
        policy: &str,
        pod: RankedPod<'_>,
        _: Timestamp,
    ) -> Result<Box<dyn NodeRanking>, RankError> {
        assert_eq!(pod.set.id.key.name, "web-h1");
        match policy {
            "green" => {
                Ok(Box::new(LikesFor(BTreeMap::from([("b".into(), 1.0), ("c".into(), 7.0), ("d".into(), 9.0)]))))
            }
            "bad" => Err(RankError::Invalid("agent x: it is wrong".into())),
            _ => Err(RankError::Missing),
        }
    }
}

impl NodeRanking for LikesFor {
    fn add(&mut self, _: &NodeName, _: Load) {}

    fn assign(&mut self, node: &NodeName) {
        self.0.entry(node.to_string()).and_modify(|score| *score -= 4.0);
    }

    fn rank(&self, nodes: &[&NodeName]) -> Vec<Result<f64, String>> {
        nodes.iter().map(|node| self.0.get(node.as_str()).copied().ok_or_else(|| "x: never".to_owned())).collect()
    }

    fn words(&self, node: &NodeName) -> String {
        format!("score {:?}", self.0.get(node.as_str()))
    }
}

fn stage() -> Stage {
    let mut stage = Stage::new();
    stage.ranker = &Likes;
    stage
}

fn create(count: i32, to: serde_json::Value) -> serde_json::Value {
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    json!({"create": {"workload": workload, "to": to, "count": count}, "mode": "Plan"})
}

fn planned(stage: &mut Stage, spec: serde_json::Value) -> Plan {
    stage.act("plan", spec);
    stage.settle("plan");
    stage.action("plan").status.unwrap_or_default().plan.unwrap_or_default()
}

#[test]
fn the_policy_is_asked_anew_after_each_replica() {
    let plan = planned(&mut stage(), create(4, json!({"policy": "green"})));
    let chosen: Vec<_> = plan.nodes.iter().map(|node| (node.name.as_str(), node.replicas)).collect();
    // d 9, c 7, d 5, c 3.
    assert_eq!(chosen, [("d", 2), ("c", 2), ("b", 0), ("a", 0)]);
    let said = |at: usize| (plan.nodes[at].refused, plan.nodes[at].message.as_str());
    assert_eq!(said(3), (Some(Reason::PolicyRejected), "x: never"));
    assert!(
        said(0).1.starts_with("score Some(9.0); ") && said(0).1.ends_with("free with one more replica"),
        "{plan:?}"
    );
}

#[test]
fn other_conditions_of_the_target_hold_too() {
    let plan = planned(&mut stage(), create(1, json!({"policy": "green", "nodeSelector": {"disk": "hdd"}})));
    let chosen: Vec<_> = plan.nodes.iter().filter(|node| node.replicas > 0).map(|node| node.name.as_str()).collect();
    assert_eq!(chosen, ["c"]);
    let excluded = plan.nodes.iter().find(|node| node.name == "d").map(|node| node.refused);
    assert_eq!(excluded, Some(Some(Reason::NodeExcluded)));
}

#[rstest]
#[case("none", Reason::PolicyNotFound, "there is no PlacementPolicy none")]
#[case("bad", Reason::PolicyInvalid, "PlacementPolicy bad: agent x: it is wrong")]
fn a_policy_that_cannot_be_asked_ends_the_action(#[case] name: &str, #[case] reason: Reason, #[case] words: &str) {
    let mut stage = stage();
    stage.act("go", move_web(json!({"policy": name})));
    stage.settle("go");
    stage.now += SignedDuration::from_mins(20);
    stage.settle("go");
    let conditions = stage.action("go").status.unwrap_or_default().conditions;
    let ready = conditions.iter().find(|one| one.type_ == "Ready").expect("a condition");
    assert_eq!(ready.reason, reason.as_str());
    assert!(ready.message.contains(words), "{}", ready.message);
}

#[test]
fn what_the_policy_rejects_waits_while_replicas_of_others_are_on_their_way() {
    let mut stage = stage();
    stage.act("other", move_web(json!({"nodeName": "d"})));
    stage.settle("other");
    stage.act("go", json!({"move": {"pod": {"name": "web-c"}, "to": {"policy": "green", "nodeName": "a"}}}));
    stage.settle("go");
    let (_, reason, message) = stage.ready("go");
    assert_eq!(
        (reason.as_str(), message.as_str()),
        ("Queued", "waiting: x: never; replicas of other actions are on their way")
    );
}

#[test]
fn where_every_node_is_rejected_the_action_says_so() {
    let mut stage = stage();
    let target = json!({"policy": "green", "nodeName": "a"});
    stage.act("go", json!({"move": {"pod": {"name": "web-b"}, "to": target}}));
    stage.settle("go");
    stage.now += SignedDuration::from_mins(20);
    stage.settle("go");
    let conditions = stage.action("go").status.unwrap_or_default().conditions;
    let ready = conditions.iter().find(|one| one.type_ == "Ready").expect("a condition");
    assert_eq!((ready.reason.as_str(), ready.message.as_str()), ("PolicyRejected", "x: never"));
}
