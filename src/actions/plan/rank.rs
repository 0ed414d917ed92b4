//! What a PlacementPolicy says about nodes, as the planner asks for it: through an interface that the caller passes in, since
//! placement and actions do not know each other.

use jiff::Timestamp;

use super::nodes::Load;
use super::scope::Stop;
use ganglion_api::reasons::Reason;
use ganglion_core::facts::{SetFact, TemplateFact};
use ganglion_core::world::World;

/// Asks policies.
pub trait NodeRanker: Sync {
    /// Prepares the questions about pods of this ReplicaSet.
    ///
    /// # Errors
    /// The policy does not exist or cannot be asked.
    fn begin(
        &self,
        world: &World,
        policy: &str,
        pod: RankedPod<'_>,
        now: Timestamp,
    ) -> Result<Box<dyn NodeRanking>, RankError>;
}

/// Answers for one pod after the other.
pub trait NodeRanking {
    /// Counts further pods for a node: those of other actions that are on their way to it.
    fn add(&mut self, node: &str, load: Load);

    /// Counts one of the pods that are asked about for a node.
    fn assign(&mut self, node: &str);

    /// For each of these nodes, the score from 0 to 10 or why it is rejected, as things are now.
    fn rank(&self, nodes: &[&str]) -> Vec<Result<f64, String>>;

    /// What the score of a node was made from.
    fn words(&self, node: &str) -> String;
}

/// A pod that is to be placed: of this ReplicaSet, by this template.
#[derive(Clone, Copy, Debug)]
pub struct RankedPod<'a> {
    pub set: &'a SetFact,
    pub template: &'a TemplateFact,
}

/// Why a policy cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankError {
    /// There is none of this name.
    Missing,
    /// Its spec is invalid; how.
    Invalid(String),
}

impl RankError {
    /// The end of an action that names this policy.
    #[must_use]
    pub fn stop(self, policy: &str) -> Stop {
        match self {
            Self::Missing => {
                let message = format!("there is no PlacementPolicy {policy}; look at `kubectl get plpol`");
                Stop::soon(Reason::PolicyNotFound, message)
            }
            Self::Invalid(words) => Stop::soon(Reason::PolicyInvalid, format!("PlacementPolicy {policy}: {words}")),
        }
    }
}

/// For planners without policies.
#[derive(Clone, Copy, Debug)]
pub struct NoRanker;

impl NodeRanker for NoRanker {
    fn begin(&self, _: &World, _: &str, _: RankedPod<'_>, _: Timestamp) -> Result<Box<dyn NodeRanking>, RankError> {
        Err(RankError::Missing)
    }
}
