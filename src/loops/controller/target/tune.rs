//! Tunes another loop: writes this loop's entry in the `status.tuning` of that loop.

use jiff::SignedDuration;
use kube::ResourceExt;
use serde_json::json;

use super::{Actor, Targets};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::closed_loop::policy::Tuning;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::marks;
use ganglion_core::facts::{Identity, Key, Uid};
use ganglion_core::json_patch::JsonPatch;
use ganglion_core::world::Origin;
use ganglion_loops_plan::execution::{TargetState, TunedLoop};
use ganglion_loops_plan::tuning::effective_policy;
use ganglion_runtime::error::Error;

/// Reads the loop that is tuned.
pub async fn read(targets: &Targets, actor: &Actor) -> Result<TargetState, Error> {
    let other = {
        let api = targets.ctx.writer.api::<ClosedLoop>(&actor.loop_key.namespace);
        targets.ctx.writer.call(api.get(&actor.target.name)).await?
    };
    let status = other.status.clone().unwrap_or_default();
    let now = targets.ctx.now();
    let held = effective_policy::effective(&other.spec, &status.tuning, status.effective.as_ref(), now);
    let policy = match held {
        Ok(policy) => policy,
        Err(fault) => {
            return Ok(TargetState::Unfit(
                LoopReason::NotTunable,
                format!("ClosedLoop {}: {fault}", actor.target.name),
            ));
        }
    };
    let ttl = ttl(&other);
    let mut mine = status.tuning.into_iter().filter(|tuning| tuning.by == actor.loop_key.name);
    let mine = mine.find(|tuning| now.duration_since(tuning.at.0) < ttl);
    Ok(TargetState::Loop(Box::new(TunedLoop {
        uid: Uid::of(&other.metadata),
        tunable: other.spec.tunable,
        rank: policy.rank,
        metrics: policy.metrics,
        mine,
    })))
}

fn ttl(tuned: &ClosedLoop) -> SignedDuration {
    let tunable = tuned.spec.tunable.as_ref();
    tunable.and_then(|tunable| effective_policy::ttl(tunable).ok()).unwrap_or(effective_policy::DEFAULT_TTL)
}

/// Removes obsolete entries, since the list is short, and writes this loop's entry. The tuned loop is enqueued and
/// applies it at once.
pub async fn act(targets: &Targets, actor: &Actor, uid: &Uid, tuning: &Tuning) -> Result<Option<String>, Error> {
    let key = Key::new(actor.loop_key.namespace.clone(), actor.target.name.clone());
    let manager = format!("{}/{}", marks::EXECUTION_MANAGER, actor.loop_key.name);
    make_room(targets, &key, uid, &manager).await?;
    let id = Identity { key, uid: uid.clone(), ..Identity::default() };
    let status = json!({"tuning": [tuning]});
    let tuned = targets.ctx.writer.apply_status::<ClosedLoop>(&manager, &id, &status).await?;
    targets.ctx.store.apply(tuned, Origin::Own);
    Ok(None)
}

/// Removes entries that have expired, and entries of loops that no longer exist or may no longer tune. Nobody else
/// removes them, since each entry belongs to the field manager of its loop.
async fn make_room(targets: &Targets, key: &Key, uid: &Uid, manager: &str) -> Result<(), Error> {
    let now = targets.ctx.now();
    let found = targets.ctx.store.read(|world| {
        let tuned = world.table::<ClosedLoop>().get(key)?;
        let tuning = tuned.status.as_ref()?.tuning.as_slice();
        let exists = |by: &str| world.table::<ClosedLoop>().get(&Key::new(&*key.namespace, by)).is_some();
        let tunable = tuned.spec.tunable.as_ref();
        Some((tuned.resource_version()?, effective_policy::obsolete(tunable, tuning, exists, now)))
    });
    let Some((version, places)) = found.filter(|(_, places)| !places.is_empty()) else { return Ok(()) };
    let mut patch = JsonPatch::at_version(uid, &version);
    for place in places.iter().rev() {
        patch.remove(&["status", "tuning", &place.to_string()]);
    }
    let tuned = targets.ctx.writer.patch_status::<ClosedLoop>(manager, key, patch).await?;
    targets.ctx.store.apply(tuned, Origin::Own);
    Ok(())
}
