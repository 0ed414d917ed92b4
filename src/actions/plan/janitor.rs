//! Cleans up pods and workloads with marks of a slot that no action has open: leftovers of an action that has ended or
//! vanished.
//!
//! Marks are annotations, which anybody who may patch the object can write. So a mark alone causes nothing but the
//! removal of marks, or what its author could have done: a pod that lacks one label of its ReplicaSet gets it back, and
//! the set deletes it if it has one too many. A pod is evicted only if an existing action records the slot, and the pod
//! has a name that only this slot gives to pods; the API server then asks the budgets. Nothing is done in namespaces
//! that Kubernetes reserves.
//!
//! Owns the decision. The controller performs the effects, one object at a time, each with the uid as precondition.

use std::collections::{HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};

use super::effect::{Effect, PodChange, Scalable, ScalableKind};
use super::identity::{is_replacement_name, slot_ids};
use crate::world::ActionsWorld;
use ganglion_api::marks;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::SetRef;
use ganglion_core::facts::{
    DeploymentFact, Identity, Key, Ledger, PodFact, ReplicaSetFact, SlotId, StatefulSetFact, Uid,
};
use ganglion_core::namespaces::is_reserved;
use ganglion_core::world::World;

/// Minimum time for which an object must be without its action before it counts as a leftover. It covers an action that
/// is deleted and created again, and a status that arrives after the pod's mark.
pub const GRACE: SignedDuration = SignedDuration::from_secs(10);

/// Maximum number of pods that one sweep reports. Anybody who may patch pods can cause a report.
const REPORTED: usize = 32;

/// Objects, by uid and slot, without their action.
#[derive(Clone, Debug, Default)]
pub struct Leftovers(HashMap<(Uid, SlotId), Leftover>);

#[derive(Clone, Copy, Debug)]
struct Leftover {
    /// Time at which the object was first seen without its action.
    since: Timestamp,
    /// Whether it was reported that the object is left alone.
    reported: bool,
}

/// Result of a sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sweep {
    /// The effects that are due now, sorted by name.
    pub effects: Vec<Effect>,
    /// Pods that are left alone and were not reported yet: nothing proves that the operator created them.
    pub unproven: Vec<Identity>,
    /// Time of the next sweep if any object is still within [`GRACE`].
    pub again: Option<Timestamp>,
}

/// Decision about a leftover.
enum Cleanup {
    Perform(Box<Effect>),
    /// Nothing shows where the pod belongs.
    LeaveAlone,
}

impl Leftovers {
    pub fn sweep(&mut self, world: &World, now: Timestamp) -> Sweep {
        let mut left = HashMap::new();
        let mut due: Vec<(Key, Effect)> = Vec::new();
        let mut sweep = Sweep::default();
        let mut slots = RecordedSlots { world, by_namespace: HashMap::new() };
        let mut found = ledgers(world, &mut slots);
        for (pod, slot) in orphans(world) {
            found.push((pod.id.clone(), slot.clone(), cleanup(world, &mut slots, pod, slot)));
        }
        for (object, slot, cleanup) in found {
            if is_reserved(&object.key.namespace) || slots.may_be_hidden(&object.key.namespace, &slot) {
                continue;
            }
            let id = (object.uid.clone(), slot);
            let mut leftover = self.0.get(&id).copied().unwrap_or(Leftover { since: now, reported: false });
            let ripe = leftover.since.saturating_add(GRACE).unwrap_or(now);
            if ripe > now {
                sweep.again = soonest(sweep.again, ripe);
            } else {
                match cleanup {
                    Cleanup::Perform(effect) => {
                        // The mark of a pod that was given back stays until the set has had time to delete it.
                        if let Effect::ChangePod { change: PodChange::GiveBack { .. }, .. } = *effect {
                            leftover.since = now;
                            sweep.again = soonest(sweep.again, now.saturating_add(GRACE).unwrap_or(now));
                        }
                        due.push((object.key, *effect));
                    }
                    Cleanup::LeaveAlone if !leftover.reported && sweep.unproven.len() < REPORTED => {
                        leftover.reported = true;
                        sweep.unproven.push(object);
                    }
                    Cleanup::LeaveAlone => {}
                }
            }
            left.insert(id, leftover);
        }
        self.0 = left;
        due.sort_by(|one, other| one.0.cmp(&other.0));
        sweep.effects = due.into_iter().map(|(_, effect)| effect).collect();
        sweep
    }
}

fn soonest(known: Option<Timestamp>, other: Timestamp) -> Option<Timestamp> {
    Some(known.map_or(other, |known| known.min(other)))
}

/// Slots that the actions of a namespace record, including those that have ended.
struct RecordedSlots<'a> {
    world: &'a World,
    by_namespace: HashMap<String, SlotsOfNamespace>,
}

#[derive(Default)]
struct SlotsOfNamespace {
    /// The last attempt of each recorded slot.
    recorded: HashMap<SlotId, i32>,
    /// Possible slots of actions that do not parse. Their pods and ledgers may be in use.
    hidden: HashSet<SlotId>,
}

impl RecordedSlots<'_> {
    fn of(&mut self, namespace: &str) -> &SlotsOfNamespace {
        let actions = self.world.table::<WorkloadAction>();
        self.by_namespace.entry(namespace.to_owned()).or_insert_with(|| {
            let slots = actions.within(namespace).flat_map(|action| &action.status).flat_map(|status| &status.slots);
            let unreadable = actions.unreadable().values();
            let here = unreadable.filter(|action| action.metadata.namespace.as_deref() == Some(namespace));
            SlotsOfNamespace {
                recorded: slots.map(|slot| (slot.id.clone(), slot.attempt)).collect(),
                hidden: here.flat_map(|action| slot_ids(&action.id().uid).collect::<Vec<_>>()).collect(),
            }
        })
    }

    fn may_be_hidden(&mut self, namespace: &str, slot: &SlotId) -> bool {
        self.of(namespace).hidden.contains(slot)
    }

    /// Whether an action records the slot, and the pod has the name of one of the slot's new pods.
    fn prove(&mut self, pod: &PodFact, slot: &SlotId) -> bool {
        let recorded = self.of(&pod.id.key.namespace).recorded.get(slot);
        recorded.is_some_and(|last| is_replacement_name(&pod.id.key.name, slot, 0..=*last))
    }
}

/// Workloads and ReplicaSets whose ledger names a slot that no action records. An action that has ended removes its
/// ledger itself.
fn ledgers(world: &World, slots: &mut RecordedSlots<'_>) -> Vec<(Identity, SlotId, Cleanup)> {
    let deployments = world.all::<DeploymentFact>().map(|one| (ScalableKind::Deployment, &one.id, &one.scale));
    let sets = world.all::<ReplicaSetFact>().map(|one| (ScalableKind::ReplicaSet, &one.id, &one.scale));
    let stateful = world.all::<StatefulSetFact>().map(|one| (ScalableKind::StatefulSet, &one.id, &one.set.scale));
    let mut left = Vec::new();
    for (kind, id, scale) in deployments.chain(sets).chain(stateful) {
        let Some(ledger) = Ledger::parse(scale.ledger.as_deref()) else { continue };
        if !slots.of(&id.key.namespace).recorded.contains_key(&ledger.slot) {
            let workload = Scalable { kind, id: id.clone() };
            left.push((id.clone(), ledger.slot, Cleanup::Perform(Box::new(Effect::ClearLedger { workload }))));
        }
    }
    left
}

/// Pods with the mark of a slot that no action has open, each with that slot.
fn orphans(world: &World) -> impl Iterator<Item = (&PodFact, &SlotId)> {
    world
        .marked_pods()
        .filter(|pod| !pod.terminating)
        .filter_map(|pod| pod.marks.slot.as_ref().map(|slot| (pod, slot)))
        .filter(|(_, slot)| world.action_of(slot).is_none())
}

/// Removes the marks from a pod that a set owns, evicts a replacement that its action did not use, and gives other pods
/// back to their sets.
fn cleanup(world: &World, slots: &mut RecordedSlots<'_>, pod: &PodFact, slot: &SlotId) -> Cleanup {
    let id = pod.id.clone();
    if let Some(owner) = &pod.controller {
        let set = world.get::<ReplicaSetFact>(&Key::new(id.key.namespace.clone(), owner.name.clone()));
        let ours = pod.marks.cost.as_deref() == Some(marks::LOWEST_COST);
        let cost = if ours { set.and_then(template_cost) } else { pod.marks.cost.clone() };
        return Cleanup::Perform(Box::new(Effect::ChangePod { pod: id, change: PodChange::Unmark { cost } }));
    }
    match pod.marks.role.as_deref() {
        Some(marks::ROLE_REPLACEMENT) if slots.prove(pod, slot) => {
            Cleanup::Perform(Box::new(Effect::Evict { pod: id, grace_seconds: None }))
        }
        _ => give_back(world, pod).map_or(Cleanup::LeaveAlone, |effect| Cleanup::Perform(Box::new(effect))),
    }
}

/// Adds the missing label to a pod that has the name and all other labels of a pod of a ReplicaSet.
fn give_back(world: &World, pod: &PodFact) -> Option<Effect> {
    let (set_name, _) = pod.id.key.name.rsplit_once('-')?;
    let set = world.get::<ReplicaSetFact>(&Key::new(&pod.id.key.namespace, set_name))?;
    let mut missing = set.selector.labels.iter().filter(|(key, value)| pod.labels.get(*key) != Some(*value));
    let (Some((label, value)), None) = (missing.next(), missing.next()) else { return None };
    let change = PodChange::GiveBack {
        label: label.clone(),
        value: value.clone(),
        set: SetRef { name: set.id.key.name.clone(), uid: set.id.uid.clone() },
    };
    Some(Effect::ChangePod { pod: pod.id.clone(), change })
}

fn template_cost(set: &ganglion_core::facts::ReplicaSetFact) -> Option<String> {
    set.template.as_ref()?.cost.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::replacement_name;
    use std::collections::BTreeMap;

    use ganglion_core::facts::{Marks, Owner, ReplicaSetFact, ScaleFact, Selector};
    use ganglion_core::world::{Origin, Unreadable};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;

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

    fn swept(world: &World) -> Sweep {
        let mut leftovers = Leftovers::default();
        let first = leftovers.sweep(world, at(0));
        let nothing = Sweep { again: Some(at(10)), ..Sweep::default() };
        assert_eq!(first, nothing, "nothing is done before the grace is over");
        assert_eq!(leftovers.sweep(world, at(9)), nothing);
        let sweep = leftovers.sweep(world, at(10));
        assert_eq!(leftovers.sweep(world, at(11)).unproven, [], "each pod is reported once");
        sweep
    }

    /// An action whose slot has ended after its second attempt.
    fn ended_action() -> WorkloadAction {
        let value = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
            "metadata": {"namespace": "a", "name": "go", "uid": "u", "resourceVersion": "1"},
            "spec": {"move": {"pod": {"name": "web-1"}}},
            "status": {"finishedAt": "2026-01-01T00:00:00Z", "slots": [{
                "index": 0, "id": SLOT, "step": "RolledBack", "attempt": 1, "since": "2026-01-01T00:00:00Z",
                "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "replicaSet": {"name": "web-1", "uid": "set"}, "label": "pod-template-hash",
            }]},
        });
        serde_json::from_value(value).expect("an action")
    }

    const SLOT: &str = "0123456789abcdef";

    fn replacement(name: &str) -> PodFact {
        let mut pod = pod(name, marks::ROLE_REPLACEMENT, false);
        pod.marks.slot = Some(SLOT.into());
        pod
    }

    #[test]
    fn a_surplus_of_a_set_is_freed_of_its_marks_and_its_cost() {
        let all = swept(&world(vec![pod("one", marks::ROLE_SURPLUS, true)])).effects;
        assert!(
            matches!(&all[..], [Effect::ChangePod { pod, change: PodChange::Unmark { cost: None } }] if pod.uid == "one")
        );
    }

    #[test]
    fn a_cost_that_is_not_ours_stays() {
        let mut one = pod("one", marks::ROLE_REPLACEMENT, true);
        one.marks.cost = Some("7".into());
        let all = swept(&world(vec![one])).effects;
        assert!(
            matches!(&all[..], [Effect::ChangePod { change: PodChange::Unmark { cost: Some(cost) }, .. }] if cost == "7")
        );
    }

    #[test]
    fn a_replacement_of_an_action_that_ended_is_evicted() {
        for attempt in [0, 1] {
            let name = replacement_name("web-1", &SLOT.into(), attempt);
            let mut world = world(vec![replacement(&name)]);
            world.apply(ended_action(), Origin::Watch);
            let Sweep { effects, unproven, .. } = swept(&world);
            assert!(matches!(&effects[..], [Effect::Evict { pod, .. }] if pod.key.name == name), "{effects:?}");
            assert_eq!(unproven, []);
        }
    }

    #[test]
    fn a_forged_mark_removes_no_pod_and_is_reported_once() {
        let ours = replacement_name("web-1", &SLOT.into(), 0);
        let later = replacement_name("web-1", &SLOT.into(), 2);
        let other_slot = replacement_name("web-1", &"fedcba9876543210".into(), 0);
        for (name, with_action) in
            [("web-1-x7k2p", true), ("db-0", true), (&*ours, false), (&*later, true), (&*other_slot, true)]
        {
            let mut world = world(vec![replacement(name)]);
            if with_action {
                world.apply(ended_action(), Origin::Watch);
            }
            let Sweep { effects, unproven, .. } = swept(&world);
            assert_eq!(effects, [], "{name}");
            assert!(matches!(&unproven[..], [pod] if pod.key.name == name), "{name}: {unproven:?}");
        }
    }

    #[test]
    fn a_record_in_another_namespace_proves_nothing() {
        let mut pod = replacement(&replacement_name("web-1", &SLOT.into(), 0));
        pod.id.key.namespace = "b".into();
        let mut world = world(vec![pod]);
        world.apply(ended_action(), Origin::Watch);
        assert_eq!(swept(&world).effects, []);
    }

    #[test]
    fn nothing_is_done_in_namespaces_of_kubernetes() {
        let mut pods =
            vec![replacement(&replacement_name("web-1", &SLOT.into(), 0)), pod("surplus", marks::ROLE_SURPLUS, true)];
        for pod in &mut pods {
            pod.id.key.namespace = "kube-system".into();
        }
        let mut world = world(pods);
        let mut action = ended_action();
        action.metadata.namespace = Some("kube-system".into());
        world.apply(action, Origin::Watch);
        let ledger = Ledger { slot: "slot".into(), undone: false, from: 3, to: 4, peers: vec![] };
        let id = Identity { key: Key::new("kube-system", "set"), uid: "set".into(), version: "1".into() };
        let scale = ScaleFact { replicas: 4, ledger: Some(ledger.render()), ..ScaleFact::default() };
        world.apply(ReplicaSetFact { id, scale, ..ReplicaSetFact::default() }, Origin::Watch);
        assert_eq!(Leftovers::default().sweep(&world, at(0)), Sweep::default());
    }

    #[test]
    fn an_action_that_does_not_parse_keeps_what_it_may_own_and_nothing_else() {
        let marked = |name: &str, slot: SlotId| {
            let mut pod = pod(name, marks::ROLE_SURPLUS, true);
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
        let all = swept(&world).effects;
        assert!(matches!(&all[..], [Effect::ChangePod { pod, .. }] if pod.uid == "other"), "{all:?}");
    }

    #[test]
    fn a_pod_of_a_vanished_action_is_given_back_to_its_set() {
        let mut known = BTreeMap::from([("app".to_owned(), "web".to_owned()), ("hash".to_owned(), "1".to_owned())]);
        let id = Identity { key: Key::new("a", "web-1"), uid: "set".into(), version: "1".into() };
        let selector = Selector { labels: known.clone(), ..Selector::default() };
        let set = ReplicaSetFact { id, selector, ..ReplicaSetFact::default() };
        known.remove("hash");
        for (name, labels, is_given_back) in [
            ("web-1-x7k2p", known.clone(), true),
            ("web-x7k2p", known.clone(), false),
            ("web-1-x7k2p", BTreeMap::new(), false),
        ] {
            for role in [marks::ROLE_VICTIM, marks::ROLE_REPLACEMENT] {
                let mut world = world(vec![PodFact { labels: labels.clone(), ..pod(name, role, false) }]);
                world.apply(set.clone(), Origin::Watch);
                let Sweep { effects, unproven, .. } = swept(&world);
                let gives = |effect: &Effect| {
                    let Effect::ChangePod { change: PodChange::GiveBack { label, value, set }, .. } = effect else {
                        return false;
                    };
                    (label.as_str(), value.as_str(), set.uid.as_str()) == ("hash", "1", "set")
                };
                assert_eq!(effects.iter().any(gives), is_given_back, "{name} {role}: {effects:?}");
                assert_eq!((effects.len(), unproven.len()), if is_given_back { (1, 0) } else { (0, 1) });
            }
        }
    }

    #[test]
    fn a_ledger_of_a_vanished_action_is_taken_off() {
        let ledger = Ledger { slot: "slot".into(), undone: false, from: 3, to: 4, peers: vec![] };
        let id = Identity { key: Key::new("a", "set"), uid: "set".into(), version: "1".into() };
        let scale = ScaleFact { replicas: 4, ledger: Some(ledger.render()), ..ScaleFact::default() };
        let mut world = crate::world::registered();
        world.apply(ReplicaSetFact { id, scale, ..ReplicaSetFact::default() }, Origin::Watch);
        let all = swept(&world).effects;
        assert!(matches!(&all[..], [Effect::ClearLedger { workload }] if workload.id.uid == "set"), "{all:?}");
    }

    #[test]
    fn a_pod_that_was_claimed_again_meanwhile_begins_anew() {
        let mut leftovers = Leftovers::default();
        let orphaned = world(vec![pod("one", marks::ROLE_SURPLUS, true)]);
        leftovers.sweep(&orphaned, at(0));
        leftovers.sweep(&world(vec![]), at(5));
        assert_eq!(leftovers.sweep(&orphaned, at(11)).effects, []);
    }

    #[test]
    fn nothing_marked_means_nothing_to_look_for() {
        assert_eq!(Leftovers::default().sweep(&world(vec![PodFact::default()]), at(0)), Sweep::default());
    }
}
