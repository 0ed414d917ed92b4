//! Another loop's policy: this loop's own entry in that one's `status.tuning`.

use kube::api::Patch;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::Actor;
use crate::api::closed_loop::ClosedLoop;
use crate::api::closed_loop::reasons::LoopReason;
use crate::api::closed_loop::tunable::Tuning;
use crate::api::marks;
use crate::controllers::closed_loop::ClosedLoopController;
use crate::controllers::closed_loop::objects::{self, LoopResource};
use crate::controllers::error::Error;
use crate::controllers::writes::applying;
use crate::logic::closed_loop::execution::{TargetState, TunedLoop};
use crate::logic::closed_loop::tuning::effective_policy;
use crate::logic::facts::Key;
use crate::logic::world::Source;

fn api(ctx: &ClosedLoopController, actor: &Actor) -> Api<ClosedLoop> {
    Api::namespaced(ctx.client.clone(), &actor.loop_key.namespace)
}

/// The loop that is tuned.
///
/// # Errors
/// It could not be read.
pub async fn look(ctx: &ClosedLoopController, actor: &Actor) -> Result<TargetState, Error> {
    let other = ctx.timed(api(ctx, actor).get(&actor.target.name)).await?;
    let status = other.status.clone().unwrap_or_default();
    let now = ctx.now();
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
    let ttl = other
        .spec
        .tunable
        .as_ref()
        .and_then(|tunable| effective_policy::ttl(tunable).ok())
        .unwrap_or(effective_policy::DEFAULT_TTL);
    let mut mine = status.tuning.into_iter().filter(|tuning| tuning.by == actor.loop_key.name);
    let mine = mine.find(|tuning| now.duration_since(tuning.at.0) < ttl);
    Ok(TargetState::Loop(Box::new(TunedLoop {
        uid: other.uid().unwrap_or_default(),
        tunable: other.spec.tunable,
        rank: policy.rank,
        metrics: policy.metrics,
        mine,
    })))
}

/// Sets this loop's entry; the other loop is woken, and takes it up at once.
///
/// # Errors
/// It did not happen, or nobody knows.
pub async fn act(
    ctx: &ClosedLoopController,
    actor: &Actor,
    uid: &str,
    tuning: &Tuning,
) -> Result<Option<String>, Error> {
    let key = Key::new(actor.loop_key.namespace.clone(), actor.target.name.clone());
    let mut body = objects::apply_body::<ClosedLoop>(Some(uid), &key);
    body["status"] = json!({"tuning": [tuning]});
    let manager = format!("{}/{}", marks::EXECUTION_MANAGER, actor.loop_key.name);
    let params = applying(&manager);
    let tuned = ctx.timed(api(ctx, actor).patch_status(&key.name, &params, &Patch::Apply(&body))).await?;
    let wakes = ctx.loops.write(|loops| loops.apply(tuned.object(), Source::Own));
    ctx.queue.wake(wakes);
    Ok(None)
}
