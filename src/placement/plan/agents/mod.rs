//! The agents of policies: each has a file, a member in the API, and a line in [`compile`].
//!
//! An agent reads a [`PlacementQuestion`] and nothing else. It knows no other agent.

mod congestion;
mod expression;
mod pigeon;
mod pod_spread;
mod power;
mod reward;
mod safe;

use std::fmt::Debug;

use jiff::{SignedDuration, Timestamp};

use super::question::{NodeRejection, Opinion, PlacementQuestion};
use super::record::{NodeRecord, SampleRules};
use super::reward::RewardRules;
use ganglion_api::placement_policy::agents::PolicyAgent;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::scalars::{Decimal, DurationText, Fraction};
use ganglion_core::duration;

/// A filter of nodes, a score of nodes, or both.
pub trait Agent: Debug + Send + Sync {
    /// Why each candidate is rejected. Those that were rejected before it are not judged.
    fn filter(&self, _question: &PlacementQuestion<'_>, _rejections: &mut [Option<NodeRejection>]) {}

    /// Whether its filter compares the candidates that all others leave, and is therefore asked after theirs.
    fn filters_last(&self) -> bool {
        false
    }

    /// The scores of the candidates.
    fn score(&self, question: &PlacementQuestion<'_>) -> Opinion;

    /// What a score was made from, for people; `at` is the place of the candidate.
    fn words(&self, question: &PlacementQuestion<'_>, at: usize) -> String;

    /// What the agent lacks of a node, if it lacks something.
    fn lacks(&self, _node: &NodeRecord, _now: Timestamp, _rules: &SampleRules) -> Option<String> {
        None
    }

    /// Whether it reads the other pods of the pod's ReplicaSet.
    fn reads_siblings(&self) -> bool {
        false
    }

    /// Whether it reads the demand that was learned from pods.
    fn reads_demand(&self) -> bool {
        false
    }

    /// By which rules it learns from pods that run or fail, if it does.
    fn rewards(&self) -> Option<RewardRules> {
        None
    }
}

/// Why an agent cannot be used.
pub type AgentError = (PolicyReason, String);

/// The agent that a member of the spec describes.
///
/// # Errors
/// An option is invalid.
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
        Err((PolicyReason::SpecInvalid, "it has no member that this version knows".to_owned()))
    }
}

/// The number of an option, or its default.
fn fraction(option: Option<&Fraction>, default: f64) -> Result<f64, AgentError> {
    let Some(Fraction(text)) = option else { return Ok(default) };
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| (PolicyReason::SpecInvalid, format!("{text:?} is no number from 0 to 1")))
}

/// The same for numbers that may be larger.
fn decimal(option: Option<&Decimal>, default: f64) -> Result<f64, AgentError> {
    let Some(Decimal(text)) = option else { return Ok(default) };
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| (PolicyReason::SpecInvalid, format!("{text:?} is no number")))
}

/// The time of an option, or its default.
fn time(option: Option<&DurationText>, default: SignedDuration) -> Result<SignedDuration, AgentError> {
    let Some(text) = option else { return Ok(default) };
    duration::parse(text.as_str()).map_err(|error| (PolicyReason::SpecInvalid, error.to_string()))
}

/// Scores for the known candidates; the others get 0.
fn scores(question: &PlacementQuestion<'_>, score: impl Fn(&NodeRecord) -> f64) -> Opinion {
    Opinion::Scores(question.candidates.iter().map(|node| node.map_or(0.0, &score)).collect())
}

/// The words for a candidate that is not known.
const UNKNOWN_NODE: &str = "the node is not known yet";

/// The words for a candidate, if it is known.
fn words_of(question: &PlacementQuestion<'_>, at: usize, words: impl FnOnce(&NodeRecord) -> String) -> String {
    question.candidates.get(at).copied().flatten().map_or_else(|| UNKNOWN_NODE.to_owned(), words)
}
