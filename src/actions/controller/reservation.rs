//! Reservations: nodes and pods that an admission takes while its write is in progress, and the room of pods
//! that are about to be created.

use ganglion_actions_plan::world::ActionsWorld;
use ganglion_api::workload_action::WorkloadActionStatus;
use ganglion_api::workload_action::status::Slot;
use ganglion_core::facts::Key;
use ganglion_core::world::World;
use ganglion_runtime::store::Store;

/// The slots that count until the admission's write is confirmed: the slots that it records, and the recorded slots
/// that it replaces.
pub fn replaced_slots(world: &World, key: &Key, admitted: &WorkloadActionStatus) -> Vec<Slot> {
    let recorded = world.action(key).and_then(|action| action.status.as_ref());
    let recorded = recorded.map(|status| status.slots.as_slice()).unwrap_or_default();
    recorded.iter().filter(|slot| !admitted.slots.contains(slot)).chain(&admitted.slots).cloned().collect()
}

/// A reservation. It is released after the write. If the outcome of the write is unknown, it is released when the
/// action has been read again.
pub struct Reservation<'a> {
    pub store: &'a Store,
    pub key: &'a Key,
    pub open: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.open {
            self.store.write(|world| world.release(self.key));
        }
    }
}

/// An effect that creates a pod and is being carried out. If its outcome is unknown, it ends when its object has been
/// read again.
pub struct RunningEffect<'a> {
    store: &'a Store,
    key: &'a Key,
    pub open: bool,
}

impl<'a> RunningEffect<'a> {
    pub fn begin(store: &'a Store, key: &'a Key) -> Self {
        store.write(|world| world.begin_effect(key));
        Self { store, key, open: false }
    }
}

impl Drop for RunningEffect<'_> {
    fn drop(&mut self) {
        if !self.open {
            self.store.write(|world| world.end_effect(self.key));
        }
    }
}
