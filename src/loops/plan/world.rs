//! Closed loops in the [`World`]: the queries of controllers, and the objects that a change requeues.
//!
//! A child has the name of its loop, so a loop and its three children share one key. Loops derive nothing from facts:
//! there are few of them, and each reads few objects.
//!
//! Others may change the spec of a child. The closed-loop controller publishes the specs that follow from the loop, and
//! the controllers of the children do nothing for a child with another spec ([`Family::agreed_execution`] and the
//! like).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use ganglion_api::closed_loop::metric::NodeConfigField;
use ganglion_api::closed_loop::{ClosedLoop, ClosedLoopSpec};
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::marks;
use ganglion_api::monitoring::Monitoring;
use ganglion_api::node_config::NodeConfig;
use ganglion_api::node_config::status::NodeValue;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{AutoscalerFact, HpaFact, Key, NodeFact, ScaledObjectFact, Uid, VpaFact};
use ganglion_core::node_values::means;
use ganglion_core::owners::is_owned;
use ganglion_core::world::{Fact, Follows, Requeue, State, World, is_another};

use crate::children::{Children, is_said};

/// A loop with those of its children that exist.
#[derive(Clone, Debug)]
pub struct Family {
    pub parent: Arc<ClosedLoop>,
    pub monitoring: Option<Arc<Monitoring>>,
    pub decision: Option<Arc<Decision>>,
    pub execution: Option<Arc<Execution>>,
    /// Specs of the children that follow from the loop; None if this process has not assessed the loop yet.
    pub says: Option<Arc<Children>>,
}

impl Family {
    /// Whether none of the children exists.
    pub fn is_childless(&self) -> bool {
        self.monitoring.is_none() && self.decision.is_none() && self.execution.is_none()
    }

    /// Drops children that the loop does not own, by uid.
    pub fn own(self) -> Self {
        let uid = Uid::of(&self.parent.metadata);
        let ours = |owners: Option<&Vec<OwnerReference>>| is_owned(owners, &uid);
        Self {
            monitoring: self.monitoring.filter(|object| ours(object.metadata.owner_references.as_ref())),
            decision: self.decision.filter(|object| ours(object.metadata.owner_references.as_ref())),
            execution: self.execution.filter(|object| ours(object.metadata.owner_references.as_ref())),
            parent: self.parent,
            says: self.says,
        }
    }

    /// The Monitoring, if its spec follows from the loop.
    pub fn agreed_monitoring(&self) -> Option<&Arc<Monitoring>> {
        let says = self.says.as_ref()?;
        self.monitoring.as_ref().filter(|object| is_said(&object.spec, &says.monitoring))
    }

    /// The Decision, if its spec follows from the loop.
    pub fn agreed_decision(&self) -> Option<&Arc<Decision>> {
        let says = self.says.as_ref()?;
        self.decision.as_ref().filter(|object| object.spec == says.decision)
    }

    /// The Execution, if its spec follows from the loop.
    pub fn agreed_execution(&self) -> Option<&Arc<Execution>> {
        let says = self.says.as_ref()?;
        self.execution.as_ref().filter(|object| object.spec == says.execution)
    }
}

/// Queries of the controllers of loops.
pub trait LoopsWorld {
    /// The loop with this key, with its children.
    fn family(&self, key: &Key) -> Option<Family>;

    /// The loops of a namespace that affect the assessment of the loop `key`, including itself: loops with a target of
    /// this name, loops that tune another loop, and loops that are tuned. Every reconcile calls it.
    fn loops_around(&self, key: &Key, target: &str) -> Vec<Arc<ClosedLoop>>;

    /// All autoscalers in this namespace whose target has this name, regardless of the target's kind.
    fn autoscalers_on<'a>(&'a self, namespace: &'a str, target: &'a str) -> impl Iterator<Item = &'a AutoscalerFact>;

    /// Publishes the specs of the children that follow from the loop with this key and uid.
    fn publish_children(&mut self, key: &Key, uid: &Uid, children: &Arc<Children>);
}

impl LoopsWorld for World {
    fn family(&self, key: &Key) -> Option<Family> {
        let parent: &Arc<ClosedLoop> = self.table().get(key)?;
        let published = self.state::<LoopFollower>().children.get(key);
        let says = published.filter(|(uid, _)| *uid == Uid::of(&parent.metadata)).map(|(_, says)| Arc::clone(says));
        Some(Family {
            says,
            parent: Arc::clone(parent),
            monitoring: self.table().get(key).cloned(),
            decision: self.table().get(key).cloned(),
            execution: self.table().get(key).cloned(),
        })
    }

    fn loops_around(&self, key: &Key, target: &str) -> Vec<Arc<ClosedLoop>> {
        let all = || self.table::<ClosedLoop>().within(&key.namespace);
        let tuned: HashSet<&str> = all().filter(|one| tunes(one)).map(|one| one.spec.target.name.as_str()).collect();
        let matters = |one: &&Arc<ClosedLoop>| {
            let name = one.metadata.name.as_deref().unwrap_or_default();
            tunes(one) || one.spec.target.name == target || name == key.name || tuned.contains(name)
        };
        all().filter(matters).cloned().collect()
    }

    fn autoscalers_on<'a>(&'a self, namespace: &'a str, target: &'a str) -> impl Iterator<Item = &'a AutoscalerFact> {
        let scaled_objects = self.within::<ScaledObjectFact>(namespace).map(|fact| &fact.0);
        let hpas = self.within::<HpaFact>(namespace).map(|fact| &fact.0);
        let vpas = self.within::<VpaFact>(namespace).map(|fact| &fact.0);
        scaled_objects.chain(hpas).chain(vpas).filter(move |fact| fact.target.name == target)
    }

    fn publish_children(&mut self, key: &Key, uid: &Uid, children: &Arc<Children>) {
        // The loop may have been deleted meanwhile.
        let exists = self.table::<ClosedLoop>().get(key).is_some_and(|parent| Uid::of(&parent.metadata) == *uid);
        if let Some(follower) = self.state_mut::<LoopFollower>().filter(|_| exists) {
            follower.children.insert(key.clone(), (uid.clone(), Arc::clone(children)));
        }
    }
}

/// Follows the kinds of loops and the kinds that they read.
#[derive(Default)]
struct LoopFollower {
    /// Specs of the children that follow from each loop, with the uid of the loop.
    children: HashMap<Key, (Uid, Arc<Children>)>,
}

impl State for LoopFollower {
    fn empty() -> &'static Self {
        static EMPTY: LazyLock<LoopFollower> = LazyLock::new(LoopFollower::default);
        &EMPTY
    }
}

/// Registers the kinds that loops follow.
pub fn register(world: &mut World) {
    world.follow::<LoopFollower, ClosedLoop>();
    world.follow::<LoopFollower, Monitoring>();
    world.follow::<LoopFollower, Decision>();
    world.follow::<LoopFollower, Execution>();
    world.follow::<LoopFollower, HpaFact>();
    world.follow::<LoopFollower, ScaledObjectFact>();
    world.follow::<LoopFollower, VpaFact>();
    world.follow::<LoopFollower, NodeFact>();
    world.follow::<LoopFollower, NodeConfig>();
    world.follow::<LoopFollower, WorkloadAction>();
}

/// A world that only this product follows.
#[cfg(test)]
pub fn registered() -> World {
    let mut world = World::default();
    register(&mut world);
    world
}

impl Follows<ClosedLoop> for LoopFollower {
    fn update(&mut self, old: Option<&ClosedLoop>, new: Option<&ClosedLoop>) {
        if let (Some(gone), None) = (old, new) {
            self.children.remove(&*gone.key());
        }
    }

    /// Requeues the loop. After a change of the spec, or of the known path of the replicas, also requeues the loops
    /// that may conflict with it or share a chain with it. If the loop was created, deleted or recreated, also requeues
    /// its children.
    fn requeue(world: &World, old: Option<&ClosedLoop>, new: Option<&ClosedLoop>) -> Requeue {
        let Some(key) = new.or(old).map(|object| object.key().into_owned()) else { return Requeue::none() };
        let requeue = if is_another(old, new) { family(&key) } else { Requeue::one::<ClosedLoop>(key) };
        if conflict_parts(old) == conflict_parts(new) {
            return requeue;
        }
        let concerned = [old, new].into_iter().flatten().flat_map(|side| {
            let namespace = side.metadata.namespace.as_deref().unwrap_or_default();
            let others = world.table::<ClosedLoop>().within(namespace);
            others.filter(|other| tunes(other) || other.spec.target.name == side.spec.target.name)
        });
        requeue.and(Requeue::all::<ClosedLoop>(concerned.map(|other| other.key().into_owned())))
    }
}

macro_rules! children {
    ($($kind:ty => $reader:ty;)*) => {
        $(impl Follows<$kind> for LoopFollower {
            /// Requeues the child and its loop, which maintains the child's spec and reports its status. After a change
            /// of the status, also requeues the child that reads it.
            fn requeue(_world: &World, old: Option<&$kind>, new: Option<&$kind>) -> Requeue {
                let Some(key) = new.or(old).map(|object| object.key().into_owned()) else { return Requeue::none() };
                if is_another(old, new) {
                    return family(&key);
                }
                let requeue = Requeue::one::<$kind>(key.clone()).and(Requeue::one::<ClosedLoop>(key.clone()));
                if old.map(|old| &old.status) == new.map(|new| &new.status) {
                    return requeue;
                }
                requeue.and(Requeue::one::<$reader>(key))
            }
        })*
    };
}
children! {
    Monitoring => Decision;
    Decision => Execution;
    Execution => Decision;
}

macro_rules! autoscalers {
    ($($fact:ty),*) => {
        $(impl Follows<$fact> for LoopFollower {
            fn requeue(world: &World, old: Option<&$fact>, new: Option<&$fact>) -> Requeue {
                loops_beside(world, old.map(|fact| &fact.0), new.map(|fact| &fact.0))
            }
        })*
    };
}
autoscalers!(HpaFact, ScaledObjectFact, VpaFact);

impl Follows<NodeFact> for LoopFollower {
    /// Requeues the Monitorings that read the node, unless its heartbeat changed only.
    fn requeue(world: &World, old: Option<&NodeFact>, new: Option<&NodeFact>) -> Requeue {
        if old.zip(new).is_some_and(|(old, new)| old.is_selected_like(new)) {
            return Requeue::none();
        }
        readers(world, |_, source| {
            [old, new].into_iter().flatten().any(|side| means(source, &side.name(), &side.labels))
        })
    }
}

impl Follows<NodeConfig> for LoopFollower {
    /// Requeues the Monitorings that read NodeConfigs of the namespace, if a value changed.
    fn requeue(world: &World, old: Option<&NodeConfig>, new: Option<&NodeConfig>) -> Requeue {
        let Some(config) = new.or(old).filter(|_| !have_same_values(old, new)) else { return Requeue::none() };
        let namespace = config.metadata.namespace.as_deref().unwrap_or_default();
        readers(world, |own, source| source.namespace.as_deref().unwrap_or(own) == namespace)
    }
}

impl Follows<WorkloadAction> for LoopFollower {
    /// Requeues the Execution that created the action and waits for its end.
    fn requeue(_world: &World, old: Option<&WorkloadAction>, new: Option<&WorkloadAction>) -> Requeue {
        let is_ended =
            |action: &&WorkloadAction| action.status.as_ref().is_some_and(|status| status.finished_at.is_some());
        let ended = if new.is_some() { new.filter(is_ended) } else { old };
        Requeue::all::<Execution>(ended.and_then(loop_of))
    }
}

/// The loop with this key and its children.
fn family(key: &Key) -> Requeue {
    Requeue::one::<ClosedLoop>(key.clone()).and(children_of(key))
}

/// The children of the loop with this key.
pub fn children_of(key: &Key) -> Requeue {
    let requeue = Requeue::one::<Monitoring>(key.clone()).and(Requeue::one::<Decision>(key.clone()));
    requeue.and(Requeue::one::<Execution>(key.clone()))
}

/// The loops with the same target as the autoscaler, since their conflicts may have changed.
fn loops_beside(world: &World, old: Option<&AutoscalerFact>, new: Option<&AutoscalerFact>) -> Requeue {
    if old.map(|fact| (&fact.target, &fact.controls)) == new.map(|fact| (&fact.target, &fact.controls)) {
        return Requeue::none();
    }
    let loops = [old, new].into_iter().flatten().flat_map(|fact| {
        let loops = world.table::<ClosedLoop>().within(&fact.id.key.namespace);
        loops.filter(|one| one.spec.target.name == fact.target.name)
    });
    Requeue::all::<ClosedLoop>(loops.map(|one| one.key().into_owned()))
}

/// The Monitorings with a source `nodeConfig` for which `is_like` is true. Its first argument is the namespace of the
/// Monitoring.
fn readers(world: &World, is_like: impl Fn(&str, &NodeConfigField) -> bool) -> Requeue {
    let reads = |key: &Key, object: &Monitoring| {
        let mut sources = object.spec.metrics.iter().filter_map(|metric| metric.source.node_config.as_ref());
        sources.any(|source| is_like(&key.namespace, source))
    };
    let monitorings = world.table::<Monitoring>().iter().filter(|(key, object)| reads(key, object));
    Requeue::all::<Monitoring>(monitorings.map(|(key, _)| key.clone()))
}

/// Whether both have the same values. A value that was only confirmed does not count as a change.
fn have_same_values(old: Option<&NodeConfig>, new: Option<&NodeConfig>) -> bool {
    let values = |config: Option<&NodeConfig>| {
        NodeValue::ALL.map(|value| {
            let reading = config.and_then(|config| config.status.as_ref()?.reading(value));
            reading.map(|reading| (reading.value.clone(), reading.stale))
        })
    };
    values(old) == values(new)
}

/// The loop that created the action.
fn loop_of(action: &WorkloadAction) -> Option<Key> {
    let name = action.metadata.labels.as_ref()?.get(marks::LOOP)?;
    Some(Key::new(action.metadata.namespace.clone().unwrap_or_default(), name.clone()))
}

/// Parts of a loop on which its conflicts with others depend.
fn conflict_parts(one: Option<&ClosedLoop>) -> Option<(&ClosedLoopSpec, Option<&str>)> {
    one.map(|one| (&one.spec, one.status.as_ref().and_then(|status| status.replicas_path.as_deref())))
}

/// Whether the target of the loop is another loop.
fn tunes(one: &ClosedLoop) -> bool {
    one.spec.target.kind == "ClosedLoop"
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganglion_api::monitoring::MonitoringSpec;
    use ganglion_core::facts::Identity;
    use ganglion_core::world::Origin;
    use serde_json::{Value, json};

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
        let mut loops = registered();
        loops.apply(looped("a", "web", "1"), Origin::Watch);
        assert_eq!(names(&loops.apply(looped("b", "web", "2"), Origin::Watch)), ["a", "b"]);
        assert_eq!(names(&loops.apply(looped("c", "db", "3"), Origin::Watch)), ["c"]);
        assert_eq!(names(&loops.apply(looped("c", "web", "4"), Origin::Watch)), ["a", "b", "c"]);
        let gone = Identity { key: Key::new("n", "c"), uid: "c".into(), version: "5".into() };
        assert_eq!(names(&loops.remove::<ClosedLoop>(&gone)), ["a", "b", "c"]);
    }

    #[test]
    fn only_what_shares_a_target_or_is_in_a_chain_matters_to_a_loop() {
        let mut loops = registered();
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

    #[test]
    fn a_child_counts_while_its_spec_is_what_the_loop_says() {
        let mut loops = registered();
        let key = Key::new("n", "a");
        loops.apply(looped("a", "web", "1"), Origin::Watch);
        let monitoring = |account: Option<&str>, version: &str| {
            let owners = json!([{"apiVersion": "v1", "kind": "ClosedLoop", "name": "a", "uid": "a"}]);
            let value = json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "Monitoring",
                "metadata": {"namespace": "n", "name": "a", "uid": "m", "resourceVersion": version,
                    "ownerReferences": owners},
                "spec": {"serviceAccountName": account, "sample": {"time": "t", "values": {}}},
            });
            serde_json::from_value::<Monitoring>(value).unwrap()
        };
        loops.apply(monitoring(None, "2"), Origin::Watch);
        let agreed = |loops: &World| loops.family(&key).unwrap().own().agreed_monitoring().is_some();
        assert!(!agreed(&loops), "the loop has not been assessed yet");
        let says = |account: Option<&str>| {
            let monitoring = MonitoringSpec { service_account_name: account.map(str::to_owned), ..Default::default() };
            Arc::new(Children { monitoring, decision: Default::default(), execution: Default::default() })
        };
        loops.publish_children(&key, &"another".into(), &says(None));
        assert!(!agreed(&loops), "another loop of this name");
        loops.publish_children(&key, &"a".into(), &says(None));
        assert!(agreed(&loops), "a sample belongs to its sender");
        loops.apply(monitoring(Some("admin"), "3"), Origin::Watch);
        assert!(!agreed(&loops), "somebody has changed the account");
        loops.publish_children(&key, &"a".into(), &says(Some("admin")));
        assert!(agreed(&loops));
        let gone = Identity { key: key.clone(), uid: "a".into(), version: "4".into() };
        let _ = loops.remove::<ClosedLoop>(&gone);
        assert!(loops.state::<LoopFollower>().children.is_empty());
    }

    fn monitorings(requeue: &Requeue) -> Vec<&str> {
        requeue.of::<Monitoring>().map(|key| key.name.as_str()).collect()
    }

    #[test]
    fn a_value_requeues_who_reads_it() {
        let mut world = registered();
        let node = |name: &str, version: u64| NodeFact {
            id: Identity { key: Key::new("", name), uid: name.into(), version: version.to_string() },
            ..NodeFact::default()
        };
        world.apply(node("n1", 4), Origin::Watch);
        let reader = |name: &str, source: Value| {
            let value = json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "Monitoring",
                "metadata": {"namespace": "m", "name": name, "uid": name, "resourceVersion": "1"},
                "spec": {"metrics": [{"name": "a", "source": source}]},
            });
            serde_json::from_value::<Monitoring>(value).unwrap()
        };
        let field =
            |namespace: Value| json!({"nodeConfig": {"nodeName": "n1", "field": "cpu", "namespace": namespace}});
        world.apply(reader("elsewhere", field(json!("n"))), Origin::Watch);
        world.apply(reader("here", field(json!(null))), Origin::Watch);
        world.apply(reader("pushed", json!({"push": {}})), Origin::Watch);
        let mut config: NodeConfig = serde_json::from_value(json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig",
            "metadata": {"namespace": "n", "name": "a-n1", "uid": "a-n1", "resourceVersion": "5"},
            "spec": {"nodeName": "n1"},
        }))
        .unwrap();
        let reading = |value: &str| Some(serde_json::from_value(json!({"value": value})).unwrap());
        config.status.get_or_insert_default().cpu = reading("1");
        assert_eq!(monitorings(&world.apply(config.clone(), Origin::Watch)), ["elsewhere"]);
        config.metadata.resource_version = Some("6".into());
        config.status.get_or_insert_default().observed_generation = Some(2);
        assert!(monitorings(&world.apply(config.clone(), Origin::Watch)).is_empty(), "the same value");
        config.metadata.resource_version = Some("7".into());
        config.status.get_or_insert_default().cpu = reading("2");
        assert_eq!(monitorings(&world.apply(config.clone(), Origin::Watch)), ["elsewhere"]);
        let zone = json!({"nodeConfig": {"nodeSelector": {"zone": "a"}, "field": "cpu"}});
        world.apply(reader("zone", zone), Origin::Watch);
        let mut changed = node("n1", 8);
        for (zone, version, expected) in [
            ("b", "8", ["elsewhere", "here"].as_slice()),
            ("a", "9", &["elsewhere", "here", "zone"]),
            ("c", "10", &["elsewhere", "here", "zone"]),
        ] {
            changed.labels.insert("zone".into(), zone.into());
            changed.id.version = version.into();
            assert_eq!(monitorings(&world.apply(changed.clone(), Origin::Watch)), expected, "{zone}");
        }
        let mut other = node("n2", 11);
        other.labels.insert("zone".into(), "a".into());
        assert_eq!(monitorings(&world.apply(other, Origin::Watch)), ["zone"]);
    }
}
