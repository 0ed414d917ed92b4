//! The third hop: what was decided is claimed, done and recorded.
//!
//! Each record insists on the version that was read, so that of two processes only one claims a decision.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::objects::{self, Precondition};
use super::target::{self, Actor};
use super::{ClosedLoopController, Pass, events};
use crate::api::closed_loop::action::Rung;
use crate::api::execution::{Claim, Execution, ExecutionSpec, ExecutionStatus};
use crate::controllers::error::Error;
use crate::logic::closed_loop::execution::{
    EffectResult, ExecutionContext, ExecutionEffect, ExecutionStep, Sent, TargetState, after_effect, next_step,
};
use crate::logic::closed_loop::validate::assessment::Assessment;

/// Steps of one pass; then others get their turn.
const STEPS: usize = 16;

/// How long a target that is never as it was looked at is left alone.
const RESTLESS: SignedDuration = SignedDuration::from_secs(1);

/// The least time between two events that tell of what was done: the Decision's history tells of each.
const EVENTS: SignedDuration = SignedDuration::from_mins(1);

/// Carries on until there is nothing to do.
///
/// # Errors
/// A write, or a look at the target, did not succeed.
pub async fn hop(ctx: &ClosedLoopController, pass: &mut Pass, assessment: &Assessment) -> Result<(), Error> {
    let mut seen: Option<TargetState> = None;
    let mut sent = Sent::Maybe;
    let name = pass.key.name.clone();
    let nothing = ExecutionStatus::default();
    for _ in 0..STEPS {
        let Some(object) = pass.family.execution.clone() else { return Ok(()) };
        let status = object.status.as_ref().unwrap_or(&nothing);
        let decision = Arc::clone(pass.memory.decision.now());
        let uid = object.uid().unwrap_or_default();
        let context = ExecutionContext {
            spec: &assessment.children.execution,
            status,
            uid: &uid,
            generation: object.metadata.generation.unwrap_or(0),
            loop_name: &name,
            chosen: decision.chosen.as_ref(),
            tag: decision.tag.as_ref(),
            seen: seen.as_ref(),
            sent,
            now: ctx.now(),
        };
        let step = match next_step(&context) {
            ExecutionStep::Act(effect) => {
                if ctx.is_over() {
                    return Ok(());
                }
                sent = Sent::Maybe;
                let acted = act(ctx, pass, context.spec, &effect).await?;
                // Limits count from when it was done, and the answer may have taken its time.
                after_effect(&ExecutionContext { now: ctx.now(), ..context }, &effect, &acted)
            }
            step => step,
        };
        match step {
            ExecutionStep::Nothing => return Ok(()),
            ExecutionStep::Wait(at) => {
                pass.again(at);
                return Ok(());
            }
            ExecutionStep::Record(new) => {
                let claims = new.claim.is_some() && new.claim != status.claim;
                record(ctx, pass, &object, &new).await?;
                sent = if claims { Sent::NotYet } else { Sent::Maybe };
            }
            ExecutionStep::Look | ExecutionStep::Act(_) => {
                let rung = status.claim.as_ref().map(|claim| &claim.action);
                let Some(rung) = rung.or(decision.chosen.as_ref().map(|chosen| &chosen.action)) else {
                    return Ok(());
                };
                seen = Some(look(ctx, pass, context.spec, rung, status.claim.as_ref()).await?);
            }
        }
    }
    pass.again(ctx.now().checked_add(RESTLESS).unwrap_or(Timestamp::MAX));
    Ok(())
}

async fn look(
    ctx: &ClosedLoopController,
    pass: &mut Pass,
    spec: &ExecutionSpec,
    rung: &Rung,
    claim: Option<&Claim>,
) -> Result<TargetState, Error> {
    let mut actor = Actor::of(ctx, pass, spec);
    let seen = target::look(ctx, &mut actor, rung, claim).await;
    pass.memory.forbidden = actor.doubt;
    seen
}

async fn act(
    ctx: &ClosedLoopController,
    pass: &mut Pass,
    spec: &ExecutionSpec,
    effect: &ExecutionEffect,
) -> Result<EffectResult, Error> {
    let mut actor = Actor::of(ctx, pass, spec);
    let acted = target::act(ctx, &mut actor, effect).await;
    pass.memory.forbidden = actor.doubt;
    acted
}

async fn record(
    ctx: &ClosedLoopController,
    pass: &mut Pass,
    object: &Execution,
    status: &ExecutionStatus,
) -> Result<(), Error> {
    objects::record(ctx, pass, object, status, Precondition::Version).await?;
    let nothing = ExecutionStatus::default();
    let before = object.status.as_ref().unwrap_or(&nothing);
    let Some(told) = events::of_execution(before, status) else { return Ok(()) };
    let now = ctx.now();
    let rests = |last: Timestamp| now.duration_since(last) < EVENTS;
    if told.warning || !pass.memory.last_event_at.is_some_and(rests) {
        pass.memory.last_event_at = (!told.warning).then_some(now).or(pass.memory.last_event_at);
        ctx.events.tell(events::subject(pass), told);
    }
    Ok(())
}
