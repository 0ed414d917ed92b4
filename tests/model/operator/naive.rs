//! A small planner written by hand, for calm situations and moves of one replica only: right, or with one flaw.
//!
//! It shows that the simulated cluster lets a right operator succeed, and that the invariants catch a wrong one: a test that
//! cannot fail is no test.

use ganglion::api::marks;
use ganglion::api::receipt::WorkloadActionReceiptSpec;
use ganglion::api::workload_action::status::{PodOnNode, SetRef, Slot, Step};
use ganglion::api::workload_action::{WorkloadAction, WorkloadActionStatus};
use ganglion::logic::facts::{Identity, Key, PodFact, SetFact};
use ganglion::logic::workload_action::Limits;
use ganglion::logic::workload_action::effect::{
    Claimable, Effect, NewPod, NewReceipt, Next, PodChange, Refusal, Scalable, ScalableKind,
};
use ganglion::logic::workload_action::identity::{newcomer_name, receipt_name, slot_id, spec_hash};
use ganglion::logic::workload_action::ledger::Ledger;
use ganglion::logic::world::World;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::Planner;

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    /// The old pod goes before the new one serves.
    EvictFirst,
    /// Detaches and adopts without choosing who goes.
    NoMark,
    /// Makes the pod before the record says so.
    ActFirst,
    /// Evicts another pod when it is done.
    Greedy,
    /// Changes the workload's replicas, which a move must not.
    Scales,
    /// Forgets its finalizer.
    KeepsFinalizer,
    /// Forgets the mark on the surplus where that survives.
    MarksAnybody,
    /// Does nothing.
    Idle,
    /// Ends before anything is done.
    Boasts,
    /// Begins without asking whether there is room.
    NoLimits,
}

#[derive(Clone, Copy, Debug)]
pub struct Naive(pub Flaw);

const WAIT: Next = Next::Wait { until: None, report: None };

impl Planner for Naive {
    fn next(&self, key: &Key, world: &World, now: Timestamp, limits: &Limits) -> Next {
        let Some(action) = world.action(key).filter(|_| self.0 != Flaw::Idle) else { return WAIT };
        let status = action.status.clone().unwrap_or_default();
        let held = action.metadata.finalizers.iter().flatten().any(|one| one == marks::FINALIZER);
        let id = Identity::from(&action.metadata);
        if status.finished_at.is_some() {
            return match held && self.0 != Flaw::KeepsFinalizer {
                true => Next::Do(Effect::RemoveFinalizer { action: id, finalizers: vec![] }),
                false => WAIT,
            };
        }
        if !held {
            return Next::Do(Effect::AddFinalizer { action: id, finalizers: vec![marks::FINALIZER.to_owned()] });
        }
        match status.slots.first() {
            None => self.begin(world, action, now, limits),
            Some(slot) => Job { flaw: self.0, world, action, slot, now }.step(),
        }
    }

    fn refused(&self, _: &Key, _: &World, now: Timestamp, _: &Effect, _: &Refusal) -> Next {
        Next::Wait { until: Some(now + jiff::SignedDuration::from_secs(1)), report: None }
    }
}

impl Naive {
    fn begin(&self, world: &World, action: &WorkloadAction, now: Timestamp, limits: &Limits) -> Next {
        let Some((victim, set, to)) = choose(world, action) else { return finish(action, vec![], "Failed", now) };
        let full = limits.in_all.is_some_and(|limit| world.slots_at_work().count() >= limit);
        let busy = world.slots_on(&set.id.uid).next().is_some();
        if self.0 != Flaw::NoLimits && (full || busy) {
            return Next::Wait { until: Some(now + jiff::SignedDuration::from_secs(1)), report: None };
        }
        let id = Identity::from(&action.metadata);
        let slot_id = slot_id(&id.uid, 0);
        let name = newcomer_name(&set.id.key.name, &slot_id, 0);
        if self.0 == Flaw::ActFirst && world.pod(&Key::new(&id.key.namespace, &name)).is_none() {
            return create(action, &slot_id, &name, &to, set);
        }
        let slot = Slot {
            id: slot_id,
            index: 0,
            attempt: 0,
            step: if self.0 == Flaw::Boasts { Step::Succeeded } else { Step::Planned },
            since: Time(now),
            workload: action.spec.move_.as_ref().and_then(|one| one.workload.clone()).unwrap_or_else(|| {
                let name = set.controller.as_ref().map_or_else(|| set.id.key.name.clone(), |owner| owner.name.clone());
                ganglion::api::targets::WorkloadRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name }
            }),
            replica_set: SetRef { name: set.id.key.name.clone(), uid: set.id.uid.clone() },
            label: label(set),
            victim: Some(PodOnNode {
                name: victim.id.key.name.clone(),
                uid: Some(victim.id.uid.clone()),
                node: victim.node.clone().unwrap_or_default(),
            }),
            newcomer: Some(PodOnNode { name, uid: None, node: to }),
            tried: vec![],
            scaled: false,
            break_first: false,
            evicting: false,
            reason: None,
            message: None,
        };
        let status = WorkloadActionStatus { slots: vec![slot], ..WorkloadActionStatus::default() };
        if self.0 == Flaw::Boasts {
            return finish(action, status.slots, "Succeeded", now);
        }
        Next::Do(Effect::Admit { action: id, status: Box::new(status), receipt: None })
    }
}

fn label(set: &SetFact) -> String {
    let hash = marks::POD_TEMPLATE_HASH;
    let key = if set.selector.labels.contains_key(hash) { hash } else { crate::cluster::build::TRACK };
    key.to_owned()
}

/// A serving pod of the workload that is not on the target, its set, and the target.
fn choose<'a>(world: &'a World, action: &WorkloadAction) -> Option<(&'a PodFact, &'a SetFact, String)> {
    let moved = action.spec.move_.as_ref()?;
    let (name, to) = (&moved.workload.as_ref()?.name, moved.to.node_name.clone()?);
    let namespace = action.metadata.namespace.clone()?;
    let set = match world.deployment(&Key::new(&namespace, name)) {
        Some(deployment) => world.sets_of(&deployment.id.uid).next()?,
        None => world.set(&Key::new(&namespace, name))?,
    };
    let taken = |pod: &PodFact| {
        let mut slots = world.slots_at_work();
        slots.any(|(_, slot)| slot.victim.as_ref().is_some_and(|one| one.uid.as_ref() == Some(&pod.id.uid)))
    };
    let fits = |pod: &&PodFact| pod.is_ready() && pod.node.as_ref() != Some(&to) && !taken(pod) && pod.generated;
    Some((world.pods_of(&set.id.uid).find(|pod| fits(pod) && pod.marks.slot.is_none())?, set, to))
}

fn finish(action: &WorkloadAction, mut slots: Vec<Slot>, word: &str, now: Timestamp) -> Next {
    for slot in &mut slots {
        slot.step = Step::Succeeded;
    }
    let ready = Condition {
        type_: "Ready".into(),
        status: if word == "Succeeded" { "True".into() } else { "False".into() },
        reason: word.into(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(now),
    };
    let status = WorkloadActionStatus {
        slots,
        conditions: vec![ready],
        finished_at: Some(Time(now)),
        ..WorkloadActionStatus::default()
    };
    Next::Do(Effect::Record { action: Identity::from(&action.metadata), status: Box::new(status) })
}

fn create(action: &WorkloadAction, slot: &str, name: &str, node: &str, set: &SetFact) -> Next {
    let id = Identity::from(&action.metadata);
    Next::Do(Effect::CreatePod(NewPod {
        key: Key::new(&id.key.namespace, name),
        node: node.to_owned(),
        slot: slot.to_owned(),
        set: set.id.key.clone(),
        label: label(set),
        action: id,
    }))
}

/// One slot's way.
struct Job<'a> {
    flaw: Flaw,
    world: &'a World,
    action: &'a WorkloadAction,
    slot: &'a Slot,
    now: Timestamp,
}

impl Job<'_> {
    fn step(&self) -> Next {
        let id = Identity::from(&self.action.metadata);
        let key = Key::new(&id.key.namespace, receipt_name(self.action));
        if self.world.receipt(&key).is_none() {
            let spec = WorkloadActionReceiptSpec {
                action_name: id.key.name.clone(),
                spec_hash: spec_hash(&self.action.spec, &id.uid),
                action_uid: id.uid,
                executed_at: Time(self.now),
                outcome: None,
            };
            return Next::Do(Effect::WriteReceipt(NewReceipt { key, spec }));
        }
        let Some(set) = self.world.set(&Key::new(&id.key.namespace, &self.slot.replica_set.name)) else { return WAIT };
        let pod = |pod: &Option<PodOnNode>| self.world.pod(&Key::new(&id.key.namespace, &pod.as_ref()?.name));
        let victim = pod(&self.slot.victim).filter(|pod| pod.is_active());
        if self.flaw == Flaw::Scales && set.scale.ledger.is_none() && set.controller.is_none() {
            return self.scale(set);
        }
        let Some(newcomer) = pod(&self.slot.newcomer) else { return self.without_newcomer(set, victim) };
        let taken_in = newcomer.is_of(&set.id.uid);
        if self.flaw == Flaw::EvictFirst && !newcomer.is_ready() {
            return victim.map_or(WAIT, |victim| Next::Do(Effect::Evict { pod: victim.id.clone() }));
        }
        match victim {
            _ if !newcomer.is_ready() => WAIT,
            Some(victim) if victim.is_of(&set.id.uid) => self.detach(set, victim),
            Some(victim) if !taken_in => self.mark_or_attach(set, victim, newcomer),
            Some(victim) => Next::Do(Effect::Evict { pod: victim.id.clone() }),
            None if pod(&self.slot.victim).is_some() => WAIT,
            None => self.end(set),
        }
    }

    fn without_newcomer(&self, set: &SetFact, victim: Option<&PodFact>) -> Next {
        let Some(newcomer) = self.slot.newcomer.as_ref().filter(|_| victim.is_some()) else { return WAIT };
        create(self.action, &self.slot.id, &newcomer.name, &newcomer.node, set)
    }

    fn detach(&self, set: &SetFact, victim: &PodFact) -> Next {
        let young = self.world.pods_of(&set.id.uid).map(|pod| pod.id.key.name.clone());
        let out = self.world.slots_on(&set.id.uid).filter_map(|slot| slot.victim.as_ref().map(|pod| pod.name.clone()));
        let peers: Vec<String> = young.chain(out).collect();
        let change = PodChange::Detach {
            label: self.slot.label.clone(),
            slot: self.slot.id.clone(),
            action: Identity::from(&self.action.metadata),
            peers: peers.join(","),
        };
        Next::Do(Effect::ChangePod { pod: victim.id.clone(), change })
    }

    fn mark_or_attach(&self, set: &SetFact, victim: &PodFact, newcomer: &PodFact) -> Next {
        let pods: Vec<&PodFact> = self.world.pods_of(&set.id.uid).filter(|pod| pod.is_active()).collect();
        let marked = pods.iter().any(|pod| pod.is_marked_by(&self.slot.id));
        if marked || self.flaw == Flaw::NoMark {
            let value = set.selector.labels.get(&self.slot.label).cloned().unwrap_or_default();
            let change =
                PodChange::Attach { label: self.slot.label.clone(), value, set: self.slot.replica_set.clone() };
            return Next::Do(Effect::ChangePod { pod: newcomer.id.clone(), change });
        }
        let peers = victim.marks.peers.clone().unwrap_or_default();
        let new = |pod: &PodFact| {
            pod.marks.slot.is_none() && pod.generated && !peers.split(',').any(|peer| peer == pod.id.key.name)
        };
        let surplus = pods.iter().find(|pod| new(pod) || (self.flaw == Flaw::MarksAnybody && pod.marks.slot.is_none()));
        let Some(surplus) = surplus else { return WAIT };
        let rests_on = Claimable { label: None, held_by: surplus.marks.slot.clone(), annotated: surplus.annotated };
        let change = PodChange::Mark { slot: self.slot.id.clone(), rests_on };
        Next::Do(Effect::ChangePod { pod: surplus.id.clone(), change })
    }

    fn end(&self, set: &SetFact) -> Next {
        let pods: Vec<&PodFact> = self.world.pods_of(&set.id.uid).filter(|pod| pod.is_active()).collect();
        if pods.iter().any(|pod| pod.is_marked_by(&self.slot.id)) {
            return WAIT;
        }
        if self.flaw == Flaw::Greedy
            && let Some(other) = pods.iter().find(|pod| pod.generated && pod.is_ready())
        {
            let mut status = self.action.status.clone().unwrap_or_default();
            let node = other.node.clone().unwrap_or_default();
            let uid = Some(other.id.uid.clone());
            status.slots[0].victim = Some(PodOnNode { name: other.id.key.name.clone(), uid, node });
            let action = Identity::from(&self.action.metadata);
            return Next::Do(Effect::Record { action, status: Box::new(status) });
        }
        finish(self.action, vec![self.slot.clone()], "Succeeded", self.now)
    }

    fn scale(&self, set: &SetFact) -> Next {
        let from = set.scale.replicas;
        let ledger = Ledger { slot: self.slot.id.clone(), undone: false, from, to: from - 1, peers: vec![] };
        let workload = Scalable { kind: ScalableKind::ReplicaSet, id: set.id.clone() };
        Next::Do(Effect::Scale { workload, replicas: from - 1, ledger: Some(ledger.render()) })
    }
}
