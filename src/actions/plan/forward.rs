//! One slot, forward: the next effect of each step up to the point of no return. For the steps after it, see
//! `eviction`.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::Step;
use ganglion_core::facts::{BudgetFact, PodFact};

use super::apart;
use super::context::Verb;
use super::effect::{Claimable, Effect, PodChange};
use super::eviction::GRANT_LASTS;
use super::preemption;
use super::rollback;
use super::scope::Scope;
use super::set::Pods;
use super::slot::{SlotNext, View};
use super::swap;

/// Maximum time for which a set may have no substitute although it has its full number of pods. The slot then concludes
/// that somebody scaled the workload, and rolls back.
const SETTLE: SignedDuration = SignedDuration::from_secs(5);

/// Time after our watches broke in which the ReplicaSet controller may act on a stale list of pods. It watches pods and
/// ReplicaSets separately, and client-go waits up to 13 s between two attempts in an outage of 10 s. In a longer
/// outage, kube-controller-manager loses its lease and lists everything again.
const CATCH_UP: SignedDuration = SignedDuration::from_secs(15);

impl<'a> View<'a> {
    pub fn forward(&self, step: Step) -> SlotNext {
        let verb = self.ctx.work.verb;
        if self.victim_lost() {
            return self.roll_back(Reason::VictimGone, "the old pod was deleted by somebody else");
        }
        match step {
            Step::Planned if apart::goes_first(self.slot) => self.go_first(),
            Step::Planned => self.detach(step),
            Step::Creating => self.make_replacement(),
            Step::Scheduling => self.await_node(),
            Step::Readying => self.await_ready(),
            Step::Detached => self.claim(step),
            Step::Scaled if verb == Verb::Create => self.claim(step),
            Step::Scaled => self.commit(),
            Step::Marked => match verb {
                Verb::Delete => self.scale(step, -1),
                Verb::Move if self.slot.break_first => self.make_room(),
                Verb::Move | Verb::Create => self.take_in(step),
            },
            Step::Adopted => self.adopted(),
            Step::Evicting => self.evict(),
            Step::Verifying => self.verify(),
            Step::Queued
            | Step::RollingBack
            | Step::Succeeded
            | Step::RolledBack
            | Step::Failed
            | Step::Aborted
            | Step::Expired => self.hold(step, None, None, None),
        }
    }

    /// Whether others deleted the old pod before its eviction. It does not matter once the set has adopted the new pod
    /// or `spec.replicas` is lowered.
    fn victim_lost(&self) -> bool {
        let lowered = self.ctx.work.verb == Verb::Delete && self.scaled();
        self.slot.victim.is_some() && !self.slot.evicting && !self.victim_runs() && !lowered && !self.taken_in()
    }

    /// Detaches the old pod from its set. Before this effect the slot can wait for any condition.
    pub fn detach(&self, step: Step) -> SlotNext {
        let (Some(victim), Some(scope), Some(pods)) = (self.victim, &self.scope, self.pods()) else {
            return self.hold(step, None, None, None);
        };
        if self.ctx.suspended() {
            return self.suspended(step);
        }
        // The clock of Readying has run since the new pod was scheduled.
        let before =
            if step == Step::Planned { SignedDuration::ZERO } else { self.ctx.ready_time() + self.settling_time() };
        let timeout = before + self.ctx.drain_time() + swap::patience(self.ctx);
        if let Some((reason, message)) = self.unrest(scope, &pods).or_else(|| self.budget(victim)) {
            return self.hold_or_back(step, reason, message, timeout);
        }
        if let Some(message) = preemption::danger(self, scope) {
            return self.hold_or_back(step, Reason::NodeFull, message, timeout);
        }
        // Wait while the substitute of another slot is pending: a pod that exists when we detach counts as
        // pre-existing.
        if pods.wanted_by_others(Some(&self.slot.id)) {
            let message = "the ReplicaSet has not created the substitute of another replica yet".to_owned();
            return self.hold_or_back(step, Reason::VictimBusy, message, timeout);
        }
        // Wait while the surplus of another delete exists: the set would create no substitute for this one. A
        // substitute proves that the set's controller has seen the detachment. If it saw a lower `spec.replicas` before
        // the detachment, it would delete a replica.
        if self.ctx.work.verb == Verb::Delete && pods.marked().next().is_some() {
            let message = "the ReplicaSet has not deleted the substitute of another replica yet".to_owned();
            return self.hold_or_back(step, Reason::VictimBusy, message, timeout);
        }
        SlotNext::Do(Effect::ChangePod {
            pod: victim.id.clone(),
            change: PodChange::Detach {
                label: self.slot.label.clone(),
                set: self.slot.replica_set.clone(),
                slot: self.slot.id.clone(),
                peers: pods.peers(self.ctx.created()).join(","),
            },
        })
    }

    /// Why no pods of the set may be exchanged now: a rollout, or another pod that is not Ready.
    fn unrest(&self, scope: &Scope<'a>, pods: &Pods<'a>) -> Option<(Reason, String)> {
        if let Some(message) = scope.rollout(self.ctx.world) {
            return Some((Reason::RolloutInProgress, message));
        }
        self.unready(pods)
    }

    /// Another pod of the set that is not Ready. The set would delete it before the marked pod.
    pub fn unready(&self, pods: &Pods<'a>) -> Option<(Reason, String)> {
        let own = self.victim.map(|victim| &victim.id.uid);
        let pod = pods.unready().filter(|pod| Some(&pod.id.uid) != own)?;
        let message = format!("pod {} of the same set is not Ready; the action continues when it is", pod.id.key.name);
        Some((Reason::ReplicasNotReady, message))
    }

    /// The budget that would refuse the eviction.
    pub fn budget(&self, victim: &PodFact) -> Option<(Reason, String)> {
        let labels = self.scope?.labels();
        let mut budgets = self.ctx.world.budgets_for(self.ctx.namespace(), &labels);
        let budget = budgets.find(|budget| budget.allowed < 1 && victim.is_ready())?;
        let name = &budget.id.key.name;
        let message = self.unused_grant(budget).unwrap_or_else(|| {
            let BudgetFact { allowed, healthy, required, .. } = budget;
            format!(
                "PodDisruptionBudget {name}: {allowed} disruptions allowed ({healthy} healthy, {required} required)"
            )
        });
        Some((Reason::BudgetBlocked, message))
    }

    /// The obstacle if the budget granted an eviction that was not carried out: the budget counts that pod as disrupted
    /// until the grant expires.
    fn unused_grant(&self, budget: &BudgetFact) -> Option<String> {
        let runs = |pod: &String| self.ctx.world.pod(&self.ctx.key(pod)).is_some_and(PodFact::is_active);
        let (pod, at) = budget.granted.iter().filter(|(pod, _)| runs(pod)).max_by_key(|(_, at)| **at)?;
        let until = at.saturating_add(GRANT_LASTS).ok()?;
        let name = &budget.id.key.name;
        (self.ctx.now < until).then(|| {
            format!(
                "PodDisruptionBudget {name} allows no eviction now: the eviction of pod {pod} was granted at {at} and \
                 not carried out, and counts until {until}"
            )
        })
    }

    /// Marks the surplus: the pod that the set created in place of the detached one. The set deletes it when it adopts
    /// the new pod.
    fn claim(&self, step: Step) -> SlotNext {
        let Some(pods) = self.pods() else { return self.hold(step, None, None, None) };
        if let Some(next) = self.replacement_failure(step) {
            return next;
        }
        if let Some(next) = self.mark_surplus(&pods) {
            return next;
        }
        if pods.is_short() {
            // The API server refuses further pods of the set, so the set is one pod short and no surplus is needed.
            if self.scope.is_some_and(|scope| scope.set.create_failure.is_some()) {
                return match self.ctx.work.verb {
                    Verb::Delete => self.scale(step, -1),
                    Verb::Move if self.slot.break_first => self.commit(),
                    Verb::Move | Verb::Create => self.take_in(step),
                };
            }
            let message =
                "the ReplicaSet controller has not created the substitute yet; is kube-controller-manager running?";
            return self.hold_or_back(step, Reason::SetStuck, message.into(), self.ctx.drain_time());
        }
        let message = "the ReplicaSet has its full number of pods without the old one; somebody scaled the workload";
        self.hold_or_back(step, Reason::WorkloadScaled, message.into(), SETTLE)
    }

    /// Marks the surplus that this slot needs, if it exists.
    pub fn mark_surplus(&self, pods: &Pods<'a>) -> Option<SlotNext> {
        let orphan = || if pods.excess() == 0 && !pods.is_short() { pods.orphan() } else { None };
        let pod = pods.unclaimed(self.slot).or_else(orphan)?;
        Some(self.mark(pod))
    }

    pub fn mark(&self, pod: &PodFact) -> SlotNext {
        let label = &self.slot.label;
        let rests_on = Claimable {
            label: pod.labels.get(label).map(|value| (label.clone(), value.clone())),
            held_by: pod.marks.slot.clone(),
            annotated: pod.annotated,
        };
        let change = PodChange::Mark { slot: self.slot.id.clone(), rests_on };
        SlotNext::Do(Effect::ChangePod { pod: pod.id.clone(), change })
    }

    /// Lets the set adopt the new pod. The set then deletes the marked pod.
    pub fn take_in(&self, step: Step) -> SlotNext {
        let (Some(pod), Some(scope), Some(pods)) = (self.replacement, &self.scope, self.pods()) else {
            return self.replacement_failure(step).unwrap_or_else(|| self.hold(step, None, None, None));
        };
        if let Some(next) = self.replacement_failure(step) {
            return next;
        }
        if let Some((reason, message)) = self.unready(&pods) {
            return self.hold_or_back(step, reason, message, self.ctx.ready_time());
        }
        if pods.wanted_by_others(Some(&self.slot.id)) {
            let message = "another replica is detached and has no substitute yet".to_owned();
            return self.hold_or_back(step, Reason::WorkloadBusy, message, self.ctx.drain_time());
        }
        if !pods.may_take_in() {
            let message = "the ReplicaSet has more pods than it wants; somebody scaled the workload".to_owned();
            return self.hold_or_back(step, Reason::WorkloadScaled, message, self.ctx.drain_time());
        }
        self.attach(pod, scope)
    }

    /// Adds a pod to the set.
    pub fn attach(&self, pod: &PodFact, scope: &Scope<'a>) -> SlotNext {
        let value = scope.set.selector.labels.get(&self.slot.label).cloned().unwrap_or_default();
        let change = PodChange::Attach { label: self.slot.label.clone(), value, set: self.slot.replica_set.clone() };
        SlotNext::Do(Effect::ChangePod { pod: pod.id.clone(), change })
    }

    /// Changes the workload's replicas, once.
    pub fn scale(&self, step: Step, by: i32) -> SlotNext {
        let (Some(scope), Some(pods)) = (&self.scope, self.pods()) else { return self.hold(step, None, None, None) };
        // A delete has already detached its old pod, so it is past its safe point.
        if self.ctx.suspended() && by > 0 {
            return self.suspended(step);
        }
        let danger = || preemption::danger(self, scope).map(|message| (Reason::NodeFull, message));
        let unrest = if by > 0 { self.unrest(scope, &pods).or_else(danger) } else { self.unready(&pods) };
        if let Some((reason, message)) = unrest {
            return self.hold_or_back(step, reason, message, self.ctx.ready_time() + self.ctx.drain_time());
        }
        if by < 0 && scope.replicas() < 1 {
            return self.roll_back(Reason::WorkloadScaled, "somebody scaled the workload to zero");
        }
        if let Some(until) = self.catching_up(step).filter(|_| by < 0) {
            let message = "the connection to the API server broke, and the ReplicaSet controller may not know yet \
                           which pod to delete; the action continues by itself within seconds";
            return self.hold(step, Some(Reason::WatchesBroken), Some(message.to_owned()), Some(until));
        }
        if rollback::ledger_is_taken(self, scope) {
            return self.hold(
                step,
                Some(Reason::WorkloadBusy),
                Some("another replica of this action is changing spec.replicas".into()),
                None,
            );
        }
        let peers = if by > 0 { pods.peers(self.ctx.created()) } else { Vec::new() };
        rollback::scale(self, scope, by, false, peers)
    }

    /// Until this time, the ReplicaSet controller may see a lower `spec.replicas` before it sees the mark on the
    /// surplus, and so delete another pod. An adoption needs no such wait, since it arrives by the same watch as the
    /// mark.
    pub fn catching_up(&self, step: Step) -> Option<Timestamp> {
        let until = self.ctx.world.broken_off()? + CATCH_UP;
        let in_time = !self.overdue(step, self.ctx.drain_time()).unwrap_or(false);
        (self.ctx.now < until && in_time).then_some(until)
    }

    fn adopted(&self) -> SlotNext {
        match self.replacement_failure(Step::Adopted) {
            Some(next) => next,
            None => self.commit(),
        }
    }

    /// Break before make: the new pod needs the room that the old one frees. A substitute without a node would compete
    /// for that room, so it is removed first: the set adopts the unscheduled new pod and deletes the marked substitute.
    fn make_room(&self) -> SlotNext {
        let waits = |pod: &&PodFact| pod.is_active() && pod.node.is_none();
        match (self.replacement.filter(waits), self.surplus(), &self.scope) {
            (Some(pod), Some((surplus, pods)), Some(scope)) if waits(&surplus) && pods.may_take_in() => {
                self.attach(pod, scope)
            }
            _ => self.commit(),
        }
    }

    /// Records the intent to evict the old pod.
    pub fn commit(&self) -> SlotNext {
        let mut slot = self.noted();
        slot.evicting = true;
        slot.scaled = self.scaled();
        slot.step = Step::Evicting;
        slot.since = Time(self.ctx.now);
        (slot.reason, slot.message) = (None, None);
        SlotNext::Record(slot)
    }
}
