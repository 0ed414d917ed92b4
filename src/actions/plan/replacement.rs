//! The new pod of a slot: creation, scheduling, readiness, and their failures.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{PodOnNode, Protocol, Step};
use ganglion_core::facts::NodeName;

use super::choose;
use super::context::Verb;
use super::effect::{Effect, NewPod, PodPlace};
use super::identity;
use super::slot::{SlotNext, View};
use super::swap;

/// Maximum number of times that a new pod is created again after others deleted it.
const MOST_LOSSES: i32 = 2;

impl<'a> View<'a> {
    pub fn make_replacement(&self) -> SlotNext {
        let step = Step::Creating;
        let Some(planned) = &self.slot.replacement else { return self.hold(step, None, None, None) };
        if let Some(pod) = self.replacement.filter(|pod| pod.finished && !pod.terminating) {
            let words = pod.trouble.as_ref().map(|trouble| format!(": {}", trouble.message)).unwrap_or_default();
            return self.next_node(Reason::ReplacementLost, &format!("the new pod {} ended{words}", pod.id.key.name));
        }
        if let Some(ending) = self.replacement {
            let message = format!("pod {} is terminating", ending.id.key.name);
            return self.hold(step, Some(Reason::ReplacementLost), Some(message), None);
        }
        if planned.uid.is_some() {
            return self.lost_replacement();
        }
        if let Some(next) = self.node_failure() {
            return next;
        }
        if let Some(next) = swap::until_there_is_room(self) {
            return next;
        }
        // Creating is not recorded while each attempt to create the pod fails.
        let timeout = self.ctx.schedule_time() + swap::patience(self.ctx);
        let fails = || self.overdue(Step::Planned, timeout).filter(|_| self.slot.reason.is_some());
        if self.overdue(step, timeout).or_else(fails).unwrap_or(false) {
            let why = self.slot.message.as_deref().map(|words| format!(": {words}")).unwrap_or_default();
            return self.roll_back(Reason::PodRefused, &format!("the new pod could not be created in time{why}"));
        }
        self.create(planned)
    }

    fn create(&self, planned: &PodOnNode) -> SlotNext {
        let ctx = self.ctx;
        if ctx.suspended() && !self.slot.evicting {
            return self.suspended(Step::Creating);
        }
        SlotNext::Do(Effect::CreatePod(NewPod {
            key: ctx.key(&planned.name),
            place: match &self.slot.victim {
                Some(victim) if self.slot.scheduled => PodPlace::NotOn(victim.node.clone()),
                _ => PodPlace::On(planned.node.clone()),
            },
            slot: self.slot.id.clone(),
            set: self.slot.replica_set.clone(),
            label: self.slot.label.clone(),
        }))
    }

    /// Creates the new pod again under another name after others deleted it, at most [`MOST_LOSSES`] times.
    fn lost_replacement(&self) -> SlotNext {
        let why = "the new pod was deleted by somebody else";
        match &self.slot.replacement {
            Some(replacement) if self.slot.attempt < MOST_LOSSES => self.again_on(replacement.node.clone(), None),
            _ => self.roll_back(Reason::ReplacementLost, why),
        }
    }

    /// The same slot with a new pod on this node.
    fn again_on(&self, node: NodeName, tried: Option<&NodeName>) -> SlotNext {
        let mut slot = self.slot.clone();
        slot.attempt += 1;
        slot.step = Step::Planned;
        slot.since = Time(self.ctx.now);
        slot.tried.extend(tried.cloned());
        let name = identity::replacement_name(&slot.replica_set.name, &slot.id, slot.attempt);
        slot.replacement = Some(PodOnNode { name, uid: None, node });
        (slot.reason, slot.message) = (None, None);
        SlotNext::Record(slot)
    }

    /// The next step if the target node does not accept the new pod any more.
    fn node_failure(&self) -> Option<SlotNext> {
        if self.slot.scheduled {
            return None;
        }
        let name = &self.slot.replacement.as_ref()?.node;
        let why = match self.ctx.world.node(name) {
            None => format!("node {name} is gone"),
            Some(node) if node.terminating => format!("node {name} is being deleted"),
            Some(node) if node.cordoned => format!("node {name} was cordoned"),
            Some(_) => return None,
        };
        Some(self.next_node(Reason::NodeGone, &why))
    }

    /// The target node, if it is gone. Its pod stays Ready in the API until the garbage collector deletes it.
    fn vanished_node(&self) -> Option<&'a str> {
        let name =
            self.replacement.and_then(|pod| pod.node.as_ref()).or(Some(&self.slot.replacement.as_ref()?.node))?;
        self.ctx.world.node(name).is_none().then_some(name.as_str())
    }

    /// Tries another node, or rolls back.
    fn next_node(&self, reason: Reason, why: &str) -> SlotNext {
        let Some(replacement) = self.slot.replacement.as_ref().filter(|_| !self.slot.scheduled) else {
            return self.roll_back(reason, why);
        };
        match choose::another_node(self.ctx, self.slot) {
            Some(node) => self.again_on(node, Some(&replacement.node)),
            None => self.roll_back(reason, why),
        }
    }

    /// Maximum time for which the new pod waits for the scheduler. In a swap without room, it waits until the other
    /// replicas have left its node.
    pub fn schedule_time(&self) -> SignedDuration {
        let others = if self.slot.break_first { swap::patience(self.ctx) } else { SignedDuration::ZERO };
        self.ctx.schedule_time() + others
    }

    pub fn await_node(&self) -> SlotNext {
        let step = Step::Scheduling;
        if let Some(next) = self.node_failure() {
            return next;
        }
        let timeout = self.schedule_time();
        let over = self.overdue(step, timeout).unwrap_or(false);
        let Some(why) = self.replacement.and_then(|pod| pod.unschedulable.clone()) else {
            if over {
                return self.next_node(
                    Reason::Unschedulable,
                    "the scheduler did not process the new pod in time; is it running?",
                );
            }
            return self.hold(step, None, None, self.deadline(step, timeout));
        };
        let movable = self.ctx.work.verb == Verb::Move && !self.slot.break_first;
        let another = || {
            if self.slot.scheduled { None } else { choose::another_node(self.ctx, self.slot) }
        };
        // The eviction of the old pod does not help if something else keeps the new one off the node. In a swap, that
        // is another replica, which leaves afterwards.
        let helps = || self.ctx.work.swap.is_some() || choose::misfit(self.ctx, self.slot).is_none();
        let may_go_first = movable && self.ctx.may_disrupt() && helps();
        if may_go_first && !over && another().is_none() {
            let mut slot = self.slot.clone();
            slot.break_first = true;
            return SlotNext::Record(slot);
        }
        if self.slot.break_first && !self.slot.evicting {
            return self.detach(step);
        }
        if over || (!self.slot.evicting && another().is_some()) {
            return self.next_node(Reason::Unschedulable, &why);
        }
        self.hold(step, Some(Reason::Unschedulable), Some(why), self.deadline(step, timeout))
    }

    pub fn await_ready(&self) -> SlotNext {
        let step = Step::Readying;
        let Some(pod) = self.replacement else { return self.hold(step, None, None, None) };
        if let Some(name) = self.vanished_node() {
            return self.next_node(Reason::NodeGone, &format!("node {name} is gone"));
        }
        let timeout = self.ctx.ready_time() + self.settling_time();
        let Some(since) = pod.ready_since else {
            // A container's trouble may pass, such as a Secret that is late or a registry that restarts.
            if let Some(trouble) = &pod.trouble {
                if self.overdue(step, timeout).unwrap_or(false) {
                    return self.next_node(trouble.reason, &trouble.message);
                }
                let (reason, message) = (Some(trouble.reason), Some(trouble.message.clone()));
                return self.hold(step, reason, message, self.deadline(step, timeout));
            }
            if self.overdue(step, timeout).unwrap_or(false) {
                return self.roll_back(
                    Reason::ReplacementNotReady,
                    "the new pod was not Ready in time; look at its events and log",
                );
            }
            return self.hold(step, None, None, self.deadline(step, timeout));
        };
        let stable = since + self.settling_time();
        if self.ctx.now < stable {
            let message = format!("the new pod is Ready; it must stay Ready until {stable}");
            return self.hold(step, None, Some(message), Some(stable));
        }
        if !self.slot.evicting
            && let Some(next) = swap::until_all_are_ready(self)
        {
            return next;
        }
        match self.ctx.work.verb {
            Verb::Create => self.scale(step, 1),
            // Break before make: the old pod is already gone, and the set adopts the new one.
            Verb::Move if self.slot.evicting => self.take_in(step),
            Verb::Move | Verb::Delete => self.detach(step),
        }
    }

    /// The next step if the new pod has failed since the old one was detached.
    pub fn replacement_failure(&self, step: Step) -> Option<SlotNext> {
        if self.slot.protocol != Protocol::Replacement || self.slot.replacement.is_none() || self.slot.break_first {
            return None;
        }
        if let Some(name) = self.vanished_node() {
            return Some(self.roll_back(Reason::NodeGone, &format!("node {name} is gone")));
        }
        match self.replacement {
            Some(pod) if pod.is_ready() => None,
            Some(pod) if pod.is_active() => {
                let trouble = pod.trouble.as_ref().map(|trouble| (trouble.reason, trouble.message.clone()));
                let unready = || (Reason::ReplacementNotReady, "the new pod is not Ready any more".to_owned());
                let (reason, message) = trouble.unwrap_or_else(unready);
                Some(self.hold_or_back(step, reason, message, self.ctx.ready_time()))
            }
            Some(pod) => {
                let words = pod.trouble.as_ref().map(|trouble| format!(": {}", trouble.message)).unwrap_or_default();
                Some(self.roll_back(Reason::ReplacementLost, &format!("the new pod ended{words}")))
            }
            None => Some(self.roll_back(Reason::ReplacementLost, "the new pod was deleted by somebody else")),
        }
    }
}
