//! Writes of the status of an object: by one manager and method per kind, with the answer in the store, and with
//! events.
//!
//! Owns the request. When a status is worth a write is decided by [`ganglion_core::status::StatusPolicy`].

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::error::Error;
use crate::events::{EventText, reference};
use crate::guard::{Guard, is_status_too_large};
use crate::writer::Kube;
use ganglion_core::conditions::{self, Stamp};
use ganglion_core::definitions::GuardProblem;
use ganglion_core::facts::Key;
use ganglion_core::json_patch::JsonPatch;
use ganglion_core::world::{Fact, Origin, StatusPart, Unreadable, UnreadableCause};

/// Method by which the status of a kind is written.
#[derive(Clone, Copy, Debug)]
pub enum StatusMethod {
    /// Updates the whole status, with the resourceVersion that was read.
    Update,
    /// The same. After a conflict, patches the status if this field of it still has the value that was read, whatever
    /// else of the object has changed. The patch costs the API server more.
    UpdateUnlessChanged { field: &'static str },
    /// Uses server-side apply, without these fields, which others write.
    Apply { others: &'static [&'static str] },
}

/// How one controller writes the status of its kind.
#[derive(Clone, Copy, Debug)]
pub struct StatusWriter {
    /// Field manager.
    pub manager: &'static str,
    /// Name of the write in metrics, such as `RecordPool`.
    pub effect: &'static str,
    /// Reason of the condition of an object that does not parse.
    pub invalid: &'static str,
    pub method: StatusMethod,
    /// Whether the status and its conditions have an `observedGeneration`.
    pub observes_generation: bool,
}

impl StatusWriter {
    /// Writes the status, stores the answer, and publishes the events about the change. A change from one version of
    /// the object has the same events, whichever process writes it.
    pub async fn write<K: Kube + Fact + Serialize>(
        &self,
        ctx: &Context,
        object: &K,
        status: &(impl Serialize + Debug + Sync),
        events: impl IntoIterator<Item = EventText>,
    ) -> Result<(), Error> {
        let id = object.id();
        let write = async {
            match self.method {
                StatusMethod::Update => ctx.writer.replace_status::<K>(self.manager, &id, status).await,
                StatusMethod::UpdateUnlessChanged { field } => {
                    match ctx.writer.replace_status::<K>(self.manager, &id, status).await {
                        Err(Error::Conflict(_)) => {
                            let patch = patch_unless_changed(object, status, field)?;
                            ctx.writer.patch_status::<K>(self.manager, &id.key, patch).await
                        }
                        replaced => replaced,
                    }
                }
                StatusMethod::Apply { .. } => ctx.writer.apply_status::<K>(self.manager, &id, status).await,
            }
        };
        ctx.write_own::<K, K>(self.effect, object, write).await?;
        if matches!(self.method, StatusMethod::Apply { .. }) {
            // The answer may contain earlier changes of others, whose watch events are no news any more.
            ctx.store.queue::<K>().add([id.key.clone()]);
        }
        for event in events {
            ctx.events.publish(reference::<K>(&id), event.in_occurrence(&id.version));
        }
        Ok(())
    }

    /// Reports in the status that the object is not kept, and why; None if it is kept. All status fields except
    /// `observedGeneration` and `conditions` keep their stored values.
    pub async fn report_unreadable<K: Kube + Fact>(&self, ctx: &Context, key: &Key) -> Option<Result<(), Error>> {
        let object = ctx.store.read(|world| world.table::<K>().unreadable().get(key).cloned())?;
        let object = match with_status::<K>(ctx, &object).await {
            Ok(Some(object)) => object,
            // It is gone, as the watch will report.
            Ok(None) => return Some(Ok(())),
            Err(error) => return Some(Err(error)),
        };
        let stamp = Stamp { generation: object.metadata.generation.unwrap_or(0), now: ctx.now() };
        let reason = object.cause.reason().unwrap_or(self.invalid);
        let conditions = conditions::unread(&object.conditions(), reason, &object.error, object.cause.advice(), stamp);
        Some(self.record::<K>(ctx, &object, conditions, stamp).await)
    }

    /// Reports in the status why objects of the kind are not acted on, and what to do. All status fields except
    /// `observedGeneration` and `conditions` keep their stored values. An object that has ended keeps its result.
    pub async fn report_unguarded<K: Kube + Fact + Serialize>(
        &self,
        ctx: &Context,
        key: &Key,
        problem: &GuardProblem,
    ) -> Result<(), Error> {
        let Some(object) = ctx.store.read(|world| world.table::<K>().get(key).cloned()) else { return Ok(()) };
        let status = match to_json(&*object)?["status"].take() {
            Value::Object(status) => status,
            _ => Map::new(),
        };
        let object = Unreadable { metadata: object.meta().clone(), status, ..Unreadable::default() };
        if conditions::is_finished(&object.conditions()) {
            return Ok(());
        }
        let stamp = Stamp { generation: object.metadata.generation.unwrap_or(0), now: ctx.now() };
        let conditions = conditions::stalled(&object.conditions(), problem.reason(), problem.to_string(), stamp);
        self.record::<K>(ctx, &object, conditions, stamp).await
    }

    /// Writes these conditions if they differ from the stored ones.
    async fn record<K: Kube + Fact>(
        &self,
        ctx: &Context,
        object: &Unreadable,
        mut conditions: Vec<Condition>,
        stamp: Stamp,
    ) -> Result<(), Error> {
        if !self.observes_generation {
            conditions.iter_mut().for_each(|condition| condition.observed_generation = None);
        }
        if conditions == object.conditions() {
            return Ok(());
        }
        let write = self.write_unread::<K>(ctx, object, conditions, stamp);
        match ctx.writer.counted("RecordInvalid", write).await {
            Ok(Guard(Ok(answer))) => {
                // The answer contains the object, which is not kept for want of room.
                match object.cause {
                    UnreadableCause::NoRoom => ctx.store.put_unreadable::<K>(without_room(object, &answer)),
                    UnreadableCause::Invalid | UnreadableCause::TooLarge => ctx.store.apply(answer, Origin::Own),
                }
                Ok(())
            }
            Ok(Guard(Err(object))) => {
                ctx.store.put_unreadable::<K>(object);
                Ok(())
            }
            // The object has changed or is gone: the watch reports the newer version.
            Err(Error::Conflict(_) | Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes these conditions into the status of an object that is not kept.
    async fn write_unread<K: Kube + Fact>(
        &self,
        ctx: &Context,
        object: &Unreadable,
        conditions: Vec<Condition>,
        stamp: Stamp,
    ) -> Result<Guard<K>, Error> {
        let id = object.id();
        let mut status = object.status.clone();
        if object.part == StatusPart::Conditions && !matches!(self.method, StatusMethod::Apply { .. }) {
            // An update replaces the whole status. Only its conditions are kept in memory, so the rest is read.
            let stored = ctx.writer.get_status::<K>(&id.key).await?;
            status = stored.ok_or_else(|| Error::NotFound(id.key.to_string()))?;
            if is_status_too_large(&status) {
                status.clear();
            }
        }
        status.insert("conditions".to_owned(), json!(conditions));
        if self.observes_generation {
            status.insert("observedGeneration".to_owned(), json!(stamp.generation));
        }
        match self.method {
            StatusMethod::Update | StatusMethod::UpdateUnlessChanged { .. } => {
                ctx.writer.replace_status::<Guard<K>>(self.manager, &id, &status).await
            }
            // Fields that are not applied again are removed. The operator writes them again once it keeps the object.
            StatusMethod::Apply { others } => {
                status.retain(|field, _| !others.contains(&field.as_str()));
                ctx.writer.apply_status::<Guard<K>>(self.manager, &id, &status).await
            }
        }
    }
}

/// The object with the conditions that it has, which are read if only its stub is kept. None if it is gone.
async fn with_status<K: Kube>(ctx: &Context, object: &Arc<Unreadable>) -> Result<Option<Arc<Unreadable>>, Error> {
    match object.part {
        StatusPart::Whole | StatusPart::Conditions => Ok(Some(Arc::clone(object))),
        StatusPart::None => {
            let Some(status) = ctx.writer.get_status::<K>(&object.id().key).await? else { return Ok(None) };
            let read = Unreadable { status, part: StatusPart::Whole, ..Unreadable::clone(object) };
            let conditions = read.conditions();
            let is_large = is_status_too_large(&read.status);
            Ok(Some(Arc::new(if is_large { read.with_conditions(&conditions) } else { read })))
        }
    }
}

/// The object as the answer to a write shows it.
fn without_room<F: Fact>(object: &Unreadable, answer: &F) -> Unreadable {
    let (metadata, conditions) = answer.head();
    Unreadable { metadata, ..object.clone() }.with_conditions(&conditions)
}

/// Returns a JSON patch that replaces the status if this field of it still has the value that was read.
fn patch_unless_changed<K: Kube + Fact + Serialize>(
    object: &K,
    status: &impl Serialize,
    field: &str,
) -> Result<JsonPatch, Error> {
    let id = object.id();
    let mut patch = match to_json(object)?["status"][field].take() {
        // Without the field there is no earlier status to protect.
        Value::Null => JsonPatch::at_version(&id.uid, &id.version),
        stored => {
            let mut patch = JsonPatch::of(&id.uid);
            patch.test(&["status", field], stored);
            patch
        }
    };
    patch.add(&["status"], to_json(status)?);
    Ok(patch)
}

fn to_json(value: &impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|error| Error::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests;
