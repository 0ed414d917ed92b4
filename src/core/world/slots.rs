//! The open slots of actions, recorded in a status or reserved.

use std::collections::HashMap;

use super::World;
use super::actions::application_of;
use crate::facts::Key;
use ganglion_api::targets::WorkloadRef;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::{Slot, Step};

/// Time of each namespace's last turn, as a counter. Lost at a restart, which affects only fairness.
#[derive(Debug, Default)]
pub struct Turns {
    taken: u64,
    last: HashMap<String, u64>,
}

/// Maximum number of remembered namespaces. Beyond it, those without reserved slots are dropped, and go first again.
const REMEMBERED: usize = 4096;

impl World {
    /// The slots at work of all actions, recorded and reserved, each with its action.
    pub fn slots_at_work(&self) -> impl Iterator<Item = (&Key, &Slot)> {
        self.slots_among(self.index.working()).filter(|(_, slot)| slot.step != Step::Queued)
    }

    /// The slots at work of the moves of the moveApplication with this uid, recorded and reserved, each with its
    /// action.
    pub fn slots_at_work_of<'a>(&'a self, application_uid: &'a str) -> impl Iterator<Item = (&'a Key, &'a Slot)> {
        let is_of_it = move |key: &&Key| {
            self.tables.actions.get(key).is_some_and(|action| application_of(action) == Some(application_uid))
        };
        let recorded = self.index.parts_of(application_uid).filter(|key| !self.is_reserved(key));
        let keys = recorded.chain(self.reserved.keys().filter(is_of_it));
        let slots = keys.filter_map(|key| Some((key, self.tables.actions.get(key)?)));
        let slots = slots.flat_map(|(key, action)| self.slots_of(key, action).map(move |slot| (key, slot)));
        slots.filter(|(_, slot)| slot.step != Step::Queued)
    }

    /// The open slots of this workload in all of its ReplicaSets, each with its action.
    pub fn slots_of_workload<'a>(
        &'a self,
        namespace: &'a str,
        workload: &'a WorkloadRef,
    ) -> impl Iterator<Item = (&'a Key, &'a Slot)> {
        let recorded = self.index.actions_on_workload(namespace, workload);
        let is_of_it = move |key: &Key, slot: &Slot| key.namespace == namespace && slot.workload == *workload;
        self.slots_among(recorded).filter(move |(key, slot)| is_of_it(key, slot))
    }

    /// The open slots of the ReplicaSet with this uid, recorded and reserved.
    pub fn slots_on(&self, set_uid: &str) -> impl Iterator<Item = &Slot> {
        let slots = self.slots_among(self.index.actions_on(set_uid)).map(|(_, slot)| slot);
        slots.filter(move |slot| slot.replica_set.uid == set_uid)
    }

    /// The open slots whose replacement has this target node, recorded and reserved, each with its action.
    pub fn slots_to<'a>(&'a self, node: &'a str) -> impl Iterator<Item = (&'a Key, &'a Slot)> {
        let goes_there =
            move |slot: &Slot| slot.replacement.as_ref().is_some_and(|replacement| replacement.node == node);
        self.slots_among(self.index.actions_to(node)).filter(move |(_, slot)| goes_there(slot))
    }

    /// The open slots of these actions and of all actions with reserved slots.
    fn slots_among<'a>(&'a self, recorded: impl Iterator<Item = &'a Key>) -> impl Iterator<Item = (&'a Key, &'a Slot)> {
        let keys = recorded.filter(|key| !self.is_reserved(key)).chain(self.reserved.keys());
        keys.filter_map(|key| Some((key, self.tables.actions.get(key)?)))
            .flat_map(|(key, action)| self.slots_of(key, action).map(move |slot| (key, slot)))
    }

    fn slots_of<'a>(&'a self, key: &Key, action: &'a WorkloadAction) -> impl Iterator<Item = &'a Slot> {
        let recorded = action.status.as_ref().map(|status| status.slots.as_slice()).unwrap_or_default();
        self.reserved.get(key).map_or(recorded, Vec::as_slice).iter().filter(|slot| !slot.step.is_end())
    }

    /// Whether slots are reserved for the action: their nodes, pods and shares of limits are not free.
    pub fn is_reserved(&self, action: &Key) -> bool {
        self.reserved.contains_key(action)
    }

    /// Reserves these slots: they replace the recorded slots of the action until [`World::release`]. Counts as a turn
    /// of the action's namespace.
    pub fn reserve(&mut self, action: &Key, slots: Vec<Slot>) {
        self.reserved.insert(action.clone(), slots);
        let Turns { taken, last } = &mut self.turns;
        if last.len() >= REMEMBERED {
            last.retain(|namespace, _| self.reserved.keys().any(|key| key.namespace == *namespace));
        }
        *taken += 1;
        last.insert(action.namespace.clone(), *taken);
    }

    /// Counter value of the namespace's last turn; larger means later, 0 means none.
    pub fn last_turn(&self, namespace: &str) -> u64 {
        self.turns.last.get(namespace).copied().unwrap_or(0)
    }

    /// Ends the reservation: the slots recorded in the action's status count again.
    pub fn release(&mut self, action: &Key) {
        self.reserved.remove(action);
    }

    /// The action with this open slot.
    pub fn action_of(&self, slot: &str) -> Option<&Key> {
        self.index.action_of(slot)
    }
}
