//! Decides whether to set `spec.replicas` of the workload, or that of a pool that follows its workload.
//!
//! The scale subresource of a pool works only if its spec has replicas. So the operator writes the workload's number
//! into a pool without them, and keeps it up to date. The status records each number before it is written: a pool whose
//! spec has another number was scaled by somebody else, and from then on scales its workload.

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

/// A write that keeps the replicas of a pool equal to those of the workload that it follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowStep {
    /// Set `status.followed` of the pool.
    Record(Vec<i32>),
    /// Set `spec.replicas` of the pool.
    Write(i32),
}

/// Whether the pool follows its workload: its spec has no replicas, or a number that the operator wrote.
fn follows(pool: &SwarmPool) -> bool {
    pool.spec.replicas.is_none_or(|replicas| followed(pool).contains(&replicas))
}

fn followed(pool: &SwarmPool) -> &[i32] {
    pool.status.as_ref().map_or(&[], |status| &status.followed)
}

/// Returns the next write that makes the pool show the replicas of the workload; None if there is nothing to write.
pub fn follow_step(pool: &SwarmPool, workload: &ObservedWorkload) -> Option<FollowStep> {
    let (shown, wanted) = (pool.spec.replicas, workload.scale.replicas);
    let record = |followed: Vec<i32>| (followed != self::followed(pool)).then_some(FollowStep::Record(followed));
    match shown {
        // Otherwise the pool would follow again once somebody sets a recorded number.
        Some(_) if !follows(pool) => record(Vec::new()),
        Some(shown) if shown == wanted => record(vec![wanted]),
        _ if followed(pool).contains(&wanted) => Some(FollowStep::Write(wanted)),
        // The old number counts until the new one is written.
        _ => record(shown.into_iter().chain([wanted]).collect()),
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
    let scaled = pool.spec.replicas.filter(|replicas| !follows(pool) && *replicas != workload.scale.replicas);
    let Some(replicas) = scaled else { return Ok(None) };
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
