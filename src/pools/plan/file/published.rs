//! What workers have been told, and since when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What one worker has been told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The version of the file at which this worker's jobs last changed.
    pub version: i64,
    /// By name, each once.
    pub jobs: Vec<HeldJob>,
    /// Jobs that it may still run: taken away, and not confirmed as stopped.
    pub releasing: BTreeSet<Arc<str>>,
    /// The uid of the pod that existed when `version` was written: such a pod has started with an older file.
    pub pod: Option<String>,
}

/// A job of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldJob {
    pub name: Arc<str>,
    /// The version at which the job came to this worker, or a later one, at most that of the worker.
    pub since: i64,
}

impl AsRef<str> for HeldJob {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

/// What all workers of a pool have been told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// By name of the worker.
    pub holdings: BTreeMap<String, Holding>,
    pub version: i64,
    /// Why some versions were written: see [`prune`](super::prune()).
    pub changes: BTreeMap<i64, ListChange>,
    /// Somebody else changed one of the texts.
    pub edited: bool,
}

/// Why a version was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListChange {
    pub at: Timestamp,
    /// In words, such as `3 to 4 workers`.
    pub why: String,
}
