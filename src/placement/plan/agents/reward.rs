//! The agent `reward` of a policy. The formulas are in `placement::reward`.

use jiff::SignedDuration;

use super::{Agent, AgentError, explained, fraction, scores, time};
use crate::learned::RewardRules;
use crate::question::{Opinion, PlacementQuestion};
use ganglion_api::placement_policy::agents::RewardAgent;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_core::facts::pod_type;

#[derive(Debug)]
struct Reward(RewardRules);

pub fn compile(options: &RewardAgent) -> Result<Box<dyn Agent>, AgentError> {
    let default = RewardRules::default();
    let (lasting, period) = (SignedDuration::from_secs(600), SignedDuration::from_secs(default.period));
    let rules = RewardRules {
        weight: fraction(options.learning_rate.as_ref(), default.weight)?,
        initial: fraction(options.initial.as_ref(), default.initial)?,
        lasting: time(options.mean_time_to_failure.as_ref(), lasting)?.as_secs_f64(),
        period: time(options.period.as_ref(), period)?.as_secs(),
        ..default
    };
    if rules.weight > 0.0 && rules.period > 0 {
        Ok(Box::new(Reward(rules)))
    } else {
        Err((PolicyReason::SpecInvalid, "learningRate must be above 0, and period at least 1s".to_owned()))
    }
}

/// Type of the pod to place.
fn type_of<'a>(question: &PlacementQuestion<'a>) -> &'a str {
    pod_type(&question.pod.labels, &question.pod.key.name)
}

impl Agent for Reward {
    fn score(&self, question: &PlacementQuestion<'_>) -> Opinion {
        let of = type_of(question);
        let values = question.rewards.of_type(of, &self.0);
        if !values.is_known() {
            return Opinion::Abstains(format!("no node has a learned value for pods of type {of}"));
        }
        scores(question, |node| values.score(node.name()))
    }

    fn explain(&self, question: &PlacementQuestion<'_>, at: usize) -> String {
        explained(question, at, |node| {
            let of = type_of(question);
            let values = question.rewards.of_type(of, &self.0);
            let which = if values.learned(node.name()).is_some() { "" } else { "initial " };
            format!("{which}value {:.2} of type {of} on this node", values.value(node.name()))
        })
    }

    fn rewards(&self) -> Option<RewardRules> {
        Some(self.0)
    }
}
