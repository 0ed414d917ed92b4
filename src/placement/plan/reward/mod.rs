//! The agent `reward`: scores each node by the success of pods of the same type on it.
//!
//! | file | what |
//! |---|---|
//! | `memory` | the learned values, and the failures that were counted |
//! | `recent` | a map of bounded size |
//! | `learner` | learning from the pods of a world |
//!
//! A failed container that has been restarted and waits or runs again is not rewarded: its failure was counted when it
//! ended.

mod learner;
pub mod memory;
pub mod recent;

pub use learner::RewardLearner;
pub use memory::{NodeRewards, RewardMemory};

use ganglion_core::facts::RunFailure;

/// Settings of the agent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RewardRules {
    /// Weight of a new reward, 0 to 1.
    pub weight: f64,
    /// Value before the first reward, 0 to 1. With a high value, pods try nodes that no pod of their type has run on.
    pub initial: f64,
    /// Time in seconds. A container that runs longer than this before it fails gets [`RARE_FAILURE`].
    pub lasting: f64,
    /// Period in seconds in which a running pod is rewarded once; more than 0.
    pub period: i64,
    pub sizes: RewardSizes,
}

/// Maximum numbers of entries. Beyond them, the least recently updated entry is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RewardSizes {
    /// Pairs of pod type and node.
    pub pairs: usize,
    /// Containers with a counted failure.
    pub counted: usize,
}

impl Default for RewardRules {
    fn default() -> Self {
        let sizes = RewardSizes { pairs: 20_000, counted: 20_000 };
        Self { weight: 0.1, initial: 1.0, lasting: 600.0, period: 600, sizes }
    }
}

/// Reward of a running pod.
pub const RUNNING: f64 = 1.0;
/// Reward of a container that failed after a long time.
pub const RARE_FAILURE: f64 = 0.5;
/// Reward of a container that failed soon, or of a failed pod.
pub const FAILURE: f64 = 0.0;

/// Value after `times` equal rewards.
pub fn updated(value: f64, reward: f64, weight: f64, times: i32) -> f64 {
    (reward + (value - reward) * (1.0 - weight).powi(times)).clamp(0.0, 1.0)
}

impl RewardRules {
    /// Reward of a failure, by the times that the kubelet reports. A run without times counts as one that failed soon.
    pub fn judge(&self, failure: &RunFailure) -> f64 {
        // Time since the previous failure, or since the start if there was none.
        let since = failure.failed_before.or(failure.started);
        let lasted = since.zip(failure.finished).map(|(since, end)| end.duration_since(since).as_secs_f64());
        if lasted.is_some_and(|lasted| lasted > self.lasting) { RARE_FAILURE } else { FAILURE }
    }
}
