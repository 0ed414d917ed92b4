//! Decides whether to set `spec.replicas` of the workload, or that of a pool that follows its workload.
//!
//! The scale subresource of a pool works only if its spec has replicas. So the operator writes the workload's number
//! into a pool without them, and keeps it up to date. The status records each number before it is written: a pool whose
//! spec has another number was scaled by somebody else, and from then on scales its workload.
//!
//! Neither write is needed to hand over jobs. So the pool goes on without a write that the API server refuses, reports
//! the refusal, and tries again after ten minutes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::PoolProblem;
use super::refusals::{RefusalCause, WriteRefusal, missing_rule};
use super::workers::PoolWorkloadFact;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_api::workload_action::OnReplicaOwner;
use ganglion_core::conditions::Stamp;
use ganglion_core::contest;
use ganglion_core::facts::{Identity, PodFact, ScaleFact, Uid};

/// Condition of a pool that follows its workload and does not show its replicas, because the API server refuses that.
pub const FOLLOWS_WORKLOAD: &str = "FollowsWorkload";

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleWrite {
    /// The uid of the workload. Nobody has reverted a write to an earlier workload of that name.
    pub workload: Uid,
    pub at: Timestamp,
    pub replicas: i32,
}

/// The last of the writes of one number that were refused, without an accepted one in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedWrite {
    /// Number that was to be written.
    pub replicas: i32,
    pub refusal: WriteRefusal,
}

impl RefusedWrite {
    /// A write that was refused now. `earlier`: the refused write before it.
    pub fn new(
        earlier: Option<&Self>,
        cause: RefusalCause,
        replicas: i32,
        message: impl Into<String>,
        now: Timestamp,
    ) -> Self {
        Self { replicas, refusal: WriteRefusal::new(earlier.map(|earlier| &earlier.refusal), cause, message, now) }
    }

    /// Problem of a pool whose workload cannot be scaled.
    fn scale_problem(&self, workload: &ObservedWorkload) -> PoolProblem {
        let (kind, name, replicas) = (workload.fact.kind, &workload.fact.name, self.replicas);
        let advice = match self.refusal.cause {
            RefusalCause::Permission => missing_rule("apps", kind.resource(), "patch"),
            RefusalCause::Admission | RefusalCause::OldCrd | RefusalCause::NoAnswer => {
                "set another number, leave replicas out of the pool, or change what refuses the number".to_owned()
            }
        };
        let message = format!(
            "{} {name} cannot be scaled to {replicas} replicas: {advice}. Jobs stay with the existing workers, and {}",
            kind.as_str(),
            self.refusal.ending()
        );
        PoolProblem::passing(self.refusal.reason(), message)
    }
}

/// Returns the condition of a pool that follows its workload and does not show its replicas. `refused`: the last
/// refused write.
pub fn follow_condition(
    pool: &SwarmPool,
    workload: &ObservedWorkload,
    refused: Option<&RefusedWrite>,
    stamp: Stamp,
) -> Option<Condition> {
    let refusal = refused.map(|refused| &refused.refusal).filter(|refusal| !refusal.may_pass())?;
    if !follows(pool) || pool.spec.replicas == Some(workload.scale.replicas) {
        return None;
    }
    let advice = match refusal.cause {
        RefusalCause::Permission => missing_rule("ganglion.dev", "swarmpools/scale", "patch"),
        RefusalCause::Admission | RefusalCause::NoAnswer => {
            "let admission policies and webhooks accept this patch of swarmpools/scale by the operator, or set \
             spec.replicas of the pool, which then scales its workload"
                .to_owned()
        }
        RefusalCause::OldCrd => {
            "apply the CRDs of the operator's version: kubectl apply --server-side -k crds".to_owned()
        }
    };
    let message = format!(
        "spec.replicas cannot be set to {}, the number of {} {}, so kubectl scale, autoscalers and loops cannot scale the \
         pool: {advice}. Jobs are handed over as usual, and {}",
        workload.scale.replicas,
        workload.fact.kind.as_str(),
        workload.fact.name,
        refusal.ending()
    );
    Some(refusal.condition(pool, FOLLOWS_WORKLOAD, &message, stamp))
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
/// `refused`: the last refused write.
pub fn follow_step(
    pool: &SwarmPool,
    workload: &ObservedWorkload,
    refused: Option<&RefusedWrite>,
    now: Timestamp,
) -> Option<FollowStep> {
    let (shown, wanted) = (pool.spec.replicas, workload.scale.replicas);
    let record = |followed: Vec<i32>| (followed != self::followed(pool)).then_some(FollowStep::Record(followed));
    match shown {
        // Otherwise the pool would follow again once somebody sets a recorded number.
        Some(_) if !follows(pool) => record(Vec::new()),
        Some(shown) if shown == wanted => record(vec![wanted]),
        // A number that was not written is somebody else's if it appears in the spec.
        _ if refused.is_some_and(|refused| refused.refusal.waits(now)) => record(shown.into_iter().collect()),
        _ if followed(pool).contains(&wanted) => Some(FollowStep::Write(wanted)),
        // The old number counts until the new one is written.
        _ => record(shown.into_iter().chain([wanted]).collect()),
    }
}

/// Returns the replicas to write; None if the workload has them already. An error if another owner sets them, or has
/// reverted them several times, or if the API server has refused them. `writes`: earlier writes of this process, of
/// which it forgets old and different ones. `refused`: the last refused write.
pub fn replicas_to_write(
    pool: &SwarmPool,
    workload: &ObservedWorkload,
    writes: &mut Vec<ScaleWrite>,
    refused: Option<&RefusedWrite>,
    now: Timestamp,
) -> Result<Option<i32>, PoolProblem> {
    let scaled = pool.spec.replicas.filter(|replicas| !follows(pool) && *replicas != workload.scale.replicas);
    let Some(replicas) = scaled else { return Ok(None) };
    let (kind, name) = (workload.fact.kind.as_str(), &workload.fact.name);
    let elsewhere = |owner: &str, choice: &str| {
        let message = format!(
            "spec.replicas of {kind} {name} belongs to {owner}: leave replicas out of the pool, which then follows the \
             workload{choice}"
        );
        PoolProblem::new(PoolReason::ReplicasOwnedElsewhere, message)
    };
    let yields = pool.spec.on_replica_owner != Some(OnReplicaOwner::Force);
    if let Some(owner) = workload.scale.owned_by.as_ref().filter(|_| yields) {
        let choice = ", or set onReplicaOwner: Force in the pool if the owner ignores changes of the field";
        return Err(elsewhere(&owner.manager, choice));
    }
    // An autoscaler ignores no changes.
    if let Some(autoscaler) = &workload.autoscaler {
        return Err(elsewhere(&format!("the autoscaler {autoscaler}"), ""));
    }
    writes.retain(|write| {
        write.workload == workload.id.uid && write.replicas == replicas && contest::is_recent(write.at, now)
    });
    if contest::is_lost(writes.len()) {
        let by = workload.scale.written_by.as_deref().unwrap_or("somebody");
        let message = format!(
            "{by} reverted replicas: {replicas} of {kind} {name} {}: let only one of the two set the field, or leave \
             replicas out of the pool",
            contest::HOW_OFTEN
        );
        return Err(PoolProblem::new(PoolReason::FieldConflict, message));
    }
    match refused.filter(|refused| refused.replicas == replicas && refused.refusal.waits(now)) {
        Some(refused) => Err(refused.scale_problem(workload)),
        None => Ok(Some(replicas)),
    }
}
