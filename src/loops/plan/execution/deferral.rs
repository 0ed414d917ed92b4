//! Takes back resizes that kubelets defer for too long. Until then, the scheduler counts the larger resources, so the
//! node is closed for other pods.
//!
//! It needs no new decision. When the claim of a resize to larger resources ends before all kubelets have carried it
//! out, its pods are recorded (Waiting). After `takeBackAfter`, the pods are read. Deferred pods are recorded
//! (TakingBack), set back to the allocated resources, read again, and recorded with the result (TakenBack). A pod is
//! set back only while it has the resources that were sent, a loop was the last to resize it, and it is exactly the
//! version that was read: the resize of another client, or one that the kubelet carries out at this moment, stays.
//!
//! The claim of another decision comes first until its change has begun. A loop that is paused or blocked changes
//! nothing.

use jiff::{SignedDuration, Timestamp};

use super::goal;
use super::recorded::record;
use super::texts::{quantities_text, target_text};
use super::types::{
    EFFECT_TIMEOUT, EffectResult, ExecutionContext, ExecutionEffect, ExecutionStep, PodResize, PodResources,
    ResizeTarget, TargetState, lookup_failure,
};
use crate::common::{later, micro_time, opening_text};
use crate::rung;
use ganglion_api::closed_loop::LoopMode;
use ganglion_api::closed_loop::action::{Resize, Rung};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::Direction;
use ganglion_api::execution::{
    Claim, DEFERRED_LIMIT, DeferralState, DeferredResize, ExecutionState, ExecutionStatus, Quantities,
};
use ganglion_api::scalars::Number;
use ganglion_core::duration;

/// Default of `takeBackAfter`.
const TAKE_BACK_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// Time in which a pod is not resized again to the resources that were taken back. Its node may have room then.
const REST: SignedDuration = SignedDuration::from_hours(1);

/// Delay before a request with an unclear result is sent again.
const RETRY: SignedDuration = SignedDuration::from_secs(2);

/// Maximum number of pods that a message names.
const NAMED_PODS: usize = 3;

/// Maximum length of the description of what is taken back, in characters.
const MAX_WHAT: usize = 700;

/// Returns the next step of a resize that is due to be taken back; None if there is none now.
pub fn next_step(context: &ExecutionContext) -> Option<ExecutionStep> {
    let (index, deferred) = due(context)?;
    let Some(seen) = context.seen else { return Some(ExecutionStep::ReadTarget) };
    let resize = &deferred.resize;
    let TargetState::Resources(seen) = seen else {
        let step = match lookup_failure(seen) {
            Some((LoopReason::TargetNotFound, _)) => forget(context, index),
            Some((_, why)) => postpone(context, index, why),
            None => ExecutionStep::ReadTarget,
        };
        return Some(step);
    };
    let pods = deferred_pods(deferred, seen);
    Some(match deferred.state {
        DeferralState::Waiting if pods.is_empty() && is_unanswered(deferred, seen) => wait_again(context, index),
        DeferralState::Waiting if pods.is_empty() => forget(context, index),
        DeferralState::Waiting => begin(context, index, &pods),
        DeferralState::TakingBack if pods.is_empty() => end(context, index, seen),
        DeferralState::TakingBack if context.now >= later(deferred.at.0, EFFECT_TIMEOUT) => {
            postpone(context, index, "the API server did not accept it in time")
        }
        DeferralState::TakingBack => ExecutionStep::Act(Box::new(ExecutionEffect::TakeBack {
            pods: pods.into_iter().map(|(_, change)| change).collect(),
            container: resize.container.clone(),
            resource: resize.resource,
        })),
        DeferralState::TakenBack => ExecutionStep::Nothing,
    })
}

/// Returns the step after pods were set back, or not.
pub fn after_effect(context: &ExecutionContext, acted: &EffectResult) -> ExecutionStep {
    match (acted, due(context)) {
        (EffectResult::Done(_) | EffectResult::Conflict | EffectResult::NotFound(_), _) | (_, None) => {
            ExecutionStep::ReadTarget
        }
        (EffectResult::Forbidden(why) | EffectResult::Refused(why), Some((index, _))) => postpone(context, index, why),
        (EffectResult::Unclear(_), Some(_)) => ExecutionStep::Wait(later(context.now, RETRY)),
    }
}

/// Returns the rung for which the target is read next: that of a resize to take back, of the claim, or of the decision.
pub fn rung_to_read(context: &ExecutionContext) -> Option<Rung> {
    if let Some((_, deferred)) = due(context) {
        return Some(Rung { resize: Some(deferred.resize.clone()), ..Rung::default() });
    }
    let claimed = context.status.claim.as_ref().map(|claim| &claim.action);
    claimed.or_else(|| context.chosen.map(|chosen| &chosen.action)).cloned()
}

/// Whether the target is read to take a resize back.
pub fn is_due(context: &ExecutionContext) -> bool {
    due(context).is_some()
}

/// The first resize that is due to be taken back.
fn due<'a>(context: &ExecutionContext<'a>) -> Option<(usize, &'a DeferredResize)> {
    let status = context.status;
    let is_begun = status.claim.is_none() || status.state == Some(ExecutionState::Executing);
    if changes_nothing(context) || !is_begun {
        return None;
    }
    let is_due = |one: &DeferredResize| match one.state {
        DeferralState::Waiting => waits_until(one) <= context.now,
        DeferralState::TakingBack => true,
        DeferralState::TakenBack => false,
    };
    status.deferred.iter().enumerate().find(|(_, one)| is_due(one))
}

fn changes_nothing(context: &ExecutionContext) -> bool {
    context.spec.paused || context.spec.blocked.is_some() || context.mode == LoopMode::DryRun
}

/// Ends a step that waits when the next resize is due to be taken back.
pub fn waking(context: &ExecutionContext, step: ExecutionStep) -> ExecutionStep {
    if changes_nothing(context) {
        return step;
    }
    let waiting = context.status.deferred.iter().filter(|one| one.state == DeferralState::Waiting);
    let next = waiting.map(waits_until).filter(|at| *at > context.now).min();
    match (step, next) {
        (ExecutionStep::Nothing, Some(at)) => ExecutionStep::Wait(at),
        (ExecutionStep::Wait(until), Some(at)) => ExecutionStep::Wait(until.min(at)),
        (step, _) => step,
    }
}

fn waits_until(deferred: &DeferredResize) -> Timestamp {
    later(deferred.at.0, take_back_after(&deferred.resize))
}

/// The API server checks the format; a text that does not parse counts as unset.
fn take_back_after(resize: &Resize) -> SignedDuration {
    let text = resize.take_back_after.as_ref();
    text.and_then(|text| duration::parse(text.as_str()).ok()).unwrap_or(TAKE_BACK_AFTER)
}

/// Whether a kubelet has deferred the claimed resize for so long that it is taken back.
pub fn is_overdue(context: &ExecutionContext, claim: &Claim, seen: &TargetState) -> bool {
    let (Some(resize), TargetState::Resources(seen)) = (&claim.action.resize, seen) else { return false };
    let is_late = context.now >= later(claim.at.0, take_back_after(resize));
    let waits = |pod: &PodResources| pod.is_deferred() && claim.pods.iter().any(|claimed| claimed.uid == pod.thing.uid);
    is_late && raises(&claim.action) && seen.pods.iter().any(waits)
}

fn raises(rung: &Rung) -> bool {
    rung::direction(rung) == Direction::Raise
}

/// Returns the stored resizes after the end of the claim in this status. Only larger resources close a node.
pub fn after_claim(context: &ExecutionContext, has_ended_well: bool) -> Vec<DeferredResize> {
    let mut stored = context.status.deferred.clone();
    stored.retain(|one| one.state != DeferralState::TakenBack || later(one.at.0, REST) > context.now);
    let claim = context.status.claim.as_ref().filter(|claim| !has_ended_well && raises(&claim.action));
    if let Some(claim) = claim
        && let (Some(resize), Some(goal)) = (&claim.action.resize, &claim.goal.quantities)
    {
        stored.push(DeferredResize {
            seq: claim.seq,
            state: DeferralState::Waiting,
            at: claim.at.clone(),
            resize: resize.clone(),
            goal: goal.clone(),
            pods: claim.pods.iter().map(|pod| pod.uid.clone()).collect(),
            message: None,
        });
    }
    while stored.len() > DEFERRED_LIMIT {
        let ended = stored.iter().position(|one| one.state == DeferralState::TakenBack);
        stored.remove(ended.unwrap_or(0));
    }
    stored
}

/// Returns the pods that are still deferred, each with the change back.
fn deferred_pods<'a>(deferred: &DeferredResize, seen: &'a ResizeTarget) -> Vec<(&'a PodResources, PodResize)> {
    let pods = seen.pods.iter().filter(|pod| deferred.pods.contains(&pod.thing.uid));
    let pods = pods.filter(|pod| pod.is_deferred() && pod.is_resized_by_loop);
    pods.filter_map(|pod| Some((pod, change_back(pod, deferred)?))).collect()
}

/// Whether a kubelet has neither carried out the resize nor said anything about it: it may still defer it.
fn is_unanswered(deferred: &DeferredResize, seen: &ResizeTarget) -> bool {
    let mut pods = seen.pods.iter().filter(|pod| deferred.pods.contains(&pod.thing.uid));
    pods.any(|pod| pod.pending.is_none() && pod.is_resized_by_loop && change_back(pod, deferred).is_some())
}

/// Returns the change to the allocated resources, of those amounts that are the sent ones and larger.
fn change_back(pod: &PodResources, deferred: &DeferredResize) -> Option<PodResize> {
    let DeferredResize { resize, goal, .. } = deferred;
    let allocated = pod.allocated.as_ref()?;
    let part = |of: fn(&Quantities) -> &Option<Number>| {
        let only = |part: &Option<Number>| Quantities { request: part.clone(), limit: None };
        let (wants, sent, allocated) = (of(&pod.wants), of(goal), of(allocated));
        let is_sent = goal::same_quantities(resize.resource, &only(wants), &only(sent));
        let is_larger = goal::is_behind(resize.resource, true, &only(allocated), &only(wants));
        if is_sent && is_larger { allocated.clone() } else { wants.clone() }
    };
    let to = Quantities { request: part(|all| &all.request), limit: part(|all| &all.limit) };
    (to != pod.wants).then(|| PodResize {
        name: pod.name.clone(),
        node: pod.node_name().map(str::to_owned),
        thing: pod.thing.clone(),
        index: pod.index,
        from: pod.wants.clone(),
        to,
    })
}

/// Records which pods are about to be set back.
fn begin(context: &ExecutionContext, index: usize, pods: &[(&PodResources, PodResize)]) -> ExecutionStep {
    let names: Vec<String> = pods.iter().map(|(pod, _)| pod_text(pod)).collect();
    let first = pods.first().map(|(pod, change)| {
        let (from, to) = (quantities_text(&change.from), quantities_text(&change.to));
        let words = pod.pending.as_ref().map(ToString::to_string).unwrap_or_default();
        format!(" to {from}, back to {to}: the kubelet has answered {words}")
    });
    let message = format!("the resize of {}{}", names_text(&names), first.unwrap_or_default());
    change(context, index, |deferred| {
        deferred.state = DeferralState::TakingBack;
        deferred.at = micro_time(context.now);
        deferred.pods = pods.iter().map(|(pod, _)| pod.thing.uid.clone()).collect();
        deferred.message = Some(message.chars().take(MAX_WHAT).collect());
    })
}

/// Records which pods were set back. If the kubelets have carried out the resize meanwhile, there is nothing to report.
fn end(context: &ExecutionContext, index: usize, seen: &ResizeTarget) -> ExecutionStep {
    let Some(deferred) = context.status.deferred.get(index) else { return ExecutionStep::Nothing };
    let resource = deferred.resize.resource;
    let is_set_back = |pod: &&PodResources| {
        let allocated = pod.allocated.as_ref();
        deferred.pods.contains(&pod.thing.uid)
            && pod.is_resized_by_loop
            && goal::is_behind(resource, true, &pod.wants, &deferred.goal)
            && allocated.is_some_and(|has| !goal::is_behind(resource, true, has, &pod.wants))
    };
    let set_back: Vec<&PodResources> = seen.pods.iter().filter(is_set_back).collect();
    if set_back.is_empty() {
        return forget(context, index);
    }
    let (what, goal) = (deferred.message.clone().unwrap_or_default(), quantities_text(&deferred.goal));
    let until = opening_text(later(context.now, REST), context.now);
    let message = format!(
        "took back {what}. The node has room for other pods again. The resize to {goal} is not sent again before {until}: \
         add a rung that adds replicas, or make room on the node"
    );
    let pods = set_back.iter().map(|pod| pod.thing.uid.clone()).collect();
    let message: String = message.chars().take(1024).collect();
    let told = change(context, index, |deferred| {
        deferred.state = DeferralState::TakenBack;
        deferred.at = micro_time(context.now);
        deferred.pods = pods;
        deferred.message = Some(message.clone());
    });
    report(context, told, deferred.seq, LoopReason::ResizeTakenBack, &message)
}

/// Reports why the pods could not be set back, and tries again after the same time. Other decisions go on meanwhile.
fn postpone(context: &ExecutionContext, index: usize, why: &str) -> ExecutionStep {
    let Some(deferred) = context.status.deferred.get(index) else { return ExecutionStep::Nothing };
    let what = deferred.message.clone().unwrap_or_else(|| "a deferred resize".to_owned());
    let target = target_text(&context.spec.target);
    let message = format!("cannot take back {what} ({target}): {why}");
    report(context, wait_again(context, index), deferred.seq, LoopReason::Failed, &message)
}

/// Lets the same time pass once more.
fn wait_again(context: &ExecutionContext, index: usize) -> ExecutionStep {
    change(context, index, |deferred| {
        deferred.state = DeferralState::Waiting;
        deferred.at = micro_time(context.now);
    })
}

fn forget(context: &ExecutionContext, index: usize) -> ExecutionStep {
    let mut deferred = context.status.deferred.clone();
    if index < deferred.len() {
        deferred.remove(index);
    }
    record(context, ExecutionStatus { deferred, ..context.status.clone() })
}

fn change(context: &ExecutionContext, index: usize, change: impl FnOnce(&mut DeferredResize)) -> ExecutionStep {
    let mut status = context.status.clone();
    if let Some(deferred) = status.deferred.get_mut(index) {
        change(deferred);
    }
    record(context, status)
}

/// Adds the message to the outcome of the decision that had sent the resize, unless a later one was begun.
fn report(
    context: &ExecutionContext,
    step: ExecutionStep,
    seq: i64,
    reason: LoopReason,
    message: &str,
) -> ExecutionStep {
    match step {
        ExecutionStep::Record(status) if status.seq == Some(seq) && status.claim.is_none() => {
            let message = Some(message.chars().take(1024).collect());
            record(context, ExecutionStatus { reason: Some(reason), message, ..*status })
        }
        step => step,
    }
}

/// Returns why this pod is not resized now: what would be sent was taken back a short time ago.
pub fn refusal(context: &ExecutionContext, resize: &Resize, pod: &PodResources, to: &Quantities) -> Option<String> {
    let is_alike = |one: &&DeferredResize| {
        one.state == DeferralState::TakenBack
            && (one.resize.part(), one.resize.resource) == (resize.part(), resize.resource)
            && one.pods.contains(&pod.thing.uid)
            && !goal::is_behind(resize.resource, true, to, &one.goal)
    };
    let last = context.status.deferred.iter().rfind(is_alike)?;
    let until = later(last.at.0, REST);
    (until > context.now).then(|| {
        format!(
            "the resize of {} to {} was taken back, since the kubelet deferred it; it is not sent again before {}: add a \
             rung that adds replicas, or make room on the node",
            pod_text(pod),
            quantities_text(&last.goal),
            opening_text(until, context.now)
        )
    })
}

fn pod_text(pod: &PodResources) -> String {
    pod.node_name().map_or_else(|| format!("pod {}", pod.name), |node| format!("pod {} on node {node}", pod.name))
}

fn names_text(names: &[String]) -> String {
    let named = names.get(..NAMED_PODS.min(names.len())).unwrap_or_default().join(", ");
    match names.len().saturating_sub(NAMED_PODS) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
