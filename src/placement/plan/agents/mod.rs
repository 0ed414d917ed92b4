//! The agents of policies. Each has one file, one member of `PolicyAgent` in the API, and one branch in [`compile`].
//!
//! An agent reads only a [`PlacementQuestion`] and does not depend on other agents.

mod congestion;
mod expression;
mod pigeon;
mod pod_spread;
mod power;
mod reward;
mod safe;

use std::fmt::Debug;

use jiff::{SignedDuration, Timestamp};

use super::answered::ExpectedLoad;
use super::learned::RewardRules;
use super::question::{NodeRejection, Opinion, PlacementQuestion};
use super::record::{NodeRecord, SampleRules};
use ganglion_api::placement_policy::agents::PolicyAgent;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::scalars::{Decimal, DurationText, Fraction};
use ganglion_core::duration;
use ganglion_core::words::counted;
use ganglion_core::words::quoted;

/// A filter of nodes, a score of nodes, or both.
pub trait Agent: Debug + Send + Sync {
    /// Adds rejections. Candidates that an earlier agent rejected are skipped.
    fn filter(&self, _question: &PlacementQuestion<'_>, _rejections: &mut [Option<NodeRejection>]) {}

    /// Whether the filter compares the candidates that pass all other filters, and so must run after them.
    fn filters_last(&self) -> bool {
        false
    }

    /// Whether the filter may reject a node because of the pods that are on their way to it.
    fn counts_pods(&self) -> bool {
        false
    }

    /// Scores the candidates.
    fn score(&self, question: &PlacementQuestion<'_>) -> Opinion;

    /// Describes the input of a candidate's score for users; `at` is the index of the candidate.
    fn explain(&self, question: &PlacementQuestion<'_>, at: usize) -> String;

    /// Describes the data about a node that the agent needs and that is missing; None if nothing is missing.
    fn lacks(&self, _node: &NodeRecord, _now: Timestamp, _rules: &SampleRules) -> Option<String> {
        None
    }

    /// Whether the agent reads the other pods of the pod's ReplicaSet.
    fn reads_siblings(&self) -> bool {
        false
    }

    /// Whether the agent reads the learned demand of pods.
    fn reads_demand(&self) -> bool {
        false
    }

    /// Rules for learning from running and failed pods; None if the agent does not learn from them.
    fn rewards(&self) -> Option<RewardRules> {
        None
    }
}

/// Reason and message of an invalid option.
pub type AgentError = (PolicyReason, String);

/// Compiles an agent of the spec.
pub fn compile(spec: &PolicyAgent) -> Result<Box<dyn Agent>, AgentError> {
    let PolicyAgent { name: _, weight: _, safe, congestion, pigeon, power, pod_spread, reward, expression } = spec;
    if let Some(options) = safe {
        safe::compile(options)
    } else if let Some(options) = congestion {
        congestion::compile(options)
    } else if let Some(options) = pigeon {
        pigeon::compile(options)
    } else if let Some(options) = power {
        power::compile(options)
    } else if let Some(options) = pod_spread {
        pod_spread::compile(options)
    } else if let Some(options) = reward {
        reward::compile(options)
    } else if let Some(options) = expression {
        expression::compile(options)
    } else {
        Err((PolicyReason::SpecInvalid, "it sets no agent type that this version of the operator supports".to_owned()))
    }
}

/// Parses an option with a number from 0 to 1; the default if it is unset.
fn fraction(option: Option<&Fraction>, default: f64) -> Result<f64, AgentError> {
    let Some(Fraction(text)) = option else { return Ok(default) };
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| (PolicyReason::SpecInvalid, format!("{} is not a number from 0 to 1", quoted(text))))
}

/// Parses an option with a number of at least 0; the default if it is unset.
fn decimal(option: Option<&Decimal>, default: f64) -> Result<f64, AgentError> {
    let Some(Decimal(text)) = option else { return Ok(default) };
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| (PolicyReason::SpecInvalid, format!("{} is not a number of at least 0", quoted(text))))
}

/// Parses an option with a duration; the default if it is unset.
fn time(option: Option<&DurationText>, default: SignedDuration) -> Result<SignedDuration, AgentError> {
    let Some(text) = option else { return Ok(default) };
    duration::parse(text.as_str()).map_err(|error| (PolicyReason::SpecInvalid, error.to_string()))
}

/// Scores the candidates that are in the cache; the others score 0.
fn scores(question: &PlacementQuestion<'_>, score: impl Fn(&NodeRecord) -> f64) -> Opinion {
    Opinion::Scores(question.candidates.iter().map(|node| node.map_or(0.0, &score)).collect())
}

/// End of a rejection's reason: the pods that are not bound yet and may be on the node.
fn on_the_way(expected: ExpectedLoad) -> String {
    match expected.pods {
        ..=0 => String::new(),
        pods => format!(", with {} on the way", counted(pods, "pod")),
    }
}

/// Description of a candidate that is not in the cache.
const UNKNOWN_NODE: &str = "the node is not in the cache yet";

/// Describes a candidate by `words` if it is in the cache.
fn explained(question: &PlacementQuestion<'_>, at: usize, words: impl FnOnce(&NodeRecord) -> String) -> String {
    question.candidates.get(at).copied().flatten().map_or_else(|| UNKNOWN_NODE.to_owned(), words)
}
