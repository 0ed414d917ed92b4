//! The eviction of the old pod, for all protocols, and the check of the outcome.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{Protocol, Step};
use ganglion_core::facts::PodFact;

use super::context::Verb;
use super::deletion;
use super::effect::{Effect, PodChange};
use super::obstacles;
use super::replacement;
use super::rollback::CONTROLLERS;
use super::set::Pods;
use super::slot::{NOTABLE, SlotNext, View};

/// Maximum time for which an eviction waits until the surplus is gone and the disruption controller has updated the
/// budget's status.
const CALM: SignedDuration = SignedDuration::from_secs(2);

/// Time for which the grant of an eviction that was not carried out is used. It is shorter than [`GRANT_LASTS`], since
/// the API server has another clock.
const GRANT_TRUSTED: SignedDuration = SignedDuration::from_secs(100);

/// Time for which a budget counts a pod as disrupted whose eviction was granted and not carried out (`DeletionTimeout`
/// of the disruption controller).
pub const GRANT_LASTS: SignedDuration = SignedDuration::from_secs(120);

/// Records the intent to evict the old pod.
pub fn commit(view: &View) -> SlotNext {
    let mut slot = view.noted();
    slot.evicting = true;
    slot.scaled = view.scaled();
    slot.step = Step::Evicting;
    slot.since = Time(view.ctx.now);
    (slot.reason, slot.message) = (None, None);
    SlotNext::Record(slot)
}

/// Evicts the old pod as soon as budgets allow it.
pub fn evict(view: &View) -> SlotNext {
    let step = Step::Evicting;
    let Some(victim) = view.victim else { return view.hold(step, None, None, None) };
    if !victim.is_active() {
        let timeout = view.ctx.termination_time(victim);
        if view.overdue(step, timeout).unwrap_or(false) {
            if let Some((surplus, pods)) = view.surplus() {
                return release(view, step, surplus, &pods);
            }
            let runs = if view.slot.protocol == Protocol::Replacement { "its replacement runs; " } else { "" };
            let advice = deletion::keeper_words(victim);
            let message = format!("pod {} was evicted and does not terminate; {runs}{advice}", victim.id.key.name);
            return view.end(Step::Failed, Reason::VictimStuck, &message);
        }
        return view.hold(step, None, None, view.deadline(step, timeout));
    }
    if let Some(next) = replacement::failure(view, step) {
        return next;
    }
    if let Some(next) = surplus_first(view, step) {
        return next;
    }
    let granted = is_granted(view, victim);
    if let Some((reason, message)) = obstacles::budget(view, victim).filter(|_| !granted) {
        return view.hold_or_back(step, reason, message, view.ctx.drain_time());
    }
    if !granted && budget_moves(view) && !view.overdue(step, CALM).unwrap_or(false) {
        return view.hold(step, None, None, view.deadline(step, CALM));
    }
    // A set that is short because of a quota would create a pod as soon as the old one is gone, until it sees its
    // lower `spec.replicas`.
    if view.ctx.work.verb == Verb::Delete && view.pods().is_some_and(|pods| pods.is_short()) {
        let message = "the ReplicaSet has fewer pods than spec.replicas, which was lowered; its controller is behind";
        return view.hold_or_back(step, Reason::SetStuck, message.into(), view.ctx.drain_time());
    }
    if view.overdue(step, view.ctx.drain_time()).unwrap_or(false) {
        return view.roll_back(Reason::BudgetBlocked, "the eviction was refused for drainSeconds");
    }
    SlotNext::Do(view.removal(victim))
}

/// Whether all budgets granted an eviction of the pod that ended before the pod was deleted, for instance because
/// the operator was killed. A deletion completes it; another eviction would need another grant.
pub fn is_granted(view: &View, victim: &PodFact) -> bool {
    let name = &victim.id.key.name;
    let lasts = |at: &Timestamp| victim.created <= *at && view.ctx.now.duration_since(*at) < GRANT_TRUSTED;
    let mut budgets = view.ctx.world.budgets_for(view.ctx.namespace(), &victim.labels).peekable();
    budgets.peek().is_some() && budgets.all(|budget| budget.granted.get(name).is_some_and(lasts))
}

/// Lets the set delete its surplus before the old pod is evicted. If the set deletes another pod instead, the old
/// pod still serves.
fn surplus_first(view: &View, step: Step) -> Option<SlotNext> {
    let (surplus, pods) = view.surplus().filter(|_| !view.slot.break_first || view.taken_in())?;
    if pods.excess() > 0 {
        let message = format!("the ReplicaSet controller has not deleted pod {} yet", surplus.id.key.name);
        return Some(view.hold_or_back(step, Reason::SetStuck, message, view.ctx.drain_time()));
    }
    Some(release(view, step, surplus, &pods))
}

/// Whether the disruption controller is about to write a budget's status: its counts are stale, or a pod is
/// terminating. An eviction that conflicts with such a write costs half a second (`EvictionsRetry` of
/// kube-apiserver).
fn budget_moves(view: &View) -> bool {
    let Some(scope) = view.scope else { return false };
    let (world, labels) = (view.ctx.world, scope.labels());
    let going = || world.pods_marked(&view.slot.id).any(|pod| pod.terminating);
    let mut budgets = world.budgets_for(view.ctx.namespace(), &labels);
    budgets.any(|budget| {
        let Some((pods, healthy)) = world.guarded(budget) else { return going() };
        let differs = |counted: i32, there: usize| i32::try_from(there) != Ok(counted);
        going() || differs(budget.healthy, healthy) || budget.pods.is_some_and(|counted| differs(counted, pods))
    })
}

/// Ends a slot whose workload was deleted after the eviction.
pub fn workload_is_gone(view: &View) -> SlotNext {
    view.end(Step::Failed, Reason::WorkloadGone, "the workload was deleted after its replica had moved")
}

/// Ends the slot when the surplus is gone and the new pod is Ready.
pub fn verify(view: &View) -> SlotNext {
    let step = Step::Verifying;
    if view.scope.is_none() {
        return workload_is_gone(view);
    }
    if let Some((surplus, pods)) = view.surplus() {
        return release(view, step, surplus, &pods);
    }
    if view.slot.replacement.is_some() {
        match view.replacement.filter(|pod| pod.is_active()) {
            None => return replacement_is_lost(view),
            Some(pod) if !pod.is_ready() => return await_taken_in(view, pod),
            Some(_) => {}
        }
    }
    let mut slot = view.noted();
    slot.step = Step::Succeeded;
    slot.since = Time(view.ctx.now);
    slot.scaled = view.scaled();
    (slot.reason, slot.message) = (None, None);
    SlotNext::Record(slot)
}

/// Waits for an adopted pod to become Ready, with the same timeouts as any new pod. A pod that stays unschedulable
/// is evicted, which no budget refuses before it runs, so that its set can create one without the pin.
fn await_taken_in(view: &View, pod: &PodFact) -> SlotNext {
    let step = Step::Verifying;
    let (reason, message, timeout) = match &pod.node {
        None => {
            let why = pod.unschedulable.clone();
            let message = why.unwrap_or_else(|| "the scheduler has not processed the new pod yet".into());
            (Reason::Unschedulable, message, replacement::schedule_time(view))
        }
        Some(_) => {
            let message = "the new pod belongs to its ReplicaSet and is not Ready".to_owned();
            (Reason::ReplacementNotReady, message, view.ctx.ready_time())
        }
    };
    match (view.overdue(step, timeout).unwrap_or(false), &pod.node) {
        (false, _) => view.hold(step, Some(reason), Some(message), view.deadline(step, timeout)),
        (true, None) => SlotNext::Do(view.eviction(pod)),
        (true, Some(_)) => view.end(Step::Failed, reason, &message),
    }
}

/// Ends a slot whose adopted new pod is gone: others deleted it, or the slot did because no node took it.
fn replacement_is_lost(view: &View) -> SlotNext {
    let then = "its ReplicaSet creates another one, on a node that the scheduler chooses";
    match (view.slot.reason, &view.slot.message) {
        (Some(Reason::Unschedulable), Some(why)) => {
            view.end(Step::Failed, Reason::Unschedulable, &format!("no node took the new pod ({why}); {then}"))
        }
        _ => {
            let message = format!("the new pod ended before the action did; {then}");
            view.end(Step::Failed, Reason::ReplacementLost, &message)
        }
    }
}

/// Waits until the set deletes the marked pod. If the set keeps it (somebody scaled up), removes the mark.
pub fn release(view: &View, step: Step, surplus: &PodFact, pods: &Pods) -> SlotNext {
    let is_short = pods.wanted_by_others(Some(&view.slot.id));
    if pods.excess() > 0 || is_short {
        // The pod is about to be deleted.
        if !view.overdue(step, NOTABLE).unwrap_or(false) {
            return view.hold(step, None, None, view.deadline(step, NOTABLE));
        }
        let lacks = if is_short { "created the substitute of another replica" } else { "deleted it" };
        let name = &surplus.id.key.name;
        let message = format!("pod {name} is marked, and the ReplicaSet controller has not {lacks} yet; {CONTROLLERS}");
        return view.hold(step, Some(Reason::SetStuck), Some(message), None);
    }
    SlotNext::Do(Effect::ChangePod {
        pod: surplus.id.clone(),
        change: PodChange::Unmark { cost: pods.template_cost() },
    })
}
