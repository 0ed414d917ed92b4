//! One slot, backward: undoes the effects in an order that loses no replica, and ends the slot.
//!
//! The goal: the new pod is deleted, the old pod is back in its set, `spec.replicas` is restored, and no mark is left.
//! As in the forward direction, a pod is added to the set only when another of its pods is marked for deletion.

use jiff::Timestamp;

use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{Protocol, Slot, Step};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::context::Verb;
use super::deletion;
use super::effect::Effect;
use super::eviction;
use super::exchange;
use super::obstacles;
use super::scope::Scope;
use super::set::Pods;
use super::slot::{Hold, NOTABLE, SlotNext, View};
use super::successor;
use ganglion_core::facts::{Ledger, PodFact};

/// Maximum number of retries of a slot that was rolled back because of changes by others.
const MOST_ATTEMPTS: i32 = 5;

/// Text between the cause of a rollback and the reason why it is not complete.
const NOT_UNDONE: &str = "; not undone yet: ";

/// Where the controllers of ReplicaSets run, as advice.
pub const CONTROLLERS: &str = "is kube-controller-manager running?";

/// The next step of a slot that rolls back.
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

/// Whether the slot was completed after all: an eviction was accepted and its answer lost, or others deleted the old
/// pod after the set had adopted the new one.
fn carried_through(view: &View) -> bool {
    match view.ctx.work.verb {
        Verb::Create => view.taken_in(),
        Verb::Delete => view.slot.evicting && !view.victim_runs() && view.scaled(),
        Verb::Move if view.slot.protocol != Protocol::Replacement => view.slot.evicting && !view.victim_runs(),
        Verb::Move => view.taken_in() && !view.victim_runs(),
    }
}

/// Removes the new pod, unless the set has adopted it.
fn replacement_away(view: &View) -> Option<SlotNext> {
    let is_ours = |pod: &&PodFact| !view.taken_in() && view.owns_replacement(pod);
    let pod = view.replacement.filter(is_ours).filter(|pod| !pod.terminating)?;
    Some(SlotNext::Do(view.removal_of_own(pod)))
}

/// Adds the old pod to its set again after another pod is marked for deletion in its place.
fn victim_back(view: &View) -> Option<SlotNext> {
    let victim = view.victim.filter(|pod| pod.is_active() && view.is_out())?;
    let (Some(scope), Some(pods)) = (&view.scope, view.pods()) else {
        if !view.set_is_gone() {
            let set = &view.slot.replica_set.name;
            return Some(wait(
                view,
                Reason::SetStuck,
                format!(
                    "the old pod serves outside ReplicaSet {set}, whose workload was deleted and which still exists; \
                     {CONTROLLERS}"
                ),
                None,
            ));
        }
        // Its set is gone. Kubernetes deletes the pods of a deleted workload without asking budgets, and would have
        // deleted this pod, too.
        return Some(SlotNext::Do(view.deletion(victim)));
    };
    if view.ctx.work.verb == Verb::Delete && view.scaled() {
        return Some(unscale(view, scope, 1));
    }
    if successor::is_superfluous(view, &pods) {
        return Some(SlotNext::Do(view.removal(victim)));
    }
    if let Some(next) = substitute(view, &pods) {
        return Some(next);
    }
    Some(exchange::attach(view, victim, scope))
}

/// Marks the pod that the set deletes when the old pod is back: the new pod if the set has adopted it, otherwise the
/// surplus.
fn substitute(view: &View, pods: &Pods) -> Option<SlotNext> {
    // Even if the surplus still exists: it may have become the substitute of another detached replica.
    if let Some(pod) = view.replacement.filter(|pod| view.taken_in() && pod.is_active() && pod.marks.slot.is_none()) {
        return Some(exchange::mark(view, pod));
    }
    let marked = pods.surplus_of(&view.slot.id).is_some();
    if marked && pods.may_take_in() {
        return None;
    }
    let set = &view.slot.replica_set.name;
    if marked {
        // The set is about to delete more pods than are marked, or has not seen a change of its replicas yet.
        let words = format!("ReplicaSet {set} has more pods than spec.replicas, or has not seen it yet; {CONTROLLERS}");
        return Some(wait(view, Reason::SetStuck, words, None));
    }
    if let Some(next) = exchange::mark_surplus(view, pods) {
        return Some(next);
    }
    // The old pod still serves, so waiting is safe, and an end is not. Without a substitute, the set would choose the
    // pod that it deletes.
    let is_stuck = pods.is_to_make_one() || pods.may_let_more_go();
    is_stuck.then(|| {
        let words = format!("ReplicaSet {set} has not created the pod that it lacks yet; {CONTROLLERS}");
        wait(view, Reason::SetStuck, words, None)
    })
}

/// Restores the workload's replicas, once the surplus is marked.
fn replicas_back(view: &View) -> Option<SlotNext> {
    let scope = view.scope.as_ref().filter(|_| view.scaled())?;
    let pods = view.pods()?;
    match view.ctx.work.verb {
        Verb::Move => None,
        // Others deleted the old pod. The replicas are restored nevertheless.
        Verb::Delete => Some(unscale(view, scope, 1)),
        Verb::Create => {
            Some(calm(view, scope).or_else(|| substitute(view, &pods)).unwrap_or_else(|| unscale(view, scope, -1)))
        }
    }
}

/// Message of a slot that rolls back and is kept from it: the cause of the rollback, and the obstacle.
pub fn hindered_words(slot: &Slot, obstacle: &str) -> String {
    let cause = slot.message.as_deref().map_or("", cause_of);
    format!("{cause}{NOT_UNDONE}{obstacle}")
}

/// Shows in the slot what keeps it from being rolled back. Its reason stays, which decides how the slot ends.
pub fn show_obstacle(slot: &mut Slot, hold: &Hold) {
    slot.obstacle = hold.reason;
    let obstacle = hold.message.as_deref().filter(|_| hold.reason.is_some());
    slot.message = match obstacle {
        Some(words) => Some(hindered_words(slot, words)),
        None => slot.message.as_deref().map(|message| cause_of(message).to_owned()),
    };
}

/// The cause of a rollback, without an obstacle.
fn cause_of(message: &str) -> &str {
    message.split_once(NOT_UNDONE).map_or(message, |(cause, _)| cause)
}

/// Waits before the replicas are lowered: during a rollout, which may have unavailable replicas of its own, at most
/// `drainSeconds`; and after the watches broke.
fn calm(view: &View, scope: &Scope) -> Option<SlotNext> {
    let (step, timeout) = (Step::RollingBack, view.ctx.drain_time());
    let until = |until, reason, words: &str| Some(view.hold(step, reason, Some(words.to_owned()), until));
    if let Some(at) = obstacles::catching_up(view, step) {
        let words = "the connection to the API server broke a moment ago";
        return until(Some(at), Some(Reason::WatchesBroken), words);
    }
    if let Some(at) = obstacles::mark_arrives(view, step) {
        return until(Some(at), None, "");
    }
    if !scope.rolls(view.ctx.world) || view.overdue(step, timeout).unwrap_or(false) {
        return None;
    }
    until(view.deadline(step, timeout), Some(Reason::RolloutInProgress), "a rollout of the workload is in progress")
}

fn unscale(view: &View, scope: &Scope, by: i32) -> SlotNext {
    if ledger_is_taken(view, scope) {
        let words = "another replica is changing spec.replicas of the workload".to_owned();
        return wait(view, Reason::WorkloadBusy, words, None);
    }
    scale(view, scope, by, true, Vec::new())
}

/// Waits until the set deletes the pod that this slot marked. If the set keeps it, removes the mark.
fn marks_off(view: &View) -> Option<SlotNext> {
    if let Some((marked, pods)) = view.surplus() {
        return Some(eviction::release(view, Step::RollingBack, marked, &pods));
    }
    // Wait until the new pod has terminated. Its node may be dead, or a finalizer may keep it.
    let leftover = leftover(view)?;
    let timeout = view.ctx.termination_time(leftover);
    let deadline = view.deadline(Step::RollingBack, timeout);
    let is_over = view.overdue(Step::RollingBack, timeout).unwrap_or(false);
    let until = deadline.map(|until| format!(", at most until {}", until.strftime("%H:%M:%S UTC")));
    let words = format!("pod {} terminates{}", leftover.id.key.name, until.unwrap_or_default());
    (!is_over).then(|| wait(view, Reason::RollingBack, words, deadline))
}

/// The new pod, if it terminates and its set has not adopted it.
fn leftover<'a>(view: &View<'a>) -> Option<&'a PodFact> {
    view.replacement.filter(|pod| pod.terminating && !view.taken_in())
}

/// Waits for others, and says for what if the wait lasts. Without `until`, it has no deadline: an end would leave a pod
/// outside its set, or let the set choose the pod that it deletes. A change of the cluster continues it.
pub fn wait(view: &View, obstacle: Reason, words: String, until: Option<Timestamp>) -> SlotNext {
    let step = Step::RollingBack;
    if view.overdue(step, NOTABLE).unwrap_or(false) {
        return view.hold(step, Some(obstacle), Some(words), until);
    }
    view.hold(step, None, None, super::earlier(until, view.deadline(step, NOTABLE)))
}

/// Ends the slot. A slot that was rolled back because of a change by others is queued again.
fn ended(view: &View) -> Slot {
    let mut slot = view.slot.clone();
    slot.message = slot.message.as_deref().map(|message| cause_of(message).to_owned());
    if let (Some(pod), Some(message)) = (leftover(view), &mut slot.message) {
        let stuck = deletion::stuck_words(pod);
        // The same words may be the cause of the rollback.
        if !message.contains(&stuck) {
            *message += &format!("; {stuck}");
        }
    }
    let again = matches!(
        slot.reason,
        Some(Reason::RolloutStarted | Reason::WorkloadScaled | Reason::VictimGone | Reason::NodeNotCordoned)
    );
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

/// Whether another slot still needs its entry in the ledger: the entry is the only proof of its change of the replicas,
/// or its exchange of pods is not complete. Another change of the replicas would make the set create or delete a pod
/// that belongs to no slot.
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

fn unread_words(scope: &Scope) -> String {
    let workload = scope.workload();
    format!("{} {} was not read yet", workload.kind, workload.name)
}

/// The effect that changes replicas and ledger together.
pub fn scale(view: &View, scope: &Scope, by: i32, undone: bool, peers: Vec<String>) -> SlotNext {
    let from = scope.replicas();
    let to = from.saturating_add(by).max(0);
    let ledger = Ledger { slot: view.slot.id.clone(), undone, from, to, peers };
    let Some(workload) = scope.scalable() else {
        return view.hold(view.slot.step, Some(Reason::ReplicasOwnedElsewhere), Some(unread_words(scope)), None);
    };
    SlotNext::Do(Effect::Scale { workload, replicas: to, ledger: Some(ledger.render()) })
}
