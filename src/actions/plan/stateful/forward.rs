//! One slot, forward: up to the departure of the old pod, and the change of the replicas.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::choose;
use crate::context::Verb;
use crate::effect::Effect;
use crate::rollback;
use crate::scope::StartRefusal;
use crate::slot::{SlotNext, View};
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::Step;
use ganglion_core::facts::PodFact;

use super::choose::{lost_claims, refuse_data_loss, way_back};

impl View<'_> {
    pub fn forward_stateful(&self) -> SlotNext {
        match self.ctx.work.verb {
            Verb::Move => self.come_anew(),
            Verb::Create if self.scaled() => self.come_anew(),
            Verb::Create => self.grow(),
            Verb::Delete if self.scaled() => self.await_departure(),
            Verb::Delete => self.shrink(),
        }
    }

    /// Evicts the old pod and waits for the new one. A create has an old pod if its first pod did not land on the
    /// target node.
    fn come_anew(&self) -> SlotNext {
        match self.victim {
            Some(old) if old.is_active() && !self.slot.evicting => self.begin_eviction(old),
            Some(old) if old.is_active() => self.evict_stateful(old),
            Some(old) => self.await_end(old),
            None => self.arrive(),
        }
    }

    /// Records the intent to evict. Before it the slot can wait for any condition.
    fn begin_eviction(&self, old: &PodFact) -> SlotNext {
        let step = Step::Planned;
        if self.slot.attempt > 0 && self.ctx.aborted() {
            return self.missed(old, self.ctx.why_aborted());
        }
        if !self.is_kept() {
            return self.roll_back(Reason::WorkloadScaled, "somebody scaled the workload down, without this replica");
        }
        if self.ctx.suspended() {
            return self.suspended(step);
        }
        if let Some(refusal) = self.way_back(old) {
            return self.roll_back(refusal.reason, &refusal.message);
        }
        let timeout = self.ctx.drain_time();
        if let Some((reason, message)) = self.stateful_unrest(Some(old)).or_else(|| self.budget(old)) {
            if self.slot.attempt > 0 && self.overdue(step, timeout).unwrap_or(false) {
                return self.missed(old, &message);
            }
            return self.hold_or_back(step, reason, message, timeout);
        }
        if let Some(next) = self.without_place(timeout) {
            return next;
        }
        let mut slot = self.slot.clone();
        slot.evicting = true;
        slot.step = Step::Evicting;
        slot.since = Time(self.ctx.now);
        (slot.reason, slot.message) = (None, None);
        SlotNext::Record(slot)
    }

    /// The next step if no node takes the new pod now. The old pod stays meanwhile.
    fn without_place(&self, timeout: SignedDuration) -> Option<SlotNext> {
        let step = Step::Planned;
        if !self.has_target() {
            let refusal = choose::homeless(self.ctx, self.slot)?;
            return Some(self.hold_or_back(step, refusal.reason, refusal.message, timeout));
        }
        let (reason, message) = choose::misfit(self.ctx, self.slot)?;
        let Some(node) = choose::another_node(self.ctx, self.slot) else {
            return Some(self.hold_or_back(step, reason, message, timeout));
        };
        let mut slot = self.slot.clone();
        slot.tried.push(self.target());
        slot.replacement.iter_mut().for_each(|replacement| node.clone_into(&mut replacement.node));
        Some(SlotNext::Record(slot))
    }

    /// Why a new pod without a pin could come back to the node that this pod leaves.
    fn way_back(&self, old: &PodFact) -> Option<StartRefusal> {
        let set = self.stateful().filter(|_| !self.has_target())?;
        way_back(self.ctx, set, old.node.as_ref()?)
    }

    /// Why no replica of the set may leave now: a rollout, or another replica that is missing or not Ready.
    fn stateful_unrest(&self, own: Option<&PodFact>) -> Option<(Reason, String)> {
        let (scope, set) = (self.scope.as_ref()?, self.stateful()?);
        if let Some(message) = scope.rollout(self.ctx.world) {
            return Some((Reason::RolloutInProgress, message));
        }
        let own = own.map(|pod| pod.id.key.name.as_str());
        let names = (set.first_ordinal..set.next_ordinal()).map(|ordinal| set.pod_name(ordinal));
        let is_ready = |name: &String| {
            self.ctx.world.pod(&self.ctx.key(name)).is_some_and(|pod| pod.is_ready() && pod.is_of(&set.id.uid))
        };
        let name = names.filter(|name| Some(name.as_str()) != own).find(|name| !is_ready(name))?;
        let message = format!("pod {name} of the same set is not Ready; the action continues when it is");
        Some((Reason::ReplicasNotReady, message))
    }

    fn evict_stateful(&self, old: &PodFact) -> SlotNext {
        let (step, pod) = (Step::Evicting, old.id.clone());
        // Budgets do not protect a pod that has not started: the API server evicts it at once.
        if old.node.is_none() {
            return SlotNext::Do(Effect::Evict { pod });
        }
        // A grant names a pod. After the first attempt, it may still be the grant of an earlier pod of this name.
        let granted = self.slot.attempt == 0 && self.is_granted(old);
        let over = self.overdue(step, self.ctx.drain_time()).unwrap_or(false);
        let blocked = self.budget(old).filter(|_| !granted);
        let why =
            || blocked.clone().unwrap_or((Reason::BudgetBlocked, "the eviction was refused for drainSeconds".into()));
        if over && self.slot.attempt > 0 {
            return self.missed(old, &why().1);
        }
        if over {
            let (reason, message) = why();
            return self.roll_back(reason, &message);
        }
        if let Some((reason, message)) = blocked {
            return self.hold_or_back(step, reason, message, self.ctx.drain_time());
        }
        SlotNext::Do(if granted { Effect::DeletePod { pod } } else { Effect::Evict { pod } })
    }

    /// Waits until the old pod has terminated.
    fn await_end(&self, old: &PodFact) -> SlotNext {
        let step = Step::Evicting;
        let grace = SignedDuration::from_secs(old.grace_seconds.clamp(0, 86_400));
        let timeout = self.ctx.drain_time() + grace;
        if self.overdue(step, timeout).unwrap_or(false) {
            let advice = "look at its finalizers and its node's kubelet; its StatefulSet waits for it";
            let message = format!("pod {} does not terminate; {advice}", old.id.key.name);
            return self.end(Step::Failed, Reason::VictimStuck, &message);
        }
        self.hold(step, None, None, self.deadline(step, timeout))
    }

    /// Adds one replica, whose node is recorded.
    fn grow(&self) -> SlotNext {
        let step = Step::Planned;
        let Some(set) = self.stateful() else { return self.hold(step, None, None, None) };
        if set.ordinal(self.pod_name()) != Some(set.next_ordinal()) {
            return self.roll_back(Reason::WorkloadScaled, "somebody scaled the workload");
        }
        self.scale_stateful(1, None)
    }

    /// Removes one replica: the highest ordinal goes.
    fn shrink(&self) -> SlotNext {
        let step = Step::Planned;
        let Some(set) = self.stateful() else { return self.hold(step, None, None, None) };
        let highest = set.next_ordinal().saturating_sub(1);
        if set.ordinal(self.pod_name()) != Some(highest) {
            return self.roll_back(Reason::WorkloadScaled, "somebody scaled the workload");
        }
        let lost = lost_claims(self.ctx.world, set, self.pod_name());
        if let Err(refusal) = refuse_data_loss(self.ctx, set, &lost) {
            return self.roll_back(refusal.reason, &refusal.message);
        }
        // A StatefulSet deletes pods without checking budgets.
        if let Some((reason, message)) = self.victim.and_then(|old| self.budget(old)) {
            return self.hold_or_back(step, reason, message, self.ctx.drain_time());
        }
        self.scale_stateful(-1, self.victim)
    }

    fn scale_stateful(&self, by: i32, own: Option<&PodFact>) -> SlotNext {
        let step = Step::Planned;
        let Some(scope) = &self.scope else { return self.hold(step, None, None, None) };
        if self.ctx.suspended() {
            return self.suspended(step);
        }
        if let Some((reason, message)) = self.stateful_unrest(own) {
            return self.hold_or_back(step, reason, message, self.ctx.drain_time());
        }
        if rollback::ledger_is_taken(self, scope) {
            let message = "another action is changing spec.replicas".to_owned();
            return self.hold(step, Some(Reason::WorkloadBusy), Some(message), None);
        }
        rollback::scale(self, scope, by, false, Vec::new())
    }

    /// Waits until the pod of a delete is gone.
    fn await_departure(&self) -> SlotNext {
        let step = Step::Scaled;
        let pod = self.ctx.world.pod(&self.ctx.key(self.pod_name()));
        let pod = pod.filter(|pod| pod.is_of(&self.slot.replica_set.uid) && !self.is_kept());
        let Some(old) = self.victim.or(pod) else {
            let mut slot = self.noted();
            (slot.step, slot.since, slot.scaled) = (Step::Succeeded, Time(self.ctx.now), true);
            (slot.reason, slot.message) = (None, None);
            return SlotNext::Record(slot);
        };
        let grace = SignedDuration::from_secs(old.grace_seconds.clamp(0, 86_400));
        let timeout = self.ctx.drain_time() + grace;
        if self.overdue(step, timeout).unwrap_or(false) {
            let (reason, why) = if old.terminating {
                (Reason::VictimStuck, "does not terminate; look at its finalizers and its node's kubelet")
            } else {
                (
                    Reason::SetStuck,
                    "is still there although spec.replicas is lowered; is kube-controller-manager running?",
                )
            };
            return self.end(Step::Failed, reason, &format!("pod {} {why}", old.id.key.name));
        }
        self.hold(step, None, None, self.deadline(step, timeout))
    }
}
