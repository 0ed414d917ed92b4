//! What a policy has learned, as it is kept over restarts: the text of a ConfigMap, of bounded size.
//!
//! Owns the text, and what of it is accepted. What has happened after it was saved is learned from the objects that there are:
//! failures by the time at which they ended, new pods by the time at which they were made. So nothing counts twice.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::pigeon::LearnedDemand;
use super::reward::RewardMemory;

/// The key of the text in the ConfigMap.
pub const MEMORY_KEY: &str = "memory.json";

/// The name of the ConfigMap of the policy with this uid: a policy that is made anew has another one.
#[must_use]
pub fn map_name(uid: &str) -> String {
    format!("placement-memory-{uid}")
}

/// The longest text, in bytes: objects must not be larger than about a MiB.
pub const MAX_TEXT: usize = 900 * 1024;

/// The part of the text that is left to the rewards.
const MAX_REWARDS: usize = 800 * 1024;

/// How far the clock of the replica that saved may have been ahead.
const MAX_AHEAD: SignedDuration = SignedDuration::from_mins(5);

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedMemory {
    /// What happened until then is in it; in whole seconds, as the API has times.
    pub saved_at: Timestamp,
    /// When running pods were last rewarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewarded_at: Option<Timestamp>,
    /// Type, node and value, the one updated least recently first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewards: Vec<(String, String, f64)>,
    /// By the name of the scheduler.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub demand: BTreeMap<String, LearnedDemand>,
}

/// Why a text is not accepted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MemoryError {
    #[error("it has no {MEMORY_KEY}")]
    Missing,
    #[error("it has {0} bytes, more than {MAX_TEXT}")]
    TooLong(usize),
    #[error("it cannot be read: {0}")]
    Malformed(String),
    #[error("it has a value that is none: {0}")]
    Invalid(String),
    #[error("it was saved at {0}, which is in the future")]
    Future(Timestamp),
}

impl SavedMemory {
    /// What is to be saved now. Values have 6 decimals; where the text would be too long, what was updated least recently is left
    /// out.
    #[must_use]
    pub fn of(now: Timestamp, mut demand: BTreeMap<String, LearnedDemand>) -> Self {
        demand.retain(|_, demand| demand.arrivals > 0);
        let saved_at = Timestamp::from_second(now.as_second()).unwrap_or(now);
        Self { saved_at, demand, ..Self::default() }
    }

    /// The same with these rewards.
    #[must_use]
    pub fn with_rewards(mut self, memory: &RewardMemory, rewarded: Option<Timestamp>) -> Self {
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
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty() && self.demand.is_empty()
    }

    /// Whether both have learned the same. When it was saved does not count, nor when running pods were rewarded: where nothing
    /// else is new, that changes nothing.
    #[must_use]
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

    /// # Errors
    /// It cannot be written, or is too long.
    pub fn text(&self) -> Result<String, MemoryError> {
        let text = serde_json::to_string(self).map_err(|error| MemoryError::Malformed(error.to_string()))?;
        if text.len() > MAX_TEXT { Err(MemoryError::TooLong(text.len())) } else { Ok(text) }
    }

    /// Reads a ConfigMap.
    ///
    /// # Errors
    /// It has no text of [`Self::text`].
    pub fn read(map: &ConfigMap, now: Timestamp) -> Result<Self, MemoryError> {
        let text = map.data.as_ref().and_then(|data| data.get(MEMORY_KEY)).ok_or(MemoryError::Missing)?;
        Self::parse(text, now)
    }

    /// Reads a text, which anybody may have changed.
    ///
    /// # Errors
    /// The text is none of [`Self::text`].
    pub fn parse(text: &str, now: Timestamp) -> Result<Self, MemoryError> {
        if text.len() > MAX_TEXT {
            return Err(MemoryError::TooLong(text.len()));
        }
        let saved: Self = serde_json::from_str(text).map_err(|error| MemoryError::Malformed(error.to_string()))?;
        let is_ahead = |at: &Timestamp| at.duration_since(now) > MAX_AHEAD;
        if let Some(at) = [Some(saved.saved_at), saved.rewarded_at].into_iter().flatten().find(is_ahead) {
            return Err(MemoryError::Future(at));
        }
        if let Some((pod_type, node, value)) = saved.rewards.iter().find(|reward| !(0.0..=1.0).contains(&reward.2)) {
            return Err(MemoryError::Invalid(format!("{value} of type {pod_type} on node {node}")));
        }
        match saved.demand.iter().find(|(_, demand)| !demand.is_sound()) {
            Some((scheduler, _)) => Err(MemoryError::Invalid(format!("the demand of scheduler {scheduler}"))),
            None => Ok(saved),
        }
    }
}
