//! The exchange of two pods of a ReplicaSet: the old pod is detached, the surplus that its set creates instead is
//! marked for deletion, and the set adopts the new pod. Then `eviction` follows.

use jiff::SignedDuration;

use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::Step;
use ganglion_core::facts::PodFact;

use super::context::Verb;
use super::effect::{Claimable, Effect, PodChange};
use super::eviction;
use super::obstacles;
use super::preemption;
use super::replacement;
use super::rollback;
use super::scope::Scope;
use super::set::Pods;
use super::slot::{SlotNext, View};
use super::swap;

/// Maximum time for which a set may have no substitute although it has its full number of pods. The slot then concludes
/// that somebody scaled the workload, and rolls back.
const SETTLE: SignedDuration = SignedDuration::from_secs(5);

/// Whether others deleted the old pod before its eviction. It does not matter once the set has adopted the new pod
/// or `spec.replicas` is lowered.
pub fn victim_lost(view: &View) -> bool {
    let lowered = view.ctx.work.verb == Verb::Delete && view.scaled();
    view.slot.victim.is_some() && !view.slot.evicting && !view.victim_runs() && !lowered && !view.taken_in()
}

/// Detaches the old pod from its set. Before this effect the slot can wait for any condition.
pub fn detach(view: &View, step: Step) -> SlotNext {
    let (Some(victim), Some(scope), Some(pods)) = (view.victim, &view.scope, view.pods()) else {
        return view.hold(step, None, None, None);
    };
    if view.ctx.suspended() {
        return view.suspended(step);
    }
    // The clock of Readying has run since the new pod was scheduled.
    let before =
        if step == Step::Planned { SignedDuration::ZERO } else { view.ctx.ready_time() + view.settling_time() };
    let timeout = before + view.settling_time() + view.ctx.drain_time() + swap::patience(view.ctx);
    if let Some((reason, message)) = obstacles::unrest(view, scope, &pods).or_else(|| obstacles::budget(view, victim)) {
        return view.hold_or_back(step, reason, message, timeout);
    }
    if let Some(message) = preemption::danger(view, scope, None) {
        return view.hold_or_back(step, Reason::NodeFull, message, timeout);
    }
    // Wait while the substitute of another slot is pending: a pod that exists when we detach counts as
    // pre-existing.
    if pods.wanted_by_others(Some(&view.slot.id)) {
        let message = "the ReplicaSet has not created the substitute of another replica yet".to_owned();
        return view.hold_or_back(step, Reason::VictimBusy, message, timeout);
    }
    // Wait while the surplus of another delete exists: the set would create no substitute for this one. A
    // substitute proves that the set's controller has seen the detachment. If it saw a lower `spec.replicas` before
    // the detachment, it would delete a replica.
    if view.ctx.work.verb == Verb::Delete && pods.marked().next().is_some() {
        let message = "the ReplicaSet has not deleted the substitute of another replica yet".to_owned();
        return view.hold_or_back(step, Reason::VictimBusy, message, timeout);
    }
    detached(view, victim, &pods)
}

/// Takes the old pod out of its set. It continues to serve.
pub fn detached(view: &View, victim: &PodFact, pods: &Pods) -> SlotNext {
    let change = PodChange::Detach {
        label: view.slot.label.clone(),
        set: view.slot.replica_set.clone(),
        slot: view.slot.id.clone(),
        peers: pods.peers(view.ctx.created()).join(","),
    };
    SlotNext::Do(Effect::ChangePod { pod: victim.id.clone(), change })
}

/// Marks the surplus: the pod that the set created in place of the detached one. The set deletes it when it adopts
/// the new pod.
pub fn claim(view: &View, step: Step) -> SlotNext {
    let Some(pods) = view.pods() else { return view.hold(step, None, None, None) };
    if let Some(next) = replacement::failure(view, step) {
        return next;
    }
    if let Some(next) = mark_surplus(view, &pods) {
        return next;
    }
    if pods.is_short() {
        // The API server refuses further pods of the set, so the set is one pod short and no surplus is needed.
        if view.scope.is_some_and(|scope| scope.set.create_failure.is_some()) {
            return match view.ctx.work.verb {
                Verb::Delete => scale(view, step, -1),
                Verb::Move if view.slot.break_first => eviction::commit(view),
                Verb::Move | Verb::Create => take_in(view, step),
            };
        }
        let message =
            "the ReplicaSet controller has not created the substitute yet; is kube-controller-manager running?";
        return view.hold_or_back(step, Reason::SetStuck, message.into(), view.ctx.drain_time());
    }
    let message = "the ReplicaSet has its full number of pods without the old one; somebody scaled the workload";
    view.hold_or_back(step, Reason::WorkloadScaled, message.into(), SETTLE)
}

/// Marks the surplus that this slot needs, if it exists.
pub fn mark_surplus<'a>(view: &View<'a>, pods: &Pods<'a>) -> Option<SlotNext> {
    let orphan = || if pods.excess() == 0 && !pods.is_short() { pods.orphan() } else { None };
    let pod = pods.unclaimed(view.slot).or_else(orphan)?;
    Some(mark(view, pod))
}

pub fn mark(view: &View, pod: &PodFact) -> SlotNext {
    let label = &view.slot.label;
    let rests_on = Claimable {
        label: pod.labels.get(label).map(|value| (label.clone(), value.clone())),
        held_by: pod.marks.slot.clone(),
        annotated: pod.annotated,
    };
    let change = PodChange::Mark { slot: view.slot.id.clone(), rests_on };
    SlotNext::Do(Effect::ChangePod { pod: pod.id.clone(), change })
}

/// Lets the set adopt the new pod. The set then deletes the marked pod.
pub fn take_in(view: &View, step: Step) -> SlotNext {
    let (Some(pod), Some(scope), Some(pods)) = (view.replacement, &view.scope, view.pods()) else {
        return replacement::failure(view, step).unwrap_or_else(|| view.hold(step, None, None, None));
    };
    if let Some(next) = replacement::failure(view, step) {
        return next;
    }
    if let Some((reason, message)) = obstacles::unavailable(view, &pods) {
        return view.hold_or_back(step, reason, message, view.ctx.ready_time() + view.settling_time());
    }
    if pods.wanted_by_others(Some(&view.slot.id)) {
        let message = "another replica is detached and has no substitute yet".to_owned();
        return view.hold_or_back(step, Reason::WorkloadBusy, message, view.ctx.drain_time());
    }
    if !pods.may_take_in() {
        let message = "the ReplicaSet has more pods than it wants; somebody scaled the workload".to_owned();
        return view.hold_or_back(step, Reason::WorkloadScaled, message, view.ctx.drain_time());
    }
    attach(view, pod, scope)
}

/// Adds a pod to the set.
pub fn attach<'a>(view: &View<'a>, pod: &PodFact, scope: &Scope<'a>) -> SlotNext {
    let value = scope.set.selector.labels.get(&view.slot.label).cloned().unwrap_or_default();
    let change = PodChange::Attach { label: view.slot.label.clone(), value, set: view.slot.replica_set.clone() };
    SlotNext::Do(Effect::ChangePod { pod: pod.id.clone(), change })
}

/// Changes the workload's replicas, once.
pub fn scale(view: &View, step: Step, by: i32) -> SlotNext {
    let (Some(scope), Some(pods)) = (&view.scope, view.pods()) else { return view.hold(step, None, None, None) };
    // A delete has already detached its old pod, so it is past its safe point.
    if view.ctx.suspended() && by > 0 {
        return view.suspended(step);
    }
    let danger = || preemption::danger(view, scope, None).map(|message| (Reason::NodeFull, message));
    let unrest = if by > 0 {
        obstacles::unrest(view, scope, &pods).or_else(danger)
    } else {
        obstacles::unavailable(view, &pods)
    };
    if let Some((reason, message)) = unrest {
        let timeout = view.ctx.ready_time() + view.settling_time() + view.ctx.drain_time();
        return view.hold_or_back(step, reason, message, timeout);
    }
    if by < 0 && scope.replicas() < 1 {
        return view.roll_back(Reason::WorkloadScaled, "somebody scaled the workload to zero");
    }
    if let Some(until) = obstacles::catching_up(view, step).filter(|_| by < 0) {
        let message = "the connection to the API server broke, and the ReplicaSet controller may not know yet \
                       which pod to delete; the action continues by itself within seconds";
        return view.hold(step, Some(Reason::WatchesBroken), Some(message.to_owned()), Some(until));
    }
    if let Some(until) = obstacles::mark_arrives(view, step).filter(|_| by < 0) {
        return view.hold(step, None, None, Some(until));
    }
    if rollback::ledger_is_taken(view, scope) {
        return view.hold(
            step,
            Some(Reason::WorkloadBusy),
            Some("another replica of this action is changing spec.replicas".into()),
            None,
        );
    }
    let peers = if by > 0 { pods.peers(view.ctx.created()) } else { Vec::new() };
    rollback::scale(view, scope, by, false, peers)
}

/// Evicts the old pod, now that the set has adopted the new one.
pub fn adopted(view: &View) -> SlotNext {
    let held = replacement::failure(view, Step::Adopted).or_else(|| swap::until_all_are_adopted(view));
    held.unwrap_or_else(|| eviction::commit(view))
}

/// Break before make: the new pod needs the room that the old one frees. A substitute without a node would compete
/// for that room, so it is removed first: the set adopts the unscheduled new pod and deletes the marked substitute.
pub fn make_room(view: &View) -> SlotNext {
    let waits = |pod: &&PodFact| pod.is_active() && pod.node.is_none();
    match (view.replacement.filter(waits), view.surplus(), &view.scope) {
        (Some(pod), Some((surplus, pods)), Some(scope)) if waits(&surplus) && pods.may_take_in() => {
            attach(view, pod, scope)
        }
        _ => eviction::commit(view),
    }
}
