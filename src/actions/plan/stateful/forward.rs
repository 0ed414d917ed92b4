//! One slot, forward: up to the departure of the old pod, and the change of the replicas.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::choose;
use crate::context::Verb;
use crate::deletion;
use crate::eviction;
use crate::obstacles;
use crate::rollback;
use crate::scope::StartRefusal;
use crate::slot::{SlotNext, View};
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::Step;
use ganglion_core::facts::PodFact;

use super::arrival::{arrive, missed};
use super::choose::{lost_claims, refuse_data_loss, way_back};
use super::{has_target, is_kept, pod_name, stateful, target};

/// The table: the function of each verb.
pub fn row(view: &View) -> SlotNext {
    match view.ctx.work.verb {
        Verb::Move => come_anew(view),
        Verb::Create if view.scaled() => come_anew(view),
        Verb::Create => grow(view),
        Verb::Delete if view.scaled() => await_departure(view),
        Verb::Delete => shrink(view),
    }
}

/// Evicts the old pod and waits for the new one. A create has an old pod if its first pod did not land on the
/// target node.
fn come_anew(view: &View) -> SlotNext {
    match view.victim {
        Some(old) if old.is_active() && !view.slot.evicting => begin_eviction(view, old),
        Some(old) if old.is_active() => evict_stateful(view, old),
        Some(old) => await_end(view, old),
        None => arrive(view),
    }
}

/// Records the intent to evict. Before it the slot can wait for any condition.
fn begin_eviction(view: &View, old: &PodFact) -> SlotNext {
    let step = Step::Planned;
    if view.slot.attempt > 0 && view.ctx.aborted() {
        return missed(view, old, view.ctx.why_aborted());
    }
    if !is_kept(view) {
        return view.roll_back(Reason::WorkloadScaled, "somebody scaled the workload down, without this replica");
    }
    if view.ctx.suspended() {
        return view.suspended(step);
    }
    if let Some(refusal) = way_home(view, old) {
        return view.roll_back(refusal.reason, &refusal.message);
    }
    let timeout = view.ctx.drain_time() + view.settling_time();
    if let Some((reason, message)) = stateful_unrest(view, Some(old)).or_else(|| obstacles::budget(view, old)) {
        if view.slot.attempt > 0 && view.overdue(step, timeout).unwrap_or(false) {
            return missed(view, old, &message);
        }
        return view.hold_or_back(step, reason, message, timeout);
    }
    if let Some(next) = without_place(view, timeout) {
        return next;
    }
    let mut slot = view.slot.clone();
    slot.evicting = true;
    slot.step = Step::Evicting;
    slot.since = Time(view.ctx.now);
    (slot.reason, slot.message) = (None, None);
    SlotNext::Record(slot)
}

/// The next step if no node takes the new pod now. The old pod stays meanwhile.
fn without_place(view: &View, timeout: SignedDuration) -> Option<SlotNext> {
    let step = Step::Planned;
    if !has_target(view) {
        let refusal = choose::homeless(view.ctx, view.slot)?;
        return Some(view.hold_or_back(step, refusal.reason, refusal.message, timeout));
    }
    let (reason, message) = choose::misfit(view.ctx, view.slot)?;
    let Some(node) = choose::another_node(view.ctx, view.slot) else {
        return Some(view.hold_or_back(step, reason, message, timeout));
    };
    let mut slot = view.slot.clone();
    slot.tried.push(target(view));
    slot.replacement.iter_mut().for_each(|replacement| node.clone_into(&mut replacement.node));
    Some(SlotNext::Record(slot))
}

/// Why a new pod without a pin could come back to the node that this pod leaves.
fn way_home(view: &View, old: &PodFact) -> Option<StartRefusal> {
    let set = stateful(view).filter(|_| !has_target(view))?;
    way_back(view.ctx, set, old.node.as_ref()?)
}

/// Why no replica of the set may leave now: a rollout, or another replica that is missing or not available.
fn stateful_unrest(view: &View, own: Option<&PodFact>) -> Option<(Reason, String)> {
    let (scope, set) = (view.scope.as_ref()?, stateful(view)?);
    if let Some(message) = scope.rollout(view.ctx.world) {
        return Some((Reason::RolloutInProgress, message));
    }
    let own = own.map(|pod| pod.id.key.name.as_str());
    let names = (set.first_ordinal..set.next_ordinal()).map(|ordinal| set.pod_name(ordinal));
    let min_ready = SignedDuration::from_secs(i64::from(set.set.min_ready_seconds));
    let from = |name: &String| {
        let pod = view.ctx.world.pod(&view.ctx.key(name)).filter(|pod| pod.is_active() && pod.is_of(&set.id.uid));
        pod.and_then(PodFact::ready_from).map(|since| since + min_ready)
    };
    let mut siblings = names.filter(|name| Some(name.as_str()) != own).map(|name| (from(&name), name));
    let (from, name) = siblings.find(|(from, _)| from.is_none_or(|from| view.ctx.now < from))?;
    Some((Reason::ReplicasNotReady, obstacles::unavailable_words(&name, from)))
}

fn evict_stateful(view: &View, old: &PodFact) -> SlotNext {
    let step = Step::Evicting;
    // Budgets do not protect a pod that has not started: the API server evicts it at once.
    if old.node.is_none() {
        return SlotNext::Do(view.eviction(old));
    }
    // A grant names a pod. After the first attempt, it may still be the grant of an earlier pod of this name.
    let granted = view.slot.attempt == 0 && eviction::is_granted(view, old);
    let over = view.overdue(step, view.ctx.drain_time()).unwrap_or(false);
    let blocked = obstacles::budget(view, old).filter(|_| !granted);
    let why = || blocked.clone().unwrap_or((Reason::BudgetBlocked, "the eviction was refused for drainSeconds".into()));
    if over && view.slot.attempt > 0 {
        return missed(view, old, &why().1);
    }
    if over {
        let (reason, message) = why();
        return view.roll_back(reason, &message);
    }
    if let Some((reason, message)) = blocked {
        return view.hold_or_back(step, reason, message, view.ctx.drain_time());
    }
    SlotNext::Do(if granted { view.deletion(old) } else { view.eviction(old) })
}

/// Waits until the old pod has terminated.
fn await_end(view: &View, old: &PodFact) -> SlotNext {
    let step = Step::Evicting;
    let timeout = view.ctx.termination_time(old);
    if view.overdue(step, timeout).unwrap_or(false) {
        let message = format!("{}; its StatefulSet waits for it", deletion::stuck_words(old));
        return view.end(Step::Failed, Reason::VictimStuck, &message);
    }
    view.hold(step, None, None, view.deadline(step, timeout))
}

/// Adds one replica, whose node is recorded.
fn grow(view: &View) -> SlotNext {
    let step = Step::Planned;
    let Some(set) = stateful(view) else { return view.hold(step, None, None, None) };
    if set.ordinal(pod_name(view)) != Some(set.next_ordinal()) {
        return view.roll_back(Reason::WorkloadScaled, "somebody scaled the workload");
    }
    // A claim may have been created since the action was planned.
    let lost = lost_claims(view.ctx.world, set, pod_name(view));
    if let Err(refusal) = refuse_data_loss(view.ctx, set, &lost) {
        return view.roll_back(refusal.reason, &refusal.message);
    }
    scale_stateful(view, 1, None)
}

/// Removes one replica: the highest ordinal goes.
fn shrink(view: &View) -> SlotNext {
    let step = Step::Planned;
    let Some(set) = stateful(view) else { return view.hold(step, None, None, None) };
    let highest = set.next_ordinal().saturating_sub(1);
    if set.ordinal(pod_name(view)) != Some(highest) {
        return view.roll_back(Reason::WorkloadScaled, "somebody scaled the workload");
    }
    let lost = lost_claims(view.ctx.world, set, pod_name(view));
    if let Err(refusal) = refuse_data_loss(view.ctx, set, &lost) {
        return view.roll_back(refusal.reason, &refusal.message);
    }
    // A StatefulSet deletes pods without checking budgets.
    if let Some((reason, message)) = view.victim.and_then(|old| obstacles::budget(view, old)) {
        return view.hold_or_back(step, reason, message, view.ctx.drain_time());
    }
    scale_stateful(view, -1, view.victim)
}

fn scale_stateful(view: &View, by: i32, own: Option<&PodFact>) -> SlotNext {
    let step = Step::Planned;
    let Some(scope) = &view.scope else { return view.hold(step, None, None, None) };
    if view.ctx.suspended() {
        return view.suspended(step);
    }
    if let Some((reason, message)) = stateful_unrest(view, own) {
        return view.hold_or_back(step, reason, message, view.ctx.drain_time() + view.settling_time());
    }
    if rollback::ledger_is_taken(view, scope) {
        let message = "another action is changing spec.replicas".to_owned();
        return view.hold(step, Some(Reason::WorkloadBusy), Some(message), None);
    }
    rollback::scale(view, scope, by, false, Vec::new())
}

/// Waits until the pod of a delete is gone.
fn await_departure(view: &View) -> SlotNext {
    let step = Step::Scaled;
    let pod = view.ctx.world.pod(&view.ctx.key(pod_name(view)));
    let pod = pod.filter(|pod| pod.is_of(&view.slot.replica_set.uid) && !is_kept(view));
    let Some(old) = view.victim.or(pod) else {
        let mut slot = view.noted();
        (slot.step, slot.since, slot.scaled) = (Step::Succeeded, Time(view.ctx.now), true);
        (slot.reason, slot.message) = (None, None);
        return SlotNext::Record(slot);
    };
    let timeout = view.ctx.termination_time(old);
    if view.overdue(step, timeout).unwrap_or(false) {
        if old.terminating {
            return view.end(Step::Failed, Reason::VictimStuck, &deletion::stuck_words(old));
        }
        let why = "is still there although spec.replicas is lowered; is kube-controller-manager running?";
        return view.end(Step::Failed, Reason::SetStuck, &format!("pod {} {why}", old.id.key.name));
    }
    view.hold(step, None, None, view.deadline(step, timeout))
}
