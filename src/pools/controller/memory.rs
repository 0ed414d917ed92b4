//! In-memory state of each pool between two reconciles. A crash may lose all of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use super::output::OutputPart;
use super::probes::Probed;
use super::sources::{SourceCache, TableKey};
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::swarm_pool::status::PoolChange;
use ganglion_core::facts::Key;
use ganglion_core::words::counted;
use ganglion_pools_plan::deal::{Deal, DealRules};
use ganglion_pools_plan::jobs::JobTable;

/// Maximum length of the description of a change, in characters.
const MAX_WHY: usize = 200;

/// In-memory state of all pools, and the probes of their workers.
#[derive(Default)]
pub struct PoolMemory {
    pools: Mutex<HashMap<Key, Memory>>,
    pub(super) probed: Mutex<HashMap<Key, BTreeMap<String, Probed>>>,
}

impl PoolMemory {
    pub(super) fn pools(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn probed(&self) -> MutexGuard<'_, HashMap<Key, BTreeMap<String, Probed>>> {
        self.probed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In-memory state of one pool.
pub(super) struct Memory {
    uid: Option<String>,
    /// Parsed source ConfigMaps, by name.
    pub sources: HashMap<String, SourceCache>,
    /// All jobs of the pool, with the key of the sources that they were merged from.
    pub table: Option<(TableKey, Arc<JobTable>)>,
    pub deal: Option<LastDeal>,
    /// Output ConfigMaps as last read or written, by name.
    pub parts: BTreeMap<String, OutputPart>,
    /// true: this process has read the output ConfigMaps.
    pub has_read: bool,
    /// true: somebody edited or deleted the output ConfigMaps; workers may have read lists that the operator did not
    /// write.
    pub distrusts: bool,
    /// Slots of the last assignment that was acted on.
    pub slots: BTreeSet<u32>,
    /// Inputs of the last assignment that changed a list; the next change is described by the difference.
    pub dealt: Option<Dealt>,
    /// Time since which workers have been missing; None if all are Ready.
    pub missing_since: Option<Timestamp>,
    /// Workers whose pod did not run according to a live read, with the version of their list at that time.
    pub stopped: BTreeMap<String, i64>,
    /// Version of the list for which each worker was last evicted, and the number of evictions for that version.
    pub again: BTreeMap<String, (i64, u32)>,
    /// Last annotation of each pod with the version of its list.
    pub told: BTreeMap<String, Told>,
    /// Writes of `spec.replicas` of the workload: time and number.
    pub scaled: Vec<(Timestamp, i32)>,
    /// Time of the last status write.
    pub reported_at: Option<Timestamp>,
    /// Last change of the assignment, and the number of jobs that it moves.
    pub change: Option<(PoolChange, usize)>,
}

/// The last computed assignment, with its inputs.
pub(super) struct LastDeal {
    pub table: Arc<JobTable>,
    pub slots: Vec<u32>,
    pub rules: DealRules,
    pub deal: Arc<Deal>,
}

/// See [`Memory::told`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub version: i64,
    pub times: u32,
    pub at: Timestamp,
}

impl Told {
    /// Time at which the pod is annotated again, unless it reports the version earlier.
    pub fn again_at(self) -> Option<Timestamp> {
        let pause = FIRST_AGAIN.checked_mul(1 << self.times.min(6))?;
        self.at.checked_add(pause).ok()
    }
}

/// Delay before a pod that does not report the version is annotated again. Doubles with each repetition.
const FIRST_AGAIN: SignedDuration = SignedDuration::from_secs(2);

/// Inputs of an assignment, kept to describe the next change.
#[derive(Clone)]
pub(super) struct Dealt {
    pub workers: usize,
    pub drained: BTreeSet<String>,
    pub table: Arc<JobTable>,
}

impl Dealt {
    /// Describes what changed since `old`; None if nothing did.
    pub fn difference(&self, old: &Self) -> Option<String> {
        let mut parts = Vec::new();
        if old.workers != self.workers {
            parts.push(format!("{} to {}", old.workers, counted(self.workers, "worker")));
        }
        let drained: Vec<&str> = self.drained.difference(&old.drained).map(String::as_str).collect();
        if !drained.is_empty() {
            parts.push(format!("{} drained", drained.join(", ")));
        }
        let back: Vec<&str> = old.drained.difference(&self.drained).map(String::as_str).collect();
        if !back.is_empty() {
            parts.push(format!("{} no longer drained", back.join(", ")));
        }
        let (before, after) = (&old.table.jobs, &self.table.jobs);
        if before.len() != after.len() {
            parts.push(format!("{} to {}", before.len(), counted(after.len(), "job")));
        } else if !Arc::ptr_eq(&old.table, &self.table) && before != after {
            parts.push("jobs changed".to_owned());
        }
        (!parts.is_empty()).then(|| parts.join(", ").chars().take(MAX_WHY).collect())
    }
}

impl Memory {
    pub fn new(pool: &SwarmPool) -> Self {
        let status = pool.status.as_ref();
        Self {
            uid: pool.metadata.uid.clone(),
            sources: HashMap::new(),
            table: None,
            deal: None,
            parts: BTreeMap::new(),
            has_read: false,
            distrusts: false,
            slots: BTreeSet::new(),
            dealt: None,
            missing_since: status.and_then(|status| status.waiting_since.as_ref()).map(|time| time.0),
            stopped: BTreeMap::new(),
            again: BTreeMap::new(),
            told: BTreeMap::new(),
            scaled: Vec::new(),
            reported_at: None,
            change: None,
        }
    }

    pub fn is_of(&self, pool: &SwarmPool) -> bool {
        self.uid == pool.metadata.uid
    }
}
