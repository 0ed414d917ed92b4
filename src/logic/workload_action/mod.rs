//! The planner of WorkloadActions: the observed world in, one step out.
//!
//! [`next`] is pure and total. It is asked again after every effect and every change; it keeps nothing between two calls, so
//! that a crash between any two of its effects changes nothing. What must survive a crash stands in the action's status
//! (intent, before the first effect of its kind), on the pods (marks) and on the workload (ledger).

pub mod effect;
pub mod identity;
pub mod janitor;
pub mod ledger;

use jiff::Timestamp;

use crate::logic::facts::Key;
use crate::logic::world::World;
use effect::{Effect, Next, Refusal};

/// How much may be at work at once; a `None` is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub in_all: Option<usize>,
    pub per_namespace: Option<usize>,
    pub per_workload: Option<usize>,
    pub per_source_node: Option<usize>,
    pub per_target_node: Option<usize>,
}

/// What to do next for this action.
#[must_use]
pub fn next(key: &Key, world: &World, now: Timestamp, limits: &Limits) -> Next {
    let _ = (key, world, now, limits);
    Next::Wait { until: None, report: None }
}

/// What to do after the API server refused an effect, for reasons that asking again will not change at once.
#[must_use]
pub fn refused(key: &Key, world: &World, now: Timestamp, effect: &Effect, refusal: &Refusal) -> Next {
    let _ = (key, world, now, effect, refusal);
    Next::Wait { until: None, report: None }
}
