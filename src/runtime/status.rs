//! Writes of the status of an object: by one manager and method per kind, with the answer in the store, and with
//! events.
//!
//! Owns the request. When a status is worth a write is decided by [`ganglion_core::status::StatusPolicy`].

use std::fmt::Debug;

use serde::Serialize;
use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::events::{EventText, reference};
use crate::guard::Guard;
use crate::writer::Kube;
use ganglion_core::conditions::{self, Stamp};
use ganglion_core::facts::Key;
use ganglion_core::world::{Fact, Origin};

/// Method by which the status of a kind is written.
#[derive(Clone, Copy, Debug)]
pub enum StatusMethod {
    /// Updates the whole status, with the resourceVersion that was read.
    Update,
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
}

impl StatusWriter {
    /// Writes the status, stores the answer, and publishes the events about the change.
    pub async fn write<K: Kube + Fact>(
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
                StatusMethod::Apply { .. } => ctx.writer.apply_status::<K>(self.manager, &id, status).await,
            }
        };
        ctx.write_own::<K, K>(self.effect, object, write).await?;
        for event in events {
            ctx.events.publish(reference::<K>(&id), event);
        }
        Ok(())
    }

    /// Reports in the status that the object does not parse, and which field is wrong; None if it parses. All status
    /// fields except `observedGeneration` and `conditions` keep their stored values.
    pub async fn report_unreadable<K: Kube + Fact>(&self, ctx: &Context, key: &Key) -> Option<Result<(), Error>> {
        let object = ctx.store.read(|world| world.table::<K>().unreadable().get(key).cloned())?;
        let stamp = Stamp { generation: object.metadata.generation.unwrap_or(0), now: ctx.now() };
        let old = object.conditions();
        let conditions = conditions::invalid(&old, self.invalid, &object.error, stamp);
        if conditions == old {
            return Some(Ok(()));
        }
        let mut status = object.status.clone();
        status.insert("observedGeneration".to_owned(), json!(stamp.generation));
        status.insert("conditions".to_owned(), json!(conditions));
        let id = object.id();
        let write = async {
            match self.method {
                StatusMethod::Update => ctx.writer.replace_status::<Guard<K>>(self.manager, &id, &status).await,
                StatusMethod::Apply { others } => {
                    status.retain(|field, _| !others.contains(&field.as_str()));
                    ctx.writer.apply_status::<Guard<K>>(self.manager, &id, &status).await
                }
            }
        };
        let written = ctx.writer.counted("RecordInvalid", write).await;
        Some(match written {
            Ok(Guard(Ok(object))) => {
                ctx.store.apply(object, Origin::Own);
                Ok(())
            }
            Ok(Guard(Err(object))) => {
                ctx.store.put_unreadable::<K>(object);
                Ok(())
            }
            // The object has changed or is gone: the watch reports the newer version.
            Err(Error::Conflict(_) | Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        })
    }
}
