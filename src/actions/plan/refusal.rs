//! The next step after the API server refused an effect.

use jiff::{SignedDuration, Timestamp};

use crate::world::ActionsWorld;
use ganglion_api::workload_action::status::{PodOnNode, Slot, Step};
use ganglion_core::facts::{Identity, Key, Ledger, SlotId};
use ganglion_core::world::World;

use super::application::Application;
use super::context::{PlanContext, Work};
use super::effect::{Effect, NextStep, PodChange, Refusal, RefusalKind};
use super::rank::NoRanker;
use super::rollback;
use super::slot::{self, SlotNext};
use super::{Limits, NOTHING, QUEUE_PACE, already_executed, application, record, wait, with_slots};

/// Delay after a refusal that only somebody else can resolve.
pub const REFUSED_PACE: SignedDuration = SignedDuration::from_secs(10);

/// Returns the next step after the API server refused an effect for a reason that an immediate retry does not change.
pub fn refused(key: &Key, world: &World, now: Timestamp, effect: &Effect, refusal: &Refusal) -> NextStep {
    let later = |after| NextStep::Wait { until: Some(now + after), report: None };
    let Some(action) = world.action(key) else { return NOTHING };
    let (Some(status), Ok(work)) = (&action.status, Work::of(&action.spec)) else { return later(REFUSED_PACE) };
    let limits = Limits::default();
    let ctx = PlanContext { world, now, clock: now, limits: &limits, action, status, work, ranker: &NoRanker };
    // No slot has begun without the receipt.
    let of_receipt = || ctx.working().next().filter(|_| matches!(effect, Effect::WriteReceipt(_)));
    let slot = touched(&ctx, effect).or_else(of_receipt);
    let back = |slot: &Slot| {
        let view = slot::View::new(&ctx, slot);
        let SlotNext::Record(new) = view.roll_back(refusal.kind.reason(), &refusal.message) else {
            return later(REFUSED_PACE);
        };
        let slots = status.slots.iter().map(|old| if old.id == new.id { new.clone() } else { old.clone() }).collect();
        record(&ctx, with_slots(&ctx, slots))
    };
    if let Some(application) = Application::of(world, action)
        && let Some(object) = object_of_application(effect, refusal.kind)
    {
        return application::refused(&ctx, application, object, refusal);
    }
    match (effect, refusal.kind, slot) {
        (Effect::WriteReceipt(_), RefusalKind::Taken, _) => already_executed(&ctx).unwrap_or_else(|| later(QUEUE_PACE)),
        (Effect::Evict { .. }, RefusalKind::Budget, Some(slot)) => hold_refused(&ctx, slot, refusal, QUEUE_PACE),
        (_, RefusalKind::Gone, _) => later(QUEUE_PACE),
        (_, RefusalKind::Failing, Some(slot)) if !is_given_up(&ctx, slot) => {
            hold_refused(&ctx, slot, refusal, QUEUE_PACE)
        }
        (_, _, Some(slot)) if slot.step != Step::RollingBack && slot::View::new(&ctx, slot).can_go_back() => back(slot),
        (_, _, Some(slot)) => hold_refused(&ctx, slot, refusal, REFUSED_PACE),
        (_, _, None) => later(REFUSED_PACE),
    }
}

/// Name of the object that a moveApplication could not create, if the refusal has a deadline. A moveApplication has no
/// slot that could show the refusal.
fn object_of_application(effect: &Effect, kind: RefusalKind) -> Option<&'static str> {
    match (effect, kind) {
        (Effect::CreatePart { .. }, _) => Some("a move"),
        (Effect::WriteReceipt(_), RefusalKind::Taken | RefusalKind::Gone) => None,
        (Effect::WriteReceipt(_), _) => Some("the receipt"),
        _ => None,
    }
}

/// Whether the API server has answered the effects of a step with errors for longer than the step may take.
fn is_given_up(ctx: &PlanContext, slot: &Slot) -> bool {
    let timeout = ctx.schedule_time() + ctx.ready_time() + ctx.drain_time();
    slot::View::new(ctx, slot).overdue(slot.step, timeout).unwrap_or(false)
}

/// Waits, with the refusal as the slot's reason.
fn hold_refused(ctx: &PlanContext, slot: &Slot, refusal: &Refusal, pace: SignedDuration) -> NextStep {
    let mut slots = ctx.status.slots.clone();
    for shown in slots.iter_mut().filter(|shown| shown.id == slot.id) {
        if shown.step == Step::RollingBack {
            // The reason of the rollback decides how the slot ends.
            shown.obstacle = Some(refusal.kind.reason());
            shown.message = Some(rollback::hindered_words(shown, &refusal.message));
        } else {
            (shown.reason, shown.message) = (Some(refusal.kind.reason()), Some(refusal.message.clone()));
        }
    }
    wait(ctx, with_slots(ctx, slots), Some(ctx.now + pace))
}

/// The slot that an effect is for.
fn touched<'a>(ctx: &PlanContext<'a>, effect: &Effect) -> Option<&'a Slot> {
    let of = |pod: &Identity| {
        let name = Some(&pod.key.name);
        let mark = ctx.world.pod(&pod.key).and_then(|known| known.marks.slot.as_ref());
        let mut slots = ctx.status.slots.iter();
        slots.find(|slot| {
            let own = |pod: &Option<PodOnNode>| pod.as_ref().map(|pod| &pod.name) == name;
            own(&slot.victim) || own(&slot.replacement) || Some(&slot.id) == mark
        })
    };
    let named = |id: &SlotId| ctx.status.slots.iter().find(|slot| slot.id == *id);
    match effect {
        Effect::CreatePod(pod) => named(&pod.slot),
        Effect::ChangePod { change: PodChange::Mark { slot, .. } | PodChange::Detach { slot, .. }, .. } => named(slot),
        Effect::ChangePod { pod, .. }
        | Effect::Evict { pod, .. }
        | Effect::DeletePod { pod, .. }
        | Effect::ReleasePod { pod, .. } => of(pod),
        Effect::Scale { ledger, .. } => Ledger::parse(ledger.as_deref()).and_then(|ledger| named(&ledger.slot)),
        Effect::Record { .. }
        | Effect::Admit { .. }
        | Effect::AddFinalizer { .. }
        | Effect::RemoveFinalizer { .. }
        | Effect::DeleteAction { .. }
        | Effect::CreatePart { .. }
        | Effect::WriteReceipt(_)
        | Effect::FailReceipt { .. }
        | Effect::DeleteReceipt { .. }
        | Effect::ClearLedger { .. } => None,
    }
}
