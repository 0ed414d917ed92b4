//! Other resources for the pods of a workload: which of them are behind, and how far each one is.
//!
//! The claim names the pods with their generations. While a pod's generation is that of the claim nobody has written its
//! spec since, we or others; so one that was set back is never resized a second time by the same decision.

use super::goal;
use super::texts::{quantity_words, words};
use super::types::{Effect, Job, PodChange, PodSeen, ResizeSeen, Stand, Stop, Thing};
use crate::api::closed_loop::action::{Bounds, Resize};
use crate::api::closed_loop::reasons::LoopReason;
use crate::api::execution::{CLAIMED_PODS, Claim, ClaimedPod, Quantities};
use crate::api::scalars::Number;

/// What the pods are to be, from the one that is furthest behind.
pub struct Aim {
    pub was: Quantities,
    pub goal: Quantities,
    pub pods: Vec<ClaimedPod>,
}

/// Chooses the goal, and the pods that are not there yet: at most [`CLAIMED_PODS`], the furthest behind first.
pub fn aim(job: &Job, resize: &Resize, seen: &ResizeSeen, unknown: bool) -> Result<Aim, Stop> {
    let raises = goal::raises(resize)?;
    let mut pods: Vec<(i64, &PodSeen)> = Vec::new();
    for pod in &seen.pods {
        pods.push((goal::counted(resize, chosen(resize, &pod.wants))?, pod));
    }
    pods.sort_by(|(a, one), (b, other)| {
        let far = if raises { a.cmp(b) } else { b.cmp(a) };
        far.then_with(|| one.name.cmp(&other.name))
    });
    let Some((_, last)) = pods.first() else {
        let message = format!("{} has no pod that runs a container {}", words(&job.spec.target), resize.container);
        return Err(Stop::Failed(LoopReason::NotScalable, message));
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
    Ok(Aim { was, goal, pods })
}

/// The part that tells how far behind a pod is.
fn chosen<'a>(resize: &Resize, quantities: &'a Quantities) -> Option<&'a Number> {
    match resize.what.unwrap_or(Bounds::Both) {
        Bounds::Requests => quantities.request.as_ref(),
        Bounds::Limits => quantities.limit.as_ref(),
        Bounds::Both => quantities.request.as_ref().or(quantities.limit.as_ref()),
    }
}

/// What of the pod is to change; none where it is as far as the goal, or farther.
fn change(resize: &Resize, pod: &PodSeen, was: &Quantities, goal: &Quantities) -> Option<PodChange> {
    let to = goal::toward(resize.resource, &pod.wants, was, goal);
    (!goal::alike(resize.resource, &pod.wants, &to)).then(|| PodChange {
        name: pod.name.clone(),
        thing: pod.thing.clone(),
        index: pod.index,
        from: pod.wants.clone(),
        to,
    })
}

/// How the pods stand to the claim.
pub fn stand(job: &Job, claim: &Claim, resize: &Resize, seen: &ResizeSeen) -> Stand {
    let (Some(goal), Some(was)) = (&claim.goal.quantities, &claim.was) else { return Stand::unreadable() };
    if claim.uid.as_deref() != Some(&seen.target.uid) {
        return Stand::Overtaken(format!("{} was made anew", words(&job.spec.target)));
    }
    let mut changes = Vec::new();
    let mut done = Vec::new();
    let mut strange = Vec::new();
    for claimed in &claim.pods {
        let Some(pod) = seen.pods.iter().find(|pod| pod.thing.uid == claimed.uid) else { continue };
        match change(resize, pod, was, goal) {
            None => done.push(pod),
            Some(change) if pod.thing.generation == claimed.generation => changes.push(change),
            Some(_) => strange.push(format!("pod {}", pod.name)),
        }
    }
    if !changes.is_empty() {
        let Resize { container, resource, .. } = resize;
        return Stand::Before(Effect::Resize { pods: changes, container: container.clone(), resource: *resource });
    }
    let mut templated = false;
    if resize.template == Some(true) {
        match template(claim, resize, seen, was, goal) {
            Template::There => templated = true,
            Template::Behind(effect) => return Stand::Before(*effect),
            Template::Strange => strange.push("the pod template".to_owned()),
        }
    }
    if done.is_empty() && !templated {
        let why = match strange.as_slice() {
            [] => "its pods were replaced meanwhile".to_owned(),
            strange => format!("{} changed by somebody else", strange.join(", ")),
        };
        return Stand::Overtaken(format!("{}: {why}", words(&job.spec.target)));
    }
    given(job, resize, &done, &strange, was, goal)
}

/// How far the kubelets are.
fn given(
    job: &Job,
    resize: &Resize,
    pods: &[&PodSeen],
    strange: &[String],
    was: &Quantities,
    goal: &Quantities,
) -> Stand {
    let all = pods.len();
    if let Some((pod, pending)) =
        pods.iter().find_map(|pod| Some((pod, pod.pending.as_ref()?))).filter(|(_, p)| p.refused)
    {
        return Stand::Failed(format!("the kubelet of pod {} does not do it: {}", pod.name, pending.message));
    }
    let has = |pod: &PodSeen| pod.has.as_ref().is_some_and(|has| goal::alike(resize.resource, has, &pod.wants));
    let waiting: Vec<&&PodSeen> = pods.iter().filter(|pod| !has(pod)).collect();
    if let Some(first) = waiting.first() {
        let why = first.pending.as_ref().map(|pending| format!(": {}", pending.message)).unwrap_or_default();
        let (name, done) = (&first.name, all - waiting.len());
        return Stand::Under(format!("{done} of {all} pods have it; pod {name} does not yet{why}"));
    }
    let (before, after) = (quantity_words(was), quantity_words(goal));
    let target = words(&job.spec.target);
    let mut message = format!("changed {} of {target} from {before} to {after} in {all} pods", resize.container);
    match resize.template {
        Some(true) => message.push_str(", and in the template"),
        Some(false) | None => message.push_str("; pods made later begin with what the template says"),
    }
    if !strange.is_empty() {
        message.push_str(&format!("; changed by somebody else: {}", strange.join(", ")));
    }
    Stand::Reached(message)
}

enum Template {
    There,
    Behind(Box<Effect>),
    Strange,
}

fn template(claim: &Claim, resize: &Resize, seen: &ResizeSeen, was: &Quantities, goal: &Quantities) -> Template {
    let Some((index, now)) = &seen.template else { return Template::Strange };
    let to = goal::toward(resize.resource, now, was, goal);
    if goal::alike(resize.resource, now, &to) {
        return Template::There;
    }
    if claim.generation != Some(seen.target.generation) {
        return Template::Strange;
    }
    let target: Thing = seen.target.clone();
    let (container, resource) = (resize.container.clone(), resize.resource);
    Template::Behind(Box::new(Effect::Template { target, index: *index, container, resource, from: now.clone(), to }))
}
