//! Explains the result of a policy for one pod: the score or rejection of every node, with the reason of each agent.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::inventory::Inventory;
use super::labels::explain::LabelExplanation;
use super::labels::labeling::NodeVerdict;
use super::labels::typical::PlacedRequests;
use super::learned::{LearnedValues, RewardLearner};
use super::policy::{CompiledPolicy, PolicyMember};
use super::preempted::LeavingLoads;
use super::question::{NodeRejection, Opinion, PlacedPod, PlacementQuestion, Siblings};
use super::record::NodeRecord;
use super::verdicts::verdicts;
use super::wire;
use ganglion_api::placement_policy::PolicyMode;
use ganglion_api::placement_policy::labels::TypicalRequest;
use ganglion_core::layout::{paragraph, table};
use ganglion_core::words::counted;
use ganglion_core::words::quoted;
use ganglion_core::world::World;

/// Maximum number of rejections that are printed in full.
const REJECTIONS: usize = 10;

/// Result of a policy for one pod.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementExplanation {
    pub policy: String,
    /// Namespace and name.
    pub pod: String,
    /// Reason why the policy is not evaluated; None if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Reason why the extender returns no opinion for the pod; None if it returns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_opinion: Option<String>,
    pub agents: Vec<ExplainedAgent>,
    /// Nodes ordered by score, the best first. Rejected nodes are last.
    pub nodes: Vec<ExplainedCandidate>,
    /// Labels by which the pod was placed; None if it has nothing to do with labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<LabelExplanation>,
}

/// An agent of the policy.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedAgent {
    pub name: String,
    pub weight: u32,
    /// Reason why the agent does not score; None if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abstains: Option<String>,
}

/// A candidate node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedCandidate {
    pub name: String,
    /// Reason for the rejection; None if the node passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
    /// Rounded score that the extender sends, 0 to 10; None for a rejected node, since kube-scheduler does not score
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<u8>,
    /// Score before rounding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// Result of each agent, in the order of the agents.
    pub agents: Vec<AgentReason>,
}

/// Score and reason of one agent for one node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentReason {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Applies the policy to the pod and all nodes of the world. Learned values are those of the last save, if there is
/// one.
pub fn explain(
    world: &World,
    policy: &CompiledPolicy,
    pod: &PlacedPod,
    saved: Option<&LearnedValues>,
    now: Timestamp,
) -> PlacementExplanation {
    questioned(world, policy, pod, saved, now, |question, records| answered(policy, question, records))
}

/// Reasons for the worst label of a policy, by node: an agent rejects the typical pod there, or a second one. Empty
/// without the delivery `Labels`. `former`: requests of the typical pod in the status of the policy.
pub fn worst_labels(
    world: &World,
    policy: &CompiledPolicy,
    former: Option<&TypicalRequest>,
    saved: Option<&LearnedValues>,
    now: Timestamp,
) -> BTreeMap<String, String> {
    let Some(labels) = &policy.labels else { return BTreeMap::new() };
    let typical = labels.typical.pod(&PlacedRequests::of(world), former);
    let pair = typical.pair();
    questioned(world, policy, &typical.pod, saved, now, |question, records| {
        let found = verdicts(policy, question, &pair);
        let rejections = policy.filter(question);
        let of_two = policy.filter(&PlacementQuestion { pod: &pair, ..*question });
        let why =
            |rejection: &Option<NodeRejection>| rejection.as_ref().map_or("", |NodeRejection(why)| why).to_owned();
        let reason = |(at, record): (usize, &&NodeRecord)| {
            let reason = match found[at] {
                _ if !record.row.counted => return None,
                NodeVerdict::Rejected => format!("rejected: {}", why(&rejections[at])),
                NodeVerdict::NearlyFull => format!("room for one typical pod, not for two: {}", why(&of_two[at])),
                NodeVerdict::Scored(_) | NodeVerdict::Unknown => return None,
            };
            Some((record.name().to_owned(), reason))
        };
        records.iter().enumerate().filter_map(reason).collect()
    })
}

/// Asks about all nodes of the world. Learned values are those of the last save, if there is one.
fn questioned<R>(
    world: &World,
    policy: &CompiledPolicy,
    pod: &PlacedPod,
    saved: Option<&LearnedValues>,
    now: Timestamp,
    ask: impl FnOnce(&PlacementQuestion<'_>, &[&NodeRecord]) -> R,
) -> R {
    let mut inventory = Inventory::default();
    saved.into_iter().for_each(|saved| inventory.learned.restore(saved));
    inventory.refresh(world, now);
    let is_ours = |scheduler: &str| policy.is_for(scheduler);
    let begin = |rules| {
        let mut learner = RewardLearner::begin(world, &is_ours, saved, &rules);
        // Saved values already include the rewards of running pods.
        if saved.is_none() {
            learner.follow(world, &is_ours, &rules, now);
        }
        learner
    };
    let rewards = policy.rewards().map(begin).unwrap_or_default();
    let learned = inventory.learned.demand_with(&pod.scheduler, pod.requests);
    let siblings = Siblings::from_world(world, &inventory, pod);
    let mut records: Vec<&NodeRecord> = inventory.nodes().collect();
    records.sort_unstable_by_key(|record| record.name());
    let candidates: Vec<Option<&NodeRecord>> = records.iter().map(|record| Some(*record)).collect();
    let question = PlacementQuestion {
        pod,
        inventory: &inventory,
        arriving: inventory.answered.others(&pod.uid),
        candidates: &candidates,
        now,
        rules: policy.rules,
        learned: &learned,
        siblings: siblings.as_ref(),
        rewards: rewards.rewards(),
        leaving: &LeavingLoads::new(),
        narrows: false,
        one_more: false,
        counts_arriving: true,
    };
    ask(&question, &records)
}

fn answered(
    policy: &CompiledPolicy,
    question: &PlacementQuestion<'_>,
    records: &[&NodeRecord],
) -> PlacementExplanation {
    let (rejections, scored) = policy.judge(question);
    // If every node is rejected, kube-scheduler does not call prioritize.
    let none_passes = !rejections.is_empty() && rejections.iter().all(Option::is_some);
    let agent = |(member, opinion): (&PolicyMember, &Opinion)| ExplainedAgent {
        name: member.name.clone(),
        weight: member.weight,
        abstains: match opinion {
            Opinion::Abstains(why) => (!none_passes).then(|| why.clone()),
            Opinion::FilterOnly => Some("it only filters".to_owned()),
            Opinion::Scores(_) => None,
        },
    };
    let node = |(at, (record, rejection)): (usize, (&&NodeRecord, Option<NodeRejection>))| {
        let total = scored.totals.get(at).copied().filter(|_| rejection.is_none());
        let reason = |(member, opinion): (&PolicyMember, &Opinion)| AgentReason {
            score: match opinion {
                Opinion::Scores(scores) => scores.get(at).copied().filter(|_| rejection.is_none()),
                Opinion::FilterOnly | Opinion::Abstains(_) => None,
            },
            reason: member.agent.explain(question, at),
        };
        ExplainedCandidate {
            name: record.name().to_owned(),
            score: total.map(wire::score),
            total,
            agents: policy.agents.iter().zip(&scored.opinions).map(reason).collect(),
            rejected: rejection.map(|NodeRejection(reason)| reason),
        }
    };
    let agents = policy.agents.iter().zip(&scored.opinions).map(agent).collect();
    let mut nodes: Vec<ExplainedCandidate> = records.iter().zip(rejections).enumerate().map(node).collect();
    nodes.sort_by(best_first);
    PlacementExplanation {
        policy: policy.name.clone(),
        pod: question.pod.key.to_string(),
        problem: None,
        no_opinion: no_opinion(policy, question.pod),
        agents,
        nodes,
        labels: None,
    }
}

/// Orders nodes by score. A rejected node has no score and comes last.
fn best_first(one: &ExplainedCandidate, other: &ExplainedCandidate) -> Ordering {
    let total = |node: &ExplainedCandidate| node.total.unwrap_or(f64::NEG_INFINITY);
    total(other).total_cmp(&total(one)).then_with(|| one.name.cmp(&other.name))
}

fn no_opinion(policy: &CompiledPolicy, pod: &PlacedPod) -> Option<String> {
    if !policy.concerns(pod) {
        let scheduler = &pod.scheduler;
        Some(format!(
            "the policy does not name the pod's scheduler {}, or the pod belongs to a DaemonSet",
            quoted(scheduler)
        ))
    } else if policy.mode == PolicyMode::Shadow {
        Some("mode: Shadow".to_owned())
    } else if !policy.is_extender {
        Some("delivery: [Labels]; schedulers read the labels of nodes".to_owned())
    } else {
        None
    }
}

impl PlacementExplanation {
    /// Explanation by labels alone, since the policy cannot be evaluated.
    pub fn by_labels(policy: &str, pod: &PlacedPod, problem: String, labels: LabelExplanation) -> Self {
        Self {
            policy: policy.to_owned(),
            pod: pod.key.to_string(),
            problem: Some(problem),
            no_opinion: None,
            agents: Vec::new(),
            nodes: Vec::new(),
            labels: Some(labels),
        }
    }

    /// Text for a terminal.
    pub fn text(&self) -> String {
        let mut text = match &self.problem {
            Some(problem) => paragraph("", &format!("Policy {}, pod {}: {problem}", self.policy, self.pod)),
            None => self.result(),
        };
        if let Some(labels) = &self.labels {
            text.push_str(&format!("\n{}", labels.text()));
        }
        text
    }

    /// Text of the result of the policy.
    fn result(&self) -> String {
        let fit = self.nodes.iter().filter(|node| node.rejected.is_none()).count();
        let all = counted(i64::try_from(self.nodes.len()).unwrap_or(i64::MAX), "node");
        let mut text = paragraph("", &format!("Policy {}, pod {}: {fit} of {all} pass.", self.policy, self.pod));
        if let Some(why) = &self.no_opinion {
            text.push_str(&paragraph("kube-scheduler gets no opinion: ", why));
        }
        for agent in &self.agents {
            if let Some(why) = &agent.abstains {
                text.push_str(&paragraph(&format!("{} does not score: ", agent.name), why));
            }
        }
        let mut header = vec!["NODE".to_owned(), "SCORE".to_owned()];
        header.extend(self.agents.iter().map(|agent| format!("{}:{}", agent.name, agent.weight)));
        header.push("REJECTED".to_owned());
        text.push_str(&table(header, self.nodes.iter().map(row).collect()));
        let rejected = self.nodes.iter().filter_map(|node| Some((&node.name, node.rejected.as_ref()?)));
        for (nth, (name, reason)) in rejected.enumerate().take(REJECTIONS) {
            text.push_str(if nth == 0 { "\n" } else { "" });
            text.push_str(&paragraph(&format!("{name} is rejected by "), reason));
        }
        if let Some(best) = self.nodes.first() {
            text.push_str(&format!("\n{}, in detail:\n", best.name));
            for (agent, AgentReason { reason, .. }) in self.agents.iter().zip(&best.agents) {
                if !reason.is_empty() {
                    text.push_str(&paragraph(&format!("  {}: ", agent.name), reason));
                }
            }
        }
        text
    }
}

fn row(node: &ExplainedCandidate) -> Vec<String> {
    let score = match (node.score, node.total) {
        (Some(score), Some(total)) => format!("{score} ({total:.2})"),
        _ => "-".to_owned(),
    };
    let mut row = vec![node.name.clone(), score];
    row.extend(
        node.agents.iter().map(|agent| agent.score.map_or_else(|| "-".to_owned(), |score| format!("{score:.2}"))),
    );
    // A rejection reason starts with the agent's name and a colon.
    let by = node.rejected.as_deref().and_then(|reason| reason.split(':').next());
    row.push(by.unwrap_or_default().to_owned());
    row
}
