//! The closed loops of one process and their three children, and which loops a change concerns.
//!
//! Apart from the [`World`](super::World) of WorkloadActions, since the two share nothing but how versions are told apart.
//! A child bears its loop's name: namespace and name are the key of all four.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::table::{self, Change, Table};
use super::{Source, Wakes};
use crate::api::closed_loop::ClosedLoop;
use crate::api::decision::Decision;
use crate::api::execution::Execution;
use crate::api::monitoring::Monitoring;
use crate::logic::facts::{Identity, Key};
use crate::logic::world::Fact;

/// A loop, or a child of one.
#[derive(Clone, Debug)]
pub enum LoopObject {
    Loop(Box<ClosedLoop>),
    Monitoring(Box<Monitoring>),
    Decision(Box<Decision>),
    Execution(Box<Execution>),
}

/// The kinds of [`LoopObject`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LoopKind {
    Loop,
    Monitoring,
    Decision,
    Execution,
}

impl LoopKind {
    /// All of them, the parent first.
    pub const ALL: [Self; 4] = [Self::Loop, Self::Monitoring, Self::Decision, Self::Execution];
}

/// A loop with what there is of its children.
#[derive(Clone, Debug)]
pub struct Family {
    pub parent: Arc<ClosedLoop>,
    pub monitoring: Option<Arc<Monitoring>>,
    pub decision: Option<Arc<Decision>>,
    pub execution: Option<Arc<Execution>>,
}

impl Family {
    /// Only what the loop made: a child bears its owner's uid.
    #[must_use]
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

/// Whether one of the owners is the object of this uid.
#[must_use]
pub fn is_owned(owners: Option<&Vec<OwnerReference>>, uid: &str) -> bool {
    owners.is_some_and(|owners| owners.iter().any(|owner| owner.uid == uid))
}

/// Every loop that is known.
#[derive(Debug, Default)]
pub struct Loops {
    loops: Table<ClosedLoop>,
    monitorings: Table<Monitoring>,
    decisions: Table<Decision>,
    executions: Table<Execution>,
}

impl Loops {
    /// Takes in an object that was made or changed, and says which loops should look again.
    pub fn apply(&mut self, object: LoopObject, source: Source) -> Wakes {
        match object {
            LoopObject::Loop(object) => {
                let change = self.loops.put(*object, source);
                self.loop_changed(&change)
            }
            LoopObject::Monitoring(object) => changed(&self.monitorings.put(*object, source)),
            LoopObject::Decision(object) => changed(&self.decisions.put(*object, source)),
            LoopObject::Execution(object) => changed(&self.executions.put(*object, source)),
        }
    }

    /// Takes out an object that is reported deleted.
    pub fn remove(&mut self, kind: LoopKind, id: &Identity) -> Wakes {
        match kind {
            LoopKind::Loop => {
                let change = self.loops.take(id);
                self.loop_changed(&change)
            }
            LoopKind::Monitoring => changed(&self.monitorings.take(id)),
            LoopKind::Decision => changed(&self.decisions.take(id)),
            LoopKind::Execution => changed(&self.executions.take(id)),
        }
    }

    /// Takes in a whole list of one kind, as it was at this version: what is not in it is gone.
    pub fn replace(
        &mut self,
        kind: LoopKind,
        namespace: Option<&str>,
        objects: Vec<LoopObject>,
        version: &str,
    ) -> Wakes {
        let version = Identity { version: version.to_owned(), ..Identity::default() }.order();
        let listed: HashSet<Key> = objects.iter().map(|object| object.id().key).collect();
        let known = match kind {
            LoopKind::Loop => self.loops.identities(),
            LoopKind::Monitoring => self.monitorings.identities(),
            LoopKind::Decision => self.decisions.identities(),
            LoopKind::Execution => self.executions.identities(),
        };
        let mut wakes = Wakes::new();
        for id in table::vanished(known, namespace, &listed, version) {
            wakes.extend(self.remove(kind, &id));
        }
        for object in objects {
            wakes.extend(self.apply(object, Source::Watch));
        }
        wakes
    }

    /// The loop of this name, with its children.
    #[must_use]
    pub fn family(&self, key: &Key) -> Option<Family> {
        Some(Family {
            parent: Arc::clone(self.loops.get(key)?),
            monitoring: self.monitorings.get(key).cloned(),
            decision: self.decisions.get(key).cloned(),
            execution: self.executions.get(key).cloned(),
        })
    }

    /// Every loop of this namespace, by name.
    pub fn within(&self, namespace: &str) -> impl Iterator<Item = &Arc<ClosedLoop>> {
        self.loops.within(namespace)
    }

    /// The loops of one namespace that matter to one of them, itself included: those that act on a target of this name, and
    /// those that tune loops or are tuned. Of many loops these are few, and each pass asks.
    #[must_use]
    pub fn around(&self, key: &Key, target: &str) -> Vec<Arc<ClosedLoop>> {
        let all = || self.loops.within(&key.namespace);
        let tuned: HashSet<&str> = all().filter(|one| tunes(one)).map(|one| one.spec.target.name.as_str()).collect();
        let matters = |one: &&Arc<ClosedLoop>| {
            let name = one.metadata.name.as_deref().unwrap_or_default();
            tunes(one) || one.spec.target.name == target || name == key.name || tuned.contains(name)
        };
        all().filter(matters).cloned().collect()
    }

    /// The keys of all loops.
    #[must_use]
    pub fn keys(&self) -> Wakes {
        self.loops.identities().into_iter().map(|id| id.key).collect()
    }

    /// How many objects of each kind are known.
    #[must_use]
    pub fn counts(&self) -> [(LoopKind, usize); 4] {
        [
            (LoopKind::Loop, self.loops.len()),
            (LoopKind::Monitoring, self.monitorings.len()),
            (LoopKind::Decision, self.decisions.len()),
            (LoopKind::Execution, self.executions.len()),
        ]
    }

    /// The loop itself; where its spec changed, also those that it may be in conflict with, or in one chain.
    fn loop_changed(&self, change: &Change<ClosedLoop>) -> Wakes {
        let mut wakes = changed(change);
        let Some((old, new)) = change.sides() else { return wakes };
        if old.map(|old| &old.spec) == new.map(|new| &new.spec) {
            return wakes;
        }
        for side in [old, new].into_iter().flatten() {
            let key = side.id().key;
            let concerned = self
                .loops
                .within(&key.namespace)
                .filter(|other| tunes(other) || other.spec.target.name == side.spec.target.name);
            wakes.extend(concerned.map(|other| other.id().key));
        }
        wakes
    }
}

/// What it acts on is a loop.
fn tunes(one: &ClosedLoop) -> bool {
    one.spec.target.kind == "ClosedLoop"
}

fn changed<T: Fact>(change: &Change<T>) -> Wakes {
    let Some((old, new)) = change.sides() else { return Wakes::new() };
    new.or(old).map(|object| object.id().key).into_iter().collect()
}

impl LoopObject {
    /// Which object it is.
    #[must_use]
    pub fn id(&self) -> Identity {
        match self {
            Self::Loop(object) => object.id(),
            Self::Monitoring(object) => object.id(),
            Self::Decision(object) => object.id(),
            Self::Execution(object) => object.id(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn looped(name: &str, target: &str, version: &str) -> LoopObject {
        let value = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop",
            "metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": version},
            "spec": {"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}, "metrics": []},
        });
        LoopObject::Loop(Box::new(serde_json::from_value(value).unwrap()))
    }

    fn names(wakes: &Wakes) -> Vec<&str> {
        wakes.iter().map(|key| key.name.as_str()).collect()
    }

    #[test]
    fn who_shares_a_target_is_woken_when_a_loop_comes_changes_or_goes() {
        let mut loops = Loops::default();
        loops.apply(looped("a", "web", "1"), Source::Watch);
        assert_eq!(names(&loops.apply(looped("b", "web", "2"), Source::Watch)), ["a", "b"]);
        assert_eq!(names(&loops.apply(looped("c", "db", "3"), Source::Watch)), ["c"]);
        assert_eq!(names(&loops.apply(looped("c", "web", "4"), Source::Watch)), ["a", "b", "c"]);
        let gone = Identity { key: Key::new("n", "c"), uid: "c".into(), version: "5".into() };
        assert_eq!(names(&loops.remove(LoopKind::Loop, &gone)), ["a", "b", "c"]);
    }

    #[test]
    fn only_what_shares_a_target_or_is_in_a_chain_matters_to_a_loop() {
        let mut loops = Loops::default();
        for (name, target) in [("a", "web"), ("b", "web"), ("c", "db"), ("d", "queue")] {
            loops.apply(looped(name, target, "1"), Source::Watch);
        }
        let around = |loops: &Loops, name: &str, target: &str| {
            let found = loops.around(&Key::new("n", name), target);
            found.iter().map(|one| one.metadata.name.clone().unwrap()).collect::<Vec<String>>()
        };
        assert_eq!(around(&loops, "a", "web"), ["a", "b"]);
        let LoopObject::Loop(mut slow) = looped("slow", "d", "2") else { unreachable!() };
        slow.spec.target.kind = "ClosedLoop".into();
        loops.apply(LoopObject::Loop(slow), Source::Watch);
        assert_eq!(around(&loops, "c", "db"), ["c", "d", "slow"]);
    }

    #[test]
    fn a_list_takes_out_what_it_does_not_name_and_nothing_younger() {
        let mut loops = Loops::default();
        loops.apply(looped("a", "web", "1"), Source::Watch);
        loops.apply(looped("young", "db", "9"), Source::Own);
        loops.replace(LoopKind::Loop, None, vec![looped("b", "web", "2")], "5");
        assert_eq!(names(&loops.keys()), ["b", "young"]);
    }
}
