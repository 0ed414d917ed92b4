//! Indexes of WorkloadActions and of the pods and ReplicaSets that they change; reservations; and what is read beside
//! the watches.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use jiff::Timestamp;

use super::application_of;
use super::changes::NodeChanges;
use super::expressions::Expressions;
use super::line::WaitingLines;
use super::owners::Owners;
use super::usage::MeasuredUsage;
use ganglion_api::refs::WorkloadRef;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::{Slot, Step};
use ganglion_core::facts::{Key, NodeName, PodFact, ReplicaSetFact, SlotId, Uid};
use ganglion_core::world::{Fact, KeysBy, State};

/// Number of waiting actions to requeue when one ends: enough to use all free capacity, few enough for a long queue.
const REQUEUED_AT_AN_END: usize = 16;

/// Maximum number of remembered namespaces. Beyond it, those without reserved slots are dropped, and go first again.
const REMEMBERED: usize = 4096;

/// Derived from facts, and recorded by the controller.
#[derive(Default)]
pub struct ActionIndex {
    /// Pods, by the slot that marked them.
    pub marked: KeysBy<SlotId>,
    /// ReplicaSets, by kind and name of the owner.
    sets_of_workload: KeysBy<String>,
    /// Unfinished actions with active slots.
    pub working: BTreeSet<Key>,
    /// Unfinished actions without active slots: they wait.
    pub waiting: WaitingLines,
    /// Actions, by the uid of a ReplicaSet that they change.
    pub actions_on_set: KeysBy<Uid>,
    pub actions_to_node: KeysBy<NodeName>,
    actions_on_workload: KeysBy<String>,
    pub action_of_slot: HashMap<SlotId, Key>,
    /// Actions by slot, those that have ended included.
    pub recorded_slots: HashMap<SlotId, Key>,
    /// The moves of a moveApplication, by the uid of the moveApplication.
    pub parts_of_application: KeysBy<Uid>,
    pub expressions: Expressions,
    /// Slots that are being written to the status of their action.
    pub reserved: HashMap<Key, Vec<Slot>>,
    /// Number of effects of each action that are being carried out and create pods.
    pub running_effects: HashMap<Key, usize>,
    turns: Turns,
    /// Time at which this process first planned each action, by uid.
    pub noticed: HashMap<Uid, Timestamp>,
    pub owners: Owners,
    pub usage: MeasuredUsage,
    pub changes: NodeChanges,
}

/// Time of each namespace's last turn, as a counter. Lost at a restart, which affects only fairness.
#[derive(Default)]
struct Turns {
    taken: u64,
    last: HashMap<String, u64>,
}

impl State for ActionIndex {
    fn empty() -> &'static Self {
        static EMPTY: LazyLock<ActionIndex> = LazyLock::new(ActionIndex::default);
        &EMPTY
    }
}

impl ActionIndex {
    /// The waiting actions that may start when slots become free.
    pub fn next_waiting(&self) -> Vec<Key> {
        self.waiting.first(REQUEUED_AT_AN_END, |namespace| self.last_turn(namespace))
    }

    pub fn sets_of_workload(&self, namespace: &str, workload: &WorkloadRef) -> impl Iterator<Item = &Key> {
        self.sets_of_workload.of(&workload_id(namespace, workload))
    }

    pub fn actions_on_workload(&self, namespace: &str, workload: &WorkloadRef) -> impl Iterator<Item = &Key> {
        self.actions_on_workload.of(&workload_id(namespace, workload))
    }

    /// Actions to requeue when this pod changes: the action that marked it, and the actions at work on its ReplicaSet.
    pub fn concerned_by_pod(&self, pod: &PodFact) -> impl Iterator<Item = &Key> {
        let marker = pod.marks.slot.as_ref().and_then(|slot| self.action_of_slot.get(slot));
        let set = pod.controller.iter().flat_map(|owner| self.actions_on_set.of(&owner.uid));
        set.chain(marker)
    }

    /// The open slots of this action, recorded or reserved.
    pub fn slots_of<'a>(&'a self, key: &Key, action: &'a WorkloadAction) -> impl Iterator<Item = &'a Slot> {
        let recorded = action.status.as_ref().map(|status| status.slots.as_slice()).unwrap_or_default();
        self.reserved.get(key).map_or(recorded, Vec::as_slice).iter().filter(|slot| !slot.step.is_end())
    }

    pub fn reserve(&mut self, action: &Key, slots: Vec<Slot>) {
        self.reserved.insert(action.clone(), slots);
        let Turns { taken, last } = &mut self.turns;
        if last.len() >= REMEMBERED {
            last.retain(|namespace, _| self.reserved.keys().any(|key| key.namespace == *namespace));
        }
        *taken += 1;
        last.insert(action.namespace.clone(), *taken);
    }

    pub fn last_turn(&self, namespace: &str) -> u64 {
        self.turns.last.get(namespace).copied().unwrap_or(0)
    }

    pub fn update_set(&mut self, old: Option<&ReplicaSetFact>, new: Option<&ReplicaSetFact>) {
        let Some(set) = new.or(old) else { return };
        if old.map(|set| &set.controller) != new.map(|set| &set.controller) {
            let (old, new) = (old.and_then(workload_of), new.and_then(workload_of));
            self.sets_of_workload.update(&set.id.key, old.as_ref(), new.as_ref());
        }
    }

    pub fn update_action(&mut self, old: Option<&WorkloadAction>, new: Option<&WorkloadAction>) {
        let Some(key) = new.or(old).map(|action| action.key().into_owned()) else { return };
        let (old_running, new_running) = (old.filter(|one| is_unfinished(one)), new.filter(|one| is_unfinished(one)));
        self.expressions.update(old_running, new_running);
        let (old_application, new_application) = (old.and_then(application_of), new.and_then(application_of));
        self.parts_of_application.update(&key, old_application.as_ref(), new_application.as_ref());
        if let (Some(gone), None) = (old, new) {
            self.noticed.remove(&*gone.unique_id());
        }
        self.working.remove(&key);
        if let Some(old) = old {
            self.waiting.remove(old);
        }
        for slot in old.iter().flat_map(|action| slots(action)) {
            self.actions_on_set.remove(&slot.replica_set.uid, &key);
            if let Some(replacement) = &slot.replacement {
                self.actions_to_node.remove(&replacement.node, &key);
            }
            self.actions_on_workload.remove(&workload_id(&key.namespace, &slot.workload), &key);
            self.action_of_slot.remove(&slot.id);
            self.recorded_slots.remove(&slot.id);
        }
        for (action, slot) in new.iter().flat_map(|action| slots(action).map(move |slot| (action, slot))) {
            self.recorded_slots.insert(slot.id.clone(), key.clone());
            if slot.step.is_end() {
                self.changes.put(slot, &key.namespace, &family_of(action));
            }
        }
        let Some(action) = new_running else { return };
        for slot in slots(action).filter(|slot| !slot.step.is_end()) {
            self.actions_on_set.add(&slot.replica_set.uid, &key);
            if let Some(replacement) = &slot.replacement {
                self.actions_to_node.add(&replacement.node, &key);
            }
            self.actions_on_workload.add(&workload_id(&key.namespace, &slot.workload), &key);
            self.action_of_slot.insert(slot.id.clone(), key.clone());
        }
        if working_slots(new) == 0 {
            self.waiting.put(action);
        } else {
            self.working.insert(key);
        }
    }
}

/// The workload that owns the ReplicaSet, in the form of [`workload_id`].
fn workload_of(set: &ReplicaSetFact) -> Option<String> {
    let owner = set.controller.as_ref()?;
    Some(named(&set.id.key.namespace, &owner.kind, &owner.name))
}

fn workload_id(namespace: &str, workload: &WorkloadRef) -> String {
    named(namespace, &workload.kind, &workload.name)
}

fn named(namespace: &str, kind: &str, name: &str) -> String {
    format!("{namespace}/{kind}/{name}")
}

/// The slots in the status of the action.
fn slots(action: &WorkloadAction) -> impl Iterator<Item = &Slot> {
    action.status.iter().flat_map(|status| &status.slots)
}

/// uid that the action shares with the other moves of its moveApplication and with the moveApplication itself.
pub fn family_of(action: &WorkloadAction) -> Uid {
    application_of(action).unwrap_or_else(|| Uid::of(&action.metadata))
}

pub fn is_unfinished(action: &WorkloadAction) -> bool {
    action.status.as_ref().is_none_or(|status| status.finished_at.is_none())
}

/// Number of slots of the action that are at work.
pub fn working_slots(action: Option<&WorkloadAction>) -> usize {
    action
        .filter(|action| is_unfinished(action))
        .and_then(|action| action.status.as_ref())
        .map_or(0, |status| status.slots.iter().filter(|slot| !slot.step.is_end() && slot.step != Step::Queued).count())
}
