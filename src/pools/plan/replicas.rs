//! Decides whether to set `spec.replicas` of the workload.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::PoolProblem;
use super::workers::PoolWorkloadFact;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_core::contest;
use ganglion_core::facts::{Identity, PodFact, ScaleFact};

/// Workload of a pool, with its pods.
pub struct ObservedWorkload {
    pub fact: PoolWorkloadFact,
    pub id: Identity,
    pub scale: ScaleFact,
    /// Name of the HorizontalPodAutoscaler that scales it.
    pub autoscaler: Option<String>,
    pub status_replicas: i32,
    /// Label selector of its pods, as text.
    pub selector: String,
    /// By name.
    pub pods: BTreeMap<String, PodFact>,
}

/// A write of `spec.replicas` of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleWrite {
    pub at: Timestamp,
    pub replicas: i32,
}

/// Time at which the replicas are written again after somebody has reverted them several times, which wakes nobody.
pub fn retry_at(writes: &[ScaleWrite]) -> Option<Timestamp> {
    if contest::is_lost(writes.len()) {
        writes.iter().filter_map(|write| contest::forgotten_at(write.at)).min()
    } else {
        None
    }
}

/// Returns the replicas to write; None if the workload has them already. An error if another owner sets them, or has
/// reverted them several times. `writes`: earlier writes of this process, of which it forgets old and different ones.
pub fn replicas_to_write(
    pool: &SwarmPool,
    workload: &ObservedWorkload,
    writes: &mut Vec<ScaleWrite>,
    now: Timestamp,
) -> Result<Option<i32>, PoolProblem> {
    let Some(replicas) = pool.spec.replicas.filter(|replicas| *replicas != workload.scale.replicas) else {
        return Ok(None);
    };
    let (kind, name) = (workload.fact.kind.as_str(), &workload.fact.name);
    if let Some(owner) = workload.scale.owner(workload.autoscaler.as_deref()) {
        let message = format!(
            "spec.replicas of {kind} {name} belongs to {owner}: leave replicas out of the pool, which then follows the \
             workload"
        );
        return Err(PoolProblem::new(PoolReason::ReplicasOwnedElsewhere, message));
    }
    writes.retain(|write| write.replicas == replicas && contest::is_recent(write.at, now));
    if contest::is_lost(writes.len()) {
        let by = workload.scale.written_by.as_deref().unwrap_or("somebody");
        let message = format!(
            "{by} reverted replicas: {replicas} of {kind} {name} {}: let only one of the two set the field, or leave \
             replicas out of the pool",
            contest::HOW_OFTEN
        );
        return Err(PoolProblem::new(PoolReason::FieldConflict, message));
    }
    Ok(Some(replicas))
}
