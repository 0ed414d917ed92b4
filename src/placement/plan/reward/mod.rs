//! The agent `reward`: scores nodes by how pods of the same type ran on them.
//!
//! | file | what |
//! |---|---|
//! | `memory` | what was learned, and which failures were counted |
//! | `recent` | a map of bounded size |
//! | `learner` | learns from the pods of a world |
//!
//! A failed container that has been restarted and waits or runs again has no reward: its failure was counted when it ended.

mod learner;
pub mod memory;
pub mod recent;

pub use learner::RewardLearner;
pub use memory::{NodeRewards, RewardMemory};

use ganglion_core::facts::RunFailure;

/// Settings of the agent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RewardRules {
    /// The weight of a new reward, 0 to 1.
    pub weight: f64,
    /// The value before the first reward, 0 to 1. High values make pods try nodes that they have not been on.
    pub initial: f64,
    /// A container that runs for longer until it fails is worth [`RARE_FAILURE`], in seconds.
    pub lasting: f64,
    /// A running pod is rewarded once in this time, in seconds; more than 0.
    pub period: i64,
    pub sizes: RewardSizes,
}

/// How much is remembered. Then what was updated least recently is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RewardSizes {
    /// Pairs of type and node.
    pub pairs: usize,
    /// Containers whose last failure was counted.
    pub counted: usize,
}

impl Default for RewardRules {
    fn default() -> Self {
        let sizes = RewardSizes { pairs: 20_000, counted: 20_000 };
        Self { weight: 0.1, initial: 1.0, lasting: 600.0, period: 600, sizes }
    }
}

/// The reward of a pod that runs.
pub const RUNNING: f64 = 1.0;
/// The reward of a container that failed after a long time.
pub const RARE_FAILURE: f64 = 0.5;
/// The reward of a container that failed soon, or of a failed pod.
pub const FAILURE: f64 = 0.0;

/// The value after so many equal rewards.
#[must_use]
pub fn updated(value: f64, reward: f64, weight: f64, times: i32) -> f64 {
    (reward + (value - reward) * (1.0 - weight).powi(times)).clamp(0.0, 1.0)
}

impl RewardRules {
    /// The reward of a failure. Times are those of the kubelet. A run without times is judged as one that failed soon.
    #[must_use]
    pub fn judge(&self, failure: &RunFailure) -> f64 {
        // The time since the failure before; without one, since the start.
        let since = failure.failed_before.or(failure.started);
        let lasted = since.zip(failure.finished).map(|(since, end)| end.duration_since(since).as_secs_f64());
        if lasted.is_some_and(|lasted| lasted > self.lasting) { RARE_FAILURE } else { FAILURE }
    }
}
