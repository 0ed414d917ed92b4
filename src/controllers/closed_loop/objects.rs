//! Writes of our own kinds: specs of children, statuses. Each answer is taken into the store at once.

use std::fmt::Debug;
use std::sync::Arc;

use kube::ResourceExt;
use kube::api::Patch;
use serde::Serialize;
use serde_json::{Value, json};

use super::{ClosedLoops, Pass};
use crate::api::closed_loop::ClosedLoop;
use crate::api::decision::Decision;
use crate::api::execution::Execution;
use crate::api::marks;
use crate::api::monitoring::Monitoring;
use crate::logic::facts::{Identity, Key};
use crate::logic::world::loops::Family;
use crate::logic::world::{Indexed, Source};
use crate::runtime::error::Error;
use crate::runtime::writer::{Kube, Precondition};

/// One of the four kinds.
pub trait Kind: Kube + Indexed + Serialize {
    /// Field manager of its status.
    const STATUS_MANAGER: &'static str;
    /// Names of its writes in metrics and logs: of the whole object, of the status.
    const EFFECTS: (&'static str, &'static str);
    /// The one of this family.
    fn find(family: &Family) -> Option<Arc<Self>>;
}

macro_rules! kinds {
    ($($kind:ident => $manager:ident, $find:expr;)*) => {
        $(impl Kind for $kind {
            const STATUS_MANAGER: &'static str = marks::$manager;
            const EFFECTS: (&'static str, &'static str) =
                (concat!("Keep", stringify!($kind)), concat!("Record", stringify!($kind)));
            fn find(family: &Family) -> Option<Arc<Self>> {
                let find: fn(&Family) -> Option<Arc<Self>> = $find;
                find(family)
            }
        })*
    };
}
kinds! {
    ClosedLoop => LOOP_STATUS_MANAGER, |family| Some(Arc::clone(&family.parent));
    Monitoring => MONITORING_STATUS_MANAGER, |family| family.monitoring.clone();
    Decision => DECISION_STATUS_MANAGER, |family| family.decision.clone();
    Execution => EXECUTION_STATUS_MANAGER, |family| family.execution.clone();
}

/// Writes a status by server-side apply.
pub async fn record<K: Kind>(
    ctx: &ClosedLoops,
    pass: &mut Pass,
    object: &K,
    status: &(impl Serialize + Debug),
    precondition: Precondition,
) -> Result<(), Error> {
    let writer = &ctx.ctx.writer;
    let id = object.id();
    let written = writer.apply_status::<K>(K::STATUS_MANAGER, &id, precondition, status);
    match writer.counted(K::EFFECTS.1, written).await {
        Ok(answer) => {
            // Only a status was written: whatever else is new came from others.
            pass.stirred |= answer.meta().generation != object.meta().generation;
            take_in(ctx, pass, answer)
        }
        Err(error) => Err(surprised::<K>(ctx, pass, error).await),
    }
}

/// Makes a child. One of that name that is there already is looked at by the next pass.
pub async fn create<K: Kind>(ctx: &ClosedLoops, pass: &mut Pass, child: &K) -> Result<(), Error> {
    let writer = &ctx.ctx.writer;
    let made = writer.create(marks::LOOP_MANAGER, &pass.key.namespace, child);
    match writer.counted(K::EFFECTS.0, made).await {
        Ok(answer) => take_in(ctx, pass, answer),
        Err(error) => Err(surprised::<K>(ctx, pass, error).await),
    }
}

/// Changes a child's spec and marks: by server-side apply, or by a merge patch where another has added to it.
pub async fn keep<K: Kind>(ctx: &ClosedLoops, pass: &mut Pass, patch: &Patch<Value>) -> Result<(), Error> {
    let writer = &ctx.ctx.writer;
    let kept = writer.patch::<K>(marks::LOOP_MANAGER, &pass.key, patch);
    match writer.counted(K::EFFECTS.0, kept).await {
        Ok(answer) => take_in(ctx, pass, answer),
        Err(error) => Err(surprised::<K>(ctx, pass, error).await),
    }
}

/// The head of what is applied.
pub fn apply_body<K: Kind>(uid: Option<&str>, key: &Key) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"namespace": key.namespace, "name": key.name, "uid": uid},
    })
}

/// The answer to a write of ours is a fact at once. Other loops that it concerns are woken; ours goes on anyway, unless it was
/// deleted meanwhile: of that nothing was to be done any more.
fn take_in<K: Kind>(ctx: &ClosedLoops, pass: &mut Pass, answer: K) -> Result<(), Error> {
    let (wakes, family) = ctx.ctx.store.write(|world| {
        let wakes = world.apply(answer, Source::Own);
        (wakes, world.family(&pass.key))
    });
    ctx.ctx.store.wake(wakes.without::<ClosedLoop>(&pass.key));
    pass.family = family.ok_or_else(|| Error::Gone(format!("the loop {} was deleted", pass.key.name)))?.own();
    Ok(())
}

/// The object is not as it was known: it is looked at, so that the next pass starts from what there is.
async fn surprised<K: Kind>(ctx: &ClosedLoops, pass: &mut Pass, error: Error) -> Error {
    match error {
        Error::Conflict(_) | Error::Exists(_) | Error::Gone(_) => refresh::<K>(ctx, pass).await.err().unwrap_or(error),
        error => error,
    }
}

/// Reads what there is of an object of the loop: the watch may not have told of it yet.
///
/// # Errors
/// It could not be read.
pub async fn refresh<K: Kind>(ctx: &ClosedLoops, pass: &mut Pass) -> Result<(), Error> {
    match ctx.ctx.writer.get::<K>(&pass.key).await? {
        Some(found) => take_in(ctx, pass, found)?,
        None => {
            let uid = K::find(&pass.family).and_then(|object| object.uid()).unwrap_or_default();
            let id = Identity { key: pass.key.clone(), uid, version: String::new() };
            ctx.ctx.store.write(|world| world.remove::<K>(&id));
        }
    }
    Ok(())
}
