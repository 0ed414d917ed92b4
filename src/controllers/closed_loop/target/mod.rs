//! What a loop acts on: looked at and changed as the loop's own account, so that a loop can do no more than that may.
//!
//! Owns the translation of requests and answers only. Another loop's tuning is the exception: it is written by the operator,
//! since that loop's `tunable` says who may.

pub mod account;
mod action;
pub mod kinds;
mod patch;
mod resize;
mod scale;
mod tune;
mod webhook;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{ClosedLoopController, Pass, objects};
use crate::api::closed_loop::TargetRef;
use crate::api::closed_loop::action::Rung;
use crate::api::closed_loop::reasons::LoopReason;
use crate::api::decision::DecisionStatus;
use crate::api::execution::{Claim, ExecutionSpec};
use crate::controllers::error::Error;
use crate::logic::closed_loop::execution::{EffectResult, ExecutionEffect, ObjectVersion, TargetState};
use crate::logic::closed_loop::validate::names::DEFAULT_ACCOUNT;
use crate::logic::facts::Key;
use crate::logic::workload_action::effect::{Refusal, RefusalKind};
use account::Account;
pub use kinds::Kinds;

/// How long a right must be missing to be believed so: an API server that has just started answers before it has read its
/// roles.
const DOUBT: SignedDuration = SignedDuration::from_secs(5);

/// After this time a right that is missing again is doubted anew.
const BELIEF: SignedDuration = SignedDuration::from_mins(10);

/// Who acts, and on what.
pub struct Actor {
    /// The loop's key.
    loop_key: Key,
    /// uid of its Execution.
    uid: String,
    target: TargetRef,
    account: Account,
    /// What was decided.
    decision: Arc<DecisionStatus>,
    /// Since when a right is missing.
    pub doubt: Option<Timestamp>,
}

impl Actor {
    pub fn of(ctx: &ClosedLoopController, pass: &Pass, spec: &ExecutionSpec) -> Self {
        let name = spec.service_account_name.clone().unwrap_or_else(|| DEFAULT_ACCOUNT.to_owned());
        Self {
            loop_key: pass.key.clone(),
            uid: pass.family.execution.as_ref().and_then(|object| object.uid()).unwrap_or_default(),
            target: spec.target.clone(),
            account: Account { client: ctx.client.clone(), namespace: pass.key.namespace.clone(), name },
            decision: Arc::clone(pass.memory.decision.now()),
            doubt: pass.memory.forbidden,
        }
    }

    /// What is said of a right that is missing.
    ///
    /// # Errors
    /// It has not been missing for long enough to be believed.
    async fn forbidden(&mut self, ctx: &ClosedLoopController, refusal: &Refusal) -> Result<String, Error> {
        let now = ctx.now();
        let since = self.doubt.filter(|since| now.duration_since(*since) < BELIEF).unwrap_or(now);
        self.doubt = Some(since);
        if now.duration_since(since) < DOUBT {
            return Err(Error::Doubtful(refusal.clone()));
        }
        Ok(self.account.words(ctx, &refusal.message).await)
    }
}

/// Looks at the target, as the rung needs it; `claim` is what was recorded of it already.
///
/// # Errors
/// It could not be looked at now.
pub async fn look(
    ctx: &ClosedLoopController,
    actor: &mut Actor,
    rung: &Rung,
    claim: Option<&Claim>,
) -> Result<TargetState, Error> {
    let looked = if rung.scale.is_some() {
        scale::look(ctx, actor, claim).await
    } else if rung.tune.is_some() {
        tune::look(ctx, actor).await
    } else if rung.workload_action.is_some() {
        action::look(ctx, actor, claim).await
    } else if let Some(resize) = &rung.resize {
        resize::look(ctx, actor, resize).await
    } else if let Some(field) = &rung.patch {
        patch::look(ctx, actor, &field.path).await
    } else if rung.webhook.is_some() {
        Ok(TargetState::Nothing)
    } else {
        Ok(TargetState::Unfit(
            LoopReason::NotSupported,
            "this version of the operator does not support what was decided".to_owned(),
        ))
    };
    match looked {
        // That it may be looked at says nothing of whether it may be changed: a doubt stays.
        Ok(seen) => Ok(seen),
        Err(Error::Refused(refusal)) if refusal.kind == RefusalKind::Forbidden => {
            actor.forbidden(ctx, &refusal).await.map(TargetState::Forbidden)
        }
        Err(Error::Gone(_)) => {
            let TargetRef { kind, name, .. } = &actor.target;
            Ok(TargetState::NotFound(format!("there is no {kind} {name} in namespace {}", actor.loop_key.namespace)))
        }
        Err(error) => Err(error),
    }
}

/// An object, as far as preconditions need it.
fn thing(meta: &ObjectMeta) -> ObjectVersion {
    ObjectVersion {
        uid: meta.uid.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or(0),
        version: meta.resource_version.clone().unwrap_or_default(),
        written_by: None,
    }
}

/// The first operations of a JSON patch that changes exactly this generation of the object.
fn tests_of(thing: &ObjectVersion) -> Vec<Value> {
    let test = |path: &str, value: Value| json!({"op": "test", "path": path, "value": value});
    vec![test("/metadata/uid", json!(thing.uid)), test("/metadata/generation", json!(thing.generation))]
}

/// Does it.
///
/// # Errors
/// A right is missing, and may not be.
pub async fn act(
    ctx: &ClosedLoopController,
    actor: &mut Actor,
    effect: &ExecutionEffect,
) -> Result<EffectResult, Error> {
    let done = match effect {
        ExecutionEffect::Scale { target, replicas } => {
            objects::counted(ctx, "ScaleTarget", scale::act(ctx, actor, target, *replicas)).await
        }
        ExecutionEffect::Tune { uid, tuning } => {
            objects::counted(ctx, "Tune", tune::act(ctx, actor, uid, tuning)).await
        }
        ExecutionEffect::Create { name, spec } => {
            objects::counted(ctx, "MakeAction", action::act(ctx, actor, name, spec)).await
        }
        ExecutionEffect::Resize { pods, container, resource } => {
            objects::counted(ctx, "ResizePods", resize::act(ctx, actor, pods, container, *resource)).await
        }
        ExecutionEffect::Template { target, index, container, resource, from, to } => {
            let change = (*resource, from, to);
            let done = resize::act_on_template(ctx, actor, target, *index, container, change);
            objects::counted(ctx, "ResizeTemplate", done).await
        }
        ExecutionEffect::Patch { target, path, value } => {
            objects::counted(ctx, "PatchField", patch::act(ctx, actor, target, path, value)).await
        }
        // Nothing of it is the API server's to say.
        ExecutionEffect::Send { id, webhook } => return Ok(webhook::act(ctx, actor, id, webhook).await),
    };
    let acted = match done {
        Ok(there) => EffectResult::Done(there),
        Err(Error::NotLeader) => return Err(Error::NotLeader),
        Err(Error::Refused(refusal)) if refusal.kind == RefusalKind::Forbidden => {
            return actor.forbidden(ctx, &refusal).await.map(EffectResult::Forbidden);
        }
        Err(Error::Refused(refusal)) => EffectResult::Refused(refusal.message),
        Err(Error::Conflict(_) | Error::Exists(_)) => EffectResult::Conflict,
        Err(Error::Gone(words)) => EffectResult::NotFound(words),
        Err(
            error @ (Error::Doubtful(_)
            | Error::Throttled(_)
            | Error::Timeout(_)
            | Error::Unavailable(_)
            | Error::Malformed(_)
            | Error::Broken),
        ) => EffectResult::Unclear(error.to_string()),
    };
    actor.doubt = None;
    Ok(acted)
}
