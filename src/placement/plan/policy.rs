//! A compiled policy: its agents, and the only place that combines their filters and scores.
//!
//! Agents filter in the order of the spec, except that agents that compare the remaining candidates filter last. The
//! first agent that rejects a node determines the reason. The score of a node is the weighted mean of the agents'
//! scores, a real number from 0 to 10; the sender rounds it once. Agents that only filter, or that have no data about
//! any candidate, do not count in the mean. If an agent has no data about a single node, that node gets the agent's
//! worst score: leaving the agent out for that node would turn missing data into an advantage.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::agents::{Agent, compile};
use super::labels::labeling::LabelRules;
use super::labels::typical::TypicalRules;
use super::learned::RewardRules;
use super::question::{NodeRejection, Opinion, PlacedPod, PlacementQuestion};
use super::record::{NodeRecord, SampleRules};
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::placement_policy::{
    DEFAULT_SCHEDULER, PlacementPolicy, PlacementPolicySpec, PolicyDelivery, PolicyMode,
};
use ganglion_api::scalars::DurationText;
use ganglion_core::duration;

/// A policy with parsed and validated options.
#[derive(Debug)]
pub struct CompiledPolicy {
    pub name: String,
    pub mode: PolicyMode,
    pub rules: SampleRules,
    schedulers: Vec<String>,
    /// None without the delivery `Labels`.
    pub labels: Option<CompiledLabels>,
    /// Whether schedulers ask about pods.
    pub is_extender: bool,
    pub agents: Vec<PolicyMember>,
}

/// Options of the delivery `Labels`.
#[derive(Debug)]
pub struct CompiledLabels {
    pub rules: LabelRules,
    pub typical: TypicalRules,
}

impl CompiledLabels {
    fn compile(spec: &PlacementPolicySpec) -> Result<Option<Self>, (PolicyReason, String)> {
        if !spec.is_delivered_by(PolicyDelivery::Labels) {
            return Ok(None);
        }
        let options = spec.labels.as_ref();
        let typical = TypicalRules::new(options, spec.schedulers().next().unwrap_or(DEFAULT_SCHEDULER))?;
        Ok(Some(Self { rules: LabelRules::new(options), typical }))
    }
}

/// An agent with its name and weight.
#[derive(Debug)]
pub struct PolicyMember {
    pub name: String,
    pub weight: u32,
    pub agent: Box<dyn Agent>,
}

/// Scores of the candidates, in the order of the candidates.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// From 0 to 10; 0 for all if every agent abstains.
    pub totals: Vec<f64>,
    /// The opinion of each agent, in the order of the spec.
    pub opinions: Vec<Opinion>,
}

impl CompiledPolicy {
    /// Compiles the spec. If an option is invalid, the text names the agent.
    pub fn compile(policy: &PlacementPolicy) -> Result<Self, (PolicyReason, String)> {
        let spec = &policy.spec;
        let default = SampleRules::default();
        let rules = SampleRules {
            max_age: time("maxAge", spec.max_age.as_ref(), default.max_age)?,
            window: time("sampleWindow", spec.sample_window.as_ref(), default.window)?,
        };
        let member = |one| {
            let agent = compile(one).map_err(|(reason, words)| (reason, format!("agent {}: {words}", one.name)))?;
            let weight = one.weight.map_or(1, |weight| u32::try_from(weight).unwrap_or(0));
            Ok(PolicyMember { name: one.name.clone(), weight, agent })
        };
        let rewards = spec.agents.iter().filter(|agent| agent.reward.is_some()).count();
        if rewards > 1 {
            return Err((PolicyReason::SpecInvalid, "at most one agent can be reward".to_owned()));
        }
        Ok(Self {
            name: policy.metadata.name.clone().unwrap_or_default(),
            mode: spec.mode,
            rules,
            schedulers: spec.schedulers().map(str::to_owned).collect(),
            labels: CompiledLabels::compile(spec)?,
            is_extender: spec.is_delivered_by(PolicyDelivery::Extender),
            agents: spec.agents.iter().map(member).collect::<Result<_, _>>()?,
        })
    }

    /// Whether the policy applies to the pod. Pods of schedulers that the policy does not name are excluded, since
    /// kube-scheduler calls an extender for the pods of every profile. DaemonSet pods are excluded, since each is bound
    /// to its own node.
    pub fn concerns(&self, pod: &PlacedPod) -> bool {
        let daemon = pod.controller.as_ref().is_some_and(|owner| owner.kind == "DaemonSet");
        !daemon && self.is_for(&pod.scheduler)
    }

    /// Whether any agent reads the other pods of the pod's ReplicaSet.
    pub fn reads_siblings(&self) -> bool {
        self.agents.iter().any(|member| member.agent.reads_siblings())
    }

    /// Whether the policy applies to the pods of this scheduler.
    pub fn is_for(&self, scheduler: &str) -> bool {
        self.schedulers.iter().any(|one| one == scheduler)
    }

    /// The agents that depend on more of a pod than its requests, so that labels cannot express them; None if there are
    /// none.
    pub fn aside(&self) -> Option<String> {
        let depends = |member: &&PolicyMember| member.agent.reads_siblings() || member.agent.rewards().is_some();
        let names: Vec<&str> = self.agents.iter().filter(depends).map(|member| member.name.as_str()).collect();
        match names.as_slice() {
            [] => None,
            [one] => Some(format!("agent {one} has no part in it, since it depends on the pod")),
            _ => Some(format!("agents {} have no part in it, since they depend on the pod", names.join(", "))),
        }
    }

    /// Whether an agent with a weight lacks data about the node.
    pub fn lacks(&self, node: &NodeRecord, now: Timestamp) -> bool {
        let weighty = self.agents.iter().filter(|member| member.weight > 0);
        weighty.into_iter().any(|member| member.agent.lacks(node, now, &self.rules).is_some())
    }

    /// Rules for learning from running and failed pods; None if the policy has no agent `reward`.
    pub fn rewards(&self) -> Option<RewardRules> {
        self.agents.iter().find_map(|member| member.agent.rewards())
    }

    /// Whether the policy has learned values that must survive a restart.
    pub fn learns(&self) -> bool {
        self.rewards().is_some() || self.reads_demand().next().is_some()
    }

    /// Schedulers whose learned demand the policy reads; none if no agent reads it.
    pub fn reads_demand(&self) -> impl Iterator<Item = &str> {
        let reads = self.agents.iter().any(|member| member.agent.reads_demand());
        self.schedulers.iter().filter(move |_| reads).map(String::as_str)
    }

    /// Rejection of each candidate, in the order of the candidates; None if the candidate passes.
    pub fn filter(&self, question: &PlacementQuestion<'_>) -> Vec<Option<NodeRejection>> {
        self.filter_by(question, |_| true)
    }

    /// Filters for a scheduler, which chooses one of the nodes that pass. Until its choice is known, the pod counts on
    /// all of them, so a node without room for another pod would be closed to the next pods for nothing. During a burst
    /// of pods, only the best one of these nodes passes.
    pub fn offer(&self, question: &PlacementQuestion<'_>) -> Vec<Option<NodeRejection>> {
        let question = &PlacementQuestion { narrows: true, ..*question };
        let mut rejections = self.filter(question);
        if !question.inventory.answered.is_burst(&question.pod.uid, question.now) {
            return rejections;
        }
        let passing = only(question.candidates, |at| rejections[at].is_none());
        let full = PlacementQuestion { candidates: &passing, one_more: true, ..*question };
        let full = self.filter_by(&full, |agent| agent.counts_pods());
        if full.iter().flatten().nth(1).is_none() {
            return rejections;
        }
        let last = only(&passing, |at| full[at].is_some());
        let totals = self.score(&PlacementQuestion { candidates: &last, ..*question }).totals;
        let best = best(&last, &totals, |record| question.possible(record).pods.saturating_add(record.pods));
        for (at, rejection) in rejections.iter_mut().enumerate() {
            if last[at].is_some() && best != Some(at) {
                *rejection =
                    Some(NodeRejection("has room for one pod only, and another such node is better".to_owned()));
            }
        }
        rejections
    }

    /// Namespaces of the pods to wait for: nodes are rejected only because of pods on their way to a node, and no other
    /// node passes. Within milliseconds, these pods are bound, each to one of the nodes on which it counts. Empty if
    /// the rejections stay.
    pub fn awaited(&self, question: &PlacementQuestion<'_>, rejections: &[Option<NodeRejection>]) -> BTreeSet<String> {
        if rejections.iter().any(Option::is_none) {
            return BTreeSet::new();
        }
        let settling = question.inventory.answered.settling(&question.pod.uid, question.now);
        let alone = PlacementQuestion { counts_arriving: false, ..*question };
        let is_too_early = !settling.is_empty() && self.filter(&alone).iter().any(Option::is_none);
        if is_too_early { settling } else { BTreeSet::new() }
    }

    fn filter_by(
        &self,
        question: &PlacementQuestion<'_>,
        is_asked: impl Fn(&dyn Agent) -> bool,
    ) -> Vec<Option<NodeRejection>> {
        let mut rejections = vec![None; question.candidates.len()];
        let asked = self.agents.iter().filter(|member| is_asked(&*member.agent));
        let (last, first): (Vec<_>, Vec<_>) = asked.partition(|member| member.agent.filters_last());
        for PolicyMember { name, agent, .. } in first.into_iter().chain(last) {
            let before: Vec<bool> = rejections.iter().map(Option::is_some).collect();
            agent.filter(question, &mut rejections);
            let new = rejections.iter_mut().zip(before).filter_map(|(one, before)| one.as_mut().filter(|_| !before));
            new.for_each(|rejection| rejection.0 = format!("{name}: {}", rejection.0));
        }
        rejections
    }

    /// Filters and then scores as kube-scheduler does: only the candidates that pass are scored against each other. A
    /// rejected candidate is scored like a node that is not in the cache.
    pub fn judge(&self, question: &PlacementQuestion<'_>) -> (Vec<Option<NodeRejection>>, Scored) {
        let rejections = self.filter(question);
        let left = only(question.candidates, |at| rejections[at].is_none());
        let scored = self.score(&PlacementQuestion { candidates: &left, ..*question });
        (rejections, scored)
    }

    /// Scores all candidates without filtering them.
    pub fn score(&self, question: &PlacementQuestion<'_>) -> Scored {
        let opinions: Vec<Opinion> = self.agents.iter().map(|member| self.opinion(member, question)).collect();
        let mut totals = vec![0.0; question.candidates.len()];
        let mut weights = 0.0;
        for (member, opinion) in self.agents.iter().zip(&opinions) {
            if let Opinion::Scores(scores) = opinion {
                let weight = f64::from(member.weight);
                weights += weight;
                totals.iter_mut().zip(scores).for_each(|(total, score)| *total += weight * score);
            }
        }
        if weights > 0.0 {
            totals.iter_mut().for_each(|total| *total /= weights);
        }
        Scored { totals, opinions }
    }

    fn opinion(&self, member: &PolicyMember, question: &PlacementQuestion<'_>) -> Opinion {
        if member.weight == 0 { Opinion::FilterOnly } else { member.agent.score(question) }
    }
}

/// The candidates for which `keep` is true, at the same indexes.
fn only<'a>(candidates: &[Option<&'a NodeRecord>], keep: impl Fn(usize) -> bool) -> Vec<Option<&'a NodeRecord>> {
    candidates.iter().enumerate().map(|(at, record)| record.filter(|_| keep(at))).collect()
}

/// Index of the candidate with the highest score; of several, the first one with the fewest pods.
pub fn best(candidates: &[Option<&NodeRecord>], totals: &[f64], pods: impl Fn(&NodeRecord) -> i64) -> Option<usize> {
    let known =
        candidates.iter().zip(totals).enumerate().filter_map(|(at, (record, total))| Some((at, (*record)?, *total)));
    let worse = |one: &(usize, &NodeRecord, f64), other: &(usize, &NodeRecord, f64)| {
        other.2.total_cmp(&one.2).then_with(|| pods(one.1).cmp(&pods(other.1)))
    };
    known.min_by(worse).map(|(at, ..)| at)
}

fn time(
    field: &str,
    text: Option<&DurationText>,
    default: SignedDuration,
) -> Result<SignedDuration, (PolicyReason, String)> {
    let Some(text) = text else { return Ok(default) };
    let parsed = duration::parse(text.as_str());
    parsed.map_err(|error| (PolicyReason::SpecInvalid, format!("{field}: {error}")))
}
