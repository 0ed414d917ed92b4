//! Closed loops and their children: the objects that a change requeues, and the queries of controllers.
//!
//! A child has the name of its loop, so a loop and its three children share one key.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

use super::{Fact, Indexed, Requeue, World};
use crate::facts::Key;
use crate::owners::is_owned;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::monitoring::Monitoring;

/// A loop with those of its children that exist.
#[derive(Clone, Debug)]
pub struct Family {
    pub parent: Arc<ClosedLoop>,
    pub monitoring: Option<Arc<Monitoring>>,
    pub decision: Option<Arc<Decision>>,
    pub execution: Option<Arc<Execution>>,
}

impl Family {
    /// Whether none of the children exists.
    pub fn is_childless(&self) -> bool {
        self.monitoring.is_none() && self.decision.is_none() && self.execution.is_none()
    }

    /// Drops children that the loop does not own, by uid.
    pub fn own(self) -> Self {
        let uid = self.parent.metadata.uid.clone().unwrap_or_default();
        let ours = |owners: Option<&Vec<OwnerReference>>| is_owned(owners, &uid);
        Self {
            monitoring: self.monitoring.filter(|object| ours(object.metadata.owner_references.as_ref())),
            decision: self.decision.filter(|object| ours(object.metadata.owner_references.as_ref())),
            execution: self.execution.filter(|object| ours(object.metadata.owner_references.as_ref())),
            parent: self.parent,
        }
    }
}

impl Indexed for ClosedLoop {
    /// Requeues the loop. After a change of the spec, also requeues the loops that may conflict with it or share a
    /// chain with it. If the loop was created, deleted or recreated, also requeues its children.
    fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
        let Some(key) = new.or(old).map(|object| object.id().key) else { return Requeue::none() };
        let requeue = if is_another(old, new) { family(&key) } else { Requeue::one::<Self>(key) };
        if old.map(|old| &old.spec) == new.map(|new| &new.spec) {
            return requeue;
        }
        let concerned = [old, new].into_iter().flatten().flat_map(|side| {
            let namespace = side.metadata.namespace.as_deref().unwrap_or_default();
            let others = world.tables.loops.within(namespace);
            others.filter(|other| tunes(other) || other.spec.target.name == side.spec.target.name)
        });
        requeue.and(Requeue::all::<Self>(concerned.map(|other| other.id().key)))
    }
}

macro_rules! children {
    ($($kind:ty => $($reader:ty),*;)*) => {
        $(impl Indexed for $kind {
            /// Requeues the child and its loop, which maintains the child's spec and reports its status. After a change
            /// of the status, also requeues the children that read it.
            fn changed(_world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
                let Some(key) = new.or(old).map(|object| object.id().key) else { return Requeue::none() };
                if is_another(old, new) {
                    return family(&key);
                }
                let requeue = Requeue::one::<Self>(key.clone()).and(Requeue::one::<ClosedLoop>(key.clone()));
                if old.map(|old| &old.status) == new.map(|new| &new.status) {
                    return requeue;
                }
                requeue$(.and(Requeue::one::<$reader>(key.clone())))*
            }
        })*
    };
}
children! {
    Monitoring => Decision;
    Decision => Execution;
    Execution => Decision;
}

/// The loop with this key and its children.
fn family(key: &Key) -> Requeue {
    let children = Requeue::one::<Monitoring>(key.clone()).and(Requeue::one::<Decision>(key.clone()));
    Requeue::one::<ClosedLoop>(key.clone()).and(children).and(Requeue::one::<Execution>(key.clone()))
}

/// Whether the object was created, deleted, marked for deletion or recreated, or its owners changed.
pub(super) fn is_another<K: Resource>(old: Option<&K>, new: Option<&K>) -> bool {
    let essence = |object: &K| {
        let meta = object.meta();
        (meta.uid.clone(), meta.deletion_timestamp.clone(), meta.owner_references.clone())
    };
    old.map(essence) != new.map(essence)
}

/// Whether the target of the loop is another loop.
fn tunes(one: &ClosedLoop) -> bool {
    one.spec.target.kind == "ClosedLoop"
}

impl World {
    /// The loop with this key, with its children.
    pub fn family(&self, key: &Key) -> Option<Family> {
        Some(Family {
            parent: Arc::clone(self.tables.loops.get(key)?),
            monitoring: self.tables.monitorings.get(key).cloned(),
            decision: self.tables.decisions.get(key).cloned(),
            execution: self.tables.executions.get(key).cloned(),
        })
    }

    /// The loops of this namespace whose target has this name.
    pub fn loops_on(&self, namespace: &str, target: &str) -> impl Iterator<Item = Key> {
        let all = self.tables.loops.within(namespace);
        all.filter(move |one| one.spec.target.name == target).map(|one| one.id().key)
    }

    /// The loops of a namespace that affect the assessment of the loop `key`, including itself: loops with a target of
    /// this name, loops that tune another loop, and loops that are tuned. Every reconcile calls it.
    pub fn loops_around(&self, key: &Key, target: &str) -> Vec<Arc<ClosedLoop>> {
        let all = || self.tables.loops.within(&key.namespace);
        let tuned: HashSet<&str> = all().filter(|one| tunes(one)).map(|one| one.spec.target.name.as_str()).collect();
        let matters = |one: &&Arc<ClosedLoop>| {
            let name = one.metadata.name.as_deref().unwrap_or_default();
            tunes(one) || one.spec.target.name == target || name == key.name || tuned.contains(name)
        };
        all().filter(matters).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Identity;
    use crate::world::Origin;
    use serde_json::json;

    fn looped(name: &str, target: &str, version: &str) -> ClosedLoop {
        let value = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop",
            "metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": version},
            "spec": {"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}, "metrics": []},
        });
        serde_json::from_value(value).unwrap()
    }

    fn names(requeue: &Requeue) -> Vec<&str> {
        requeue.of::<ClosedLoop>().map(|key| key.name.as_str()).collect()
    }

    #[test]
    fn who_shares_a_target_is_requeued_when_a_loop_comes_changes_or_goes() {
        let mut loops = World::default();
        loops.apply(looped("a", "web", "1"), Origin::Watch);
        assert_eq!(names(&loops.apply(looped("b", "web", "2"), Origin::Watch)), ["a", "b"]);
        assert_eq!(names(&loops.apply(looped("c", "db", "3"), Origin::Watch)), ["c"]);
        assert_eq!(names(&loops.apply(looped("c", "web", "4"), Origin::Watch)), ["a", "b", "c"]);
        let gone = Identity { key: Key::new("n", "c"), uid: "c".into(), version: "5".into() };
        assert_eq!(names(&loops.remove::<ClosedLoop>(&gone)), ["a", "b", "c"]);
    }

    #[test]
    fn only_what_shares_a_target_or_is_in_a_chain_matters_to_a_loop() {
        let mut loops = World::default();
        for (name, target) in [("a", "web"), ("b", "web"), ("c", "db"), ("d", "queue")] {
            loops.apply(looped(name, target, "1"), Origin::Watch);
        }
        let around = |loops: &World, name: &str, target: &str| {
            let found = loops.loops_around(&Key::new("n", name), target);
            found.iter().map(|one| one.metadata.name.clone().unwrap()).collect::<Vec<String>>()
        };
        assert_eq!(around(&loops, "a", "web"), ["a", "b"]);
        let mut slow = looped("slow", "d", "2");
        slow.spec.target.kind = "ClosedLoop".into();
        loops.apply(slow, Origin::Watch);
        assert_eq!(around(&loops, "c", "db"), ["c", "d", "slow"]);
    }
}
