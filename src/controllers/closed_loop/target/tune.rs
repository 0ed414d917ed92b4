//! Another loop's policy: this loop's own entry in that one's `status.tuning`.

use kube::{Api, ResourceExt};
use serde_json::json;

use super::Actor;
use crate::api::closed_loop::ClosedLoop;
use crate::api::closed_loop::reasons::LoopReason;
use crate::api::closed_loop::tunable::Tuning;
use crate::api::marks;
use crate::controllers::closed_loop::ClosedLoops;
use crate::logic::closed_loop::execution::{LoopSeen, Seen};
use crate::logic::closed_loop::tuning::effective_policy;
use crate::logic::facts::{Identity, Key};
use crate::logic::world::Source;
use crate::runtime::error::Error;
use crate::runtime::writer::Precondition;

fn api(ctx: &ClosedLoops, actor: &Actor) -> Api<ClosedLoop> {
    Api::namespaced(ctx.ctx.writer.client(), &actor.loop_key.namespace)
}

/// The loop that is tuned.
///
/// # Errors
/// It could not be read.
pub async fn look(ctx: &ClosedLoops, actor: &Actor) -> Result<Seen, Error> {
    let other = ctx.ctx.writer.call(api(ctx, actor).get(&actor.target.name)).await?;
    let status = other.status.clone().unwrap_or_default();
    let now = ctx.ctx.now();
    let held = effective_policy::effective(&other.spec, &status.tuning, status.effective.as_ref(), now);
    let policy = match held {
        Ok(policy) => policy,
        Err(fault) => {
            return Ok(Seen::Unfit(LoopReason::NotTunable, format!("ClosedLoop {}: {fault}", actor.target.name)));
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
    Ok(Seen::Loop(Box::new(LoopSeen {
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
pub async fn act(ctx: &ClosedLoops, actor: &Actor, uid: &str, tuning: &Tuning) -> Result<Option<String>, Error> {
    let key = Key::new(actor.loop_key.namespace.clone(), actor.target.name.clone());
    let manager = format!("{}/{}", marks::EXECUTION_MANAGER, actor.loop_key.name);
    let id = Identity { key, uid: uid.to_owned(), version: String::new() };
    let status = json!({"tuning": [tuning]});
    let tuned = ctx.ctx.writer.apply_status::<ClosedLoop>(&manager, &id, Precondition::Uid, &status).await?;
    ctx.ctx.store.apply(tuned, Source::Own);
    Ok(None)
}
