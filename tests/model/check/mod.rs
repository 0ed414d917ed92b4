//! The rules: after every step (`invariants`, with `accounts` and `intent`), for every request by what the cache
//! contained when it was sent (`knowledge`), for a waiting action (`waits`), at the end of an action (`outcome`), and
//! at rest (`rest`).

pub mod accounts;
pub mod intent;
pub mod invariants;
pub mod knowledge;
pub mod limits;
pub mod outcome;
pub mod rest;
pub mod waits;

use ganglion_api::workload_action::{Disruption, MOST_REPLICAS, ReplicaCount, WorkloadActionSpec};
use ganglion_core::facts::Key;

use crate::cluster::Part;
use crate::face::deed::Deed;

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the rule, one word. The statistics count by it, and it identifies a failure.
    pub rule: &'static str,
    pub text: String,
}

pub fn violation<T>(rule: &'static str, text: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { rule, text: text.into() })
}

/// Cause of a step.
#[derive(Clone, Debug)]
pub enum Cause {
    Cluster(Part),
    Foreign,
    /// A request that the operator sent for this action.
    Operator {
        action: Key,
        deed: Deed,
    },
}

/// Maximum effects of an action.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The decision: the same for an action and its re-creation under runPolicy Once.
    pub decision: Key,
    pub evictions: usize,
    /// Minimum and maximum change of replicas at any time.
    pub scale: (i32, i32),
    pub disruption: bool,
}

impl Terms {
    pub fn of(decision: Key, spec: &WorkloadActionSpec) -> Self {
        let disruption = spec.disruption == Disruption::Allowed;
        let of = |count: Option<ReplicaCount>, up_to: Option<i32>| match count {
            Some(ReplicaCount::All) => up_to.unwrap_or(MOST_REPLICAS),
            Some(ReplicaCount::Number(count)) => count,
            None => 1,
        };
        let (evictions, scale) = if let Some(create) = &spec.create {
            (0, (0, create.count.unwrap_or(1)))
        } else if let Some(delete) = &spec.delete {
            let most = of(delete.count, delete.up_to);
            (most, (-most, 0))
        } else if let Some(moved) = &spec.move_ {
            (of(moved.count, moved.up_to), (0, 0))
        } else if let Some(swap) = &spec.swap {
            (i32::try_from(swap.with.len()).unwrap_or(0) + 1, (0, 0))
        } else {
            (0, (0, 0))
        };
        Self { decision, evictions: usize::try_from(evictions).unwrap_or(0), scale, disruption }
    }
}
