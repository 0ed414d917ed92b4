//! Saves what the agents of a policy have learned in a ConfigMap of the operator's namespace, which goes with the policy. Every
//! replica reads it when it starts; only the leader writes it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::api::{ObjectMeta, PostParams};
use tracing::warn;

use super::PlacementPolicyController;
use crate::api::marks;
use crate::api::placement_policy::PlacementPolicy;
use crate::api::placement_policy::reasons::PolicyReason;
use crate::logic::facts::Key;
use crate::logic::placement::memory::{MEMORY_KEY, MemoryError, SavedMemory, map_name};
use crate::logic::placement::policy::CompiledPolicy;
use crate::logic::world::Fact;
use crate::runtime::error::Error;
use crate::runtime::events::{EventText, reference};

/// The shortest time between two writes.
const SAVE_PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// What the ConfigMap has.
pub(super) struct Save {
    memory: SavedMemory,
    /// When it was written, if this process wrote it.
    written: Option<Timestamp>,
}

impl PlacementPolicyController {
    /// The ConfigMap of a policy.
    pub(super) fn map_key(&self, object: &PlacementPolicy) -> Key {
        Key::new(self.namespace.clone(), map_name(&object.id().uid))
    }

    /// Saves what the agents have learned, if something is new.
    pub(super) async fn save(
        &self,
        key: &Key,
        object: &PlacementPolicy,
        policy: &CompiledPolicy,
        now: Timestamp,
    ) -> Result<(), Error> {
        let Some(memory) = self.placement.memory(policy, &object.id().uid, now) else { return Ok(()) };
        let map = self.map_key(object);
        let is_due = |save: &Save| {
            !save.memory.is_like(&memory) && save.written.is_none_or(|at| now.duration_since(at) >= SAVE_PAUSE)
        };
        if !self.memory.saves().get(key).is_none_or(is_due) {
            return Ok(());
        }
        let written = self.write(&map, object, &memory, now).await?.then_some(now);
        self.memory.saves().insert(key.clone(), Save { memory, written });
        Ok(())
    }

    /// Writes the ConfigMap, unless it says the same already; whether it was written.
    async fn write(
        &self,
        key: &Key,
        object: &PlacementPolicy,
        memory: &SavedMemory,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let writer = &self.ctx.writer;
        let found = writer.get::<ConfigMap>(key).await?;
        match found.as_ref().map(|map| SavedMemory::read(map, now)) {
            None if memory.is_empty() => return Ok(false),
            Some(Ok(saved)) if saved.is_like(memory) => return Ok(false),
            Some(Err(error)) => self.tell_lost(object, key, &error),
            None | Some(Ok(_)) => {}
        }
        let text = memory.text().map_err(|error| Error::Malformed(error.to_string()))?;
        let (label, value) = marks::MEMORY;
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(key.name.clone()),
                labels: Some([(label.to_owned(), value.to_owned())].into()),
                owner_references: object.owner_ref(&()).map(|owner| vec![owner]),
                // A precondition: a late request of a process that has ended is refused.
                resource_version: found.as_ref().and_then(|map| map.metadata.resource_version.clone()),
                ..ObjectMeta::default()
            },
            data: Some([(MEMORY_KEY.to_owned(), text)].into()),
            ..ConfigMap::default()
        };
        let api = writer.api::<ConfigMap>(&key.namespace);
        let params = PostParams { field_manager: Some(marks::MEMORY_MANAGER.to_owned()), ..PostParams::default() };
        let sent = async {
            match found {
                None => writer.call(api.create(&params, &map)).await,
                Some(_) => writer.call(api.replace(&key.name, &params, &map)).await,
            }
        };
        writer.counted("SaveMemory", sent).await.map(|_| true)
    }

    fn tell_lost(&self, object: &PlacementPolicy, map: &Key, error: &MemoryError) {
        let note = format!(
            "what was learned before the operator started is lost: ConfigMap {map}: {error}; the agents go on with what they have \
             learned since"
        );
        warn!(policy = object.id().key.name, %map, %error, "what was learned is lost");
        let reason = PolicyReason::MemoryLost.as_str().to_owned();
        let event = EventText { warning: true, reason, note, about: None };
        self.ctx.events.publish(reference::<PlacementPolicy>(&object.id()), event);
    }
}
