//! Writes of our own kinds: specs of children, statuses. Each answer is taken into the store at once.

use std::fmt::Debug;
use std::time::Instant;

use kube::api::{Patch, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::info;

use super::{ClosedLoopController, Pass};
use crate::api::closed_loop::ClosedLoop;
use crate::api::decision::Decision;
use crate::api::execution::Execution;
use crate::api::marks;
use crate::api::monitoring::Monitoring;
use crate::controllers::error::Error;
use crate::controllers::writes::{Head, StatusBody, applying, changing};
use crate::logic::facts::{Identity, Key};
use crate::logic::world::Source;
use crate::logic::world::loops::{LoopKind, LoopObject};

/// One of the four kinds.
pub trait LoopResource:
    Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
    + Serialize
    + DeserializeOwned
    + Clone
    + Debug
    + Send
    + Sync
    + 'static
{
    const KIND: LoopKind;
    /// Field manager of its status.
    const STATUS_MANAGER: &'static str;
    /// Names of its writes in metrics and logs: of the whole object, of the status.
    const EFFECTS: (&'static str, &'static str);
    fn object(self) -> LoopObject;
}

macro_rules! kinds {
    ($($kind:ident => $word:ident, $manager:ident;)*) => {
        $(impl LoopResource for $kind {
            const KIND: LoopKind = LoopKind::$word;
            const STATUS_MANAGER: &'static str = marks::$manager;
            const EFFECTS: (&'static str, &'static str) =
                (concat!("Keep", stringify!($kind)), concat!("Record", stringify!($kind)));
            fn object(mut self) -> LoopObject {
                self.metadata.managed_fields = None;
                LoopObject::$word(Box::new(self))
            }
        })*
    };
}
kinds! {
    ClosedLoop => Loop, LOOP_STATUS_MANAGER;
    Monitoring => Monitoring, MONITORING_STATUS_MANAGER;
    Decision => Decision, DECISION_STATUS_MANAGER;
    Execution => Execution, EXECUTION_STATUS_MANAGER;
}

/// Whether a write insists on the version that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Only this object: what others write beside it does not matter.
    Uid,
    /// Only this version of it.
    Version,
}

fn api<K: LoopResource>(ctx: &ClosedLoopController, key: &Key) -> Api<K> {
    Api::namespaced(ctx.client.clone(), &key.namespace)
}

/// Writes a status by server-side apply.
pub async fn record<K: LoopResource>(
    ctx: &ClosedLoopController,
    pass: &mut Pass,
    object: &K,
    status: &(impl Serialize + Debug),
    precondition: Precondition,
) -> Result<(), Error> {
    let meta = object.meta();
    let version = (precondition == Precondition::Version).then_some(meta.resource_version.as_deref()).flatten();
    let (namespace, name) = (pass.key.namespace.as_str(), pass.key.name.as_str());
    let head = Head { namespace, name, uid: meta.uid.as_deref(), resource_version: version };
    let body = StatusBody::of::<K>(head, status);
    let params = applying(K::STATUS_MANAGER);
    let api = api::<K>(ctx, &pass.key);
    let written =
        counted(ctx, K::EFFECTS.1, ctx.timed(api.patch_status(&pass.key.name, &params, &Patch::Apply(&body)))).await;
    match written {
        Ok(answer) => {
            // Only a status was written: whatever else is new came from others.
            pass.changed_by_others |= answer.meta().generation != object.meta().generation;
            take_in(ctx, pass, answer)
        }
        Err(error) => Err(surprised::<K>(ctx, pass, error).await),
    }
}

/// Makes a child. One of that name that is there already is looked at by the next pass.
pub async fn create<K: LoopResource>(ctx: &ClosedLoopController, pass: &mut Pass, child: &K) -> Result<(), Error> {
    let params = PostParams { field_manager: Some(marks::LOOP_MANAGER.to_owned()), ..PostParams::default() };
    let api = api::<K>(ctx, &pass.key);
    match counted(ctx, K::EFFECTS.0, ctx.timed(api.create(&params, child))).await {
        Ok(answer) => take_in(ctx, pass, answer),
        Err(error) => Err(surprised::<K>(ctx, pass, error).await),
    }
}

/// Changes a child's spec and marks: by server-side apply, or by a merge patch where another has added to it.
pub async fn keep<K: LoopResource>(
    ctx: &ClosedLoopController,
    pass: &mut Pass,
    child: &K,
    patch: &Patch<Value>,
) -> Result<(), Error> {
    let params = match patch {
        Patch::Apply(_) => applying(marks::LOOP_MANAGER),
        _ => changing(marks::LOOP_MANAGER),
    };
    let api = api::<K>(ctx, &pass.key);
    match counted(ctx, K::EFFECTS.0, ctx.timed(api.patch(&child.name_any(), &params, patch))).await {
        Ok(answer) => take_in(ctx, pass, answer),
        Err(error) => Err(surprised::<K>(ctx, pass, error).await),
    }
}

/// The head of what is applied.
pub fn apply_body<K: LoopResource>(uid: Option<&str>, key: &Key) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"namespace": key.namespace, "name": key.name, "uid": uid},
    })
}

/// The answer to a write of ours is a fact at once. Other loops that it concerns are woken; ours goes on anyway, unless it was
/// deleted meanwhile: of that nothing was to be done any more.
fn take_in<K: LoopResource>(ctx: &ClosedLoopController, pass: &mut Pass, answer: K) -> Result<(), Error> {
    let (mut wakes, family) = ctx.loops.write(|loops| {
        let wakes = loops.apply(answer.object(), Source::Own);
        (wakes, loops.family(&pass.key))
    });
    wakes.remove(&pass.key);
    ctx.queue.wake(wakes);
    pass.family = family.ok_or_else(|| Error::Gone(format!("the loop {} was deleted", pass.key.name)))?.own();
    Ok(())
}

/// The object is not as it was known: it is looked at, so that the next pass starts from what there is.
async fn surprised<K: LoopResource>(ctx: &ClosedLoopController, pass: &mut Pass, error: Error) -> Error {
    match error {
        Error::Conflict(_) | Error::Exists(_) | Error::Gone(_) => refresh::<K>(ctx, pass).await.err().unwrap_or(error),
        error => error,
    }
}

/// Reads what there is of an object of the loop: the watch may not have told of it yet.
///
/// # Errors
/// It could not be read.
pub async fn refresh<K: LoopResource>(ctx: &ClosedLoopController, pass: &mut Pass) -> Result<(), Error> {
    match ctx.timed(api::<K>(ctx, &pass.key).get_opt(&pass.key.name)).await? {
        Some(found) => take_in(ctx, pass, found)?,
        None => {
            let known = Identity { key: pass.key.clone(), ..Identity::default() };
            let uid = known_uid::<K>(pass);
            ctx.loops.write(|loops| loops.remove(K::KIND, &Identity { uid, ..known }));
        }
    }
    Ok(())
}

fn known_uid<K: LoopResource>(pass: &Pass) -> String {
    let family = &pass.family;
    let uid = match K::KIND {
        LoopKind::Loop => family.parent.uid(),
        LoopKind::Monitoring => family.monitoring.as_ref().and_then(|object| object.uid()),
        LoopKind::Decision => family.decision.as_ref().and_then(|object| object.uid()),
        LoopKind::Execution => family.execution.as_ref().and_then(|object| object.uid()),
    };
    uid.unwrap_or_default()
}

/// A write, counted and timed.
pub async fn counted<T>(
    ctx: &ClosedLoopController,
    effect: &'static str,
    write: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let begun = Instant::now();
    let done = write.await;
    let outcome = done.as_ref().map_or_else(|error| error.class().word(), |_| "ok");
    ctx.metrics.effect(effect, outcome, begun.elapsed());
    if done.is_ok() {
        info!(effect, "done");
    }
    done
}
