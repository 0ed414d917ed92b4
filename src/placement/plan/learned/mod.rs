//! Values that a policy learns from pods, which survive restarts.
//!
//! | value | learned from | bound |
//! |---|---|---|
//! | reward of a pod type on a node, for the agent `reward` | each failure of a container once; running pods once per `period` | 20,000 pairs; the least recently updated is dropped |
//! | demand of a scheduler's pods, for the agent `pigeon` | each created pod once | 256 schedulers |
//!
//! Every replica learns from its own watch. The leader saves the values of each policy as JSON in one ConfigMap
//! ([`map_name`]) in the operator's namespace when they have changed, at most once a minute, and at most [`MAX_TEXT`]
//! bytes; beyond that, the least recently updated rewards are left out. The policy owns the ConfigMap.
//!
//! Every replica reads the ConfigMaps when it starts, before it is ready. It learns what happened since the save from
//! the existing objects: failures by their finish time, pods by their creation time. So no event counts twice. Which
//! failures were counted is not saved for that reason.
//!
//! | file | content |
//! |---|---|
//! | `rewards` | the values of the agent `reward`, and the failures that were counted |
//! | `learners` | learning from the pods of the world |
//! | `saved` | the text in the ConfigMap, and when it is written |
//!
//! The formula of the demand is in [`crate::pigeon`]. Reads and writes are in `ganglion_placement::learned`.

mod learners;
mod rewards;
mod saved;

pub use learners::{DemandLearner, RewardLearner};
pub use rewards::{FAILURE, LearnedRewards, NodeRewards, RewardRules, RewardSizes, updated};
pub use saved::{LastSave, LearnedValues, MAX_TEXT, SAVED_KEY, SavePlan, SaveResult, SavedTextError, map_name};
