//! One slot, after the point of no return: evicts the old pod and verifies the outcome.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{Protocol, Step};
use ganglion_core::facts::PodFact;

use super::apart;
use super::context::Verb;
use super::effect::{Effect, PodChange};
use super::set::Pods;
use super::slot::{SlotNext, View};

/// Maximum time for which an eviction waits until the surplus is gone and the disruption controller has updated the
/// budget's status.
const CALM: SignedDuration = SignedDuration::from_secs(2);

/// Time for which the grant of an eviction that was not carried out is used. It is shorter than [`GRANT_LASTS`], since
/// the API server has another clock.
const GRANT_TRUSTED: SignedDuration = SignedDuration::from_secs(100);

/// Time for which a budget counts a pod as disrupted whose eviction was granted and not carried out (`DeletionTimeout`
/// of the disruption controller).
pub const GRANT_LASTS: SignedDuration = SignedDuration::from_secs(120);

impl<'a> View<'a> {
    pub fn evict(&self) -> SlotNext {
        let step = Step::Evicting;
        let Some(victim) = self.victim else { return self.hold(step, None, None, None) };
        if !victim.is_active() {
            let grace = SignedDuration::from_secs(victim.grace_seconds.clamp(0, 86_400));
            let timeout = self.ctx.drain_time() + grace;
            if self.overdue(step, timeout).unwrap_or(false) {
                if let Some((surplus, pods)) = self.surplus() {
                    return self.release(step, surplus, &pods);
                }
                let runs = if self.slot.protocol == Protocol::Replacement { "its replacement runs; " } else { "" };
                let advice = "look at its finalizers and its node's kubelet";
                let message = format!("pod {} was evicted and does not terminate; {runs}{advice}", victim.id.key.name);
                return self.end(Step::Failed, Reason::VictimStuck, &message);
            }
            return self.hold(step, None, None, self.deadline(step, timeout));
        }
        if let Some(next) = self.replacement_failure(step) {
            return next;
        }
        if let Some(next) = self.surplus_first(step) {
            return next;
        }
        let granted = self.is_granted(victim);
        if let Some((reason, message)) = self.budget(victim).filter(|_| !granted) {
            return self.hold_or_back(step, reason, message, self.ctx.drain_time());
        }
        if !granted && self.budget_moves() && !self.overdue(step, CALM).unwrap_or(false) {
            return self.hold(step, None, None, self.deadline(step, CALM));
        }
        // A set that is short because of a quota would create a pod as soon as the old one is gone, until it sees its
        // lower `spec.replicas`.
        if self.ctx.work.verb == Verb::Delete && self.pods().is_some_and(|pods| pods.is_short()) {
            let message =
                "the ReplicaSet has fewer pods than spec.replicas, which was lowered; its controller is behind";
            return self.hold_or_back(step, Reason::SetStuck, message.into(), self.ctx.drain_time());
        }
        if self.overdue(step, self.ctx.drain_time()).unwrap_or(false) {
            return self.roll_back(Reason::BudgetBlocked, "the eviction was refused for drainSeconds");
        }
        SlotNext::Do(self.removal(victim))
    }

    /// Whether all budgets granted an eviction of the pod that ended before the pod was deleted, for instance because
    /// the operator was killed. A deletion completes it; another eviction would need another grant.
    pub fn is_granted(&self, victim: &PodFact) -> bool {
        let name = &victim.id.key.name;
        let lasts = |at: &Timestamp| victim.created <= *at && self.ctx.now.duration_since(*at) < GRANT_TRUSTED;
        let mut budgets = self.ctx.world.budgets_for(self.ctx.namespace(), &victim.labels).peekable();
        budgets.peek().is_some() && budgets.all(|budget| budget.granted.get(name).is_some_and(lasts))
    }

    /// Lets the set delete its surplus before the old pod is evicted. If the set deletes another pod instead, the old
    /// pod still serves.
    fn surplus_first(&self, step: Step) -> Option<SlotNext> {
        let (surplus, pods) = self.surplus().filter(|_| !self.slot.break_first || self.taken_in())?;
        if pods.excess() > 0 {
            let message = format!("the ReplicaSet controller has not deleted pod {} yet", surplus.id.key.name);
            return Some(self.hold_or_back(step, Reason::SetStuck, message, self.ctx.drain_time()));
        }
        Some(self.release(step, surplus, &pods))
    }

    /// Whether the disruption controller is about to write a budget's status: its counts are stale, or a pod is
    /// terminating. An eviction that conflicts with such a write costs half a second (`EvictionsRetry` of
    /// kube-apiserver).
    fn budget_moves(&self) -> bool {
        let Some(scope) = self.scope else { return false };
        let (world, labels) = (self.ctx.world, scope.labels());
        let going = || world.pods_marked(&self.slot.id).any(|pod| pod.terminating);
        let mut budgets = world.budgets_for(self.ctx.namespace(), &labels);
        budgets.any(|budget| {
            let Some((pods, healthy)) = world.guarded(budget) else { return going() };
            let differs = |counted: i32, there: usize| i32::try_from(there) != Ok(counted);
            going() || differs(budget.healthy, healthy) || budget.pods.is_some_and(|counted| differs(counted, pods))
        })
    }

    pub fn verify(&self) -> SlotNext {
        let step = Step::Verifying;
        if self.scope.is_none() {
            let message = "the workload was deleted after its replica had moved";
            return self.end(Step::Failed, Reason::WorkloadGone, message);
        }
        if let Some(pods) = self.pods().filter(|_| apart::goes_first(self.slot)) {
            return self.await_successor(&pods);
        }
        if let Some((surplus, pods)) = self.surplus() {
            return self.release(step, surplus, &pods);
        }
        if self.slot.replacement.is_some() {
            match self.replacement.filter(|pod| pod.is_active()) {
                None => return self.replacement_is_lost(),
                Some(pod) if !pod.is_ready() => return self.await_taken_in(pod),
                Some(_) => {}
            }
        }
        let mut slot = self.noted();
        slot.step = Step::Succeeded;
        slot.since = Time(self.ctx.now);
        slot.scaled = self.scaled();
        (slot.reason, slot.message) = (None, None);
        SlotNext::Record(slot)
    }

    /// Waits for an adopted pod to become Ready, with the same timeouts as any new pod. A pod that stays unschedulable
    /// is evicted, which no budget refuses before it runs, so that its set can create one without the pin.
    fn await_taken_in(&self, pod: &PodFact) -> SlotNext {
        let step = Step::Verifying;
        let (reason, message, timeout) = match &pod.node {
            None => {
                let why = pod.unschedulable.clone();
                let message = why.unwrap_or_else(|| "the scheduler has not processed the new pod yet".into());
                (Reason::Unschedulable, message, self.schedule_time())
            }
            Some(_) => {
                let message = "the new pod belongs to its ReplicaSet and is not Ready".to_owned();
                (Reason::ReplacementNotReady, message, self.ctx.ready_time())
            }
        };
        match (self.overdue(step, timeout).unwrap_or(false), &pod.node) {
            (false, _) => self.hold(step, Some(reason), Some(message), self.deadline(step, timeout)),
            (true, None) => SlotNext::Do(Effect::Evict { pod: pod.id.clone() }),
            (true, Some(_)) => self.end(Step::Failed, reason, &message),
        }
    }

    /// Ends a slot whose adopted new pod is gone: others deleted it, or the slot did because no node took it.
    fn replacement_is_lost(&self) -> SlotNext {
        let then = "its ReplicaSet creates another one, on a node that the scheduler chooses";
        match (self.slot.reason, &self.slot.message) {
            (Some(Reason::Unschedulable), Some(why)) => {
                self.end(Step::Failed, Reason::Unschedulable, &format!("no node took the new pod ({why}); {then}"))
            }
            _ => {
                let message = format!("the new pod ended before the action did; {then}");
                self.end(Step::Failed, Reason::ReplacementLost, &message)
            }
        }
    }

    /// The pod of the set that this slot has marked: the surplus, or the new pod during a rollback.
    pub fn surplus(&self) -> Option<(&'a PodFact, Pods<'a>)> {
        let pods = self.pods()?;
        Some((pods.surplus_of(&self.slot.id)?, pods))
    }

    /// Waits until the set deletes the marked pod. If the set keeps it (somebody scaled up), removes the mark.
    pub fn release(&self, step: Step, surplus: &PodFact, pods: &Pods<'a>) -> SlotNext {
        if pods.excess() > 0 || pods.wanted_by_others(Some(&self.slot.id)) {
            let message = format!("pod {} is about to be deleted", surplus.id.key.name);
            return self.hold(step, None, Some(message), None);
        }
        SlotNext::Do(Effect::ChangePod {
            pod: surplus.id.clone(),
            change: PodChange::Unmark { cost: pods.template_cost() },
        })
    }
}
