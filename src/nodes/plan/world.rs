//! NodeConfigs and their templates in the [`World`]: the queries of controllers, and the objects that a change
//! requeues.
//!
//! A heartbeat of a node requeues nothing: NodeConfigs depend only on its labels, its addresses and its existence.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use kube::Resource;

use ganglion_api::node_config::{NodeConfig, NodeConfigTemplate};
use ganglion_core::facts::{Key, NodeFact, Owner, Selector, Uid};
use ganglion_core::world::{Fact, Follows, KeysBy, Requeue, State, World, is_another};

/// Version of the inputs from which the NodeConfigs of a template are made. It changes when a node is added or removed
/// or its labels or addresses change, and when one of the NodeConfigs is added, removed or changed, except in its
/// status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edition {
    /// Changes with any node.
    pub nodes: u64,
    /// Changes with the NodeConfigs of the template.
    pub configs: u64,
    /// Changes when any NodeConfig is deleted or its owners change: its name may become available.
    pub names: u64,
}

/// Queries of the controllers of NodeConfigs and templates.
pub trait NodesWorld {
    /// The NodeConfigs that the template with this uid controls, by key.
    fn node_configs_by<'a>(&'a self, template: &Uid) -> impl Iterator<Item = &'a Arc<NodeConfig>> + use<'a, Self>;

    /// The current version of the inputs of the NodeConfigs of the template with this uid.
    fn edition(&self, template: &Uid) -> Edition;
}

impl NodesWorld for World {
    fn node_configs_by<'a>(&'a self, template: &Uid) -> impl Iterator<Item = &'a Arc<NodeConfig>> + use<'a> {
        self.state::<NodeIndex>().of_template.of(template).filter_map(|key| self.table().get(key))
    }

    fn edition(&self, template: &Uid) -> Edition {
        let NodeIndex { nodes, configs, names, .. } = self.state();
        Edition { nodes: *nodes, configs: configs.get(template).copied().unwrap_or(0), names: *names }
    }
}

/// Derived from nodes and NodeConfigs.
#[derive(Default)]
struct NodeIndex {
    /// NodeConfigs, by the uid of the template.
    of_template: KeysBy<Uid>,
    /// Incremented with each change, so that an edition never repeats.
    clock: u64,
    nodes: u64,
    /// By the uid of the template.
    configs: HashMap<Uid, u64>,
    names: u64,
}

impl State for NodeIndex {
    fn empty() -> &'static Self {
        static EMPTY: LazyLock<NodeIndex> = LazyLock::new(NodeIndex::default);
        &EMPTY
    }
}

impl NodeIndex {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

/// Registers the kinds that NodeConfigs and their templates follow.
pub fn register(world: &mut World) {
    world.follow::<NodeIndex, NodeFact>();
    world.follow::<NodeIndex, NodeConfig>();
    world.follow::<NodeIndex, NodeConfigTemplate>();
}

/// A world that only this product follows.
#[cfg(test)]
pub fn registered() -> World {
    let mut world = World::default();
    register(&mut world);
    world
}

impl Follows<NodeFact> for NodeIndex {
    fn update(&mut self, old: Option<&NodeFact>, new: Option<&NodeFact>) {
        if !is_heartbeat(old, new) {
            self.nodes = self.tick();
        }
    }

    /// If the node was added or removed or its labels or addresses changed: its NodeConfigs, and the templates that
    /// match it or did before.
    fn requeue(world: &World, old: Option<&NodeFact>, new: Option<&NodeFact>) -> Requeue {
        let Some(node) = new.or(old).filter(|_| !is_heartbeat(old, new)) else { return Requeue::none() };
        let name = node.name();
        let configs = world.node_configs_of(&name).map(|config| config.key().into_owned());
        let matches = |template: &&NodeConfigTemplate| {
            let selector = Selector::from(&template.spec.node_selector);
            [old, new].into_iter().flatten().any(|side| selector.matches(&side.labels))
        };
        let templates = world.all::<NodeConfigTemplate>().filter(matches).map(|template| template.key().into_owned());
        Requeue::all::<NodeConfig>(configs).and(Requeue::all::<NodeConfigTemplate>(templates))
    }
}

impl Follows<NodeConfig> for NodeIndex {
    fn update(&mut self, old: Option<&NodeConfig>, new: Option<&NodeConfig>) {
        let Some(config) = new.or(old).filter(|_| !is_status_only(old, new)) else { return };
        let key = config.key().into_owned();
        let now = self.tick();
        let (old_owner, new_owner) = (old.and_then(template_of), new.and_then(template_of));
        let (old_uid, new_uid) =
            (old_owner.as_ref().map(|owner| &owner.uid), new_owner.as_ref().map(|owner| &owner.uid));
        self.of_template.update(&key, old_uid, new_uid);
        if let Some(owner) = new_owner {
            self.configs.insert(owner.uid, now);
        }
        if let Some(owner) = old_owner {
            if self.of_template.contains(&owner.uid) {
                self.configs.insert(owner.uid, now);
            } else {
                self.configs.remove(&owner.uid);
            }
        }
        if old.is_some() && is_another(old, new) {
            self.names = now;
        }
    }

    /// Requeues the NodeConfig and its template. Unless only the status changed, also requeues the other NodeConfigs of
    /// its node. If it was deleted or its owners changed, also requeues the templates of its namespace, one of which
    /// may need its name.
    fn requeue(world: &World, old: Option<&NodeConfig>, new: Option<&NodeConfig>) -> Requeue {
        let Some(key) = new.or(old).map(|config| config.key().into_owned()) else { return Requeue::none() };
        let owners = [old, new].into_iter().flatten().filter_map(template_of);
        let templates = owners.map(|owner| Key::new(key.namespace.clone(), owner.name));
        let requeue = Requeue::one::<NodeConfig>(key.clone()).and(Requeue::all::<NodeConfigTemplate>(templates));
        if is_status_only(old, new) {
            return requeue;
        }
        let nodes = [old, new].into_iter().flatten().map(|config| &config.spec.node_name);
        let others = nodes.flat_map(|node| world.node_configs_of(node)).map(|config| config.key().into_owned());
        let requeue = requeue.and(Requeue::all::<NodeConfig>(others));
        if old.is_none() || !is_another(old, new) {
            return requeue;
        }
        let neighbours = world.within::<NodeConfigTemplate>(&key.namespace);
        requeue.and(Requeue::all::<NodeConfigTemplate>(neighbours.map(|template| template.key().into_owned())))
    }
}

impl Follows<NodeConfigTemplate> for NodeIndex {
    fn requeue(_world: &World, old: Option<&NodeConfigTemplate>, new: Option<&NodeConfigTemplate>) -> Requeue {
        Requeue::all::<NodeConfigTemplate>(new.or(old).map(|template| template.key().into_owned()))
    }
}

/// The template that controls the NodeConfig.
pub fn template_of(config: &NodeConfig) -> Option<Owner> {
    Owner::controller_of(config.meta()).filter(|owner| owner.kind == NodeConfigTemplate::kind(&()))
}

/// Whether the node exists as before, with the same labels and addresses.
fn is_heartbeat(old: Option<&NodeFact>, new: Option<&NodeFact>) -> bool {
    old.zip(new).is_some_and(|(old, new)| old.is_selected_like(new))
}

/// Whether only the status differs.
fn is_status_only(old: Option<&NodeConfig>, new: Option<&NodeConfig>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return false };
    !is_another(Some(old), Some(new)) && old.spec == new.spec && old.metadata.labels == new.metadata.labels
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use ganglion_core::facts::Identity;
    use ganglion_core::world::Origin;

    fn template(name: &str) -> NodeConfigTemplate {
        let value = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfigTemplate",
            "metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1"},
            "spec": {"nodeSelector": {}, "template": {}},
        });
        serde_json::from_value(value).unwrap()
    }

    fn config(name: &str, node: &str, owner: Option<&str>, version: u64) -> NodeConfig {
        let owners: Vec<Value> = owner
            .map(|owner| {
                json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfigTemplate", "name": owner, "uid": owner,
                       "controller": true})
            })
            .into_iter()
            .collect();
        let value = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig",
            "metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": version.to_string(),
                         "ownerReferences": owners},
            "spec": {"nodeName": node},
        });
        serde_json::from_value(value).unwrap()
    }

    fn node(name: &str, version: u64) -> NodeFact {
        let id = Identity { key: Key::new("", name), uid: name.into(), version: version.to_string() };
        NodeFact { id, ..NodeFact::default() }
    }

    fn names<F: Fact>(requeue: &Requeue) -> Vec<&str> {
        requeue.of::<F>().map(|key| key.name.as_str()).collect()
    }

    /// Templates a and b; NodeConfigs of node n1: a-n1 by template a, and the user's `own`.
    fn world() -> World {
        let mut world = registered();
        world.apply(template("a"), Origin::Watch);
        world.apply(template("b"), Origin::Watch);
        world.apply(config("a-n1", "n1", Some("a"), 2), Origin::Watch);
        world.apply(config("own", "n1", None, 3), Origin::Watch);
        world.apply(node("n1", 4), Origin::Watch);
        world
    }

    #[test]
    fn a_node_requeues_all_templates_and_its_own_configs() {
        let mut world = world();
        world.apply(config("a-n2", "n2", Some("a"), 5), Origin::Watch);
        let mut changed = node("n1", 6);
        changed.labels.insert("zone".into(), "a".into());
        let requeue = world.apply(changed.clone(), Origin::Watch);
        assert_eq!(
            (names::<NodeConfigTemplate>(&requeue), names::<NodeConfig>(&requeue)),
            (vec!["a", "b"], vec!["a-n1", "own"])
        );
        (changed.addresses, changed.id.version) = (vec!["10.0.0.1".into()], "7".into());
        assert_eq!(world.apply(changed.clone(), Origin::Watch).len(), 4);
        (changed.ready, changed.id.version) = (true, "8".into());
        assert!(world.apply(changed.clone(), Origin::Watch).is_empty(), "readiness is no matter of theirs");
        changed.id.version = "9".into();
        assert!(world.apply(changed.clone(), Origin::Watch).is_empty(), "a heartbeat");
        changed.id.version = "10".into();
        assert_eq!(world.remove::<NodeFact>(&changed.id).len(), 4);
        assert_eq!(world.apply(node("n1", 11), Origin::Watch).len(), 4);
    }

    #[test]
    fn a_node_requeues_only_the_templates_that_match_it_or_did() {
        let mut world = world();
        let mut picky = template("picky");
        picky.spec.node_selector.match_labels = Some([("zone".to_owned(), "a".to_owned())].into());
        world.apply(picky, Origin::Watch);
        let mut changed = node("n1", 20);
        for (zone, version, expected) in
            [("b", "21", vec!["a", "b"]), ("a", "22", vec!["a", "b", "picky"]), ("c", "23", vec!["a", "b", "picky"])]
        {
            changed.labels.insert("zone".into(), zone.into());
            changed.id.version = version.into();
            assert_eq!(names::<NodeConfigTemplate>(&world.apply(changed.clone(), Origin::Watch)), expected, "{zone}");
        }
    }

    #[test]
    fn a_config_requeues_its_template_and_unless_only_its_status_changed_the_others_of_its_node() {
        let mut world = world();
        let before = world.edition(&"a".into());
        let mut config = config("a-n1", "n1", Some("a"), 5);
        config.status.get_or_insert_default().observed_generation = Some(1);
        let requeue = world.apply(config.clone(), Origin::Watch);
        assert_eq!((names::<NodeConfigTemplate>(&requeue), names::<NodeConfig>(&requeue)), (vec!["a"], vec!["a-n1"]));
        assert_eq!(world.edition(&"a".into()), before, "a status");
        (config.spec.suspend, config.metadata.resource_version) = (Some(true), Some("6".into()));
        let requeue = world.apply(config.clone(), Origin::Watch);
        assert_eq!(
            (names::<NodeConfigTemplate>(&requeue), names::<NodeConfig>(&requeue)),
            (vec!["a"], vec!["a-n1", "own"])
        );
        assert_ne!(world.edition(&"a".into()).configs, before.configs);
        assert_eq!(world.edition(&"b".into()).configs, 0);
        (config.spec.node_name, config.metadata.resource_version) = ("n2".into(), Some("7".into()));
        let requeue = world.apply(config.clone(), Origin::Watch);
        assert_eq!(names::<NodeConfig>(&requeue), ["a-n1", "own"], "the node that it leaves");
        assert_eq!(world.node_configs_of(&"n1".into()).count(), 1);
        assert_eq!(world.node_configs_of(&"n2".into()).count(), 1);
    }

    #[test]
    fn a_name_that_is_free_again_requeues_the_templates_of_the_namespace() {
        let mut world = world();
        let before = world.edition(&"b".into());
        let gone = Identity { key: Key::new("n", "own"), uid: "own".into(), version: "8".into() };
        let requeue = world.remove::<NodeConfig>(&gone);
        assert_eq!(names::<NodeConfigTemplate>(&requeue), ["a", "b"]);
        assert_ne!(world.edition(&"b".into()).names, before.names);
        let requeue = world.apply(config("a-n1", "n1", None, 9), Origin::Watch);
        assert_eq!(names::<NodeConfigTemplate>(&requeue), ["a", "b"], "its owner was taken away");
        assert_eq!(world.node_configs_by(&"a".into()).count(), 0);
    }

    #[test]
    fn an_edition_does_not_come_again_when_all_configs_went_and_one_came() {
        let mut world = world();
        let mut seen = vec![world.edition(&"a".into()).configs];
        for version in [10, 20, 30] {
            let gone = Identity { key: Key::new("n", "a-n1"), uid: "a-n1".into(), version: version.to_string() };
            world.remove::<NodeConfig>(&gone);
            assert_eq!(world.edition(&"a".into()).configs, 0);
            world.apply(config("a-n1", "n1", Some("a"), version + 1), Origin::Watch);
            assert!(!seen.contains(&world.edition(&"a".into()).configs));
            seen.push(world.edition(&"a".into()).configs);
        }
        assert_eq!(world.state::<NodeIndex>().configs.len(), 1, "nothing is kept of templates without NodeConfigs");
    }
}
