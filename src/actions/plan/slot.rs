//! One slot with its objects, and how it waits, rolls back and ends.
//!
//! The progress of a slot is derived from labels and owners of the pods, from the ledger, and from two recorded facts
//! (`evicting`, `scaled`), not from the recorded step. So a crash needs no recovery. The next step is in
//! [`super::protocol`], the rollback is in [`super::rollback`].

use jiff::{SignedDuration, Timestamp};

use crate::world::ActionsWorld;
use ganglion_api::marks;
use ganglion_api::reasons::Reason;
use ganglion_api::refs::WorkloadRef;
use ganglion_api::workload_action::status::{PodOnNode, Slot, Step};
use ganglion_core::facts::{PodFact, ReplicaSetFact};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::context::{PlanContext, Verb};
use super::effect::{Effect, PodChange};
use super::eviction;
use super::identity::is_replacement_name;
use super::scope::{Scope, StartRefusal};
use super::set::Pods;
use super::stateful;

/// Minimum duration of a step before the status shows its obstacle. In a healthy cluster other controllers lag by a
/// moment, and a reason that disappears at once is noise.
pub const NOTABLE: SignedDuration = SignedDuration::from_secs(2);

/// The next step of a slot.
#[derive(Debug)]
pub enum SlotNext {
    /// Perform this effect.
    Do(Effect),
    /// Record the slot like this before any other effect.
    Record(Slot),
    /// Wait.
    Wait(Hold),
}

/// Step, reason and message of a waiting slot, and its deadline. If the slot rolls back, its status keeps the cause of
/// the rollback, and reason and message are those of the obstacle.
#[derive(Debug)]
pub struct Hold {
    pub step: Step,
    pub reason: Option<Reason>,
    pub message: Option<String>,
    pub until: Option<Timestamp>,
}

/// One slot with its objects.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub ctx: &'a PlanContext<'a>,
    pub slot: &'a Slot,
    pub scope: Option<Scope<'a>>,
    /// The new pod; None if it does not exist.
    pub replacement: Option<&'a PodFact>,
    /// The old pod; None if it does not exist.
    pub victim: Option<&'a PodFact>,
}

impl<'a> View<'a> {
    pub fn new(ctx: &'a PlanContext<'a>, slot: &'a Slot) -> Self {
        let pod = |pod: &PodOnNode| ctx.world.pod(&ctx.key(&pod.name));
        let same = |known: &&PodFact, pod: &PodOnNode| pod.uid.as_ref().is_none_or(|uid| *uid == known.id.uid);
        let scope = Scope::of_slot(ctx.world, ctx.namespace(), slot);
        let with_owner = |scope: Scope<'a>| scope.with_owner(ctx.world).unwrap_or(scope);
        Self {
            ctx,
            slot,
            scope: if ctx.work.verb.scales() { scope.map(with_owner) } else { scope },
            replacement: slot.replacement.as_ref().and_then(pod).filter(|known| !is_old_stateful(slot, known)),
            victim: slot.victim.as_ref().and_then(|victim| pod(victim).filter(|known| same(known, victim))),
        }
    }

    /// Kind and name of an object of the slot whose labels, ledger or template are not kept.
    pub fn reduced_object(&self) -> Option<String> {
        let pods = [self.victim, self.replacement].into_iter().flatten();
        let pod = pods.into_iter().find(|pod| pod.reduced).map(|pod| format!("pod {}", pod.id.key.name));
        pod.or_else(|| self.scope.as_ref()?.reduced_object())
    }

    /// The problem of an owner whose replicas the slot changes: it is not the workload that was checked when the slot
    /// began, or it is of another kind and was not read yet, is unfit or is being deleted.
    pub fn owner_problem(&self) -> Option<StartRefusal> {
        let scope = self.scope.filter(|_| self.ctx.work.verb.scales())?;
        if !scope.is_named_by(&self.slot.workload) {
            let (set, WorkloadRef { kind, name, .. }) = (&self.slot.replica_set.name, scope.workload());
            let message = format!(
                "ReplicaSet {set} belongs to {kind} {name} since the action began, whose replicas the action does not \
                 change; to continue, remove this owner reference from the ReplicaSet"
            );
            return Some(StartRefusal::now(Reason::ReplicasOwnedElsewhere, message));
        }
        scope.with_owner(self.ctx.world).err()
    }

    /// An existing new pod of an earlier attempt. Its name proves that the slot created it.
    pub fn leftover(&self) -> Option<&'a PodFact> {
        let current = self.slot.replacement.as_ref().map(|replacement| replacement.name.as_str());
        let mut marked = self.ctx.world.pods_marked(&self.slot.id);
        marked.find(|pod| {
            pod.marks.role.as_deref() == Some(marks::ROLE_REPLACEMENT)
                && pod.id.key.namespace == self.ctx.namespace()
                && Some(pod.id.key.name.as_str()) != current
                && is_replacement_name(&pod.id.key.name, &self.slot.id, 0..=self.slot.attempt)
                && !pod.terminating
        })
    }

    /// Cleans up a pod that has ended in phase Failed: its kubelet did not admit it, or has evicted it. Nobody else
    /// removes an old pod that was detached or is being evicted. A surplus loses its mark: its ReplicaSet does not
    /// count it any more, and creates another one.
    pub fn ended_pod(&self) -> Option<SlotNext> {
        let leaves = self.is_out() || self.slot.evicting;
        if let Some(victim) = self.victim.filter(|pod| leaves && pod.finished && !pod.terminating) {
            return Some(SlotNext::Do(self.removal(victim)));
        }
        let pods = self.pods()?;
        let mut marked = self.ctx.world.pods_marked(&self.slot.id);
        let pod = marked.find(|pod| pod.finished && !pod.terminating && pod.is_of(&self.slot.replica_set.uid))?;
        let change = PodChange::Unmark { cost: pods.template_cost() };
        Some(SlotNext::Do(Effect::ChangePod { pod: pod.id.clone(), change }))
    }

    /// Whether the slot's ReplicaSet is gone or about to go. The cache contains all ReplicaSets.
    pub fn set_is_gone(&self) -> bool {
        let set = &self.slot.replica_set;
        let known = self.ctx.world.get::<ReplicaSetFact>(&self.ctx.key(&set.name));
        known.is_none_or(|known| known.id.uid != set.uid || known.terminating)
    }

    /// Whether the slot created its new pod: somebody else's pod may have the name.
    pub fn owns_replacement(&self, pod: &PodFact) -> bool {
        let recorded = self.slot.replacement.as_ref().and_then(|replacement| replacement.uid.as_ref());
        recorded.map_or_else(|| pod.is_marked_by(&self.slot.id), |uid| *uid == pod.id.uid)
    }

    /// Removes a pod by an eviction, so that the API server asks its budgets. If they have granted an eviction that was
    /// not carried out, a deletion completes it.
    pub fn removal(&self, pod: &PodFact) -> Effect {
        if eviction::is_granted(self, pod) { self.deletion(pod) } else { self.eviction(pod) }
    }

    pub fn eviction(&self, pod: &PodFact) -> Effect {
        Effect::Evict { pod: pod.id.clone(), grace_seconds: self.ctx.grace_seconds() }
    }

    pub fn deletion(&self, pod: &PodFact) -> Effect {
        Effect::DeletePod { pod: pod.id.clone(), grace_seconds: self.ctx.grace_seconds() }
    }

    /// Removes a pod that the slot has created and that its set has not adopted. A budget that also counts it can delay
    /// that at most by `drainSeconds`: a budget that never allows it must not keep the action for ever, and without the
    /// action the workload has one pod less. With its set, the pod is deleted without asking budgets, as Kubernetes
    /// deletes the pods of a deleted workload.
    pub fn removal_of_own(&self, pod: &PodFact) -> Effect {
        let is_over = self.overdue(self.slot.step, self.ctx.drain_time()).unwrap_or(false);
        if is_over || self.set_is_gone() { self.deletion(pod) } else { self.removal(pod) }
    }

    pub fn pods(&self) -> Option<Pods<'a>> {
        self.scope.as_ref().map(|scope| Pods::of(self.ctx.world, scope))
    }

    /// The pod of the set that this slot has marked: the surplus, or the new pod during a rollback.
    pub fn surplus(&self) -> Option<(&'a PodFact, Pods<'a>)> {
        let pods = self.pods()?;
        Some((pods.surplus_of(&self.slot.id)?, pods))
    }

    /// Whether the set has adopted the new pod.
    pub fn taken_in(&self) -> bool {
        self.replacement.is_some_and(|pod| pod.is_of(&self.slot.replica_set.uid))
    }

    /// Whether this slot has detached the old pod.
    pub fn is_out(&self) -> bool {
        self.victim.is_some_and(|pod| pod.is_marked_by(&self.slot.id) && !pod.is_of(&self.slot.replica_set.uid))
    }

    /// Whether the old pod runs, attached or detached.
    pub fn victim_runs(&self) -> bool {
        self.victim.is_some_and(PodFact::is_active)
    }

    /// Whether this slot has changed the workload's replicas and has not restored them.
    pub fn scaled(&self) -> bool {
        match self.scope.and_then(|scope| scope.ledger()) {
            Some(ledger) if ledger.slot == self.slot.id => !ledger.undone,
            _ => self.slot.scaled,
        }
    }

    /// Whether the slot is before its point of no return: no eviction was accepted, and no new replica was adopted for
    /// good.
    pub fn can_go_back(&self) -> bool {
        if self.slot.is_stateful() {
            return stateful::can_go_back(self);
        }
        match self.ctx.work.verb {
            Verb::Create => !self.taken_in(),
            Verb::Delete => !self.slot.evicting || self.victim_runs(),
            Verb::Move => !(self.slot.evicting || self.taken_in()) || self.victim_runs(),
        }
    }
}

/// Whether the pod is the old pod of a StatefulSet, whose new pod has the same name.
pub fn is_old_stateful(slot: &Slot, pod: &PodFact) -> bool {
    slot.is_stateful() && slot.victim.as_ref().is_some_and(|victim| victim.uid.as_ref() == Some(&pod.id.uid))
}

/// Waiting, rolling back and ending.
impl View<'_> {
    /// The deadline of this step. None if the step is not recorded yet, since its clock starts with the record.
    pub fn deadline(&self, step: Step, timeout: SignedDuration) -> Option<Timestamp> {
        (self.slot.step == step).then(|| self.slot.since.0 + timeout)
    }

    /// Whether the deadline of this step has passed. None if its clock has not started.
    pub fn overdue(&self, step: Step, timeout: SignedDuration) -> Option<bool> {
        self.deadline(step, timeout).map(|deadline| self.ctx.clock >= deadline)
    }

    pub fn hold(
        &self,
        step: Step,
        reason: Option<Reason>,
        message: Option<String>,
        until: Option<Timestamp>,
    ) -> SlotNext {
        SlotNext::Wait(Hold { step, reason, message, until })
    }

    pub fn suspended(&self, step: Step) -> SlotNext {
        let message = "stopped at a safe point; set spec.suspend to false to resume".to_owned();
        self.hold(step, Some(Reason::Suspended), Some(message), None)
    }

    /// Waits for an external condition. The status shows the reason if the wait lasts. After the timeout, the slot
    /// rolls back.
    pub fn hold_or_back(&self, step: Step, reason: Reason, message: String, timeout: SignedDuration) -> SlotNext {
        if self.overdue(step, timeout).unwrap_or(false) && (self.can_go_back() || self.slot.break_first) {
            return self.roll_back(reason, &message);
        }
        // A sibling becomes available without an event.
        let available = self.pods().and_then(|pods| pods.unavailable(self.ctx.now).filter_map(|(_, from)| from).min());
        if !self.overdue(step, NOTABLE).unwrap_or(false) {
            let until = super::earlier(self.deadline(step, timeout.min(NOTABLE)), available);
            return self.hold(step, None, None, until);
        }
        let deadline = self.deadline(step, timeout);
        let undone = deadline.filter(|_| self.can_go_back() || self.slot.break_first);
        let until = undone.map(|until| format!("; tried until {}, then undone", until.strftime("%H:%M:%S UTC")));
        let wake = super::earlier(deadline, available);
        self.hold(step, Some(reason), Some(message + &until.unwrap_or_default()), wake)
    }

    /// Time for which a new pod must be Ready before the old one leaves.
    pub fn settling_time(&self) -> SignedDuration {
        self.scope.map_or_else(|| self.ctx.stable_time(), |scope| scope.settling_time(self.ctx))
    }

    /// The slot with the observed uid and node of its new pod.
    pub fn noted(&self) -> Slot {
        let mut slot = self.slot.clone();
        if let (Some(replacement), Some(pod)) = (&mut slot.replacement, self.replacement) {
            replacement.uid = Some(pod.id.uid.clone());
            if let Some(node) = pod.node.as_ref().filter(|_| slot.scheduled) {
                replacement.node = node.clone();
            }
        }
        slot
    }

    pub fn roll_back(&self, reason: Reason, message: &str) -> SlotNext {
        let mut slot = self.noted();
        slot.scaled = self.scaled();
        slot.step = Step::RollingBack;
        slot.since = Time(self.ctx.now);
        slot.reason = Some(reason);
        slot.message = Some(message.to_owned());
        SlotNext::Record(slot)
    }

    /// Ends the slot with the pod that the ReplicaSet has created.
    pub fn succeeded_with(&self, successor: Option<&PodFact>) -> SlotNext {
        let mut slot = self.slot.clone();
        (slot.step, slot.since) = (Step::Succeeded, Time(self.ctx.now));
        (slot.reason, slot.message) = (None, None);
        slot.replacement = successor.map(|pod| PodOnNode {
            name: pod.id.key.name.clone(),
            uid: Some(pod.id.uid.clone()),
            node: pod.node.clone().unwrap_or_default(),
        });
        SlotNext::Record(slot)
    }

    pub fn end(&self, step: Step, reason: Reason, message: &str) -> SlotNext {
        let mut slot = self.noted();
        slot.step = step;
        slot.since = Time(self.ctx.now);
        slot.reason = Some(reason);
        slot.message = Some(message.to_owned());
        SlotNext::Record(slot)
    }
}
