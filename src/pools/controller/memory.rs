//! What the controller keeps of each pool between two passes. All of it may be lost.

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

/// Longest text on a change, in characters.
const MAX_WHY: usize = 200;

/// The memory of all pools, and what workers reported.
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

/// The memory of one pool.
pub(super) struct Memory {
    uid: Option<String>,
    /// The texts of ConfigMaps, read.
    pub sources: HashMap<String, SourceCache>,
    /// All jobs, and what they were made from.
    pub table: Option<(TableKey, Arc<JobTable>)>,
    pub deal: Option<LastDeal>,
    /// What the ConfigMaps have, by name.
    pub parts: BTreeMap<String, OutputPart>,
    /// Whether the ConfigMaps were read in this process.
    pub has_read: bool,
    /// What workers read may not be what was written.
    pub distrusts: bool,
    /// The slots of the last deal, and how many jobs it was for.
    pub slots: BTreeSet<u32>,
    pub dealt: Option<Dealt>,
    /// Since when workers have been missing.
    pub missing_since: Option<Timestamp>,
    /// Workers that did not run when the API server was asked, by the version of their list at that time.
    pub stopped: BTreeMap<String, i64>,
    /// How often a pod was restarted because it goes on reporting an older version.
    pub again: BTreeMap<String, (i64, u32)>,
    /// When each pod was last told of a version, and how often.
    pub told: BTreeMap<String, Told>,
    /// When the replicas of the workload were written, and which number.
    pub scaled: Vec<(Timestamp, i32)>,
    /// When the status was last written.
    pub reported_at: Option<Timestamp>,
    /// The last change of who has what, and how many jobs it moves.
    pub change: Option<(PoolChange, usize)>,
}

/// A deal, and what it is for.
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
    /// When the pod is told again if it has not confirmed by then.
    pub fn again_at(self) -> Option<Timestamp> {
        let pause = FIRST_AGAIN.checked_mul(1 << self.times.min(6))?;
        self.at.checked_add(pause).ok()
    }
}

/// How long a pod that was told once may take to confirm before it is told again; then twice as long, and so on.
const FIRST_AGAIN: SignedDuration = SignedDuration::from_secs(2);

/// What a deal was for.
#[derive(Clone)]
pub(super) struct Dealt {
    pub workers: usize,
    pub drained: BTreeSet<String>,
    pub table: Arc<JobTable>,
}

impl Dealt {
    /// What is another than before, for people; None if nothing is.
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
            parts.push(format!("{} takes part again", back.join(", ")));
        }
        let (before, after) = (&old.table.jobs, &self.table.jobs);
        if before.len() != after.len() {
            parts.push(format!("{} to {}", before.len(), counted(after.len(), "job")));
        } else if !Arc::ptr_eq(&old.table, &self.table) && before != after {
            parts.push("other jobs".to_owned());
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
