//! The text in the ConfigMap of a policy: its format, its bounds, its validation, and when it is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::rewards::LearnedRewards;
use crate::pigeon::LearnedDemand;
use ganglion_core::facts::Uid;

/// Key of the text in the ConfigMap.
pub const SAVED_KEY: &str = "memory.json";

/// Name of the ConfigMap of the policy with this uid. A policy that is deleted and created again gets a new ConfigMap.
pub fn map_name(uid: &Uid) -> String {
    format!("placement-memory-{uid}")
}

/// Maximum length of the text in bytes. The API server limits objects to about 1 MiB.
pub const MAX_TEXT: usize = 900 * 1024;

/// Maximum length in bytes of the rewards within the text.
const MAX_REWARDS: usize = 800 * 1024;

/// Minimum time between two writes.
const SAVE_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// Tolerated clock skew: maximum time that a save may lie in the future.
const MAX_AHEAD: SignedDuration = SignedDuration::from_mins(5);

/// Saved learned values of one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LearnedValues {
    /// Time of the save: all events up to it are included. Whole seconds, like times in the Kubernetes API.
    pub saved_at: Timestamp,
    /// Time at which running pods were last rewarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewarded_at: Option<Timestamp>,
    /// Pod type, node and value, the least recently updated first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewards: Vec<(String, String, f64)>,
    /// Learned demand, by scheduler name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub demand: BTreeMap<String, LearnedDemand>,
}

/// State of the learned values of a policy after a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveResult {
    /// The policy learns, but has not begun to.
    NotStarted,
    /// There is nothing to save.
    NothingLearned,
    /// The ConfigMap already contained the learned values.
    UpToDate,
    Written,
}

/// Content of the ConfigMap after the last read or write of this process.
#[derive(Clone, Debug)]
pub struct LastSave {
    pub learned: Arc<LearnedValues>,
    pub result: SaveResult,
    /// Time of the write; None if this process has not written the ConfigMap.
    pub written_at: Option<Timestamp>,
}

/// Decision about the ConfigMap of a policy.
#[derive(Clone, Debug)]
pub enum SavePlan {
    /// Nothing needs to be saved: the learned values are in this state.
    Skip(SaveResult),
    /// Saves these values, unless the ConfigMap already contains them.
    Save(Arc<LearnedValues>),
}

impl SavePlan {
    /// Plans a save for a policy that learns. `learned` is None if it has not begun to learn.
    pub fn new(learned: Option<&Arc<LearnedValues>>, last: Option<&LastSave>, now: Timestamp) -> Self {
        let Some(learned) = learned else { return Self::Skip(SaveResult::NotStarted) };
        match last {
            Some(last) if !last.is_due(learned, now) => Self::Skip(last.result),
            _ => Self::Save(Arc::clone(learned)),
        }
    }
}

impl LastSave {
    /// Whether the values changed, and the last write is long enough ago.
    fn is_due(&self, learned: &LearnedValues, now: Timestamp) -> bool {
        !self.learned.is_like(learned) && self.written_at.is_none_or(|at| now.duration_since(at) >= SAVE_INTERVAL)
    }
}

/// Reason why a saved text is rejected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SavedTextError {
    #[error("it has no key {SAVED_KEY}")]
    Missing,
    #[error("it has {0} bytes, more than {MAX_TEXT}")]
    TooLong(usize),
    #[error("it cannot be read: {0}")]
    Malformed(String),
    #[error("it has an invalid value: {0}")]
    Invalid(String),
    #[error("it was saved at {0}, which is in the future")]
    Future(Timestamp),
}

impl LearnedValues {
    /// Values to save now, without rewards. Schedulers without learned demand are left out.
    pub fn of_demand(now: Timestamp, mut demand: BTreeMap<String, LearnedDemand>) -> Self {
        demand.retain(|_, demand| demand.arrivals > 0);
        let saved_at = Timestamp::from_second(now.as_second()).unwrap_or(now);
        Self { saved_at, demand, ..Self::default() }
    }

    /// Adds rewards, rounded to 6 decimals. If the text would be too long, the least recently updated rewards are left
    /// out.
    pub fn with_rewards(mut self, memory: &LearnedRewards, rewarded: Option<Timestamp>) -> Self {
        let mut bytes = 0_usize;
        let fits = |reward: &(String, String, f64)| {
            bytes = bytes.saturating_add(serde_json::to_string(reward).map_or(MAX_REWARDS, |text| text.len() + 1));
            bytes <= MAX_REWARDS
        };
        let owned = |(pod_type, node, value): (&str, &str, f64)| {
            (pod_type.to_owned(), node.to_owned(), (value * 1e6).round() / 1e6)
        };
        self.rewards = memory.values().rev().map(owned).take_while(fits).collect();
        self.rewards.reverse();
        self.rewarded_at = rewarded;
        self
    }

    /// Whether there is nothing to save.
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty() && self.demand.is_empty()
    }

    /// Whether both contain the same learned values. The times of the save and of the last reward are ignored: if only
    /// they differ, a new save has no benefit.
    pub fn is_like(&self, other: &Self) -> bool {
        let values = |one: &Self| -> BTreeMap<(String, String), i64> {
            let value = |(pod_type, node, value): &(String, String, f64)| {
                ((pod_type.clone(), node.clone()), (value * 1e6).round() as i64)
            };
            one.rewards.iter().map(value).collect()
        };
        let mut demands = self.demand.iter().zip(&other.demand);
        self.demand.len() == other.demand.len()
            && demands.all(|((one, is), (another, was))| one == another && is.is_like(was))
            && values(self) == values(other)
    }

    /// The JSON text to save.
    pub fn text(&self) -> Result<String, SavedTextError> {
        let text = serde_json::to_string(self).map_err(|error| SavedTextError::Malformed(error.to_string()))?;
        if text.len() > MAX_TEXT { Err(SavedTextError::TooLong(text.len())) } else { Ok(text) }
    }

    /// Reads and validates the text in a ConfigMap.
    pub fn read(map: &ConfigMap, now: Timestamp) -> Result<Self, SavedTextError> {
        let text = map.data.as_ref().and_then(|data| data.get(SAVED_KEY)).ok_or(SavedTextError::Missing)?;
        Self::parse(text, now)
    }

    /// Parses and validates a text written by [`Self::text`]. Users may have edited it.
    pub fn parse(text: &str, now: Timestamp) -> Result<Self, SavedTextError> {
        if text.len() > MAX_TEXT {
            return Err(SavedTextError::TooLong(text.len()));
        }
        let saved: Self = serde_json::from_str(text).map_err(|error| SavedTextError::Malformed(error.to_string()))?;
        let is_ahead = |at: &Timestamp| at.duration_since(now) > MAX_AHEAD;
        if let Some(at) = [Some(saved.saved_at), saved.rewarded_at].into_iter().flatten().find(is_ahead) {
            return Err(SavedTextError::Future(at));
        }
        if let Some((pod_type, node, value)) = saved.rewards.iter().find(|reward| !(0.0..=1.0).contains(&reward.2)) {
            return Err(SavedTextError::Invalid(format!("{value} of type {pod_type} on node {node}")));
        }
        match saved.demand.iter().find(|(_, demand)| !demand.is_sound()) {
            Some((scheduler, _)) => Err(SavedTextError::Invalid(format!("the demand of scheduler {scheduler}"))),
            None => Ok(saved),
        }
    }
}
