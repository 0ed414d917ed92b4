//! One slot, after the departure of the old pod: the new pod is created on the target node and becomes Ready.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{MOST_ATTEMPTS, PIN_PAUSES, arrived, has_target, is_kept, pod_name, target};
use crate::choose;
use crate::context::Verb;
use crate::deletion;
use crate::effect::Effect;
use crate::nodes::Nodes;
use crate::slot::{SlotNext, View};
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{PodOnNode, Slot, Step};
use ganglion_core::facts::{NodeName, PodFact};

pub fn arrive(view: &View) -> SlotNext {
    let Some(pod) = arrived(view) else { return await_creation(view) };
    match &pod.node {
        None if !has_target(view) => await_any_node(view, pod),
        Some(node) if !has_target(view) && is_home(view, node) => came_back(view, pod, node),
        None if pod.gated => let_through(view, pod),
        None => await_scheduler(view, pod),
        Some(node) if has_target(view) && *node != target(view) => landed_elsewhere(view, pod, node),
        Some(node) => await_stable(view, pod, node),
    }
}

/// Whether the replica leaves this node.
fn is_home(view: &View, node: &NodeName) -> bool {
    view.slot.victim.as_ref().is_some_and(|victim| victim.node == *node)
}

/// Waits for the node that the scheduler chooses.
fn await_any_node(view: &View, pod: &PodFact) -> SlotNext {
    let (step, timeout) = (Step::Scheduling, view.ctx.schedule_time());
    let why = pod.unschedulable.as_deref();
    if view.overdue(step, timeout).unwrap_or(false) {
        let why = why.unwrap_or("the scheduler did not process it in time; is it running?");
        let name = &pod.id.key.name;
        let message = format!("pod {name}: {why}; the old pod is gone, and the scheduler goes on trying");
        return view.end(Step::Failed, Reason::Unschedulable, &message);
    }
    let reason = why.map(|_| Reason::Unschedulable);
    view.hold(step, reason, why.map(str::to_owned), view.deadline(step, timeout))
}

/// The scheduler chose the node that the replica leaves.
fn came_back(view: &View, pod: &PodFact, node: &NodeName) -> SlotNext {
    let is_open = view.ctx.world.node(node).is_none_or(|node| !node.cordoned);
    let why = if is_open { "is not cordoned any more" } else { "was cordoned too late" };
    let message = format!("pod {} came back to node {node}, which {why}", pod.id.key.name);
    view.end(Step::Failed, Reason::NodeNotCordoned, &message)
}

/// Waits until the StatefulSet has created the new pod.
fn await_creation(view: &View) -> SlotNext {
    let step = Step::Creating;
    if view.scope.is_none() {
        return view.end(Step::Failed, Reason::WorkloadGone, "the workload was deleted while its replica moved");
    }
    if !is_kept(view) {
        let message = "somebody scaled the workload down, without this replica";
        return lost(view, Reason::WorkloadScaled, message);
    }
    if let Some(next) = target_failure(view, None) {
        return next;
    }
    let timeout = view.ctx.schedule_time();
    let ending = view.ctx.world.pod(&view.ctx.key(pod_name(view))).filter(|pod| pod.terminating);
    if let Some(ending) = ending.filter(|_| view.overdue(step, timeout).unwrap_or(false)) {
        return lost(view, Reason::ReplacementLost, &deletion::stuck_words(ending));
    }
    if view.overdue(step, timeout).unwrap_or(false) {
        let message = format!(
            "the StatefulSet has not created pod {}: see its events; is kube-controller-manager running?",
            pod_name(view)
        );
        return lost(view, Reason::SetStuck, &message);
    }
    view.hold(step, None, None, view.deadline(step, timeout))
}

/// Pins a gated pod to the target node, and releases it.
fn let_through(view: &View, pod: &PodFact) -> SlotNext {
    if let Some(next) = target_failure(view, Some(pod)) {
        return next;
    }
    SlotNext::Do(Effect::ReleasePod { pod: pod.id.clone(), node: Some(target(view)) })
}

fn await_scheduler(view: &View, pod: &PodFact) -> SlotNext {
    let step = Step::Scheduling;
    if pod.pin != Some(target(view)) {
        return pin_again(view, pod).unwrap_or_else(|| {
            lost(view, Reason::PinMissed, "the new pod was repeatedly not pinned to its target node")
        });
    }
    if let Some(next) = target_failure(view, Some(pod)) {
        return next;
    }
    let timeout = view.ctx.schedule_time();
    let over = view.overdue(step, timeout).unwrap_or(false);
    let Some(why) = &pod.unschedulable else {
        let message = "the scheduler did not process the new pod in time; is it running?";
        return if over {
            other_node(view, Some(pod), Reason::Unschedulable, message)
        } else {
            view.hold(step, None, None, view.deadline(step, timeout))
        };
    };
    if over || choose::another_node(view.ctx, view.slot).is_some() {
        return other_node(view, Some(pod), Reason::Unschedulable, why);
    }
    view.hold(step, Some(Reason::Unschedulable), Some(why.clone()), view.deadline(step, timeout))
}

/// The next step if the target node does not accept pods any more.
fn target_failure(view: &View, pod: Option<&PodFact>) -> Option<SlotNext> {
    let name = view.slot.replacement.as_ref()?.node.clone();
    let why = match view.ctx.world.node(&name) {
        None => format!("node {name} is gone"),
        Some(node) if node.terminating => format!("node {name} is being deleted"),
        Some(node) if node.cordoned => format!("node {name} was cordoned"),
        Some(_) => return None,
    };
    Some(other_node(view, pod, Reason::NodeGone, &why))
}

/// Chooses another node for the new pod. If there is none, the pod is released and the slot fails.
fn other_node(view: &View, pod: Option<&PodFact>, reason: Reason, why: &str) -> SlotNext {
    let other = choose::another_node(view.ctx, view.slot).filter(|_| view.slot.attempt < MOST_ATTEMPTS);
    let Some(node) = other else { return lost(view, reason, why) };
    let tried = Some(target(view));
    match pod {
        Some(pod) if !pod.gated => come_again(view, pod, node, tried).unwrap_or_else(|| lost(view, reason, why)),
        _ => SlotNext::Record(toward(view, node, tried)),
    }
}

/// The same slot with this node as the target.
fn toward(view: &View, node: NodeName, tried: Option<NodeName>) -> Slot {
    let mut slot = view.slot.clone();
    slot.attempt += 1;
    slot.since = Time(view.ctx.now);
    slot.step = if slot.victim.is_some() { Step::Evicting } else { Step::Creating };
    slot.tried.extend(tried);
    slot.replacement = Some(PodOnNode { name: pod_name(view).to_owned(), uid: None, node });
    (slot.reason, slot.message) = (None, None);
    slot
}

/// Creates the pod again, pinned to this node: the current pod becomes the old one. None after [`MOST_ATTEMPTS`]
/// attempts.
fn come_again(view: &View, pod: &PodFact, node: NodeName, tried: Option<NodeName>) -> Option<SlotNext> {
    if view.slot.attempt >= MOST_ATTEMPTS {
        return None;
    }
    let mut slot = toward(view, node, tried);
    let node = view.slot.victim.as_ref().map_or_else(|| target(view), |victim| victim.node.clone());
    let (name, uid) = (pod.id.key.name.clone(), Some(pod.id.uid.clone()));
    slot.victim = Some(PodOnNode { name, uid, node });
    // A pod that runs is evicted only as budgets allow it.
    (slot.evicting, slot.step) = if pod.node.is_some() { (false, Step::Planned) } else { (true, Step::Evicting) };
    Some(SlotNext::Record(slot))
}

/// Waits, and then creates a pod without a pin again. None after the last attempt.
fn pin_again(view: &View, pod: &PodFact) -> Option<SlotNext> {
    let step = Step::Scheduling;
    let pause = usize::try_from(view.slot.attempt).ok().and_then(|attempt| PIN_PAUSES.get(attempt))?;
    if view.overdue(step, *pause).unwrap_or(false) {
        return come_again(view, pod, target(view), None);
    }
    let until = view.deadline(step, *pause);
    let message = format!("pod {} was created without a pin to node {}", pod.id.key.name, target(view));
    Some(view.hold(step, Some(Reason::PinMissed), Some(message), until))
}

/// The new pod is on another node than the target: an API server did not see the pin yet.
fn landed_elsewhere(view: &View, pod: &PodFact, node: &NodeName) -> SlotNext {
    if may_stay(view, node) {
        let mut slot = view.slot.clone();
        slot.replacement.iter_mut().for_each(|replacement| node.clone_into(&mut replacement.node));
        return SlotNext::Record(slot);
    }
    if view.ctx.aborted() {
        return missed(view, pod, view.ctx.why_aborted());
    }
    pin_again(view, pod).unwrap_or_else(|| {
        let name = &pod.id.key.name;
        missed(view, pod, &format!("pod {name} was repeatedly scheduled to another node than {}", target(view)))
    })
}

/// Whether the user's target also allows this node.
fn may_stay(view: &View, node: &NodeName) -> bool {
    let (ctx, nodes) = (view.ctx, Nodes::new(view.ctx.world, view.ctx.now));
    let filter = choose::target(ctx).ok();
    let by_policy = ctx.work.to.is_some_and(|to| to.policy.is_some());
    let admits = filter.zip(ctx.world.node(node)).is_some_and(|(filter, node)| filter.admits(&nodes, node).is_ok());
    !is_home(view, node) && !by_policy && admits
}

/// Ends a slot whose pod runs on another node than the target.
pub fn missed(view: &View, pod: &PodFact, why: &str) -> SlotNext {
    let node = pod.node.as_ref().map_or("no node", NodeName::as_str);
    let message = format!("{why}; pod {} runs on {node}", pod.id.key.name);
    if view.ctx.work.verb == Verb::Create {
        return view.roll_back(Reason::PinMissed, &message);
    }
    view.end(Step::Failed, Reason::PinMissed, &message)
}

fn await_stable(view: &View, pod: &PodFact, node: &NodeName) -> SlotNext {
    let step = Step::Readying;
    if has_target(view) && view.ctx.world.node(node).is_none() {
        let why = format!("node {node} is gone");
        return other_node(view, Some(pod), Reason::NodeGone, &why);
    }
    let timeout = view.ctx.ready_time() + view.settling_time();
    let stays = format!("; pod {} stays on {node}", pod.id.key.name);
    let Some(since) = pod.ready_from() else {
        // A container's trouble may pass.
        if let Some(trouble) = &pod.trouble {
            if view.overdue(step, timeout).unwrap_or(false) {
                return not_ready(view, trouble.reason, &(trouble.message.clone() + &stays));
            }
            let (reason, message) = (Some(trouble.reason), Some(trouble.message.clone()));
            return view.hold(step, reason, message, view.deadline(step, timeout));
        }
        if view.overdue(step, timeout).unwrap_or(false) {
            let message = format!("the new pod was not Ready in time; look at its events and log{stays}");
            return not_ready(view, Reason::ReplacementNotReady, &message);
        }
        return view.hold(step, None, None, view.deadline(step, timeout));
    };
    let stable = since + view.settling_time();
    if view.ctx.now < stable {
        let message = format!("the new pod is Ready; it must stay Ready until {stable}");
        return view.hold(step, None, Some(message), Some(stable));
    }
    let mut slot = view.slot.clone();
    let (name, uid) = (pod.id.key.name.clone(), Some(pod.id.uid.clone()));
    slot.replacement = Some(PodOnNode { name, uid, node: node.clone() });
    (slot.step, slot.since, slot.scaled) = (Step::Succeeded, Time(view.ctx.now), view.scaled());
    (slot.reason, slot.message) = (None, None);
    SlotNext::Record(slot)
}

/// The new pod is on the target node and does not become Ready. A create is undone. The replica of a move stays
/// with the set.
fn not_ready(view: &View, reason: Reason, message: &str) -> SlotNext {
    match view.ctx.work.verb {
        Verb::Create => view.roll_back(reason, message),
        Verb::Move | Verb::Delete => view.end(Step::Failed, reason, message),
    }
}

/// Gives up the target node. The record drops the pin, so that the set gets its full number of replicas again.
fn lost(view: &View, reason: Reason, message: &str) -> SlotNext {
    view.roll_back(reason, message)
}
