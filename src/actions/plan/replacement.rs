//! The new pod of a slot: creation, scheduling, readiness, and their failures.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::{PodOnNode, Protocol, Slot, Step};
use ganglion_core::facts::{NodeName, PodFact};

use super::choose;
use super::context::Verb;
use super::deletion;
use super::effect::{Effect, NewPod, PodPlace};
use super::exchange;
use super::identity;
use super::preemption;
use super::slot::{SlotNext, View};
use super::swap;

/// Maximum number of times that a new pod is created again after others deleted it.
const MOST_LOSSES: i32 = 2;

/// Creates the new pod.
pub fn create(view: &View, planned: &PodOnNode) -> SlotNext {
    let step = Step::Creating;
    if let Some(pod) = view.replacement.filter(|pod| pod.finished && !pod.terminating) {
        let words = pod.trouble.as_ref().map(|trouble| format!(": {}", trouble.message)).unwrap_or_default();
        return next_node(view, Reason::ReplacementLost, &format!("the new pod {} ended{words}", pod.id.key.name));
    }
    if let Some(ending) = view.replacement {
        return await_end(view, ending);
    }
    if planned.uid.is_some() {
        return lost_replacement(view);
    }
    if let Some(next) = node_failure(view) {
        return next;
    }
    if let Some(next) = swap::until_there_is_room(view) {
        return next;
    }
    // Creating is not recorded while each attempt to create the pod fails.
    let timeout = view.ctx.schedule_time() + swap::patience(view.ctx);
    let fails = || view.overdue(Step::Planned, timeout).filter(|_| view.slot.reason.is_some());
    if view.overdue(step, timeout).or_else(fails).unwrap_or(false) {
        let why = view.slot.message.as_deref().map(|words| format!(": {words}")).unwrap_or_default();
        return view.roll_back(Reason::PodRefused, &format!("the new pod could not be created in time{why}"));
    }
    creation(view, planned, timeout)
}

/// Waits until a new pod that others deleted has ended. Its node may be dead, or a finalizer may keep it.
fn await_end(view: &View, pod: &PodFact) -> SlotNext {
    let (step, timeout) = (Step::Creating, view.ctx.termination_time(pod));
    if !view.overdue(step, timeout).unwrap_or(false) {
        let message = deletion::words(&format!("new pod {}", pod.id.key.name), Some(pod));
        return view.hold(step, Some(Reason::ReplacementLost), Some(message), view.deadline(step, timeout));
    }
    let why = deletion::stuck_words(pod);
    match &view.slot.replacement {
        // The scheduler avoids a node whose kubelet is dead.
        Some(planned) if view.slot.scheduled && view.slot.attempt < MOST_LOSSES => {
            again_on(view, planned.node.clone(), None)
        }
        _ => next_node(view, Reason::ReplacementLost, &why),
    }
}

/// The nodes on which the new pod of the slot may run. None if it has no new pod of its own.
pub fn place(action: &WorkloadAction, slot: &Slot) -> Option<PodPlace> {
    let planned = slot.replacement.as_ref().filter(|_| slot.protocol != Protocol::Successor)?;
    if !slot.scheduled {
        return Some(PodPlace::On(planned.node.clone()));
    }
    let selector = action.spec.move_.as_ref().and_then(|change| change.to.as_ref()?.node_selector.clone());
    let selector = selector.or_else(|| action.spec.create.as_ref()?.to.node_selector.clone());
    let home = slot.victim.as_ref().map(|victim| victim.node.clone());
    let except = home.into_iter().chain(slot.tried.iter().cloned()).collect();
    Some(PodPlace::Any { labels: selector.unwrap_or_default(), except })
}

fn creation(view: &View, planned: &PodOnNode, timeout: SignedDuration) -> SlotNext {
    let ctx = view.ctx;
    if ctx.suspended() && !view.slot.evicting {
        return view.suspended(Step::Creating);
    }
    let Some(place) = place(ctx.action, view.slot) else { return view.hold(Step::Creating, None, None, None) };
    let may_preempt = |scope| preemption::danger(view, scope, Some(&place));
    if let Some(message) = view.scope.as_ref().filter(|_| !view.slot.evicting).and_then(may_preempt) {
        return view.hold_or_back(Step::Creating, Reason::NodeFull, message, timeout);
    }
    SlotNext::Do(Effect::CreatePod(NewPod {
        key: ctx.key(&planned.name),
        place,
        slot: view.slot.id.clone(),
        set: view.slot.replica_set.clone(),
        label: view.slot.label.clone(),
    }))
}

/// Creates the new pod again under another name after others deleted it, at most [`MOST_LOSSES`] times.
fn lost_replacement(view: &View) -> SlotNext {
    match &view.slot.replacement {
        Some(replacement) if view.slot.attempt < MOST_LOSSES => again_on(view, replacement.node.clone(), None),
        _ => {
            // While the pod terminated, the slot noted who deleted it.
            let noted = view.slot.message.as_deref().filter(|_| view.slot.reason == Some(Reason::ReplacementLost));
            let why = noted.map_or_else(|| deletion::words("the new pod", None), str::to_owned);
            view.roll_back(Reason::ReplacementLost, &why)
        }
    }
}

/// The same slot with a new pod on this node.
fn again_on(view: &View, node: NodeName, tried: Option<&NodeName>) -> SlotNext {
    let mut slot = view.slot.clone();
    slot.attempt += 1;
    slot.step = Step::Planned;
    slot.since = Time(view.ctx.now);
    slot.tried.extend(tried.cloned());
    slot.scheduled &= choose::scheduler_may_exclude(view.ctx, &slot);
    let name = identity::replacement_name(&slot.replica_set.name, &slot.id, slot.attempt);
    slot.replacement = Some(PodOnNode { name, uid: None, node });
    (slot.reason, slot.message) = (None, None);
    SlotNext::Record(slot)
}

/// The next step if the target node does not accept the new pod any more.
fn node_failure(view: &View) -> Option<SlotNext> {
    if view.slot.scheduled {
        return None;
    }
    let name = &view.slot.replacement.as_ref()?.node;
    let why = match view.ctx.world.node(name) {
        None => format!("node {name} is gone"),
        Some(node) if node.terminating => format!("node {name} is being deleted"),
        Some(node) if node.cordoned => format!("node {name} was cordoned"),
        Some(_) => return None,
    };
    Some(next_node(view, Reason::NodeGone, &why))
}

/// The target node, if it is gone. Its pod stays Ready in the API until the garbage collector deletes it.
fn vanished_node<'a>(view: &View<'a>) -> Option<&'a str> {
    let name = view.replacement.and_then(|pod| pod.node.as_ref()).or(Some(&view.slot.replacement.as_ref()?.node))?;
    view.ctx.world.node(name).is_none().then_some(name.as_str())
}

/// Tries another node, or rolls back. Where the scheduler chose the node, the next new pod excludes it.
fn next_node(view: &View, reason: Reason, why: &str) -> SlotNext {
    let slot = view.noted();
    // The scheduler found no node, or others deleted the pod before this process saw its node.
    let is_unplaced = slot.scheduled && view.replacement.is_none_or(|pod| pod.node.is_none());
    let Some(failed) = slot.replacement.as_ref().map(|new| &new.node).filter(|_| !is_unplaced) else {
        return view.roll_back(reason, &format!("{why}{}", tried_words(view, None)));
    };
    match choose::another_node(view.ctx, &slot) {
        Some(node) => again_on(view, node, Some(failed)),
        None => view.roll_back(reason, &format!("{why}{}", tried_words(view, Some(failed)))),
    }
}

/// The nodes on which new pods of the slot failed, as text. `last`: the node of the newest one.
fn tried_words(view: &View, last: Option<&NodeName>) -> String {
    let names: Vec<&str> = view.slot.tried.iter().chain(last).map(NodeName::as_str).collect();
    if names.is_empty() { String::new() } else { format!("; new pods failed on {}", names.join(", ")) }
}

/// Maximum time for which the new pod waits for the scheduler. In a swap without room, it waits until the other
/// replicas have left its node.
pub fn schedule_time(view: &View) -> SignedDuration {
    let others = if view.slot.break_first { swap::patience(view.ctx) } else { SignedDuration::ZERO };
    view.ctx.schedule_time() + others
}

/// Waits for the scheduler.
pub fn await_node(view: &View) -> SlotNext {
    let step = Step::Scheduling;
    if let Some(next) = node_failure(view) {
        return next;
    }
    let timeout = schedule_time(view);
    let over = view.overdue(step, timeout).unwrap_or(false);
    let Some(why) = view.replacement.and_then(|pod| pod.unschedulable.clone()) else {
        if over {
            return next_node(
                view,
                Reason::Unschedulable,
                "the scheduler did not process the new pod in time; is it running?",
            );
        }
        return view.hold(step, None, None, view.deadline(step, timeout));
    };
    let movable = view.ctx.work.verb == Verb::Move && !view.slot.break_first;
    let another = || {
        if view.slot.scheduled { None } else { choose::another_node(view.ctx, view.slot) }
    };
    // The eviction of the old pod helps only if that pod is what keeps the new one off the node. In a swap, that is
    // another replica, which leaves afterwards.
    let helps = || view.ctx.work.swap.is_some() || choose::is_freed_by_victim(view.ctx, view.slot);
    let may_go_first = movable && view.ctx.may_disrupt() && helps();
    if may_go_first && !over && another().is_none() {
        let mut slot = view.slot.clone();
        slot.break_first = true;
        return SlotNext::Record(slot);
    }
    if view.slot.break_first && !view.slot.evicting {
        return exchange::detach(view, step);
    }
    if over || (!view.slot.evicting && another().is_some()) {
        return next_node(view, Reason::Unschedulable, &why);
    }
    view.hold(step, Some(Reason::Unschedulable), Some(why), view.deadline(step, timeout))
}

/// Waits until the new pod has been Ready for the settling time.
pub fn await_ready(view: &View) -> SlotNext {
    let step = Step::Readying;
    let Some(pod) = view.replacement else { return view.hold(step, None, None, None) };
    if let Some(name) = vanished_node(view) {
        return next_node(view, Reason::NodeGone, &format!("node {name} is gone"));
    }
    let timeout = view.ctx.ready_time() + view.settling_time();
    let Some(since) = pod.ready_from() else {
        // A container's trouble may pass, such as a Secret that is late or a registry that restarts.
        if let Some(trouble) = &pod.trouble {
            if view.overdue(step, timeout).unwrap_or(false) {
                return next_node(view, trouble.reason, &trouble.message);
            }
            let (reason, message) = (Some(trouble.reason), Some(trouble.message.clone()));
            return view.hold(step, reason, message, view.deadline(step, timeout));
        }
        if view.overdue(step, timeout).unwrap_or(false) {
            let why = "the new pod was not Ready in time; look at its events and log";
            return next_node(view, Reason::ReplacementNotReady, why);
        }
        return view.hold(step, None, None, view.deadline(step, timeout));
    };
    let stable = since + view.settling_time();
    if view.ctx.now < stable {
        let message = format!("the new pod is Ready; it must stay Ready until {stable}");
        return view.hold(step, None, Some(message), Some(stable));
    }
    if !view.slot.evicting
        && let Some(next) = swap::until_all_are_ready(view)
    {
        return next;
    }
    match view.ctx.work.verb {
        Verb::Create => exchange::scale(view, step, 1),
        // Break before make: the old pod is already gone, and the set adopts the new one.
        Verb::Move if view.slot.evicting => exchange::take_in(view, step),
        Verb::Move | Verb::Delete => exchange::detach(view, step),
    }
}

/// The next step if the new pod has failed since the old one was detached.
pub fn failure(view: &View, step: Step) -> Option<SlotNext> {
    if view.slot.protocol != Protocol::Replacement || view.slot.replacement.is_none() || view.slot.break_first {
        return None;
    }
    if let Some(name) = vanished_node(view) {
        return Some(view.roll_back(Reason::NodeGone, &format!("node {name} is gone")));
    }
    match view.replacement {
        Some(pod) if pod.is_ready() => None,
        Some(pod) if pod.is_active() => {
            let trouble = pod.trouble.as_ref().map(|trouble| (trouble.reason, trouble.message.clone()));
            let unready = || (Reason::ReplacementNotReady, "the new pod is not Ready any more".to_owned());
            let (reason, message) = trouble.unwrap_or_else(unready);
            Some(view.hold_or_back(step, reason, message, view.ctx.ready_time()))
        }
        Some(pod) if pod.finished => {
            let words = pod.trouble.as_ref().map(|trouble| format!(": {}", trouble.message)).unwrap_or_default();
            Some(view.roll_back(Reason::ReplacementLost, &format!("the new pod ended{words}")))
        }
        pod => Some(view.roll_back(Reason::ReplacementLost, &deletion::words("the new pod", pod))),
    }
}
