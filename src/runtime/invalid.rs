//! Writes the status of an object that does not parse. The controller of its kind does nothing else with such an
//! object.

use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::guard::Guard;
use crate::run::ReconcileResult;
use crate::writer::Kube;
use ganglion_core::conditions::{self, Stamp};
use ganglion_core::facts::Key;
use ganglion_core::world::{Fact, Origin};

/// Method by which the status of a kind is written. All status fields except `observedGeneration` and `conditions` keep
/// their stored values.
#[derive(Clone, Copy, Debug)]
pub enum StatusWrite {
    /// Updates the whole status.
    Update,
    /// Uses server-side apply, without the fields that others own.
    Apply { others: &'static [&'static str] },
}

/// Reconciles an object that does not parse; returns None if the object parses. `reason` is the reason of the
/// condition, `manager` the field manager of the status.
pub async fn pass<K: Kube + Fact>(
    ctx: &Context,
    key: &Key,
    reason: &str,
    (manager, how): (&str, StatusWrite),
) -> Option<ReconcileResult> {
    let object = ctx.store.read(|world| world.table::<K>().unreadable().get(key).cloned())?;
    let stamp = Stamp { generation: object.metadata.generation.unwrap_or(0), now: ctx.now() };
    let old = object.conditions();
    let conditions = conditions::invalid(&old, reason, &object.error, stamp);
    if conditions == old {
        return Some(ctx.finish(Ok(None)));
    }
    let mut status = object.status.clone();
    status.insert("observedGeneration".to_owned(), json!(stamp.generation));
    status.insert("conditions".to_owned(), json!(conditions));
    let id = object.id();
    let write = async {
        match how {
            StatusWrite::Update => ctx.writer.replace_status::<Guard<K>>(manager, &id, &status).await,
            StatusWrite::Apply { others } => {
                status.retain(|name, _| !others.contains(&name.as_str()));
                ctx.writer.apply_status::<Guard<K>>(manager, &id, &status).await
            }
        }
    };
    let done = ctx.writer.counted("RecordInvalid", write).await;
    Some(ctx.finish(done.map(|answer| keep(ctx, answer)).or_else(ignore_newer)))
}

fn keep<K: Kube + Fact>(ctx: &Context, Guard(answer): Guard<K>) -> Option<jiff::Timestamp> {
    match answer {
        Ok(object) => ctx.store.apply(object, Origin::Own),
        Err(object) => ctx.store.put_unreadable::<K>(object),
    }
    None
}

/// Ignores the error if the object has changed or no longer exists: the watch reports the newer version.
fn ignore_newer(error: Error) -> Result<Option<jiff::Timestamp>, Error> {
    match error {
        Error::Conflict(_) | Error::NotFound(_) => Ok(None),
        error => Err(error),
    }
}
