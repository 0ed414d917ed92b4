//! The acts of the demo: each is one user request, with the result that the demo promises.

use anyhow::{Context, Result};
use kube::ResourceExt;
use testkit::eye::Seen;

use super::judge::{Came, Died, Promise};
use super::scene::{APP, REPLICAS, Scene, replicas};

pub struct Act {
    pub title: String,
    pub deed: Deed,
    pub promise: Promise,
}

/// User request of an act.
pub enum Deed {
    /// Applies the manifest of a WorkloadAction.
    Apply(String),
    /// Drains the node, then uncordons it.
    Drain(String),
}

fn head(name: &str) -> String {
    format!("apiVersion: ganglion.dev/v1alpha1\nkind: WorkloadAction\nmetadata:\n  name: {name}\nspec:\n")
}

fn workload() -> String {
    format!("    workload: {{apiVersion: apps/v1, kind: Deployment, name: {APP}}}\n")
}

/// Moves a replica to another node.
pub fn move_one(scene: &Scene, seen: &Seen) -> Result<Act> {
    let (_, from) = replicas(seen).into_iter().next().context("there is no replica to move")?;
    let to = scene.free_node(seen, &[&from])?;
    let manifest = format!(
        "{}  move:\n{}    from: {{nodeName: {from}}}   # leaves this node\n    to: {{nodeName: {to}}}     # for this one\n",
        head("move-one"),
        workload()
    );
    Ok(Act {
        title: format!("move a replica from {from} to {to}"),
        deed: Deed::Apply(manifest),
        promise: Promise { died: Died::On(from), came: Came::On(vec![to]), replicas: vec![REPLICAS] },
    })
}

/// Swaps the nodes of two replicas.
pub fn swap_two(_: &Scene, seen: &Seen) -> Result<Act> {
    let all = replicas(seen);
    let (one, here) = all.first().cloned().context("there is no replica to swap")?;
    let (other, there) = all.into_iter().find(|(_, node)| *node != here).context("all replicas are on one node")?;
    let manifest = format!(
        "{}  swap:\n    replica: {{pod: {{name: {one}}}}}   # on {here}\n    with: [{{pod: {{name: {other}}}}}]   # on {there}\n",
        head("swap-two")
    );
    Ok(Act {
        title: format!("swap two replicas, on {here} and on {there}"),
        deed: Deed::Apply(manifest),
        promise: Promise {
            died: Died::Named(vec![one, other]),
            came: Came::On(vec![here, there]),
            replicas: vec![REPLICAS],
        },
    })
}

/// Moves the whole application off its nodes, two replicas at a time.
pub fn move_application(scene: &Scene, seen: &Seen) -> Result<Act> {
    let mut old: Vec<String> = replicas(seen).into_iter().map(|(_, node)| node).collect();
    old.dedup();
    let new: Vec<&String> = scene.nodes.iter().filter(|node| !old.contains(node)).take(REPLICAS).collect();
    let to = new.first().copied().cloned().context("there is no node without a replica")?;
    let named: Vec<String> = old.iter().map(|node| format!("'{node}'")).collect();
    let manifest = format!(
        "{}  moveApplication:\n    selector: {{part-of: shop}}\n    from: {{where: \"node.name in [{}]\"}}\n    to: {{nodeName: \
         {to}}}\n    maxParallel: 2         # replicas moved at the same time\n",
        head("move-application"),
        named.join(", ")
    );
    Ok(Act {
        title: format!("move the application off {} nodes", old.len()),
        deed: Deed::Apply(manifest),
        promise: Promise { died: Died::OnAny(old), came: Came::On(vec![to; REPLICAS]), replicas: vec![REPLICAS] },
    })
}

/// Adds a replica on a chosen node.
pub fn create_one(scene: &Scene, seen: &Seen) -> Result<Act> {
    let to = scene.free_node(seen, &[])?;
    let manifest = format!(
        "{}  create:\n{}    to: {{nodeName: {to}}}     # one more replica, here\n",
        head("create-one"),
        workload()
    );
    Ok(Act {
        title: format!("create a replica on {to}"),
        deed: Deed::Apply(manifest),
        promise: Promise { died: Died::Nobody, came: Came::On(vec![to]), replicas: vec![REPLICAS, REPLICAS + 1] },
    })
}

/// Deletes a chosen replica.
pub fn delete_one(_: &Scene, seen: &Seen) -> Result<Act> {
    // Picks neither the oldest nor the youngest pod: no rule of the ReplicaSet would choose it.
    let mut pods: Vec<_> = seen.pods.values().collect();
    pods.sort_by_key(|pod| (pod.creation_timestamp(), pod.name_any()));
    let pod = pods.get(1).context("there is no replica to delete")?.name_any();
    let manifest = format!("{}  delete:\n    pod: {{name: {pod}}}   # this pod and no other\n", head("delete-one"));
    Ok(Act {
        title: format!("delete replica {pod}"),
        deed: Deed::Apply(manifest),
        promise: Promise {
            died: Died::Named(vec![pod]),
            came: Came::On(Vec::new()),
            replicas: vec![REPLICAS + 1, REPLICAS],
        },
    })
}

/// Drains a node, then uncordons it.
pub fn drain_node(_: &Scene, seen: &Seen) -> Result<Act> {
    let all = replicas(seen);
    let (_, node) = all.first().cloned().context("there is no replica")?;
    let there = all.iter().filter(|(_, on)| *on == node).count();
    Ok(Act {
        title: format!("drain {node}, then uncordon it"),
        promise: Promise {
            died: Died::OnAny(vec![node.clone()]),
            came: Came::Off(node.clone(), there),
            replicas: vec![REPLICAS],
        },
        deed: Deed::Drain(node),
    })
}
