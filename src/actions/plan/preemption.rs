//! Pods that a ReplicaSet creates while a replica is exchanged must not take the place of pods that nobody named.
//!
//! A pod preempts pods of lower priority as soon as no node has room for it, even if it is deleted a moment later. The
//! operator cannot prevent that for a pod that a ReplicaSet creates, so it waits until a node has room. Source of the
//! rules: kube-scheduler's DefaultPreemption.

use serde::Deserialize;

use ganglion_core::facts::{NodeFact, TemplateFact};

use super::fitting::Fitting;
use super::neighbors::Departing;
use super::nodes::Nodes;
use super::scope::Scope;
use super::slot::View;
use super::volumes::BoundVolumes;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Prioritized {
    spec: PriorityOfSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PriorityOfSpec {
    priority_class_name: Option<String>,
    priority: Option<i32>,
}

/// Why the ReplicaSet must not create a pod now; None if a node has room for it, it can preempt nobody, or the action
/// may disrupt.
pub fn danger(view: &View, scope: &Scope) -> Option<String> {
    let ctx = view.ctx;
    if ctx.may_disrupt() {
        return None;
    }
    let priority = priority(view, scope)?;
    // The node that the slot has reserved is for this pod. The old pod still runs.
    let nodes = Nodes::new(ctx.world, ctx.now).without_slot(&view.slot.id);
    let departing = Departing { slot: Some(&view.slot.id), ..Departing::default() };
    let fitting = Fitting::of(nodes, scope, &departing, BoundVolumes::of(ctx.world, scope, ""));
    let gives_way = |node: &NodeFact| ctx.world.priorities(&node.name()).any(|one| one < priority);
    let mut is_danger = false;
    for node in ctx.world.nodes() {
        match fitting.assess(node) {
            Ok(_) => return None,
            // Pods of lower priority there would leave.
            Err(misfit) if misfit.is_by_load() && gives_way(node) => is_danger |= fitting.closed(node).is_none(),
            Err(_) => {}
        }
    }
    is_danger.then(|| {
        "no node has room for the pod that the ReplicaSet creates in between, which would preempt other pods by its \
         priority; free room for one pod, or use disruption: Allowed to accept that"
            .to_owned()
    })
}

/// Priority of new pods of the set, as admission has given it to the others; None if they preempt nobody. Without
/// another pod, a class can have any value.
fn priority(view: &View, scope: &Scope) -> Option<i32> {
    let pods = view.ctx.world.pods_of(&scope.set.id.uid).chain(view.victim);
    let known = pods.map(|pod| (!pod.non_preempting, pod.hold.priority)).max();
    let (preempts, priority) = known.unwrap_or_else(|| (true, of_template(scope.set.template.as_deref())));
    preempts.then_some(priority)
}

fn of_template(template: Option<&TemplateFact>) -> i32 {
    let parsed = template.map(|template| serde_json::from_str::<Prioritized>(&template.json));
    let Some(Ok(Prioritized { spec })) = parsed else { return i32::MAX };
    match spec.priority_class_name.as_deref() {
        None | Some("") => spec.priority.unwrap_or(0),
        Some(_) => i32::MAX,
    }
}
