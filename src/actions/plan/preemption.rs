//! Pods that a ReplicaSet creates while a replica is exchanged must not take the place of pods that nobody named.
//!
//! A pod with a priority preempts others as soon as no node has room for it, even if it is deleted a moment later. The
//! operator cannot prevent that for a pod that a ReplicaSet creates, so it waits until a node has room.

use serde::Deserialize;

use ganglion_core::facts::TemplateFact;

use super::nodes::Nodes;
use super::scope::Scope;
use super::slot::View;

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
    preemption_policy: Option<String>,
}

/// Why the ReplicaSet must not create a pod now; None if the pod can preempt nobody, or the action may disrupt.
pub fn danger(view: &View, scope: &Scope) -> Option<String> {
    let ctx = view.ctx;
    let template = scope.set.template.as_deref().filter(|template| may_preempt(template))?;
    if ctx.may_disrupt() {
        return None;
    }
    // The node that the slot has reserved is for this pod.
    let nodes = Nodes::new(ctx.world, ctx.now).without_slot(&view.slot.id);
    if ctx.world.nodes().any(|node| nodes.assess(node, Some(template)).is_ok()) {
        return None;
    }
    Some(
        "no node has room for the pod that the ReplicaSet creates in between, which would preempt other pods by its \
         priority; free room for one pod, or use disruption: Allowed to accept that"
            .to_owned(),
    )
}

/// Whether the scheduler may preempt other pods for pods of the template. The names of the classes do not tell their
/// values, so each class counts.
fn may_preempt(template: &TemplateFact) -> bool {
    let Ok(Prioritized { spec }) = serde_json::from_str(&template.json) else { return true };
    let is_prioritized =
        spec.priority_class_name.is_some_and(|name| !name.is_empty()) || spec.priority.is_some_and(|value| value > 0);
    is_prioritized && spec.preemption_policy.as_deref() != Some("Never")
}
