//! A policy: its agents, and the one place where their filters and scores are combined.
//!
//! A node is rejected by the first agent, in the order of the spec, that rejects it; agents that compare what the others leave are
//! asked last. Its score is the mean of the agents' scores, weighted, as a real number from 0 to 10, and is rounded once, by
//! whoever sends it. An agent that knows nothing of any candidate is left out, and so is one that only filters; one that knows
//! nothing of a single node gives that node its worst score, since leaving it out there would make ignorance an advantage.

use jiff::SignedDuration;

use super::agents::{Agent, compile};
use super::question::{NodeRejection, Opinion, PlacedPod, PlacementQuestion};
use super::record::{NodeRecord, SampleRules};
use super::reward::RewardRules;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::placement_policy::{PlacementPolicy, PolicyMode};
use ganglion_api::scalars::DurationText;
use ganglion_core::duration;

/// A policy, ready to be asked.
#[derive(Debug)]
pub struct CompiledPolicy {
    pub name: String,
    pub mode: PolicyMode,
    pub rules: SampleRules,
    schedulers: Vec<String>,
    pub agents: Vec<PolicyMember>,
}

/// An agent with its name and weight.
#[derive(Debug)]
pub struct PolicyMember {
    pub name: String,
    pub weight: u32,
    pub agent: Box<dyn Agent>,
}

/// Scores of candidates, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// From 0 to 10; 0 for all if every agent abstains.
    pub totals: Vec<f64>,
    /// What each agent says, in the order of the spec.
    pub opinions: Vec<Opinion>,
}

impl CompiledPolicy {
    /// Reads the spec.
    ///
    /// # Errors
    /// An option is invalid; the text names the agent.
    pub fn of(policy: &PlacementPolicy) -> Result<Self, (PolicyReason, String)> {
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
            agents: spec.agents.iter().map(member).collect::<Result<_, _>>()?,
        })
    }

    /// Whether kube-scheduler gets an opinion about the pod: not about those of other schedulers, since an extender is asked about
    /// the pods of every profile, and not about those of DaemonSets, each of which has its node.
    #[must_use]
    pub fn concerns(&self, pod: &PlacedPod) -> bool {
        let daemon = pod.controller.as_ref().is_some_and(|owner| owner.kind == "DaemonSet");
        !daemon && self.is_for(&pod.scheduler)
    }

    /// Whether an agent reads the other pods of the pod's ReplicaSet.
    #[must_use]
    pub fn reads_siblings(&self) -> bool {
        self.agents.iter().any(|member| member.agent.reads_siblings())
    }

    /// Whether the policy is for the pods of this scheduler.
    #[must_use]
    pub fn is_for(&self, scheduler: &str) -> bool {
        self.schedulers.iter().any(|one| one == scheduler)
    }

    /// By which rules it learns from pods that run or fail, if it does.
    #[must_use]
    pub fn rewards(&self) -> Option<RewardRules> {
        self.agents.iter().find_map(|member| member.agent.rewards())
    }

    /// Whether it has something to remember.
    #[must_use]
    pub fn learns(&self) -> bool {
        self.rewards().is_some() || self.reads_demand().next().is_some()
    }

    /// The schedulers whose pods' demand it reads.
    pub fn reads_demand(&self) -> impl Iterator<Item = &str> {
        let reads = self.agents.iter().any(|member| member.agent.reads_demand());
        self.schedulers.iter().filter(move |_| reads).map(String::as_str)
    }

    /// Why each candidate is rejected, in their order.
    #[must_use]
    pub fn filter(&self, question: &PlacementQuestion<'_>) -> Vec<Option<NodeRejection>> {
        let mut rejections = vec![None; question.candidates.len()];
        let (last, first): (Vec<_>, Vec<_>) = self.agents.iter().partition(|member| member.agent.filters_last());
        for PolicyMember { name, agent, .. } in first.into_iter().chain(last) {
            let before: Vec<bool> = rejections.iter().map(Option::is_some).collect();
            agent.filter(question, &mut rejections);
            let new = rejections.iter_mut().zip(before).filter_map(|(one, before)| one.as_mut().filter(|_| !before));
            new.for_each(|rejection| rejection.reason = format!("{name}: {}", rejection.reason));
        }
        rejections
    }

    /// What kube-scheduler makes of the policy: why candidates are rejected, and the scores of the others, among these alone, since
    /// agents compare candidates. A rejected one is scored like one that is not known.
    #[must_use]
    pub fn judge(&self, question: &PlacementQuestion<'_>) -> (Vec<Option<NodeRejection>>, Scored) {
        let rejections = self.filter(question);
        let passing = question.candidates.iter().zip(&rejections);
        let left: Vec<Option<&NodeRecord>> =
            passing.map(|(record, rejection)| record.filter(|_| rejection.is_none())).collect();
        let scored = self.score(&PlacementQuestion { candidates: &left, ..*question });
        (rejections, scored)
    }

    /// The score of each candidate, in their order.
    #[must_use]
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

fn time(
    field: &str,
    text: Option<&DurationText>,
    default: SignedDuration,
) -> Result<SignedDuration, (PolicyReason, String)> {
    let Some(text) = text else { return Ok(default) };
    let parsed = duration::parse(text.as_str());
    parsed.map_err(|error| (PolicyReason::SpecInvalid, format!("{field}: {error}")))
}
