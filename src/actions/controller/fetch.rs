//! Reads before the first plan of a reconcile: what no watch delivers, or what a watch may deliver too late.

use super::{ActionMemory, WorkloadActionController, act, owners};
use ganglion_actions_plan::world::ActionsWorld;
use ganglion_core::facts::Key;
use ganglion_core::world::{Fact, World};
use ganglion_runtime::error::Error;

impl WorkloadActionController {
    /// Records when this process first planned the action.
    pub(super) fn note_first_plan(&self, key: &Key) {
        let is_new = |world: &World| {
            let uid = world.action(key)?.id().uid;
            world.noticed(&uid).is_none().then_some(uid)
        };
        if let Some(uid) = self.ctx.store.read(is_new) {
            self.ctx.store.write(|world| world.notice(&uid, self.ctx.now()));
        }
    }

    /// Reads the objects again whose last requests had no answer. The watches may be far behind, and a plan on stale
    /// facts would be wrong.
    pub(super) async fn read_unanswered(&self, key: &Key, memory: &mut ActionMemory) -> Result<(), Error> {
        for effect in &memory.unanswered {
            match act::read_target(&self.ctx, effect).await {
                // If the read is forbidden, a retry would not change that.
                Ok(_) | Err(Error::Forbidden(_) | Error::Denied(_)) => {}
                Err(error) => return Err(error),
            }
        }
        memory.unanswered.clear();
        self.release_reservation(key);
        Ok(())
    }

    /// Ends the reservation of an admission, and effects, without an answer.
    pub(super) fn release_reservation(&self, key: &Key) {
        if self.ctx.store.read(|world| world.is_reserved(key) || world.runs_effect(key)) {
            self.ctx.store.write(|world| world.release(key));
        }
    }

    /// Reads the owner of another kind (such as an Argo Rollout) whose replicas the action changes, if there is one.
    pub(super) async fn read_owner(&self, key: &Key, memory: &mut ActionMemory) -> Result<(), Error> {
        let Some(needed) = self.needed_owner(key) else { return Ok(()) };
        match owners::read(&self.ctx, &self.shared.discovery, &needed).await {
            Err(Error::Forbidden(message)) => {
                memory.refusals.note_forbidden(&message, self.ctx.now())?;
                let reading = owners::forbidden(&needed, &message);
                self.ctx.store.write(|world| world.put_owner(&needed.uid, reading, self.ctx.now()));
                Ok(())
            }
            done => done,
        }
    }
}
