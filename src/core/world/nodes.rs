//! NodeConfigs and their templates: the objects that a change requeues, and the queries of controllers.
//!
//! A heartbeat of a node requeues nothing: NodeConfigs depend only on its labels, its addresses and its existence.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Resource;

use super::index::{Many, add, all, drop_from};
use super::loops::is_another;
use super::{Fact, Indexed, Requeue, World};
use crate::facts::{Key, NodeFact, Owner, Selector};
use crate::node_values::means;
use ganglion_api::closed_loop::source::NodeConfigField;
use ganglion_api::monitoring::Monitoring;
use ganglion_api::node_config::NodeConfig;
use ganglion_api::node_config::status::NodeValue;
use ganglion_api::node_config::template::NodeConfigTemplate;

/// Derived from nodes and NodeConfigs, and updated whenever they change.
#[derive(Debug, Default)]
pub struct NodeIndex {
    of_node: Many,
    /// By the uid of the template.
    of_template: Many,
    /// Incremented with each change, so that an edition never repeats.
    clock: u64,
    nodes: u64,
    /// By the uid of the template.
    configs: HashMap<String, u64>,
    names: u64,
}

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

impl NodeIndex {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn config_changed(&mut self, old: Option<&NodeConfig>, new: Option<&NodeConfig>) {
        let now = self.tick();
        if let Some(config) = old {
            let key = config.id().key;
            drop_from(&mut self.of_node, &config.spec.node_name, &key);
            if let Some(owner) = template_of(config) {
                drop_from(&mut self.of_template, &owner.uid, &key);
                self.configs.insert(owner.uid, now);
            }
        }
        if let Some(config) = new {
            let key = config.id().key;
            add(&mut self.of_node, &config.spec.node_name, &key);
            if let Some(owner) = template_of(config) {
                add(&mut self.of_template, &owner.uid, &key);
                self.configs.insert(owner.uid, now);
            }
        }
        if old.is_some() && is_another(old, new) {
            self.names = now;
        }
        let without = |owner: &Owner| !self.of_template.contains_key(&owner.uid);
        if let Some(owner) = old.and_then(template_of).filter(without) {
            self.configs.remove(&owner.uid);
        }
    }
}

/// The template that controls the NodeConfig.
pub fn template_of(config: &NodeConfig) -> Option<Owner> {
    Owner::controller_of(config.meta()).filter(|owner| owner.kind == NodeConfigTemplate::kind(&()))
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

/// Whether only the status differs.
fn is_status_only(old: Option<&NodeConfig>, new: Option<&NodeConfig>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return false };
    !is_another(Some(old), Some(new)) && old.spec == new.spec && old.metadata.labels == new.metadata.labels
}

impl Indexed for NodeConfig {
    /// Requeues the NodeConfig, its template, and, if a value changed, the Monitorings that read it. Unless only the
    /// status changed, also requeues the other NodeConfigs of its node. If it was deleted or its owners changed, also
    /// requeues the templates of its namespace, one of which may need its name.
    fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
        let Some(key) = new.or(old).map(|config| config.id().key) else { return Requeue::none() };
        world.note_node_config(old, new);
        let owners = [old, new].into_iter().flatten().filter_map(template_of);
        let templates = owners.map(|owner| Key::new(key.namespace.clone(), owner.name));
        let requeue = Requeue::one::<Self>(key.clone()).and(Requeue::all::<NodeConfigTemplate>(templates));
        let requeue = if have_same_values(old, new) { requeue } else { requeue.and(world.readers_of(&key.namespace)) };
        if is_status_only(old, new) {
            return requeue;
        }
        world.nodes.config_changed(old, new);
        let nodes = [old, new].into_iter().flatten().map(|config| &config.spec.node_name);
        let others = nodes.flat_map(|node| all(&world.nodes.of_node, node)).cloned();
        let requeue = requeue.and(Requeue::all::<Self>(others));
        if old.is_none() || !is_another(old, new) {
            return requeue;
        }
        let neighbours = world.tables.node_config_templates.within(&key.namespace);
        requeue.and(Requeue::all::<NodeConfigTemplate>(neighbours.map(|template| template.id().key)))
    }
}

impl Indexed for NodeConfigTemplate {
    fn changed(_world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
        new.or(old).map_or_else(Requeue::none, |template| Requeue::one::<Self>(template.id().key))
    }
}

/// Queries of controllers.
impl World {
    /// If the node was added or removed or its labels or addresses changed: its NodeConfigs, the templates that match
    /// it or did before, and the Monitorings that read it.
    pub(super) fn node_changed(&mut self, old: Option<&NodeFact>, new: Option<&NodeFact>) -> Requeue {
        let essence = |node: &NodeFact| (node.id.uid.clone(), node.labels.clone(), node.addresses.clone());
        let Some(node) = new.or(old) else { return Requeue::none() };
        if old.map(essence) == new.map(essence) {
            return Requeue::none();
        }
        self.nodes.nodes = self.nodes.tick();
        let configs = all(&self.nodes.of_node, &node.id.key.name).cloned();
        let matches = |template: &&Arc<NodeConfigTemplate>| {
            let selector = Selector::from(&template.spec.node_selector);
            [old, new].into_iter().flatten().any(|side| selector.matches(&side.labels))
        };
        let templates = self.tables.node_config_templates.values().filter(matches).map(|template| template.id().key);
        let readers = self.node_readers(|_, source| {
            [old, new].into_iter().flatten().any(|side| means(source, &side.id.key.name, &side.labels))
        });
        Requeue::all::<NodeConfig>(configs).and(Requeue::all::<NodeConfigTemplate>(templates)).and(readers)
    }

    /// The Monitorings that read NodeConfigs of this namespace.
    fn readers_of(&self, namespace: &str) -> Requeue {
        self.node_readers(|own, source| source.namespace.as_deref().unwrap_or(own) == namespace)
    }

    /// The Monitorings with a source `nodeConfig` for which `like` is true. Its first argument is the namespace of the
    /// Monitoring.
    fn node_readers(&self, like: impl Fn(&str, &NodeConfigField) -> bool) -> Requeue {
        let reads = |key: &Key, object: &Monitoring| {
            let mut sources = object.spec.metrics.iter().filter_map(|metric| metric.source.node_config.as_ref());
            sources.any(|source| like(&key.namespace, source))
        };
        let all = self.tables.monitorings.iter().filter(|(key, object)| reads(key, object));
        Requeue::all::<Monitoring>(all.map(|(key, _)| key.clone()))
    }

    pub fn node_config(&self, key: &Key) -> Option<&Arc<NodeConfig>> {
        self.tables.node_configs.get(key)
    }

    /// The NodeConfigs in all namespaces whose spec names this node, by key.
    pub fn node_configs_of(&self, node: &str) -> impl Iterator<Item = &Arc<NodeConfig>> {
        all(&self.nodes.of_node, node).filter_map(|key| self.tables.node_configs.get(key))
    }

    /// The NodeConfigs that the template with this uid controls, by key.
    pub fn node_configs_by(&self, template_uid: &str) -> impl Iterator<Item = &Arc<NodeConfig>> {
        all(&self.nodes.of_template, template_uid).filter_map(|key| self.tables.node_configs.get(key))
    }

    /// All templates, by key.
    pub fn templates(&self) -> impl Iterator<Item = &Arc<NodeConfigTemplate>> {
        self.tables.node_config_templates.values()
    }

    /// The current version of the inputs of the NodeConfigs of the template with this uid.
    pub fn edition(&self, template_uid: &str) -> Edition {
        let NodeIndex { nodes, configs, names, .. } = &self.nodes;
        Edition { nodes: *nodes, configs: configs.get(template_uid).copied().unwrap_or(0), names: *names }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::facts::Identity;
    use crate::world::Origin;

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
        let mut world = World::default();
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
        let before = world.edition("a");
        let mut config = config("a-n1", "n1", Some("a"), 5);
        config.status.get_or_insert_default().observed_generation = Some(1);
        let requeue = world.apply(config.clone(), Origin::Watch);
        assert_eq!((names::<NodeConfigTemplate>(&requeue), names::<NodeConfig>(&requeue)), (vec!["a"], vec!["a-n1"]));
        assert_eq!(world.edition("a"), before, "a status");
        (config.spec.suspend, config.metadata.resource_version) = (Some(true), Some("6".into()));
        let requeue = world.apply(config.clone(), Origin::Watch);
        assert_eq!(
            (names::<NodeConfigTemplate>(&requeue), names::<NodeConfig>(&requeue)),
            (vec!["a"], vec!["a-n1", "own"])
        );
        assert_ne!(world.edition("a").configs, before.configs);
        assert_eq!(world.edition("b").configs, 0);
        (config.spec.node_name, config.metadata.resource_version) = ("n2".into(), Some("7".into()));
        let requeue = world.apply(config.clone(), Origin::Watch);
        assert_eq!(names::<NodeConfig>(&requeue), ["a-n1", "own"], "the node that it leaves");
        assert_eq!(world.node_configs_of("n1").count(), 1);
        assert_eq!(world.node_configs_of("n2").count(), 1);
    }

    #[test]
    fn a_value_requeues_who_reads_it() {
        let mut world = world();
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
        let mut config = config("a-n1", "n1", Some("a"), 5);
        let reading = |value: &str| Some(serde_json::from_value(json!({"value": value})).unwrap());
        config.status.get_or_insert_default().cpu = reading("1");
        assert_eq!(names::<Monitoring>(&world.apply(config.clone(), Origin::Watch)), ["elsewhere"]);
        config.metadata.resource_version = Some("6".into());
        config.status.get_or_insert_default().observed_generation = Some(2);
        assert!(names::<Monitoring>(&world.apply(config.clone(), Origin::Watch)).is_empty(), "the same value");
        config.metadata.resource_version = Some("7".into());
        config.status.get_or_insert_default().cpu = reading("2");
        assert_eq!(names::<Monitoring>(&world.apply(config.clone(), Origin::Watch)), ["elsewhere"]);
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
            assert_eq!(names::<Monitoring>(&world.apply(changed.clone(), Origin::Watch)), expected, "{zone}");
        }
        let mut other = node("n2", 11);
        other.labels.insert("zone".into(), "a".into());
        assert_eq!(names::<Monitoring>(&world.apply(other, Origin::Watch)), ["zone"]);
    }

    #[test]
    fn a_name_that_is_free_again_requeues_the_templates_of_the_namespace() {
        let mut world = world();
        let before = world.edition("b");
        let gone = Identity { key: Key::new("n", "own"), uid: "own".into(), version: "8".into() };
        let requeue = world.remove::<NodeConfig>(&gone);
        assert_eq!(names::<NodeConfigTemplate>(&requeue), ["a", "b"]);
        assert_ne!(world.edition("b").names, before.names);
        let requeue = world.apply(config("a-n1", "n1", None, 9), Origin::Watch);
        assert_eq!(names::<NodeConfigTemplate>(&requeue), ["a", "b"], "its owner was taken away");
        assert_eq!(world.node_configs_by("a").count(), 0);
    }

    #[test]
    fn an_edition_does_not_come_again_when_all_configs_went_and_one_came() {
        let mut world = world();
        let mut seen = vec![world.edition("a").configs];
        for version in [10, 20, 30] {
            let gone = Identity { key: Key::new("n", "a-n1"), uid: "a-n1".into(), version: version.to_string() };
            world.remove::<NodeConfig>(&gone);
            assert_eq!(world.edition("a").configs, 0);
            world.apply(config("a-n1", "n1", Some("a"), version + 1), Origin::Watch);
            assert!(!seen.contains(&world.edition("a").configs));
            seen.push(world.edition("a").configs);
        }
        assert_eq!(world.nodes.configs.len(), 1, "nothing is kept of templates without NodeConfigs");
    }
}
