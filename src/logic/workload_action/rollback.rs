//! One slot, backwards: undoes what was done, in the order that keeps every replica, and ends the slot.
//!
//! The goal: the new pod gone, the old one back in its set, replicas as they were, no mark left. The set is never given a
//! pod before another of its pods is marked to go, as on the way forward.

use crate::api::reasons::Reason;
use crate::api::workload_action::status::{Slot, Step};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::context::Verb;
use super::effect::Effect;
use super::scope::Scope;
use super::set::Pods;
use super::slot::{SlotNext, View};
use crate::logic::facts::Ledger;

/// How often a slot is begun anew after a change from outside undid it.
const MOST_ATTEMPTS: i32 = 5;

/// What a slot that is going back wants next.
pub fn next(view: &View) -> SlotNext {
    if carried_through(view) {
        let mut slot = view.noted();
        slot.step = Step::Verifying;
        slot.since = Time(view.ctx.now);
        (slot.reason, slot.message) = (None, None);
        return SlotNext::Record(slot);
    }
    replacement_away(view)
        .or_else(|| victim_back(view))
        .or_else(|| replicas_back(view))
        .or_else(|| marks_off(view))
        .unwrap_or_else(|| SlotNext::Record(ended(view)))
}

/// What we were about to undo turns out to have happened: an eviction was accepted whose answer never reached us, or the
/// old pod was deleted by others when the new one was in its place.
fn carried_through(view: &View) -> bool {
    match view.ctx.work.verb {
        Verb::Create => view.taken_in(),
        Verb::Delete => view.slot.evicting && !view.victim_runs() && view.scaled(),
        Verb::Move => view.taken_in() && !view.victim_runs(),
    }
}

/// The new pod goes, as long as it is not the set's.
fn replacement_away(view: &View) -> Option<SlotNext> {
    let pod = view.replacement.filter(|pod| !view.taken_in() && !pod.terminating)?;
    Some(SlotNext::Do(Effect::DeletePod { pod: pod.id.clone() }))
}

/// The old pod goes back into its set, once something else is marked to go for it.
fn victim_back(view: &View) -> Option<SlotNext> {
    let victim = view.victim.filter(|pod| pod.is_active() && view.is_out())?;
    let (Some(scope), Some(pods)) = (&view.scope, view.pods()) else {
        // Without its set it has no place to go back to; with the workload it would have been deleted, too.
        return Some(SlotNext::Do(Effect::DeletePod { pod: victim.id.clone() }));
    };
    if view.ctx.work.verb == Verb::Delete && view.scaled() {
        return Some(unscale(view, scope, 1));
    }
    if let Some(next) = substitute(view, &pods) {
        return Some(next);
    }
    Some(view.attach(victim, scope))
}

/// Something of the set that goes when the old pod comes back: the new pod if the set has it, else the surplus.
fn substitute(view: &View, pods: &Pods) -> Option<SlotNext> {
    // Also where the surplus is still there: it may have become the substitute of another replica that is out.
    if let Some(pod) = view.replacement.filter(|pod| view.taken_in() && pod.is_active() && pod.marks.slot.is_none()) {
        return Some(view.mark(pod));
    }
    let marked = pods.surplus_of(&view.slot.id).is_some();
    if marked && pods.may_take_in() {
        return None;
    }
    if marked {
        // The set is about to let more go than are marked, or a change of its number is still on its way to it.
        return Some(wait(view));
    }
    if let Some(next) = view.mark_surplus(pods) {
        return Some(next);
    }
    // The old pod serves meanwhile: there is no hurry, and without a substitute the set would choose who goes.
    (pods.is_to_make_one() || pods.may_let_more_go()).then(|| wait(view))
}

/// The workload's replicas go back to what they were, once the surplus is marked.
fn replicas_back(view: &View) -> Option<SlotNext> {
    let scope = view.scope.as_ref().filter(|_| view.scaled())?;
    let pods = view.pods()?;
    match view.ctx.work.verb {
        Verb::Move => None,
        // The old pod is gone without our doing; the number is still to be as before.
        Verb::Delete => Some(unscale(view, scope, 1)),
        Verb::Create => {
            Some(calm(view, scope).or_else(|| substitute(view, &pods)).unwrap_or_else(|| unscale(view, scope, -1)))
        }
    }
}

/// One replica fewer in the middle of a rollout, which is short of some by its own leave, may leave the workload with fewer
/// than are asked for then: the number waits for its end, within reason; so it does after the watches broke off.
fn calm(view: &View, scope: &Scope) -> Option<SlotNext> {
    let (step, timeout) = (Step::RollingBack, view.ctx.drain_time());
    if let Some(until) = view.catching_up(step) {
        return Some(view.hold(step, view.slot.reason, view.slot.message.clone(), Some(until)));
    }
    if !scope.rolls(view.ctx.world) || view.overdue(step, timeout).unwrap_or(false) {
        return None;
    }
    Some(view.hold(step, view.slot.reason, view.slot.message.clone(), view.deadline(step, timeout)))
}

fn unscale(view: &View, scope: &Scope, by: i32) -> SlotNext {
    if ledger_is_taken(view, scope) {
        return wait(view);
    }
    scale(view, scope, by, true, Vec::new())
}

/// What this slot marked goes by itself where the set has too many; where not, the mark comes off.
fn marks_off(view: &View) -> Option<SlotNext> {
    if let Some((marked, pods)) = view.surplus() {
        return Some(match view.release(Step::RollingBack, marked, &pods) {
            // Why it goes back is to stay what the user reads.
            SlotNext::Wait(_) => wait(view),
            next => next,
        });
    }
    // The new pod is on its way out: gone is gone.
    view.replacement.filter(|pod| pod.terminating && !view.taken_in()).map(|_| wait(view))
}

fn wait(view: &View) -> SlotNext {
    view.hold(Step::RollingBack, view.slot.reason, view.slot.message.clone(), None)
}

/// The end of the slot, or its beginning: what a change from outside undid is tried again.
fn ended(view: &View) -> Slot {
    let mut slot = view.slot.clone();
    let again = matches!(slot.reason, Some(Reason::RolloutStarted | Reason::WorkloadScaled | Reason::VictimGone));
    slot.since = Time(view.ctx.now);
    slot.scaled = false;
    if again && slot.attempt < MOST_ATTEMPTS && !view.ctx.aborted() && !slot.evicting {
        slot.step = Step::Queued;
        slot.attempt += 1;
        (slot.victim, slot.replacement) = (None, None);
        slot.tried.clear();
    } else {
        slot.step = if slot.reason == Some(Reason::Aborted) { Step::Aborted } else { Step::RolledBack };
    }
    slot
}

/// Another slot's entry in the ledger is still the only proof of what it did, or its exchange is not over: until then one
/// more change of the number would let the set take or make a pod that is nobody's.
pub fn ledger_is_taken(view: &View, scope: &Scope) -> bool {
    let Some(ledger) = scope.ledger().filter(|ledger| ledger.slot != view.slot.id) else { return false };
    let world = view.ctx.world;
    let holder = world.action_of(&ledger.slot).and_then(|key| world.action(key));
    let slots =
        holder.and_then(|action| action.status.as_ref()).map(|status| status.slots.as_slice()).unwrap_or_default();
    slots.iter().any(|slot| {
        let passed_on = slot.scaled && slot.evicting && !ledger.undone;
        slot.id == ledger.slot && !slot.step.is_end() && !passed_on
    })
}

/// The patch that changes the replicas together with the ledger.
pub fn scale(view: &View, scope: &Scope, by: i32, undone: bool, peers: Vec<String>) -> SlotNext {
    let from = scope.replicas();
    let to = from.saturating_add(by).max(0);
    let ledger = Ledger { slot: view.slot.id.clone(), undone, from, to, peers };
    SlotNext::Do(Effect::Scale { workload: scope.scalable(), replicas: to, ledger: Some(ledger.render()) })
}
