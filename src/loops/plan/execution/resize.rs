//! Resizes the pods of a workload: chooses the pods and their resources, and observes their progress.
//!
//! The claim contains the pods with their generations. While the generation of a pod is that of the claim, nobody has
//! written its spec since. A pod that somebody changes back is therefore never resized twice by the same decision.
//!
//! Goals count from what the kubelets have carried out, and a pod is not resized further while its kubelet still has to
//! carry out the last resize: otherwise each decision would add to requests of which none has an effect.

use super::goal;
use super::texts::{quantities_text, target_text};
use super::types::{
    ClaimProgress, ExecutionContext, ExecutionEffect, NoPlan, ObjectVersion, PendingResize, PodResize, PodResources,
    ResizeTarget,
};
use ganglion_api::closed_loop::action::{Bounds, Resize};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::execution::{CLAIMED_PODS, Claim, ClaimedPod, Quantities};
use ganglion_api::scalars::Number;

/// Resources of the pod that is furthest behind, the goal, and the pods to resize.
pub struct ResizePlan {
    pub was: Quantities,
    pub goal: Quantities,
    pub pods: Vec<ClaimedPod>,
}

/// Computes the goal from the resources of the pod that is furthest behind, and chooses the pods that have not reached
/// it: at most [`CLAIMED_PODS`], the furthest behind first.
pub fn plan(
    context: &ExecutionContext,
    resize: &Resize,
    seen: &ResizeTarget,
    unknown: bool,
) -> Result<ResizePlan, NoPlan> {
    let raises = goal::raises(resize)?;
    let mut pods: Vec<(i64, &PodResources)> = Vec::new();
    for pod in &seen.pods {
        pods.push((goal::amount_or_zero(resize, chosen(resize, &pod.actuated()))?, pod));
    }
    pods.sort_by(|(a, one), (b, other)| {
        let far = if raises { a.cmp(b) } else { b.cmp(a) };
        far.then_with(|| one.name.cmp(&other.name))
    });
    let Some((_, last)) = pods.first() else {
        let message =
            format!("{} has no pod that runs a container {}", target_text(&context.spec.target), resize.container);
        return Err(NoPlan::Failed(LoopReason::NotScalable, message));
    };
    let was = last.actuated();
    let goal = goal::quantities(resize, &was, unknown)?;
    if let (Some(true), true, Some(name)) = (resize.template, raises, &seen.starting) {
        let message = format!("pod {name} does not run yet: the template is not raised before");
        return Err(NoPlan::Failed(LoopReason::ResizePending, message));
    }
    let mut behind = Vec::new();
    let mut refusal = None;
    for (_, pod) in &pods {
        let Some(PodResize { index, to, .. }) = change(resize, pod, &was, &goal) else { continue };
        if blocks(resize, raises, pod) {
            continue;
        }
        match pod.composition.refusal(&pod.name, index, resize.resource, &to) {
            Some(why) => refusal = refusal.or(Some(why)),
            None => behind.push(pod),
        }
    }
    if behind.is_empty() {
        if let Some((_, pod)) = pods.iter().find(|(_, pod)| is_pending(resize, raises, pod)) {
            return Err(NoPlan::Failed(LoopReason::ResizePending, pending_message(pod)));
        }
        if let Some(why) = refusal {
            return Err(NoPlan::Limited(why));
        }
    }
    let claimed = behind.into_iter().take(CLAIMED_PODS).map(|pod| ClaimedPod {
        name: pod.name.clone(),
        uid: pod.thing.uid.clone(),
        generation: pod.thing.generation,
    });
    let pods = claimed.collect();
    Ok(ResizePlan { was, goal, pods })
}

/// Whether the pod's kubelet still has to carry out a resize that this rung would add to. Kubelets resize a pod as a
/// whole, so a pending resize of another resource counts. A pending resize in the other direction does not: this rung
/// takes it back.
fn is_pending(resize: &Resize, raises: bool, pod: &PodResources) -> bool {
    let has = pod.actuated();
    let is_behind = |raises| goal::is_behind(resize.resource, raises, &has, &pod.wants);
    is_behind(raises) || (raises && pod.pending.is_some() && !is_behind(false))
}

/// Whether a pending resize prevents a further one. A kubelet that has failed takes a new goal instead of the last one;
/// goals count from what it has carried out.
fn blocks(resize: &Resize, raises: bool, pod: &PodResources) -> bool {
    is_pending(resize, raises, pod) && !pod.pending.as_ref().is_some_and(PendingResize::is_retried)
}

/// Describes a pending resize, with the words of the kubelet.
fn pending_message(pod: &PodResources) -> String {
    let (name, wants, has) = (&pod.name, quantities_text(&pod.wants), quantities_text(&pod.actuated()));
    let why = pod.pending.as_ref().map(|pending| format!(": {pending}")).unwrap_or_default();
    format!("the kubelet has not resized pod {name} from {has} to {wants} yet{why}")
}

/// Returns the quantity by which pods are sorted, and reverted changes of the template are noticed.
pub fn chosen<'a>(resize: &Resize, quantities: &'a Quantities) -> Option<&'a Number> {
    match resize.what.unwrap_or(Bounds::Both) {
        Bounds::Requests => quantities.request.as_ref(),
        Bounds::Limits => quantities.limit.as_ref(),
        Bounds::Both => quantities.request.as_ref().or(quantities.limit.as_ref()),
    }
}

/// Returns the change of this pod; None if it has reached the goal.
fn change(resize: &Resize, pod: &PodResources, was: &Quantities, goal: &Quantities) -> Option<PodResize> {
    let to = goal::moved_toward(resize.resource, &pod.wants, was, goal);
    (!goal::same_quantities(resize.resource, &pod.wants, &to)).then(|| PodResize {
        name: pod.name.clone(),
        node: pod.composition.node.as_ref().map(|node| node.name.clone()),
        thing: pod.thing.clone(),
        index: pod.index,
        from: pod.wants.clone(),
        to,
    })
}

/// Returns the progress of the claim.
pub fn progress(context: &ExecutionContext, claim: &Claim, resize: &Resize, seen: &ResizeTarget) -> ClaimProgress {
    let (Some(goal), Some(was)) = (&claim.goal.quantities, &claim.was) else { return ClaimProgress::tampered() };
    if goal::quantities(resize, was, false).as_ref() != Ok(goal) {
        return ClaimProgress::tampered();
    }
    if claim.uid.as_ref() != Some(&seen.target.uid) {
        return ClaimProgress::Overtaken(format!("{} was recreated", target_text(&context.spec.target)));
    }
    let mut changes = Vec::new();
    let mut done = Vec::new();
    let mut changed_by_others = Vec::new();
    for claimed in &claim.pods {
        let Some(pod) = seen.pods.iter().find(|pod| pod.thing.uid == claimed.uid) else { continue };
        match change(resize, pod, was, goal) {
            None => done.push(pod),
            Some(change) if pod.thing.generation == claimed.generation => changes.push(change),
            Some(_) => changed_by_others.push(format!("pod {}", pod.name)),
        }
    }
    if !changes.is_empty() {
        let Resize { container, resource, .. } = resize;
        return ClaimProgress::NotStarted(Box::new(ExecutionEffect::Resize {
            pods: changes,
            container: container.clone(),
            resource: *resource,
        }));
    }
    if let Some(waiting) = kubelet_progress(resize, &done) {
        return waiting;
    }
    let mut templated = false;
    if resize.template == Some(true) {
        match template(claim, resize, seen, was, goal) {
            Template::There => templated = true,
            Template::Behind(effect) => return ClaimProgress::NotStarted(effect),
            Template::ChangedByOthers => changed_by_others.push("the pod template".to_owned()),
        }
    }
    if done.is_empty() && !templated {
        let why = match changed_by_others.as_slice() {
            [] => "its pods were replaced in the meantime".to_owned(),
            changed_by_others => format!("{} changed by somebody else", changed_by_others.join(", ")),
        };
        return ClaimProgress::Overtaken(format!("{}: {why}", target_text(&context.spec.target)));
    }
    let all = done.len();
    let (before, after) = (quantities_text(was), quantities_text(goal));
    let target = target_text(&context.spec.target);
    let mut message = format!("changed {} of {target} from {before} to {after} in {all} pods", resize.container);
    match resize.template {
        Some(true) => message.push_str(", and in the template"),
        Some(false) | None => message.push_str("; new pods start with the resources of the template"),
    }
    if !changed_by_others.is_empty() {
        message.push_str(&format!("; changed by somebody else: {}", changed_by_others.join(", ")));
    }
    ClaimProgress::Done(message)
}

/// Returns the progress of the kubelets; None if they have carried out the resize of these pods.
fn kubelet_progress(resize: &Resize, pods: &[&PodResources]) -> Option<ClaimProgress> {
    let refused = |pod: &&&PodResources| pod.pending.as_ref().is_some_and(PendingResize::is_refused);
    if let Some(pod) = pods.iter().find(refused) {
        return Some(ClaimProgress::Failed(pending_message(pod)));
    }
    let has = |pod: &PodResources| {
        pod.has.as_ref().is_some_and(|has| goal::same_quantities(resize.resource, has, &pod.wants))
    };
    let waiting: Vec<&&PodResources> = pods.iter().filter(|pod| !has(pod)).collect();
    let first = waiting.first()?;
    let (all, done) = (pods.len(), pods.len() - waiting.len());
    Some(ClaimProgress::Running(format!("{done} of {all} pods are resized; {}", pending_message(first))))
}

enum Template {
    There,
    Behind(Box<ExecutionEffect>),
    ChangedByOthers,
}

fn template(claim: &Claim, resize: &Resize, seen: &ResizeTarget, was: &Quantities, goal: &Quantities) -> Template {
    let Some((index, now)) = &seen.template else { return Template::ChangedByOthers };
    let to = goal::moved_toward(resize.resource, now, was, goal);
    if goal::same_quantities(resize.resource, now, &to) {
        return Template::There;
    }
    if claim.generation != Some(seen.target.generation) {
        return Template::ChangedByOthers;
    }
    let target: ObjectVersion = seen.target.clone();
    let (container, resource) = (resize.container.clone(), resize.resource);
    Template::Behind(Box::new(ExecutionEffect::Template {
        target,
        index: *index,
        container,
        resource,
        from: now.clone(),
        to,
    }))
}
