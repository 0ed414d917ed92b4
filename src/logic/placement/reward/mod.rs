//! The agent `reward`: scores nodes by how pods of the same type ran on them.
//!
//! | file | what |
//! |---|---|
//! | `run` | what a pod's containers are worth |
//! | `memory` | what was learned, and which runs were counted |
//! | `recent` | a map of bounded size |
//!
//! A failed container that has been restarted and waits or runs again has no reward: its failure was counted when it ended.

pub mod memory;
pub mod recent;
pub mod run;

use std::collections::BTreeMap;

pub use memory::{NodeRewards, PodReport, RewardMemory};
pub use run::{ContainerRun, PodRun, RunEnd};

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
    pub period: f64,
    pub sizes: RewardSizes,
}

/// How much is remembered. Then what was updated least recently is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RewardSizes {
    pub nodes: usize,
    pub types: usize,
    /// Pairs of type and node.
    pub pairs: usize,
    /// Containers whose last run was counted, and pods.
    pub counted: usize,
}

impl Default for RewardRules {
    fn default() -> Self {
        let sizes = RewardSizes { nodes: 10_000, types: 1_000, pairs: 20_000, counted: 200_000 };
        Self { weight: 0.1, initial: 1.0, lasting: 600.0, period: 600.0, sizes }
    }
}

/// The reward of a pod that runs.
pub const RUNNING: f64 = 1.0;
/// The reward of a container that failed after a long time.
pub const RARE_FAILURE: f64 = 0.5;
/// The reward of a container that failed soon, or of a failed pod.
pub const FAILURE: f64 = 0.0;

/// The value after a reward.
#[must_use]
pub fn updated(value: f64, reward: f64, weight: f64) -> f64 {
    ((1.0 - weight) * value + weight * reward).clamp(0.0, 1.0)
}

/// The type of a pod: the label `podtype`, else `app`, else `name`, else its name.
#[must_use]
pub fn pod_type<'a>(labels: &'a BTreeMap<String, String>, name: &'a str) -> &'a str {
    let label = |key: &str| labels.get(key).map(String::as_str).filter(|value| !value.is_empty());
    ["podtype", "app", "name"].into_iter().find_map(label).unwrap_or(name)
}
