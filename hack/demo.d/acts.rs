//! The acts: one action each, as a user would apply it, and what is promised of it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ganglion::api::marks;
use ganglion::api::workload_action::WorkloadAction;
use ganglion::api::workload_action::status::Step;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use testkit::eye::{Eye, Seen};
use testkit::verdict::{Story, pods_of, serves};

use super::judge::{Died, Promise};
use super::narrator::{self, Narrator};
use super::scene::{APP, REPLICAS, Scene, replicas};
use super::screen::Screen;
use super::{TIMEOUT, judge};

/// One act.
pub struct Act {
    pub title: String,
    manifest: String,
    promise: Promise,
}

fn head(name: &str) -> String {
    format!("apiVersion: ganglion.dev/v1alpha1\nkind: WorkloadAction\nmetadata:\n  name: {name}\nspec:\n")
}

fn workload() -> String {
    format!("    workload: {{apiVersion: apps/v1, kind: Deployment, name: {APP}}}\n")
}

/// A replica leaves one node for another.
pub fn move_one(scene: &Scene, seen: &Seen) -> Result<Act> {
    let (_, from) = replicas(seen).into_iter().next().context("there is no replica to move")?;
    let to = scene.free_node(seen, &[&from])?;
    let manifest = format!(
        "{}  move:\n{}    from: {{nodeName: {from}}}   # off this node\n    to: {{nodeName: {to}}}     # to this one\n",
        head("move-one"),
        workload()
    );
    Ok(Act {
        title: format!("move a replica from {from} to {to}"),
        manifest,
        promise: Promise { died: Died::On(from), came: vec![to], replicas: vec![REPLICAS] },
    })
}

/// Two replicas change places.
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
        manifest,
        promise: Promise { died: Died::Named(vec![one, other]), came: vec![here, there], replicas: vec![REPLICAS] },
    })
}

/// The whole application leaves the nodes that it is on, two replicas at a time.
pub fn move_application(scene: &Scene, seen: &Seen) -> Result<Act> {
    let mut old: Vec<String> = replicas(seen).into_iter().map(|(_, node)| node).collect();
    old.dedup();
    let new: Vec<&String> = scene.nodes.iter().filter(|node| !old.contains(node)).take(REPLICAS).collect();
    let to = new.first().copied().cloned().context("there is no node without a replica")?;
    let named: Vec<String> = old.iter().map(|node| format!("'{node}'")).collect();
    let manifest = format!(
        "{}  moveApplication:\n    selector: {{part-of: shop}}\n    from: {{where: \"node.name in [{}]\"}}\n    to: {{nodeName: \
         {to}}}\n    maxParallel: 2         # replicas on their way at once\n",
        head("move-application"),
        named.join(", ")
    );
    Ok(Act {
        title: format!("move the application off {} nodes", old.len()),
        manifest,
        promise: Promise { died: Died::OnAny(old), came: vec![to; REPLICAS], replicas: vec![REPLICAS] },
    })
}

/// One replica more, on a node of our choice.
pub fn create_one(scene: &Scene, seen: &Seen) -> Result<Act> {
    let to = scene.free_node(seen, &[])?;
    let manifest = format!(
        "{}  create:\n{}    to: {{nodeName: {to}}}     # one more replica, here\n",
        head("create-one"),
        workload()
    );
    Ok(Act {
        title: format!("create a replica on {to}"),
        manifest,
        promise: Promise { died: Died::Nobody, came: vec![to], replicas: vec![REPLICAS, REPLICAS + 1] },
    })
}

/// One replica fewer, and this one.
pub fn delete_one(_: &Scene, seen: &Seen) -> Result<Act> {
    // Neither the oldest nor the youngest: no rule of the ReplicaSet's own would choose it.
    let mut pods: Vec<_> = seen.pods.values().collect();
    pods.sort_by_key(|pod| (pod.creation_timestamp(), pod.name_any()));
    let pod = pods.get(1).context("there is no replica to delete")?.name_any();
    let manifest = format!("{}  delete:\n    pod: {{name: {pod}}}   # this one and no other\n", head("delete-one"));
    Ok(Act {
        title: format!("delete replica {pod}"),
        manifest,
        promise: Promise { died: Died::Named(vec![pod]), came: Vec::new(), replicas: vec![REPLICAS + 1, REPLICAS] },
    })
}

impl Act {
    /// Applies the action, shows what happens, and judges it; how much was not as promised.
    pub async fn play(&self, client: &Client, namespace: &str, eye: &Eye, screen: &Screen) -> Result<usize> {
        screen.manifest(&self.manifest);
        let action: WorkloadAction = serde_saphyr::from_str(&self.manifest)?;
        let story = Story::begin(eye, APP);
        let mut narrator = Narrator::new(&eye.now());
        let began = Instant::now();
        Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &action).await?;
        let name = action.name_any();
        let ended = self.watch(eye, screen, &mut narrator, began, |seen| is_over(seen, &name)).await;
        let replicas = self.promise.replicas.last().copied().unwrap_or(REPLICAS);
        // After a failure, too: which pods ended is known only when nothing moves any more.
        let rest = |seen: &Seen| is_at_rest(seen, &name, replicas);
        let rested = self.watch(eye, screen, &mut narrator, began, rest).await;
        screen.rest();
        if !(ended && rested) {
            screen.bad(&format!("  not at an end after {} s; this is how it stands:", TIMEOUT.as_secs()));
        }
        let seen = eye.now();
        Ok(judge::judge(&self.promise, &story.verdict(eye), &seen, seen.actions.get(&name).map(AsRef::as_ref), screen))
    }

    /// Prints what happens until this holds; false if it does not before the timeout.
    async fn watch(
        &self,
        eye: &Eye,
        screen: &Screen,
        narrator: &mut Narrator,
        began: Instant,
        until: impl Fn(&Seen) -> bool,
    ) -> bool {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let seen = eye.now();
            for line in narrator.read_history(&seen) {
                screen.event(began.elapsed(), &line.subject, &line.text, line.tone);
            }
            screen.live(&narrator::picture(screen, &seen, narrator, self.promise.least()));
            if until(&seen) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            let so_far = seen.history.len();
            let news = |seen: &Seen| (seen.history.len() > so_far).then_some(());
            let _ = eye.within(Duration::from_millis(200), "news", news).await;
        }
    }
}

/// The action has ended, one way or the other, and nothing is left to be done for it.
fn is_over(seen: &Seen, name: &str) -> bool {
    let Some(status) = seen.actions.get(name).and_then(|action| action.status.as_ref()) else { return false };
    let slots = status.slots.iter().all(|slot| slot.step.is_end() && slot.step != Step::Queued);
    status.finished_at.is_some() && slots
}

/// Pods as asked for, all Ready, and the operator's hands off everything.
fn is_at_rest(seen: &Seen, name: &str, replicas: usize) -> bool {
    let pods: Vec<_> = pods_of(seen, APP).collect();
    let ledger = seen.deployments.get(APP).is_some_and(|object| object.annotations().contains_key(marks::LEDGER));
    let held = seen.actions.get(name).is_some_and(|action| !action.finalizers().is_empty());
    pods.len() == replicas && pods.iter().all(|pod| serves(pod)) && !ledger && !held
}
