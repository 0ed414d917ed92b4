//! The end of an action, and what is left to do after it.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;

use crate::api::execution::Execution;
use crate::api::marks;
use crate::api::workload_action::WorkloadActionStatus;
use crate::api::workload_action::status::{Slot, Step};
use crate::logic::facts::{Identity, ReceiptFact, ScaleFact, SetFact};

use super::context::PlanContext;
use super::effect::{Effect, Next, Scalable, ScalableKind};
use super::report::{self, ActionHealth};
use super::{NOTHING, identity, record};
use crate::logic::facts::Ledger;

/// All slots have ended.
pub fn conclude(ctx: &PlanContext) -> Next {
    let mut status = ctx.status.clone();
    for slot in status.slots.iter_mut().filter(|slot| slot.step == Step::Queued) {
        slot.step = Step::Aborted;
    }
    let health = report::ended(ctx, &status.slots);
    finish(ctx, status, health)
}

/// The end. It is recorded before the receipt is put right: what cannot begin any more cannot begin without its receipt.
pub fn finish(ctx: &PlanContext, mut status: WorkloadActionStatus, health: ActionHealth) -> Next {
    status.finished_at = Some(Time(ctx.now));
    status.queued_at = None;
    record(ctx, report::status(ctx, status, &health))
}

/// What is left to do for an action that has ended: the receipt, our marks on the workload, the finalizer, the ttl.
pub fn after(ctx: &PlanContext) -> Next {
    if let Some(effect) = receipt_put_right(ctx) {
        return Next::Do(effect);
    }
    if let Some(workload) = ctx.status.slots.iter().find_map(|slot| ledger_left(ctx, slot)) {
        return Next::Do(Effect::ClearLedger { workload });
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
    expire(ctx).unwrap_or(NOTHING)
}

/// The receipt of an action that failed: it goes where nothing was done, and says so where something was.
fn receipt_put_right(ctx: &PlanContext) -> Option<Effect> {
    let receipt = own_receipt(ctx).filter(|receipt| receipt.outcome.is_none())?;
    let failed = ctx.status.conditions.iter().any(|one| one.type_ == "Ready" && one.status == "False");
    let did_something = ctx.status.slots.iter().any(|slot| matches!(slot.step, Step::Succeeded | Step::Failed));
    let receipt = receipt.id.clone();
    match (failed, did_something) {
        (false, _) => None,
        (true, false) => Some(Effect::DeleteReceipt { receipt }),
        (true, true) => Some(Effect::FailReceipt { receipt }),
    }
}

/// What still bears the ledger of one of our slots: the workload, then those of its ReplicaSets that have a copy, since the
/// Deployment controller copies annotations to them and never takes one off again.
fn ledger_left(ctx: &PlanContext, slot: &Slot) -> Option<Scalable> {
    let name = ctx.key(&slot.workload.name);
    let ours = |scale: &ScaleFact| {
        let ledger = Ledger::parse(scale.ledger.as_deref());
        ledger.is_some_and(|ledger| ctx.status.slots.iter().any(|slot| slot.id == ledger.slot))
    };
    let set = |set: &SetFact| Scalable { kind: ScalableKind::ReplicaSet, id: set.id.clone() };
    if slot.workload.kind != "Deployment" {
        return ctx.world.set(&name).filter(|known| ours(&known.scale)).map(set);
    }
    let deployment = ctx.world.deployment(&name)?;
    if ours(&deployment.scale) {
        return Some(Scalable { kind: ScalableKind::Deployment, id: deployment.id.clone() });
    }
    ctx.world.sets_of(&deployment.id.uid).find(|known| ours(&known.scale)).map(set)
}

/// Deletes the action when its ttl is over.
fn expire(ctx: &PlanContext) -> Option<Next> {
    let ttl = ctx.action.spec.ttl_seconds_after_finished?;
    let finished = ctx.status.finished_at.as_ref()?;
    if gitops_manager(&ctx.action.metadata).is_some() {
        return None;
    }
    let due = finished.0 + SignedDuration::from_secs(i64::from(ttl));
    if ctx.now >= due {
        if let Some(receipt) = receipt_of_a_loop(ctx) {
            return Some(Next::Do(Effect::DeleteReceipt { receipt }));
        }
        return Some(Next::Do(Effect::DeleteAction { action: ctx.id() }));
    }
    Some(Next::Wait { until: Some(due), report: None })
}

/// The receipt of an action that a loop made: it goes with the action, or a loop would leave one for each decision, for ever.
/// The loop's Execution knows by itself which of its decisions were carried out.
fn receipt_of_a_loop(ctx: &PlanContext) -> Option<Identity> {
    let mut owners = ctx.action.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == Execution::kind(&()))?;
    own_receipt(ctx).map(|receipt| receipt.id.clone())
}

fn own_receipt<'a>(ctx: &PlanContext<'a>) -> Option<&'a ReceiptFact> {
    let receipt = ctx.world.receipt(&ctx.key(&identity::receipt_name(ctx.action)));
    receipt.filter(|receipt| receipt.action_uid == ctx.id().uid)
}

/// An action that is deleted before it has begun: nothing was done, so there is nothing to remember.
pub fn give_up(ctx: &PlanContext) -> Next {
    match own_receipt(ctx) {
        Some(receipt) => Next::Do(Effect::DeleteReceipt { receipt: receipt.id.clone() }),
        None => let_go(ctx),
    }
}

/// Takes our finalizer off.
fn let_go(ctx: &PlanContext) -> Next {
    let finalizers = ctx.action.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|name| name == marks::FINALIZER) {
        return NOTHING;
    }
    let finalizers = finalizers.into_iter().filter(|name| name != marks::FINALIZER).collect();
    Next::Do(Effect::RemoveFinalizer { action: ctx.id(), finalizers })
}

/// Who manages an object from a repository, by the marks that Argo CD, Flux and Helm leave.
pub fn gitops_manager(meta: &ObjectMeta) -> Option<&'static str> {
    let labels = meta.labels.iter().flatten();
    let marks: Vec<&str> = labels.chain(meta.annotations.iter().flatten()).map(|(key, _)| key.as_str()).collect();
    let has = |prefix: &str| marks.iter().any(|mark| mark.starts_with(prefix));
    if has("argocd.argoproj.io/") {
        Some("Argo CD")
    } else if has("kustomize.toolkit.fluxcd.io/") || has("helm.toolkit.fluxcd.io/") {
        Some("Flux")
    } else if has("meta.helm.sh/") {
        Some("Helm")
    } else {
        None
    }
}
