//! Cleans up pods and workloads with marks of a slot that no action has: leftovers of an action that vanished.
//!
//! Owns the decision. The controller performs the effects, one object at a time, each with the uid as precondition.

use std::collections::{HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};

use super::effect::{Effect, PodChange, Scalable, ScalableKind};
use super::identity::slot_ids;
use crate::world::ActionsWorld;
use ganglion_api::marks;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{
    DeploymentFact, Identity, Key, Ledger, PodFact, ReplicaSetFact, SlotId, StatefulSetFact, Uid,
};
use ganglion_core::world::World;

/// Minimum time for which an object must be without its action before it counts as a leftover. It covers an action that
/// is deleted and created again, and a status that arrives after the pod's mark.
pub const GRACE: SignedDuration = SignedDuration::from_secs(10);

/// Time at which each object (by uid and slot) was first seen without its action.
#[derive(Clone, Debug, Default)]
pub struct Leftovers(HashMap<(Uid, SlotId), Timestamp>);

impl Leftovers {
    /// The effects that are due now, sorted by name, and the time of the next sweep if any object is still within
    /// [`GRACE`].
    pub fn sweep(&mut self, world: &World, now: Timestamp) -> (Vec<Effect>, Option<Timestamp>) {
        let mut left = HashMap::new();
        let mut due: Vec<(Key, Effect)> = Vec::new();
        let mut look_again: Option<Timestamp> = None;
        let mut hidden = HiddenSlots { world, by_namespace: HashMap::new() };
        let pods = orphans(world).map(|(pod, slot)| (pod.id.clone(), slot.to_owned(), cleanup(world, pod)));
        for (object, slot, cleanup) in pods.chain(ledgers(world)) {
            if hidden.contain(&object.key.namespace, &slot) {
                continue;
            }
            let id = (object.uid, slot);
            let since = self.0.get(&id).copied().unwrap_or(now);
            let ripe = since.saturating_add(GRACE).unwrap_or(now);
            if ripe <= now {
                due.extend(cleanup.map(|effect| (object.key, effect)));
            } else {
                look_again = Some(look_again.map_or(ripe, |soonest| soonest.min(ripe)));
            }
            left.insert(id, since);
        }
        self.0 = left;
        due.sort_by(|one, other| one.0.cmp(&other.0));
        (due.into_iter().map(|(_, effect)| effect).collect(), look_again)
    }
}

/// Possible slots of actions that do not parse. Their pods and ledgers may be in use.
struct HiddenSlots<'a> {
    world: &'a World,
    by_namespace: HashMap<String, HashSet<SlotId>>,
}

impl HiddenSlots<'_> {
    fn contain(&mut self, namespace: &str, slot: &SlotId) -> bool {
        let unreadable = self.world.table::<WorkloadAction>().unreadable().values();
        let slots = || {
            let here = unreadable.filter(|action| action.metadata.namespace.as_deref() == Some(namespace));
            here.flat_map(|action| slot_ids(&action.id().uid).collect::<Vec<_>>()).collect()
        };
        self.by_namespace.entry(namespace.to_owned()).or_insert_with(slots).contains(slot)
    }
}

/// Workloads and ReplicaSets whose ledger names a slot that no action has. An action that has ended removes its ledger
/// itself.
fn ledgers(world: &World) -> Vec<(Identity, SlotId, Option<Effect>)> {
    let deployments = world.all::<DeploymentFact>().map(|one| (ScalableKind::Deployment, &one.id, &one.scale));
    let sets = world.all::<ReplicaSetFact>().map(|one| (ScalableKind::ReplicaSet, &one.id, &one.scale));
    let stateful = world.all::<StatefulSetFact>().map(|one| (ScalableKind::StatefulSet, &one.id, &one.set.scale));
    let known = |slot: &SlotId| {
        world
            .all::<WorkloadAction>()
            .any(|action| action.status.iter().flat_map(|status| &status.slots).any(|one| one.id == *slot))
    };
    deployments
        .chain(sets)
        .chain(stateful)
        .filter_map(|(kind, id, scale)| Some((kind, id, Ledger::parse(scale.ledger.as_deref())?)))
        .filter(|(_, _, ledger)| !known(&ledger.slot))
        .map(|(kind, id, ledger)| {
            let workload = Scalable { kind, id: id.clone() };
            (id.clone(), ledger.slot, Some(Effect::ClearLedger { workload }))
        })
        .collect()
}

/// Pods with the mark of a slot that no action has open, each with that slot.
fn orphans(world: &World) -> impl Iterator<Item = (&PodFact, &SlotId)> {
    world
        .marked_pods()
        .filter(|pod| !pod.terminating)
        .filter_map(|pod| pod.marks.slot.as_ref().map(|slot| (pod, slot)))
        .filter(|(_, slot)| world.action_of(slot).is_none())
}

/// Removes the marks from a pod that a set owns, and deletes a replacement that was not adopted. A detached victim
/// stays: it still serves, and the garbage collector deletes it with its action.
fn cleanup(world: &World, pod: &PodFact) -> Option<Effect> {
    let id = pod.id.clone();
    if let Some(owner) = &pod.controller {
        let set = world.get::<ReplicaSetFact>(&Key::new(id.key.namespace.clone(), owner.name.clone()));
        let ours = pod.marks.cost.as_deref() == Some(marks::LOWEST_COST);
        let cost = if ours { set.and_then(template_cost) } else { pod.marks.cost.clone() };
        return Some(Effect::ChangePod { pod: id, change: PodChange::Unmark { cost } });
    }
    match pod.marks.role.as_deref() {
        Some(marks::ROLE_REPLACEMENT) => Some(Effect::DeletePod { pod: id }),
        _ => None,
    }
}

fn template_cost(set: &ganglion_core::facts::ReplicaSetFact) -> Option<String> {
    set.template.as_ref()?.cost.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganglion_core::facts::{Marks, Owner, ReplicaSetFact, ScaleFact};
    use ganglion_core::world::{Origin, Unreadable};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn pod(name: &str, role: &str, owned: bool) -> PodFact {
        PodFact {
            id: Identity { key: Key::new("a", name), uid: name.into(), version: "1".into() },
            marks: Marks {
                slot: Some("slot".into()),
                role: Some(role.into()),
                cost: Some(marks::LOWEST_COST.into()),
                ..Marks::default()
            },
            controller: owned.then(|| Owner { kind: "ReplicaSet".into(), name: "set".into(), uid: "set".into() }),
            ..PodFact::default()
        }
    }

    fn world(pods: Vec<PodFact>) -> World {
        let mut world = crate::world::registered();
        for pod in pods {
            world.apply(pod, Origin::Watch);
        }
        world
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    fn swept(world: &World) -> Vec<Effect> {
        let mut leftovers = Leftovers::default();
        let (now, again) = leftovers.sweep(world, at(0));
        assert_eq!(now, []);
        assert_eq!(again, Some(at(10)), "nothing is done before the grace is over");
        assert_eq!(leftovers.sweep(world, at(9)).0, []);
        leftovers.sweep(world, at(10)).0
    }

    #[test]
    fn a_surplus_of_a_set_is_freed_of_its_marks_and_its_cost() {
        let all = swept(&world(vec![pod("one", marks::ROLE_SURPLUS, true)]));
        assert!(
            matches!(&all[..], [Effect::ChangePod { pod, change: PodChange::Unmark { cost: None } }] if pod.uid == "one")
        );
    }

    #[test]
    fn a_cost_that_is_not_ours_stays() {
        let mut one = pod("one", marks::ROLE_REPLACEMENT, true);
        one.marks.cost = Some("7".into());
        let all = swept(&world(vec![one]));
        assert!(
            matches!(&all[..], [Effect::ChangePod { change: PodChange::Unmark { cost: Some(cost) }, .. }] if cost == "7")
        );
    }

    #[test]
    fn a_replacement_that_nobody_took_goes() {
        let all = swept(&world(vec![pod("one", marks::ROLE_REPLACEMENT, false)]));
        assert!(matches!(&all[..], [Effect::DeletePod { pod }] if pod.uid == "one"));
    }

    #[test]
    fn an_action_that_does_not_parse_keeps_what_it_may_own_and_nothing_else() {
        let marked = |name: &str, slot: SlotId| {
            let mut pod = pod(name, marks::ROLE_REPLACEMENT, false);
            pod.marks.slot = Some(slot);
            pod
        };
        let ids: Vec<SlotId> = slot_ids(&"odd".into()).collect();
        let mut world = world(vec![marked("first", ids[0].clone()), marked("last", ids[99].clone())]);
        world.apply(marked("other", "slot".into()), Origin::Watch);
        let metadata = ObjectMeta {
            namespace: Some("a".into()),
            name: Some("odd".into()),
            uid: Some("odd".into()),
            ..ObjectMeta::default()
        };
        world.put_unreadable::<WorkloadAction>(Unreadable { metadata, ..Unreadable::default() });
        let all = swept(&world);
        assert!(matches!(&all[..], [Effect::DeletePod { pod }] if pod.uid == "other"), "{all:?}");
    }

    #[test]
    fn a_victim_that_left_its_set_is_not_touched() {
        assert_eq!(swept(&world(vec![pod("one", marks::ROLE_VICTIM, false)])), []);
    }

    #[test]
    fn a_ledger_of_a_vanished_action_is_taken_off() {
        let ledger = Ledger { slot: "slot".into(), undone: false, from: 3, to: 4, peers: vec![] };
        let id = Identity { key: Key::new("a", "set"), uid: "set".into(), version: "1".into() };
        let scale = ScaleFact { replicas: 4, ledger: Some(ledger.render()), ..ScaleFact::default() };
        let mut world = crate::world::registered();
        world.apply(ReplicaSetFact { id, scale, ..ReplicaSetFact::default() }, Origin::Watch);
        let all = swept(&world);
        assert!(matches!(&all[..], [Effect::ClearLedger { workload }] if workload.id.uid == "set"), "{all:?}");
    }

    #[test]
    fn a_pod_that_was_claimed_again_meanwhile_begins_anew() {
        let mut leftovers = Leftovers::default();
        let orphaned = world(vec![pod("one", marks::ROLE_REPLACEMENT, false)]);
        leftovers.sweep(&orphaned, at(0));
        leftovers.sweep(&world(vec![]), at(5));
        assert_eq!(leftovers.sweep(&orphaned, at(11)).0, []);
    }

    #[test]
    fn nothing_marked_means_nothing_to_look_for() {
        let (effects, again) = Leftovers::default().sweep(&world(vec![PodFact::default()]), at(0));
        assert_eq!((effects, again), (vec![], None));
    }
}
