//! Resizes the pods of a workload: chooses the pods and their resources, and observes their progress.
//!
//! The claim contains the pods with their generations. While the generation of a pod is that of the claim, nobody has
//! written its spec since. A pod that somebody changes back is therefore never resized twice by the same decision.
//!
//! Goals count from what the kubelets have carried out, and a pod is not resized further while its kubelet still has to
//! carry out the last resize: otherwise each decision would add to requests of which none has an effect.

use super::texts::{quantities_text, target_text};
use super::types::{
    ClaimProgress, ExecutionContext, ExecutionEffect, NoPlan, ObjectVersion, PendingResize, PodResize, PodResources,
    ResizeTarget,
};
use super::{deferral, goal};
use ganglion_api::closed_loop::action::{Bounds, Resize};
use ganglion_api::closed_loop::metric::ResourceName;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::execution::{CLAIMED_PODS, Claim, ClaimedPod, Quantities};
use ganglion_api::scalars::Number;
use ganglion_core::quantity;

/// Maximum number of different amounts from which a goal is computed.
const STARTS: usize = 16;

/// Resources of the pod that is furthest behind, the goal, and the pods to resize.
pub struct ResizePlan {
    pub was: Quantities,
    pub goal: Quantities,
    pub pods: Vec<ClaimedPod>,
}

/// Computes the goal from the resources of the pod that is furthest behind, and chooses the pods that have not reached
/// it: at most [`CLAIMED_PODS`], the furthest behind first. If none of these can be resized, because of its node or the
/// like, the goal counts from the next pod: one pod must not keep all others small.
pub fn plan(
    context: &ExecutionContext,
    resize: &Resize,
    seen: &ResizeTarget,
    unknown: bool,
) -> Result<ResizePlan, NoPlan> {
    let raises = goal::raises(resize)?;
    let pods = in_order(resize, raises, seen)?;
    let mut rest = pods.as_slice();
    let mut refused = None;
    for _ in 0..STARTS {
        let Some((amount, last)) = rest.first() else { break };
        let was = last.actuated();
        let limited = |other| refused.clone().map_or(other, NoPlan::Limited);
        let goal = goal::quantities(resize, &was, unknown).map_err(limited)?;
        if let (Some(true), true, Some(name)) = (resize.template, raises, &seen.starting) {
            let message = format!("pod {name} does not run yet: the template is not raised before");
            return Err(NoPlan::Failed(LoopReason::ResizePending, message));
        }
        let (behind, refusal) = choose(context, resize, seen, &pods, (&was, &goal));
        if !behind.is_empty() {
            return Ok(ResizePlan { was, goal, pods: behind });
        }
        if let Some((_, pod)) = pods.iter().find(|(_, pod)| is_pending(resize, raises, pod)) {
            return Err(NoPlan::Failed(LoopReason::ResizePending, pending_message(pod)));
        }
        refused = refused.or(refusal);
        rest = rest.iter().position(|(other, _)| other != amount).map_or(&[], |next| &rest[next..]);
    }
    match refused {
        Some(why) => Err(NoPlan::Limited(why)),
        None => Err(no_pods(context, resize)),
    }
}

/// The pods with their amounts, the furthest behind first.
fn in_order<'a>(resize: &Resize, raises: bool, seen: &'a ResizeTarget) -> Result<Vec<(i64, &'a PodResources)>, NoPlan> {
    let mut pods: Vec<(i64, &PodResources)> = Vec::new();
    for pod in &seen.pods {
        pods.push((goal::amount_or_zero(resize, chosen(resize, &pod.actuated()))?, pod));
    }
    pods.sort_by(|(a, one), (b, other)| {
        let far = if raises { a.cmp(b) } else { b.cmp(a) };
        far.then_with(|| one.name.cmp(&other.name))
    });
    Ok(pods)
}

fn no_pods(context: &ExecutionContext, resize: &Resize) -> NoPlan {
    let target = target_text(&context.spec.target);
    let message = match &resize.container {
        Some(container) => format!("{target} has no pod that runs a container {container}"),
        None => format!(
            "{target} has no running pod with resources at pod level: set spec.resources in its pod template, or resize \
             a container"
        ),
    };
    NoPlan::Failed(LoopReason::NotScalable, message)
}

/// Returns the pods that are behind the goal and can be resized, and why the first other one cannot.
fn choose(
    context: &ExecutionContext,
    resize: &Resize,
    seen: &ResizeTarget,
    pods: &[(i64, &PodResources)],
    (was, goal): (&Quantities, &Quantities),
) -> (Vec<ClaimedPod>, Option<String>) {
    let raises = goal::raises(resize).unwrap_or(false);
    let mut behind = Vec::new();
    let mut refusal = None;
    for (_, pod) in pods {
        let Some(PodResize { index, to, .. }) = change(resize, pod, was, goal) else { continue };
        if blocks(resize, raises, pod) {
            continue;
        }
        let of_pod = pod.composition.refusal(&pod.name, index, resize.resource, &to);
        let why = of_pod.or_else(|| below_usage(resize, seen, pod, &to));
        match why.or_else(|| deferral::refusal(context, resize, pod, &to)) {
            Some(why) => refusal = refusal.or(Some(why)),
            None => behind.push(pod),
        }
    }
    let claimed = behind.into_iter().take(CLAIMED_PODS).map(|pod| ClaimedPod {
        name: pod.name.clone(),
        uid: pod.thing.uid.clone(),
        generation: pod.thing.generation,
    });
    (claimed.collect(), refusal)
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

/// Why the memory limit is not lowered to this, if so. A kubelet that lowers a limit below the usage has the pod killed
/// or hangs; it reports Error for the usage that it sees itself, and tries again.
fn below_usage(resize: &Resize, seen: &ResizeTarget, pod: &PodResources, to: &Quantities) -> Option<String> {
    let has = pod.actuated();
    let (from, limit) = (has.limit.as_ref()?, to.limit.as_ref()?);
    let (before, after) = (quantity::bytes(from.as_str()).ok()?, quantity::bytes(limit.as_str()).ok()?);
    if resize.resource != ResourceName::Memory || after >= before {
        return None;
    }
    let (name, from, limit) = (&pod.name, from.as_str(), limit.as_str());
    match pod.usage {
        Some(usage) if usage <= after => None,
        Some(usage) => Some(format!(
            "the memory limit of pod {name} would be {limit}, and it uses {}: a limit below the usage ends its \
             processes; set min above the usage",
            quantity::show_bytes(usage)
        )),
        None => {
            let why = seen.usage_problem.as_deref().unwrap_or("metrics.k8s.io has not measured it");
            Some(format!(
                "the memory limit of pod {name} is not lowered from {from} to {limit}: its usage is unknown: {why}"
            ))
        }
    }
}

/// Describes a pending resize, with the words of the kubelet.
fn pending_message(pod: &PodResources) -> String {
    let (name, wants, has) = (&pod.name, quantities_text(&pod.wants), quantities_text(&pod.actuated()));
    let why = pod.pending.as_ref().map(|pending| format!(": {pending}")).unwrap_or_default();
    let of_node = pod.node_name().map(|node| format!(" of node {node}")).unwrap_or_default();
    format!("the kubelet{of_node} has not resized pod {name} from {has} to {wants} yet{why}")
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
        node: pod.node_name().map(str::to_owned),
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
    let what = resize.container.as_ref().map_or_else(|| "pods".to_owned(), Clone::clone);
    let mut message = format!("changed {what} of {target} from {before} to {after} in {all} pods");
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
