//! Pod arithmetic of one ReplicaSet: which of its pods is a surplus, for which slot, and whether adding a pod is safe.
//!
//! A ReplicaSet with one pod too many chooses the pod that it deletes. The slot controls the choice as long as, at
//! every moment, at least as many pods are marked (lowest deletion cost) as the set has too many, and every other pod
//! is Ready. Source: the victim order of kube-controller-manager (`ActivePodsWithRanks`), and trials on a real control
//! plane.

use jiff::{SignedDuration, Timestamp};

use crate::world::ActionsWorld;
use ganglion_api::workload_action::status::{Protocol, Slot, Step};
use ganglion_core::facts::{Key, Ledger, PodFact, ReplicaSetFact, SlotId};
use ganglion_core::world::World;

use super::holder::Holder;
use super::scope::Scope;

/// A pod that is older than the action by at most this time still counts as young. This covers clock differences
/// between API servers, which write the creation times that are compared.
const YOUNG: SignedDuration = SignedDuration::from_secs(60);

/// Maximum number of young pods listed by name. The list must fit into an annotation.
const MOST_PEERS: usize = 400;

/// One ReplicaSet and its pods.
#[derive(Clone, Copy, Debug)]
pub struct Pods<'a> {
    world: &'a World,
    set: &'a ReplicaSetFact,
    /// The minimum and maximum number of pods that the set may have to keep, from its own replicas, the workload's, and
    /// those of our last change. They differ until the workload's controller has updated the set.
    least: i32,
    most: i32,
    /// The text of the workload's ledger.
    ledger: Option<&'a str>,
    /// Whether a change of the replicas may not have reached the set yet.
    behind: bool,
}

impl<'a> Pods<'a> {
    pub fn of(world: &'a World, scope: &Scope<'a>) -> Self {
        let own = scope.set.scale.replicas;
        let asked = if scope.shares_replicas(world) { own } else { scope.replicas() };
        let ledger = scope.scale().ledger.as_deref();
        let (mut least, mut most) = (own.min(asked), own.max(asked));
        // A change that was made and undone may not have reached the set yet, in either direction.
        let behind = is_behind(scope);
        if let Some(last) = Ledger::parse(ledger).filter(|_| behind) {
            (least, most) = (least.min(last.from).min(last.to), most.max(last.from).max(last.to));
        }
        Self { world, set: scope.set, least, most, ledger, behind }
    }

    /// Pods that the set counts.
    pub fn active(&self) -> impl Iterator<Item = &'a PodFact> + use<'a> {
        self.world.pods_of(&self.set.id.uid).filter(|pod| pod.is_active())
    }

    /// Maximum number of pods that the set may delete; negative if the set is short in any case.
    pub fn excess(&self) -> i64 {
        self.count() - i64::from(self.least)
    }

    /// Whether the set may still create pods.
    pub fn is_short(&self) -> bool {
        self.count() < i64::from(self.most)
    }

    /// Number of pods that the set may be about to create.
    pub fn missing(&self) -> usize {
        if self.is_to_make_one() { usize::try_from(i64::from(self.most) - self.count()).unwrap_or(0) } else { 0 }
    }

    /// Whether the set is about to create a pod. A creation error from before the set saw its current replicas does not
    /// count.
    pub fn is_to_make_one(&self) -> bool {
        self.is_short() && (self.behind || self.set.create_failure.is_none())
    }

    fn count(&self) -> i64 {
        i64::try_from(self.active().count()).unwrap_or(i64::MAX)
    }

    /// The pods marked for deletion.
    pub fn marked(&self) -> impl Iterator<Item = &'a PodFact> + use<'a> {
        self.active().filter(|pod| pod.marks.slot.is_some())
    }

    /// The pod marked for deletion by this slot.
    pub fn surplus_of(&self, slot: &SlotId) -> Option<&'a PodFact> {
        self.active().find(|pod| pod.is_marked_by(slot))
    }

    /// A pod without mark that is not Ready. The set would delete it before a marked pod that is Ready.
    pub fn unready(&self) -> Option<&'a PodFact> {
        self.active().find(|pod| pod.marks.slot.is_none() && !pod.is_ready())
    }

    /// A pod without mark that is not available at this time, with the time at which it is if it stays Ready. A pod
    /// that is not Ready comes first.
    pub fn unavailable(&self, now: Timestamp) -> impl Iterator<Item = (&'a PodFact, Option<Timestamp>)> + use<'a> {
        let min_ready = SignedDuration::from_secs(i64::from(self.set.min_ready_seconds));
        let unmarked = self.active().filter(|pod| pod.marks.slot.is_none());
        let known = unmarked.map(move |pod| (pod, pod.ready_from().map(|since| since + min_ready)));
        let mut late: Vec<_> = known.filter(|(_, from)| from.is_none_or(|from| now < from)).collect();
        late.sort_by(|(a, from_a), (b, from_b)| (from_a, &a.id.key).cmp(&(from_b, &b.id.key)));
        late.into_iter()
    }

    /// Names of the young pods that the set has, or had until a slot detached them. Pods that are created later are not
    /// among them.
    pub fn peers(&self, action_created: Timestamp) -> Vec<String> {
        let namespace = &self.set.id.key.namespace;
        let out = self.world.slots_on(&self.set.id.uid).filter_map(|slot| slot.victim.as_ref());
        let out = out.filter_map(|victim| self.world.pod(&Key::new(namespace, &victim.name)));
        let mut young: Vec<&PodFact> =
            self.active().chain(out).filter(|pod| pod.generated && is_young(pod, action_created)).collect();
        young.sort_by(|a, b| b.created.cmp(&a.created).then_with(|| a.id.key.cmp(&b.id.key)));
        young.dedup_by(|a, b| a.id.key == b.id.key);
        young.into_iter().take(MOST_PEERS).map(|pod| pod.id.key.name.clone()).collect()
    }

    /// The pod for this slot to mark: a pod that the set created in place of a detached pod, or for one more replica.
    /// Every slot without a surplus gets a different pod.
    pub fn unclaimed(&self, slot: &'a Slot) -> Option<&'a PodFact> {
        let known: Vec<&str> = self.world.slots_on(&self.set.id.uid).filter_map(known_victim).collect();
        let is_free =
            |pod: &&PodFact| pod.generated && pod.marks.slot.is_none() && !known.contains(&pod.id.key.name.as_str());
        let mut free: Vec<&PodFact> = self.active().filter(is_free).collect();
        // The pod that is furthest from Ready first.
        free.sort_by_key(|pod| (pod.is_ready(), std::cmp::Reverse(pod.created), &pod.id.key));
        let lacks =
            |other: &&Slot| other.id != slot.id && self.needs_surplus(other) && self.surplus_of(&other.id).is_none();
        let mut lacking: Vec<&Slot> = self.world.slots_on(&self.set.id.uid).filter(lacks).chain([slot]).collect();
        lacking.sort_by(|a, b| a.id.cmp(&b.id));
        for other in lacking {
            let own = self.newly_made_for(other);
            let dealt = free.iter().position(|pod| own(pod)).map(|at| free.remove(at));
            if other.id == slot.id {
                return dealt;
            }
        }
        None
    }

    /// Whether a pod is young and was created after this slot detached its victim or changed the replicas.
    fn newly_made_for(&self, slot: &Slot) -> impl Fn(&PodFact) -> bool + use<> {
        let namespace = &self.set.id.key.namespace;
        let action = self.world.action_of(&slot.id).and_then(|key| self.world.action(key));
        let created = action.and_then(|action| action.metadata.creation_timestamp.as_ref()).map(|time| time.0);
        let victim = slot.victim.as_ref().and_then(|victim| self.world.pod(&Key::new(namespace, &victim.name)));
        let listed = victim.and_then(|pod| pod.marks.peers.as_deref()).unwrap_or_default();
        let ledger = Ledger::parse(self.ledger).filter(|ledger| ledger.slot == slot.id);
        let peers: Vec<String> =
            listed.split(',').map(str::to_owned).chain(ledger.into_iter().flat_map(|ledger| ledger.peers)).collect();
        move |pod| created.is_none_or(|created| is_young(pod, created)) && !peers.contains(&pod.id.key.name)
    }

    /// A marked pod that its slot does not need any more, since the set deleted another marked pod in its place. A pod
    /// does not count while the recorded step of its slot is before the end of the exchange: the set may be about to
    /// delete it.
    pub fn orphan(&self) -> Option<&'a PodFact> {
        self.marked().find(|pod| {
            let slot = pod.marks.slot.as_ref();
            let mut holders = self.world.slots_on(&self.set.id.uid).filter(|open| Some(&open.id) == slot);
            holders.all(|open| !is_exchanging(open.step) && !self.needs_surplus(open))
        })
    }

    /// Whether the slot is between its detachment (or its change of the replicas) and the deletion of the resulting
    /// surplus.
    pub fn needs_surplus(&self, slot: &Slot) -> bool {
        let namespace = &self.set.id.key.namespace;
        let pod = |name: &str| self.world.pod(&Key::new(namespace, name));
        let replacement = slot.replacement.as_ref().and_then(|replacement| pod(&replacement.name));
        let taken_in = replacement.is_some_and(|pod| pod.is_of(&self.set.id.uid));
        let victim = slot.victim.as_ref().and_then(|victim| pod(&victim.name));
        let out = victim.is_some_and(|pod| pod.is_marked_by(&slot.id) && !pod.is_of(&self.set.id.uid));
        match slot.step {
            Step::Succeeded | Step::RolledBack | Step::Failed | Step::Aborted | Step::Expired | Step::Queued => false,
            Step::RollingBack => out,
            // The set creates no substitute before the old pod is gone, or the substitute stays.
            _ if slot.protocol != Protocol::Replacement => false,
            // A delete (no replacement) needs none after the replicas are lowered: the set then deletes the surplus.
            _ if slot.replacement.is_none() && slot.scaled => false,
            _ => !taken_in && (out || slot.evicting || slot.scaled),
        }
    }

    /// Whether an open slot other than this one needs a surplus and has none.
    pub fn wanted_by_others(&self, slot: Option<&SlotId>) -> bool {
        let mut others = self.world.slots_on(&self.set.id.uid).filter(|other| Some(&other.id) != slot);
        others.any(|other| self.needs_surplus(other) && self.surplus_of(&other.id).is_none())
    }

    /// Whether the set, with one more pod, would delete only marked pods.
    pub fn may_take_in(&self) -> bool {
        self.excess() < i64::try_from(self.marked().count()).unwrap_or(i64::MAX)
    }

    /// Whether the set, which has not seen its current replicas, may delete more pods than are marked if it gets one
    /// more.
    pub fn may_let_more_go(&self) -> bool {
        self.behind && !self.may_take_in()
    }

    /// The deletion cost in the template, which is restored when the mark is removed.
    pub fn template_cost(&self) -> Option<String> {
        self.set.template.as_ref()?.cost.clone()
    }
}

/// Whether the workload's replicas may not have reached the ReplicaSet controller, or we do not see yet that they have.
fn is_behind(scope: &Scope) -> bool {
    let deployment = match scope.holder {
        Holder::Deployment(deployment) => deployment,
        Holder::Set | Holder::Stateful(_) | Holder::Other(_, None) => return scope.set.behind,
        // The ReplicaSet is read after its owner, so it includes what the owner's controller has changed.
        Holder::Other(_, Some(owner)) => return scope.set.behind || owner.observed_generation < owner.generation,
    };
    // The Deployment controller copies the ledger to its newest set before it changes that set's replicas. A set
    // without the ledger is an older one, or our copy of it is stale. The controller never removes a copy, so a ledger
    // that only the set has means nothing: it was removed from the Deployment.
    let copied = deployment.scale.ledger.is_none() || scope.set.scale.ledger == deployment.scale.ledger;
    let is_old = scope.set.revision == deployment.revision && !copied;
    scope.set.behind || deployment.observed_generation < deployment.generation || is_old
}

/// Whether the slot's exchange of pods is not complete, according to its recorded step.
fn is_exchanging(step: Step) -> bool {
    match step {
        Step::Planned
        | Step::Creating
        | Step::Scheduling
        | Step::Readying
        | Step::Detached
        | Step::Marked
        | Step::Scaled
        | Step::Adopted => true,
        Step::Queued | Step::Evicting | Step::Verifying | Step::RollingBack => false,
        Step::Succeeded | Step::RolledBack | Step::Failed | Step::Aborted | Step::Expired => false,
    }
}

fn known_victim(slot: &Slot) -> Option<&str> {
    slot.victim.as_ref().map(|victim| victim.name.as_str())
}

fn is_young(pod: &PodFact, action_created: Timestamp) -> bool {
    pod.created >= action_created - YOUNG
}
