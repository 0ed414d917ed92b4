//! The end of an action, and the cleanup after it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::world::{ActionsWorld, OwnerReading};
use ganglion_api::marks;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{Plan, Slot, Step};
use ganglion_api::workload_action::{MOST_REPLICAS, WorkloadActionStatus};
use ganglion_core::conditions::{self, Health, Stamp};
use ganglion_core::facts::{DeploymentFact, Ledger, ReceiptFact, ReplicaSetFact, ScaleFact, StatefulSetFact};

use super::context::PlanContext;
use super::effect::{Effect, NextStep, Scalable, ScalableKind};
use super::report::{self, ActionHealth};
use super::{NOTHING, identity, notify, origin, record};

/// Ends an action whose slots have all ended.
pub fn conclude(ctx: &PlanContext) -> NextStep {
    let mut status = ctx.status.clone();
    for slot in status.slots.iter_mut().filter(|slot| slot.step == Step::Queued) {
        slot.step = Step::Aborted;
    }
    let health = report::ended(ctx, &status.slots);
    finish(ctx, status, health)
}

/// Ends an action with `count: All` that has no running slot and no replica left. Replicas that were queued for a retry
/// have left by themselves.
pub fn nothing_left(ctx: &PlanContext, plan: Plan) -> NextStep {
    let mut slots = ctx.status.slots.clone();
    slots.retain(|slot| slot.step != Step::Queued);
    let count = i32::try_from(slots.len()).unwrap_or(MOST_REPLICAS);
    let ctx = ctx.counting(Some(count));
    let health = report::ended(&ctx, &slots);
    let status = WorkloadActionStatus { slots, replicas: Some(count), plan: Some(plan), ..ctx.status.clone() };
    finish(&ctx, status, health)
}

/// Ends the action. The end is recorded before the receipt is corrected: an action that has ended cannot start again
/// while its receipt is missing.
pub fn finish(ctx: &PlanContext, mut status: WorkloadActionStatus, health: ActionHealth) -> NextStep {
    status.finished_at = Some(Time(ctx.now));
    status.queued_at = None;
    record(ctx, report::status(ctx, status, &health))
}

/// Reasons of actions that have ended well.
const GOOD: [Reason; 3] = [Reason::Succeeded, Reason::Planned, Reason::AlreadyExecuted];

/// Cleans up after an action that has ended: the receipt, its conditions, the ledger on the workload and the
/// finalizer; then the notifications, which a deletion by ttl waits for.
pub fn after(ctx: &PlanContext) -> NextStep {
    if let Some(effect) = receipt_put_right(ctx) {
        return NextStep::Do(effect);
    }
    if let Some(status) = result_put_right(ctx) {
        return record(ctx, status);
    }
    if let Some(workload) = ctx.status.slots.iter().find_map(|slot| ledger_left(ctx, slot)) {
        return NextStep::Do(Effect::ClearLedger { workload });
    }
    if ctx.action.metadata.finalizers.iter().flatten().any(|name| name == marks::FINALIZER) {
        return let_go(ctx);
    }
    if ctx.deleting() {
        return NOTHING;
    }
    if ctx.status.observed_generation != Some(ctx.generation()) {
        let mut status = ctx.status.clone();
        status.observed_generation = Some(ctx.generation());
        for condition in &mut status.conditions {
            condition.observed_generation = Some(ctx.generation());
        }
        return record(ctx, status);
    }
    // The end of an attempt enqueues the action.
    if notify::is_pending(ctx.action) {
        return NextStep::Wait { until: notify::next_due(ctx.status, ctx.now), report: None };
    }
    expire(ctx).unwrap_or(NOTHING)
}

/// Returns the status with the result, if the conditions say something else: an action that could not be read for a
/// time has said so. The condition Finished keeps reason and message of the result.
fn result_put_right(ctx: &PlanContext) -> Option<WorkloadActionStatus> {
    let old = &ctx.status.conditions;
    let Condition { reason, message, .. } = conditions::find(old, conditions::FINISHED)?;
    if conditions::find(old, "Ready")?.reason == *reason {
        return None;
    }
    let is_good = GOOD.iter().any(|good| good.as_str() == reason);
    let result = if is_good { Health::Good } else { Health::Stalled };
    let stamp = Stamp { generation: ctx.generation(), now: ctx.now };
    let mut conditions = conditions::summary(old, &result(reason, message.clone()), stamp);
    conditions.extend(old.iter().filter(|one| !conditions::SUMMARY.contains(&one.type_.as_str())).cloned());
    Some(WorkloadActionStatus { conditions, ..ctx.status.clone() })
}

/// Corrects the receipt of an action: deletes it if nothing was done, and records the failure if the action failed
/// after it did something.
fn receipt_put_right(ctx: &PlanContext) -> Option<Effect> {
    let receipt = own_receipt(ctx).filter(|receipt| receipt.outcome.is_none())?;
    let failed = ctx.status.conditions.iter().any(|one| one.type_ == "Ready" && one.status == "False");
    let has_moved = ctx.status.application.as_ref().is_some_and(|progress| progress.moved > 0);
    let did_something =
        has_moved || ctx.status.slots.iter().any(|slot| matches!(slot.step, Step::Succeeded | Step::Failed));
    let receipt = receipt.id.clone();
    match (failed, did_something) {
        (_, false) => Some(Effect::DeleteReceipt { receipt }),
        (true, true) => Some(Effect::FailReceipt { receipt }),
        (false, true) => None,
    }
}

/// An object that still has the ledger of one of the action's slots: the workload, then its ReplicaSets with a copy.
/// The Deployment controller copies annotations to ReplicaSets and never removes one.
fn ledger_left(ctx: &PlanContext, slot: &Slot) -> Option<Scalable> {
    let name = ctx.key(&slot.workload.name);
    let ours = |scale: &ScaleFact| {
        let ledger = Ledger::parse(scale.ledger.as_deref());
        ledger.is_some_and(|ledger| ctx.status.slots.iter().any(|slot| slot.id == ledger.slot))
    };
    if slot.is_stateful() {
        let set = ctx.world.get::<StatefulSetFact>(&name).filter(|known| ours(&known.set.scale))?;
        return Some(Scalable { kind: ScalableKind::StatefulSet, id: set.id.clone() });
    }
    let set = |set: &ReplicaSetFact| Scalable { kind: ScalableKind::ReplicaSet, id: set.id.clone() };
    match slot.workload.kind.as_str() {
        "ReplicaSet" => return ctx.world.get::<ReplicaSetFact>(&name).filter(|known| ours(&known.scale)).map(set),
        "Deployment" => {
            let deployment = ctx.world.get::<DeploymentFact>(&name)?;
            if ours(&deployment.scale) {
                return Some(Scalable { kind: ScalableKind::Deployment, id: deployment.id.clone() });
            }
        }
        _ => {
            let known = ctx.world.get::<ReplicaSetFact>(&ctx.key(&slot.replica_set.name))?.controller.as_ref();
            if let Some(OwnerReading::Known(owner)) = known.and_then(|owner| ctx.world.owner(&owner.uid))
                && ours(&owner.scale)
            {
                return Some(Scalable { kind: ScalableKind::Other(owner.kind.clone()), id: owner.id.clone() });
            }
        }
    }
    ctx.world.sets_of_named(ctx.namespace(), &slot.workload).find(|known| ours(&known.scale)).map(set)
}

/// Deletes the action when its ttl has expired.
fn expire(ctx: &PlanContext) -> Option<NextStep> {
    let ttl = ctx.action.spec.ttl_seconds_after_finished?;
    let finished = ctx.status.finished_at.as_ref()?;
    if origin::gitops_manager(&ctx.action.metadata).is_some() {
        return None;
    }
    let due = finished.0.checked_add(SignedDuration::from_secs(i64::from(ttl))).unwrap_or(Timestamp::MAX);
    if ctx.now >= due {
        return Some(NextStep::Do(Effect::DeleteAction { action: ctx.id() }));
    }
    Some(NextStep::Wait { until: Some(due), report: None })
}

fn own_receipt<'a>(ctx: &PlanContext<'a>) -> Option<&'a ReceiptFact> {
    let receipt = ctx.world.get::<ReceiptFact>(&ctx.key(&identity::receipt_name(ctx.action)));
    receipt.filter(|receipt| receipt.action_uid == ctx.id().uid)
}

/// Ends an action that is deleted before its first effect: deletes the receipt, then removes the finalizer.
pub fn give_up(ctx: &PlanContext) -> NextStep {
    match own_receipt(ctx) {
        Some(receipt) => NextStep::Do(Effect::DeleteReceipt { receipt: receipt.id.clone() }),
        None => let_go(ctx),
    }
}

/// Removes our finalizer.
fn let_go(ctx: &PlanContext) -> NextStep {
    let finalizers = ctx.action.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|name| name == marks::FINALIZER) {
        return NOTHING;
    }
    let finalizers = finalizers.into_iter().filter(|name| name != marks::FINALIZER).collect();
    NextStep::Do(Effect::RemoveFinalizer { action: ctx.id(), finalizers })
}
