//! Pods that the drain evicts itself by the Eviction API, with the user's rights: pods that no action moves, and pods
//! of workloads that the operator leaves alone.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::super::hindrance::Hindrance;
use super::{DrainWishes, LeavingPod, Stay};
use ganglion_core::facts::{Identity, Uid};

/// Maximum time that a pod may exist after its grace period before the drain stops waiting for it.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// Option that lets the drain evict a pod itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionOption {
    Disruption,
    EvictJobs,
    Force,
}

impl EvictionOption {
    pub fn flag(self) -> &'static str {
        match self {
            Self::Disruption => "--disruption",
            Self::EvictJobs => "--evict-jobs",
            Self::Force => "--force",
        }
    }

    fn is_set(self, wishes: &DrainWishes) -> bool {
        match self {
            Self::Disruption => wishes.disruption,
            Self::EvictJobs => wishes.evict_jobs,
            Self::Force => wishes.force,
        }
    }
}

/// A pod that the drain evicts itself if its option is set.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnEviction {
    pub pod: Identity,
    pub option: EvictionOption,
    /// Data that are lost with the pod. They require `--disruption`.
    pub losses: Vec<Hindrance>,
    /// The pod has ended. Without its option, the node counts as empty with it.
    pub finished: bool,
    pub stay: Stay,
}

impl OwnEviction {
    /// Options that are missing.
    pub fn missing(&self, wishes: &DrainWishes) -> Vec<EvictionOption> {
        let data = (!self.losses.is_empty()).then_some(EvictionOption::Disruption);
        let mut missing: Vec<EvictionOption> = [Some(self.option), data].into_iter().flatten().collect();
        missing.retain(|option| !option.is_set(wishes));
        missing.dedup();
        missing
    }

    /// Whether the drain waits until the pod ends by itself.
    pub fn is_waited_for(&self, wishes: &DrainWishes) -> bool {
        self.option == EvictionOption::EvictJobs && !wishes.evict_jobs && !wishes.leave_jobs
    }
}

/// Answer of the API server to the last eviction of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastEviction {
    Accepted,
    /// Somebody else has removed the pod.
    Gone,
    /// A budget does not allow it now. The drain tries again.
    Blocked(String),
    /// Another attempt would not help.
    Refused(String),
}

/// Times at which the drain first saw a pod terminate, by its own clock.
#[derive(Clone, Debug, Default)]
pub struct Terminations(BTreeMap<Uid, Timestamp>);

impl Terminations {
    /// Remembers the pods that terminate now, and forgets all others.
    pub fn note(&mut self, leaving: &[LeavingPod], now: Timestamp) {
        let ends = leaving.iter().filter(|one| one.termination.is_some()).map(|one| one.pod.uid.clone());
        self.0 = ends.map(|uid| (uid.clone(), self.0.get(&uid).copied().unwrap_or(now))).collect();
    }

    pub(super) fn is_overdue(&self, leaving: &LeavingPod, now: Timestamp) -> bool {
        let Some(termination) = &leaving.termination else { return false };
        let limit = SignedDuration::from_secs(termination.grace_seconds) + PATIENCE;
        self.0.get(&leaving.pod.uid).is_some_and(|since| now.duration_since(*since) > limit)
    }
}
