//! Indexes for frequent queries: pods of a ReplicaSet, load of a node, actions that a pod affects.

use std::collections::{BTreeSet, HashMap};

use crate::facts::{Key, OutsidePodFact, PodFact, PodHold, ReplicaSetFact, Requests};
use ganglion_api::targets::WorkloadRef;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::Step;

use super::Fact;
use super::actions::application_of;
use super::expressions::Expressions;

/// Number of waiting actions to requeue when one ends: enough to use all free capacity, few enough for a long queue.
const REQUEUED_AT_AN_END: usize = 16;

/// Keys of objects, by the name or uid of the object that they belong to.
pub type Many = HashMap<String, BTreeSet<Key>>;

/// Derived from the facts, and updated whenever they change.
#[derive(Debug, Default)]
pub struct Index {
    pods_of_set: Many,
    sets_of_owner: Many,
    /// By kind and name of the owner.
    sets_of_named: Many,
    marked: Many,
    loads: HashMap<String, NodeLoad>,
    /// Unfinished actions with active slots.
    working: BTreeSet<Key>,
    /// Unfinished actions without active slots: they wait.
    waiting: BTreeSet<Key>,
    actions_on_set: Many,
    actions_to_node: Many,
    actions_on_workload: Many,
    action_of_slot: HashMap<String, Key>,
    /// The moves of a moveApplication, by the uid of the moveApplication.
    parts_of_application: Many,
    pub expressions: Expressions,
}

/// Resources that the pods of a node occupy.
#[derive(Debug, Default)]
struct NodeLoad {
    requests: Requests,
    /// One entry per pod, unordered.
    holds: Vec<PodHold>,
}

pub fn add(map: &mut Many, id: &str, key: &Key) {
    map.entry(id.to_owned()).or_default().insert(key.clone());
}

pub fn drop_from(map: &mut Many, id: &str, key: &Key) {
    if let Some(keys) = map.get_mut(id) {
        keys.remove(key);
        if keys.is_empty() {
            map.remove(id);
        }
    }
}

pub fn all<'a>(map: &'a Many, id: &str) -> impl Iterator<Item = &'a Key> {
    map.get(id).into_iter().flatten()
}

impl Index {
    pub fn pods_of(&self, set_uid: &str) -> impl Iterator<Item = &Key> {
        all(&self.pods_of_set, set_uid)
    }

    pub fn sets_of(&self, owner_uid: &str) -> impl Iterator<Item = &Key> {
        all(&self.sets_of_owner, owner_uid)
    }

    pub fn sets_of_named(&self, namespace: &str, kind: &str, name: &str) -> impl Iterator<Item = &Key> {
        self.sets_of_named.get(&named(namespace, kind, name)).into_iter().flatten()
    }

    pub fn actions_on(&self, set_uid: &str) -> impl Iterator<Item = &Key> {
        all(&self.actions_on_set, set_uid)
    }

    pub fn actions_to(&self, node: &str) -> impl Iterator<Item = &Key> {
        all(&self.actions_to_node, node)
    }

    pub fn actions_on_workload(&self, namespace: &str, workload: &WorkloadRef) -> impl Iterator<Item = &Key> {
        self.actions_on_workload.get(&workload_id(namespace, workload)).into_iter().flatten()
    }

    pub fn marked(&self) -> impl Iterator<Item = &Key> {
        self.marked.values().flatten()
    }

    pub fn marked_by(&self, slot: &str) -> impl Iterator<Item = &Key> {
        all(&self.marked, slot)
    }

    pub fn working(&self) -> impl Iterator<Item = &Key> {
        self.working.iter()
    }

    pub fn running(&self) -> impl Iterator<Item = &Key> {
        self.working.iter().chain(&self.waiting)
    }

    pub fn action_of(&self, slot: &str) -> Option<&Key> {
        self.action_of_slot.get(slot)
    }

    /// The moves of the moveApplication with this uid.
    pub fn parts_of(&self, application_uid: &str) -> impl Iterator<Item = &Key> {
        all(&self.parts_of_application, application_uid)
    }

    /// Number of pods on a node, and the sum of their requests.
    pub fn usage(&self, node: &str) -> (i64, Requests) {
        self.loads.get(node).map_or((0, Requests::default()), |load| {
            (i64::try_from(load.holds.len()).unwrap_or(i64::MAX), load.requests)
        })
    }

    /// Resources that each pod occupies on this node.
    pub fn holds(&self, node: &str) -> &[PodHold] {
        self.loads.get(node).map_or(&[], |load| &load.holds)
    }

    /// Actions to requeue when this pod changes: the action that marked it, and the actions at work on its ReplicaSet.
    pub fn concerned_by_pod(&self, pod: &PodFact) -> Vec<Key> {
        let marker = pod.marks.slot.as_deref().and_then(|slot| self.action_of(slot));
        let set = pod.controller.iter().flat_map(|owner| self.actions_on(&owner.uid));
        set.chain(marker).cloned().collect()
    }

    pub fn pod(&mut self, old: Option<&PodFact>, new: Option<&PodFact>) {
        if let Some(pod) = old {
            if let Some(owner) = &pod.controller {
                drop_from(&mut self.pods_of_set, &owner.uid, &pod.id.key);
            }
            if let Some(slot) = &pod.marks.slot {
                drop_from(&mut self.marked, slot, &pod.id.key);
            }
            self.unload(pod.held());
        }
        if let Some(pod) = new {
            if let Some(owner) = &pod.controller {
                add(&mut self.pods_of_set, &owner.uid, &pod.id.key);
            }
            if let Some(slot) = &pod.marks.slot {
                add(&mut self.marked, slot, &pod.id.key);
            }
            self.load(pod.held());
        }
    }

    pub fn outside_pod(&mut self, old: Option<&OutsidePodFact>, new: Option<&OutsidePodFact>) {
        if let Some(pod) = old {
            self.unload(pod.held());
        }
        if let Some(pod) = new {
            self.load(pod.held());
        }
    }

    fn load(&mut self, held: Option<(&str, PodHold)>) {
        let Some((node, hold)) = held else { return };
        let load = self.loads.entry(node.to_owned()).or_default();
        load.requests = load.requests + hold.requests;
        load.holds.push(hold);
    }

    fn unload(&mut self, held: Option<(&str, PodHold)>) {
        let Some((node, hold)) = held else { return };
        let Some(load) = self.loads.get_mut(node) else { return };
        load.requests = load.requests - hold.requests;
        if let Some(at) = load.holds.iter().position(|one| *one == hold) {
            load.holds.swap_remove(at);
        }
        if load.holds.is_empty() {
            self.loads.remove(node);
        }
    }

    pub fn set(&mut self, old: Option<&ReplicaSetFact>, new: Option<&ReplicaSetFact>) {
        if let Some((set, owner)) = old.and_then(|set| set.controller.as_ref().map(|owner| (set, owner))) {
            drop_from(&mut self.sets_of_owner, &owner.uid, &set.id.key);
            drop_from(&mut self.sets_of_named, &named(&set.id.key.namespace, &owner.kind, &owner.name), &set.id.key);
        }
        if let Some((set, owner)) = new.and_then(|set| set.controller.as_ref().map(|owner| (set, owner))) {
            add(&mut self.sets_of_owner, &owner.uid, &set.id.key);
            add(&mut self.sets_of_named, &named(&set.id.key.namespace, &owner.kind, &owner.name), &set.id.key);
        }
    }

    /// Updates the indexes, and returns the waiting actions that may start if this change frees slots.
    pub fn action(&mut self, old: Option<&WorkloadAction>, new: Option<&WorkloadAction>) -> Vec<Key> {
        self.expressions.action(old.filter(|action| is_running(action)), new.filter(|action| is_running(action)));
        for (action, is_new) in [(old, false), (new, true)].into_iter().filter_map(|(one, is)| Some((one?, is))) {
            if let Some(application) = application_of(action) {
                let change = if is_new { add } else { drop_from };
                change(&mut self.parts_of_application, application, &action.id().key);
            }
        }
        if let Some(action) = old {
            let key = action.id().key;
            self.working.remove(&key);
            self.waiting.remove(&key);
            for slot in action.status.iter().flat_map(|status| &status.slots) {
                drop_from(&mut self.actions_on_set, &slot.replica_set.uid, &key);
                if let Some(replacement) = &slot.replacement {
                    drop_from(&mut self.actions_to_node, &replacement.node, &key);
                }
                drop_from(&mut self.actions_on_workload, &workload_id(&key.namespace, &slot.workload), &key);
                self.action_of_slot.remove(&slot.id);
            }
        }
        if let Some(action) = new.filter(|action| is_running(action)) {
            let key = action.id().key;
            for slot in action.status.iter().flat_map(|status| &status.slots).filter(|slot| !slot.step.is_end()) {
                add(&mut self.actions_on_set, &slot.replica_set.uid, &key);
                if let Some(replacement) = &slot.replacement {
                    add(&mut self.actions_to_node, &replacement.node, &key);
                }
                add(&mut self.actions_on_workload, &workload_id(&key.namespace, &slot.workload), &key);
                self.action_of_slot.insert(slot.id.clone(), key.clone());
            }
            let set = if working_slots(new) == 0 { &mut self.waiting } else { &mut self.working };
            set.insert(key);
        }
        if working_slots(old) > working_slots(new) {
            return self.waiting.iter().take(REQUEUED_AT_AN_END).cloned().collect();
        }
        Vec::new()
    }
}

fn workload_id(namespace: &str, workload: &WorkloadRef) -> String {
    named(namespace, &workload.kind, &workload.name)
}

fn named(namespace: &str, kind: &str, name: &str) -> String {
    format!("{namespace}/{kind}/{name}")
}

fn is_running(action: &WorkloadAction) -> bool {
    action.status.as_ref().is_none_or(|status| status.finished_at.is_none())
}

/// Number of slots of the action that are at work.
pub fn working_slots(action: Option<&WorkloadAction>) -> usize {
    action
        .filter(|action| is_running(action))
        .and_then(|action| action.status.as_ref())
        .map_or(0, |status| status.slots.iter().filter(|slot| !slot.step.is_end() && slot.step != Step::Queued).count())
}
