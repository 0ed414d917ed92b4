//! Explains what a policy says about a pod: every node, what each agent makes of it, and why.

use std::cmp::Ordering;

use jiff::Timestamp;
use serde::Serialize;

use super::inventory::Inventory;
use super::memory::SavedMemory;
use super::policy::{CompiledPolicy, PolicyMember};
use super::question::{NodeRejection, Opinion, PlacedPod, PlacementQuestion, Siblings};
use super::record::NodeRecord;
use super::reward::RewardLearner;
use super::wire;
use ganglion_api::placement_policy::PolicyMode;
use ganglion_core::layout::{paragraph, table};
use ganglion_core::words::counted;
use ganglion_core::world::World;

/// How many rejections are told in whole.
const REJECTIONS: usize = 10;

/// What a policy says about a pod.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementExplanation {
    pub policy: String,
    /// Namespace and name.
    pub pod: String,
    /// Why kube-scheduler gets no opinion, if it gets none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_opinion: Option<String>,
    pub agents: Vec<ExplainedAgent>,
    /// The best first, the rejected ones last.
    pub nodes: Vec<ExplainedCandidate>,
}

/// An agent.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedAgent {
    pub name: String,
    pub weight: u32,
    /// Why it does not score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abstains: Option<String>,
}

/// A node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedCandidate {
    pub name: String,
    /// Why it is rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
    /// The score that is sent, 0 to 10; none if it is rejected, since kube-scheduler compares the other nodes only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<u8>,
    /// Before it is rounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// In the order of the agents.
    pub agents: Vec<AgentReason>,
}

/// What an agent says of a node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentReason {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Asks the policy about the pod and all nodes of the world, with what it had learned when it was saved.
#[must_use]
pub fn explain(
    world: &World,
    policy: &CompiledPolicy,
    pod: &PlacedPod,
    saved: Option<&SavedMemory>,
    now: Timestamp,
) -> PlacementExplanation {
    let mut inventory = Inventory::default();
    saved.into_iter().for_each(|saved| inventory.restore(saved));
    inventory.refresh(world);
    let is_ours = |scheduler: &str| policy.is_for(scheduler);
    let begin = |rules| {
        let mut learner = RewardLearner::begin(world, &is_ours, saved, &rules);
        // What was saved has the pods that run.
        if saved.is_none() {
            learner.follow(world, &is_ours, &rules, now);
        }
        learner
    };
    let rewards = policy.rewards().map(begin).unwrap_or_default();
    let learned = inventory.learned_with(&pod.scheduler, pod.requests);
    let siblings = Siblings::of(world, pod);
    let mut records: Vec<&NodeRecord> = inventory.nodes().collect();
    records.sort_unstable_by_key(|record| record.name());
    let candidates: Vec<Option<&NodeRecord>> = records.iter().map(|record| Some(*record)).collect();
    let question = PlacementQuestion {
        pod,
        inventory: &inventory,
        candidates: &candidates,
        now,
        rules: policy.rules,
        learned: &learned,
        siblings: siblings.as_ref(),
        rewards: rewards.memory(),
    };
    answered(policy, &question, &records)
}

fn answered(
    policy: &CompiledPolicy,
    question: &PlacementQuestion<'_>,
    records: &[&NodeRecord],
) -> PlacementExplanation {
    let (rejections, scored) = policy.judge(question);
    // Nobody is asked for scores then.
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
            reason: member.agent.words(question, at),
        };
        ExplainedCandidate {
            name: record.name().to_owned(),
            score: total.map(wire::score),
            total,
            agents: policy.agents.iter().zip(&scored.opinions).map(reason).collect(),
            rejected: rejection.map(|rejection| rejection.reason),
        }
    };
    let agents = policy.agents.iter().zip(&scored.opinions).map(agent).collect();
    let mut nodes: Vec<ExplainedCandidate> = records.iter().zip(rejections).enumerate().map(node).collect();
    nodes.sort_by(best_first);
    PlacementExplanation {
        policy: policy.name.clone(),
        pod: question.pod.key.to_string(),
        no_opinion: no_opinion(policy, question.pod),
        agents,
        nodes,
    }
}

/// A rejected node has no total.
fn best_first(one: &ExplainedCandidate, other: &ExplainedCandidate) -> Ordering {
    let total = |node: &ExplainedCandidate| node.total.unwrap_or(f64::NEG_INFINITY);
    total(other).total_cmp(&total(one)).then_with(|| one.name.cmp(&other.name))
}

fn no_opinion(policy: &CompiledPolicy, pod: &PlacedPod) -> Option<String> {
    if !policy.concerns(pod) {
        let scheduler = &pod.scheduler;
        Some(format!("the policy is not for pods of the scheduler {scheduler:?}, or the pod is a DaemonSet's"))
    } else if policy.mode == PolicyMode::Shadow {
        Some("mode: Shadow".to_owned())
    } else {
        None
    }
}

impl PlacementExplanation {
    /// For a terminal.
    #[must_use]
    pub fn text(&self) -> String {
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
    // The reason begins with the name of the agent.
    let by = node.rejected.as_deref().and_then(|reason| reason.split(':').next());
    row.push(by.unwrap_or_default().to_owned());
    row
}
