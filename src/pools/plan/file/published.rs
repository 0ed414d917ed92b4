//! The published job lists, and the time of their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Published job list of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Version of the file at which this worker's jobs last changed.
    pub version: i64,
    /// Sorted by name, each once.
    pub jobs: Vec<HeldJob>,
    /// Jobs that were removed from the list but that the worker may still run, because it has not confirmed that it
    /// stopped them.
    pub releasing: BTreeSet<Arc<str>>,
    /// The uid of the pod that existed when `version` was written. That pod started with an older file.
    pub pod: Option<String>,
}

/// A job on the list of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldJob {
    pub name: Arc<str>,
    /// Version at which the job was added to this list. If that change is no longer recorded, a later version, but at
    /// most that of the list.
    pub since: i64,
}

impl AsRef<str> for HeldJob {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

/// Published job lists of all workers of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Lists by pod name.
    pub holdings: BTreeMap<String, Holding>,
    pub version: i64,
    /// Recorded changes, by version; see [`prune`](super::prune()).
    pub changes: BTreeMap<i64, ListChange>,
    /// true: somebody else changed one of the texts.
    pub edited: bool,
}

/// Time and reason of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListChange {
    pub at: Timestamp,
    /// Reason in words, such as `3 to 4 workers`.
    pub why: String,
}
