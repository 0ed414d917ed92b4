//! Resizes the pods of a workload: chooses the pods and their resources, and observes their progress.
//!
//! The claim contains the pods with their generations. While the generation of a pod is that of the claim, nobody has
//! written its spec since. A pod that somebody changes back is therefore never resized twice by the same decision.

use super::goal;
use super::texts::{quantities_text, target_text};
use super::types::{
    ClaimProgress, ExecutionContext, ExecutionEffect, NoPlan, ObjectVersion, PodResize, PodResources, ResizeTarget,
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

/// Computes the goal and chooses the pods that have not reached it: at most [`CLAIMED_PODS`], the furthest behind
/// first.
pub fn plan(
    context: &ExecutionContext,
    resize: &Resize,
    seen: &ResizeTarget,
    unknown: bool,
) -> Result<ResizePlan, NoPlan> {
    let raises = goal::raises(resize)?;
    let mut pods: Vec<(i64, &PodResources)> = Vec::new();
    for pod in &seen.pods {
        pods.push((goal::amount_or_zero(resize, chosen(resize, &pod.wants))?, pod));
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
    let was = last.wants.clone();
    let goal = goal::quantities(resize, &was, unknown)?;
    let behind = pods.iter().filter(|(_, pod)| change(resize, pod, &was, &goal).is_some());
    let claimed = behind.take(CLAIMED_PODS).map(|(_, pod)| ClaimedPod {
        name: pod.name.clone(),
        uid: pod.thing.uid.clone(),
        generation: pod.thing.generation,
    });
    let pods = claimed.collect();
    Ok(ResizePlan { was, goal, pods })
}

/// Returns the quantity by which pods are sorted.
fn chosen<'a>(resize: &Resize, quantities: &'a Quantities) -> Option<&'a Number> {
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
        return ClaimProgress::NotStarted(ExecutionEffect::Resize {
            pods: changes,
            container: container.clone(),
            resource: *resource,
        });
    }
    let mut templated = false;
    if resize.template == Some(true) {
        match template(claim, resize, seen, was, goal) {
            Template::There => templated = true,
            Template::Behind(effect) => return ClaimProgress::NotStarted(*effect),
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
    kubelet_progress(context, resize, &done, &changed_by_others, was, goal)
}

/// Returns the progress of the kubelets.
fn kubelet_progress(
    context: &ExecutionContext,
    resize: &Resize,
    pods: &[&PodResources],
    changed_by_others: &[String],
    was: &Quantities,
    goal: &Quantities,
) -> ClaimProgress {
    let all = pods.len();
    if let Some((pod, pending)) =
        pods.iter().find_map(|pod| Some((pod, pod.pending.as_ref()?))).filter(|(_, p)| p.refused)
    {
        return ClaimProgress::Failed(format!("the kubelet of pod {} refuses it: {}", pod.name, pending.message));
    }
    let has = |pod: &PodResources| {
        pod.has.as_ref().is_some_and(|has| goal::same_quantities(resize.resource, has, &pod.wants))
    };
    let waiting: Vec<&&PodResources> = pods.iter().filter(|pod| !has(pod)).collect();
    if let Some(first) = waiting.first() {
        let why = first.pending.as_ref().map(|pending| format!(": {}", pending.message)).unwrap_or_default();
        let (name, done) = (&first.name, all - waiting.len());
        return ClaimProgress::Running(format!("{done} of {all} pods are resized; pod {name} is not yet{why}"));
    }
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
