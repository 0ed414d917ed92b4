//! The status of an object that does not parse. Its kind's controller does nothing else with it.

use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::guard::Guard;
use crate::run::PassResult;
use crate::writer::Kube;
use ganglion_core::conditions::{self, Stamp};
use ganglion_core::facts::Key;
use ganglion_core::world::{Indexed, Origin};

/// How the status of a kind is written. Its members that do not concern the conditions are written as they are.
#[derive(Clone, Copy, Debug)]
pub enum StatusWrite {
    /// By an update of the whole status.
    Update,
    /// By server-side apply, without the members that others own.
    Apply { others: &'static [&'static str] },
}

/// The whole pass over an object that does not parse; None if it does. `reason` is the word of its kind, `manager` the field
/// manager of its status.
pub async fn pass<K: Kube + Indexed>(
    ctx: &Context,
    key: &Key,
    reason: &str,
    (manager, how): (&str, StatusWrite),
) -> Option<PassResult> {
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

fn keep<K: Kube + Indexed>(ctx: &Context, Guard(answer): Guard<K>) -> Option<jiff::Timestamp> {
    match answer {
        Ok(object) => ctx.store.apply(object, Origin::Own),
        Err(object) => ctx.store.put_unreadable::<K>(object),
    }
    None
}

/// The watch reports a version that is newer than the one planned on.
fn ignore_newer(error: Error) -> Result<Option<jiff::Timestamp>, Error> {
    match error {
        Error::Conflict(_) | Error::Gone(_) => Ok(None),
        error => Err(error),
    }
}
