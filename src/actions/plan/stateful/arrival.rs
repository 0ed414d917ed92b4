//! One slot, after the departure of the old pod: the new pod is created on the target node and becomes Ready.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{MOST_ATTEMPTS, PIN_PAUSES};
use crate::choose;
use crate::context::Verb;
use crate::effect::Effect;
use crate::nodes::Nodes;
use crate::slot::{SlotNext, View};
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{PodOnNode, Slot, Step};
use ganglion_core::facts::{NodeName, PodFact};

impl View<'_> {
    pub fn arrive(&self) -> SlotNext {
        let Some(pod) = self.arrived() else { return self.await_creation() };
        match &pod.node {
            None if !self.has_target() => self.await_any_node(pod),
            Some(node) if !self.has_target() && self.is_home(node) => self.came_back(pod, node),
            None if pod.gated => self.let_through(pod),
            None => self.await_scheduler(pod),
            Some(node) if self.has_target() && *node != self.target() => self.landed_elsewhere(pod, node),
            Some(node) => self.await_stable(pod, node),
        }
    }

    /// Whether the replica leaves this node.
    fn is_home(&self, node: &NodeName) -> bool {
        self.slot.victim.as_ref().is_some_and(|victim| victim.node == *node)
    }

    /// Waits for the node that the scheduler chooses.
    fn await_any_node(&self, pod: &PodFact) -> SlotNext {
        let (step, timeout) = (Step::Scheduling, self.ctx.schedule_time());
        let why = pod.unschedulable.as_deref();
        if self.overdue(step, timeout).unwrap_or(false) {
            let why = why.unwrap_or("the scheduler did not process it in time; is it running?");
            let name = &pod.id.key.name;
            let message = format!("pod {name}: {why}; the old pod is gone, and the scheduler goes on trying");
            return self.end(Step::Failed, Reason::Unschedulable, &message);
        }
        let reason = why.map(|_| Reason::Unschedulable);
        self.hold(step, reason, why.map(str::to_owned), self.deadline(step, timeout))
    }

    /// The scheduler chose the node that the replica leaves.
    fn came_back(&self, pod: &PodFact, node: &NodeName) -> SlotNext {
        let is_open = self.ctx.world.node(node).is_none_or(|node| !node.cordoned);
        let why = if is_open { "is not cordoned any more" } else { "was cordoned too late" };
        let message = format!("pod {} came back to node {node}, which {why}", pod.id.key.name);
        self.end(Step::Failed, Reason::NodeNotCordoned, &message)
    }

    /// Waits until the StatefulSet has created the new pod.
    fn await_creation(&self) -> SlotNext {
        let step = Step::Creating;
        if self.scope.is_none() {
            return self.end(Step::Failed, Reason::WorkloadGone, "the workload was deleted while its replica moved");
        }
        if !self.is_kept() {
            let message = "somebody scaled the workload down, without this replica";
            return self.lost(Reason::WorkloadScaled, message);
        }
        if let Some(next) = self.target_failure(None) {
            return next;
        }
        let timeout = self.ctx.schedule_time();
        if self.overdue(step, timeout).unwrap_or(false) {
            let message = format!(
                "the StatefulSet has not created pod {}: see its events; is kube-controller-manager running?",
                self.pod_name()
            );
            return self.lost(Reason::SetStuck, &message);
        }
        self.hold(step, None, None, self.deadline(step, timeout))
    }

    /// Pins a gated pod to the target node, and releases it.
    fn let_through(&self, pod: &PodFact) -> SlotNext {
        if let Some(next) = self.target_failure(Some(pod)) {
            return next;
        }
        SlotNext::Do(Effect::ReleasePod { pod: pod.id.clone(), node: Some(self.target()) })
    }

    fn await_scheduler(&self, pod: &PodFact) -> SlotNext {
        let step = Step::Scheduling;
        if pod.pin != Some(self.target()) {
            return self.pin_again(pod).unwrap_or_else(|| {
                self.lost(Reason::PinMissed, "the new pod was repeatedly not pinned to its target node")
            });
        }
        if let Some(next) = self.target_failure(Some(pod)) {
            return next;
        }
        let timeout = self.ctx.schedule_time();
        let over = self.overdue(step, timeout).unwrap_or(false);
        let Some(why) = &pod.unschedulable else {
            let message = "the scheduler did not process the new pod in time; is it running?";
            return if over {
                self.other_node(Some(pod), Reason::Unschedulable, message)
            } else {
                self.hold(step, None, None, self.deadline(step, timeout))
            };
        };
        if over || choose::another_node(self.ctx, self.slot).is_some() {
            return self.other_node(Some(pod), Reason::Unschedulable, why);
        }
        self.hold(step, Some(Reason::Unschedulable), Some(why.clone()), self.deadline(step, timeout))
    }

    /// The next step if the target node does not accept pods any more.
    fn target_failure(&self, pod: Option<&PodFact>) -> Option<SlotNext> {
        let name = self.slot.replacement.as_ref()?.node.clone();
        let why = match self.ctx.world.node(&name) {
            None => format!("node {name} is gone"),
            Some(node) if node.terminating => format!("node {name} is being deleted"),
            Some(node) if node.cordoned => format!("node {name} was cordoned"),
            Some(_) => return None,
        };
        Some(self.other_node(pod, Reason::NodeGone, &why))
    }

    /// Chooses another node for the new pod. If there is none, the pod is released and the slot fails.
    fn other_node(&self, pod: Option<&PodFact>, reason: Reason, why: &str) -> SlotNext {
        let other = choose::another_node(self.ctx, self.slot).filter(|_| self.slot.attempt < MOST_ATTEMPTS);
        let Some(node) = other else { return self.lost(reason, why) };
        let tried = Some(self.target());
        match pod {
            Some(pod) if !pod.gated => self.come_again(pod, node, tried).unwrap_or_else(|| self.lost(reason, why)),
            _ => SlotNext::Record(self.toward(node, tried)),
        }
    }

    /// The same slot with this node as the target.
    fn toward(&self, node: NodeName, tried: Option<NodeName>) -> Slot {
        let mut slot = self.slot.clone();
        slot.attempt += 1;
        slot.since = Time(self.ctx.now);
        slot.step = if slot.victim.is_some() { Step::Evicting } else { Step::Creating };
        slot.tried.extend(tried);
        slot.replacement = Some(PodOnNode { name: self.pod_name().to_owned(), uid: None, node });
        (slot.reason, slot.message) = (None, None);
        slot
    }

    /// Creates the pod again, pinned to this node: the current pod becomes the old one. None after [`MOST_ATTEMPTS`]
    /// attempts.
    fn come_again(&self, pod: &PodFact, node: NodeName, tried: Option<NodeName>) -> Option<SlotNext> {
        if self.slot.attempt >= MOST_ATTEMPTS {
            return None;
        }
        let mut slot = self.toward(node, tried);
        let node = self.slot.victim.as_ref().map_or_else(|| self.target(), |victim| victim.node.clone());
        let (name, uid) = (pod.id.key.name.clone(), Some(pod.id.uid.clone()));
        slot.victim = Some(PodOnNode { name, uid, node });
        // A pod that runs is evicted only as budgets allow it.
        (slot.evicting, slot.step) = if pod.node.is_some() { (false, Step::Planned) } else { (true, Step::Evicting) };
        Some(SlotNext::Record(slot))
    }

    /// Waits, and then creates a pod without a pin again. None after the last attempt.
    fn pin_again(&self, pod: &PodFact) -> Option<SlotNext> {
        let step = Step::Scheduling;
        let pause = usize::try_from(self.slot.attempt).ok().and_then(|attempt| PIN_PAUSES.get(attempt))?;
        if self.overdue(step, *pause).unwrap_or(false) {
            return self.come_again(pod, self.target(), None);
        }
        let until = self.deadline(step, *pause);
        let message = format!("pod {} was created without a pin to node {}", pod.id.key.name, self.target());
        Some(self.hold(step, Some(Reason::PinMissed), Some(message), until))
    }

    /// The new pod is on another node than the target: an API server did not see the pin yet.
    fn landed_elsewhere(&self, pod: &PodFact, node: &NodeName) -> SlotNext {
        if self.may_stay(node) {
            let mut slot = self.slot.clone();
            slot.replacement.iter_mut().for_each(|replacement| node.clone_into(&mut replacement.node));
            return SlotNext::Record(slot);
        }
        if self.ctx.aborted() {
            return self.missed(pod, self.ctx.why_aborted());
        }
        self.pin_again(pod).unwrap_or_else(|| {
            let name = &pod.id.key.name;
            self.missed(pod, &format!("pod {name} was repeatedly scheduled to another node than {}", self.target()))
        })
    }

    /// Whether the user's target also allows this node.
    fn may_stay(&self, node: &NodeName) -> bool {
        let (ctx, nodes) = (self.ctx, Nodes::new(self.ctx.world, self.ctx.now));
        let filter = choose::target(ctx).ok();
        let by_policy = ctx.work.to.is_some_and(|to| to.policy.is_some());
        let admits = filter.zip(ctx.world.node(node)).is_some_and(|(filter, node)| filter.admits(&nodes, node).is_ok());
        !self.is_home(node) && !by_policy && admits
    }

    /// Ends a slot whose pod runs on another node than the target.
    pub fn missed(&self, pod: &PodFact, why: &str) -> SlotNext {
        let node = pod.node.as_ref().map_or("no node", NodeName::as_str);
        let message = format!("{why}; pod {} runs on {node}", pod.id.key.name);
        if self.ctx.work.verb == Verb::Create {
            return self.roll_back(Reason::PinMissed, &message);
        }
        self.end(Step::Failed, Reason::PinMissed, &message)
    }

    fn await_stable(&self, pod: &PodFact, node: &NodeName) -> SlotNext {
        let step = Step::Readying;
        if self.has_target() && self.ctx.world.node(node).is_none() {
            let why = format!("node {node} is gone");
            return self.other_node(Some(pod), Reason::NodeGone, &why);
        }
        let timeout = self.ctx.ready_time() + self.settling_time();
        let stays = format!("; pod {} stays on {node}", pod.id.key.name);
        let Some(since) = pod.ready_since else {
            // A container's trouble may pass.
            if let Some(trouble) = &pod.trouble {
                if self.overdue(step, timeout).unwrap_or(false) {
                    return self.not_ready(trouble.reason, &(trouble.message.clone() + &stays));
                }
                let (reason, message) = (Some(trouble.reason), Some(trouble.message.clone()));
                return self.hold(step, reason, message, self.deadline(step, timeout));
            }
            if self.overdue(step, timeout).unwrap_or(false) {
                let message = format!("the new pod was not Ready in time; look at its events and log{stays}");
                return self.not_ready(Reason::ReplacementNotReady, &message);
            }
            return self.hold(step, None, None, self.deadline(step, timeout));
        };
        let stable = since + self.settling_time();
        if self.ctx.now < stable {
            let message = format!("the new pod is Ready; it must stay Ready until {stable}");
            return self.hold(step, None, Some(message), Some(stable));
        }
        let mut slot = self.slot.clone();
        let (name, uid) = (pod.id.key.name.clone(), Some(pod.id.uid.clone()));
        slot.replacement = Some(PodOnNode { name, uid, node: node.clone() });
        (slot.step, slot.since, slot.scaled) = (Step::Succeeded, Time(self.ctx.now), self.scaled());
        (slot.reason, slot.message) = (None, None);
        SlotNext::Record(slot)
    }

    /// The new pod is on the target node and does not become Ready. A create is undone. The replica of a move stays
    /// with the set.
    fn not_ready(&self, reason: Reason, message: &str) -> SlotNext {
        match self.ctx.work.verb {
            Verb::Create => self.roll_back(reason, message),
            Verb::Move | Verb::Delete => self.end(Step::Failed, reason, message),
        }
    }

    /// Gives up the target node. The record drops the pin, so that the set gets its full number of replicas again.
    fn lost(&self, reason: Reason, message: &str) -> SlotNext {
        self.roll_back(reason, message)
    }
}
