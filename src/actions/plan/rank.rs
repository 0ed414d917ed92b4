//! The interface through which the planner asks PlacementPolicies about nodes. The caller passes it in, since placement
//! and actions do not depend on each other.

use jiff::Timestamp;

use super::nodes::Load;
use super::scope::StartRefusal;
use ganglion_api::reasons::Reason;
use ganglion_core::facts::{NodeName, ReplicaSetFact, TemplateFact};
use ganglion_core::world::World;

/// Ranks nodes by PlacementPolicies.
pub trait NodeRanker: Sync {
    /// Begins a ranking for pods of this ReplicaSet. Fails if the policy does not exist or is invalid.
    fn begin(
        &self,
        world: &World,
        policy: &str,
        pod: RankedPod<'_>,
        now: Timestamp,
    ) -> Result<Box<dyn NodeRanking>, RankError>;
}

/// Ranks nodes for one pod after the other.
pub trait NodeRanking {
    /// Adds further pods to a node: pods of other actions that are in motion to it.
    fn add(&mut self, node: &NodeName, load: Load);

    /// Adds one of the ranked pods to a node.
    fn assign(&mut self, node: &NodeName);

    /// For each of these nodes, the current score from 0 to 10, or why the node is rejected.
    fn rank(&self, nodes: &[&NodeName]) -> Vec<Result<f64, String>>;

    /// Describes how the score of a node was computed.
    fn words(&self, node: &NodeName) -> String;
}

/// A pod to place: its ReplicaSet and its template.
#[derive(Clone, Copy, Debug)]
pub struct RankedPod<'a> {
    pub set: &'a ReplicaSetFact,
    pub template: &'a TemplateFact,
}

/// Why a policy cannot rank nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankError {
    /// No policy of this name exists.
    Missing,
    /// The spec of the policy is invalid; the text says why.
    Invalid(String),
}

impl RankError {
    /// The stop of an action that names this policy.
    pub fn stop(self, policy: &str) -> StartRefusal {
        match self {
            Self::Missing => {
                let message = format!("there is no PlacementPolicy {policy}; look at `kubectl get plpol`");
                StartRefusal::soon(Reason::PolicyNotFound, message)
            }
            Self::Invalid(words) => {
                StartRefusal::soon(Reason::PolicyInvalid, format!("PlacementPolicy {policy}: {words}"))
            }
        }
    }
}

/// The ranker of planners without policies.
#[derive(Clone, Copy, Debug)]
pub struct NoRanker;

impl NodeRanker for NoRanker {
    fn begin(&self, _: &World, _: &str, _: RankedPod<'_>, _: Timestamp) -> Result<Box<dyn NodeRanking>, RankError> {
        Err(RankError::Missing)
    }
}
