//! Plans and statuses of templates, over a simulated world that executes the plans.

use kube::ResourceExt;

use super::*;
use crate::template::parsed::parse_selector;
use crate::template::plan::{ConfigWrite, MAX_WRITES, Renders, TemplatePlan, observe, plan};
use crate::world::{NodesWorld, registered};
use ganglion_api::marks;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_api::node_config::{NodeConfig, NodeConfigTemplate};
use ganglion_core::conditions::Health;
use ganglion_core::facts::Selector;
use ganglion_core::world::{Origin, World};

/// World in which the writes of plans succeed.
struct Scene {
    world: World,
    version: u64,
    template: NodeConfigTemplate,
    compiled: CompiledTemplate,
    renders: Renders,
}

fn owner(name: &str, uid: &str) -> Value {
    json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfigTemplate", "name": name, "uid": uid, "controller": true})
}

impl Scene {
    fn new(endpoint: &str, nodes: usize) -> Self {
        let template: NodeConfigTemplate = serde_json::from_value(json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfigTemplate",
            "metadata": {"namespace": "n", "name": "all", "uid": "t", "resourceVersion": "1"},
            "spec": {
                "nodeSelector": {"matchLabels": {"a": "b"}},
                "template": {"metricsCollector": {"inletTemp": {"type": "Redfish", "endpoint": endpoint}}},
            },
        }))
        .unwrap();
        let compiled = compile(&template.spec.template).unwrap();
        let (world, renders) = (registered(), Renders::default());
        let mut scene = Self { world, version: 10, template, compiled, renders };
        (0..nodes).for_each(|number| scene.node(&format!("n{number:04}"), &[&format!("10.0.0.{}", number % 250)], "b"));
        scene
    }

    fn version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn node(&mut self, name: &str, addresses: &[&str], label: &str) {
        let mut fact = node(name, addresses, &[("a", label)]);
        fact.id.version = self.version();
        self.world.apply(fact, Origin::Watch);
    }

    fn config(&mut self, name: &str, node: &str, owners: Value) {
        let version = self.version();
        let value = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig",
            "metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": version, "generation": 1,
                         "labels": {(marks::TEMPLATE): "all"}, "ownerReferences": owners},
            "spec": {"nodeName": node},
        });
        self.world.apply(serde_json::from_value::<NodeConfig>(value).unwrap(), Origin::Watch);
    }

    fn plan(&mut self) -> TemplatePlan {
        let observed = observe(&self.world, &self.template, &Selector::from(&self.template.spec.node_selector));
        plan(&self.template, &observed, &self.compiled, &mut self.renders)
    }

    /// Executes a pass. Returns the kinds and names of its writes.
    fn pass(&mut self) -> Vec<String> {
        let plan = self.plan();
        plan.writes.iter().map(|write| self.perform(write)).collect()
    }

    fn perform(&mut self, write: &ConfigWrite) -> String {
        match write {
            ConfigWrite::Create { name, spec } => {
                self.config(name, spec.node_name.as_str(), json!([owner("all", "t")]));
                self.set(name, |config| config.spec = NodeConfigSpec::clone(spec));
                format!("create {name}")
            }
            ConfigWrite::Change { config, spec } => {
                self.set(&config.name_any(), |config| config.spec = NodeConfigSpec::clone(spec));
                format!("change {}", config.name_any())
            }
            ConfigWrite::Delete { config } => {
                let version = self.version();
                let name = config.name_any();
                let id = Identity { key: Key::new("n", name.clone()), uid: name.as_str().into(), version };
                self.world.remove::<NodeConfig>(&id);
                format!("delete {name}")
            }
        }
    }

    fn set(&mut self, name: &str, change: impl FnOnce(&mut NodeConfig)) {
        let version = self.version();
        let mut config = NodeConfig::clone(self.world.table::<NodeConfig>().get(&Key::new("n", name)).unwrap());
        change(&mut config);
        config.metadata.resource_version = Some(version);
        self.world.apply(config, Origin::Watch);
    }

    /// Sets the conditions Ready and DataAvailable of a NodeConfig.
    fn conditions(&mut self, name: &str, ready: (&str, &str), data: (&str, &str)) {
        let condition = |kind: &str, (status, reason): (&str, &str)| {
            json!({"type": kind, "status": status, "reason": reason, "message": "",
                   "lastTransitionTime": "2026-11-23T00:00:00Z"})
        };
        let conditions = [condition("Ready", ready), condition("DataAvailable", data)];
        let status = json!({"observedGeneration": 1, "conditions": conditions});
        self.set(name, |config| config.status = serde_json::from_value(status).unwrap());
    }

    fn data(&mut self) -> (&'static str, NodeReason, String) {
        let plan = self.plan();
        state::data(&plan, &state::tally(self.world.node_configs_by(&"t".into()), &plan))
    }

    fn health(&mut self) -> Health<NodeReason> {
        let plan = self.plan();
        let tally = state::tally(self.world.node_configs_by(&"t".into()), &plan);
        state::health(&plan, &tally, None)
    }
}

const ENDPOINT: &str = "https://10.0.1.{{ ipv4.octet4 }}";

#[test]
fn nodes_that_come_change_and_go_are_followed_and_then_nothing_is_left_to_do() {
    let mut scene = Scene::new(ENDPOINT, 2);
    assert_eq!(scene.pass(), ["create all-n0000", "create all-n0001"]);
    assert!(scene.plan().is_settled());
    scene.node("n0001", &["10.0.0.9"], "b");
    assert_eq!(scene.pass(), ["change all-n0001"]);
    scene.node("n0002", &["10.0.0.3"], "c");
    assert!(scene.plan().is_settled(), "it does not match");
    scene.node("n0002", &["10.0.0.3"], "b");
    scene.node("n0000", &["10.0.0.1"], "c");
    assert_eq!(scene.pass(), ["create all-n0002", "delete all-n0000"]);
    assert_eq!((scene.plan().nodes, scene.plan().current, scene.plan().is_settled()), (2, 2, true));
}

#[test]
fn what_somebody_edited_goes_back_to_the_template() {
    let mut scene = Scene::new(ENDPOINT, 1);
    scene.pass();
    scene.set("all-n0000", |config| config.spec.suspend = Some(true));
    assert_eq!(scene.pass(), ["change all-n0000"]);
    scene.set("all-n0000", |config| config.metadata.labels = None);
    assert_eq!(scene.plan().writes.len(), 1);
}

#[test]
fn one_more_node_is_one_more_render() {
    let mut scene = Scene::new(ENDPOINT, 600);
    while !scene.pass().is_empty() {}
    assert_eq!(scene.renders.count(), 600);
    scene.node("new", &["10.0.0.1"], "b");
    scene.node("n0000", &["10.0.0.0"], "b");
    assert_eq!(scene.pass(), ["create all-new"]);
    assert_eq!(scene.renders.count(), 601);
}

#[test]
fn a_pass_is_bounded_and_the_next_goes_on() {
    let mut scene = Scene::new(ENDPOINT, 600);
    let first = scene.plan();
    assert_eq!((first.writes.len(), first.more, first.nodes), (MAX_WRITES, true, 600));
    let passes = std::iter::from_fn(|| Some(scene.pass().len())).take_while(|writes| *writes > 0).collect::<Vec<_>>();
    assert_eq!(passes, [MAX_WRITES, MAX_WRITES, 600 - 2 * MAX_WRITES]);
    (0..600).for_each(|number| scene.node(&format!("n{number:04}"), &[], "c"));
    assert_eq!(scene.pass().len(), MAX_WRITES);
    assert_eq!(scene.pass().len() + scene.pass().len(), 600 - MAX_WRITES);
    // After a restart the cache is empty and nothing needs a write.
    let mut scene = Scene::new(ENDPOINT, 600);
    while !scene.pass().is_empty() {}
    scene.renders = Renders::default();
    let first = scene.plan();
    assert!(first.more && first.writes.is_empty() && !first.is_settled());
    assert!(scene.plan().is_settled());
}

#[test]
fn objects_of_others_are_left_alone_and_those_of_a_deleted_template_awaited() {
    let mut scene = Scene::new(ENDPOINT, 3);
    scene.config("all-n0000", "n0000", json!([]));
    scene.config("all-n0001", "n0001", json!([owner("all-n0001", "other")]));
    scene.config("all-n0002", "n0002", json!([owner("all", "before")]));
    let plan = scene.plan();
    assert!(plan.writes.is_empty());
    assert_eq!((plan.left_out.count, plan.left_out.taken, plan.current), (2, 2, 0));
    assert!(matches!(scene.health(), Health::Stalled(NodeReason::NotOwned, text) if text.contains("n0000")));
}

#[test]
fn a_node_that_cannot_be_rendered_is_left_out_and_keeps_what_it_has() {
    let mut scene = Scene::new(ENDPOINT, 12);
    while !scene.pass().is_empty() {}
    scene.node("n0003", &["fd00::1"], "b");
    let plan = scene.plan();
    assert!(plan.is_settled() && plan.invalid.is_none());
    assert_eq!((plan.left_out.count, plan.current, plan.nodes), (1, 11, 12));
    let Health::Retrying(NodeReason::NodesLeftOut, message) = scene.health() else { panic!("{:?}", scene.health()) };
    assert!(message.starts_with("1 of 12 nodes left out; n0003: ") && message.contains("IPv4"), "{message}");
    (0..12).for_each(|number| scene.node(&format!("n{number:04}"), &[], "b"));
    let plan = scene.plan();
    assert_eq!((plan.left_out.count, plan.left_out.listed.len(), plan.invalid), (12, 10, None));
}

#[test]
fn a_template_that_is_wrong_for_every_node_writes_nothing() {
    for endpoint in ["{{ hostname }}", "https://a/{% for x in range(100000) %}{% endfor %}", "{{ hostname | shout }}"] {
        let mut scene = Scene::new(ENDPOINT, 3);
        scene.pass();
        scene.compiled = compile(&template(json!({"type": "Redfish", "endpoint": endpoint}))).unwrap();
        scene.renders = Renders::default();
        scene.node("n0000", &[], "c");
        let plan = scene.plan();
        assert!(plan.writes.is_empty(), "{endpoint}");
        assert!(matches!(scene.health(), Health::Stalled(NodeReason::TemplateInvalid, _)), "{endpoint}");
    }
}

const POLLED: (&str, &str) = ("True", "Polling");

#[test]
fn a_template_is_applied_although_a_machine_is_off() {
    let mut scene = Scene::new(ENDPOINT, 0);
    assert!(matches!(scene.health(), Health::Good(NodeReason::NoNodes, _)));
    let mut scene = Scene::new(ENDPOINT, 2);
    assert!(matches!(scene.health(), Health::Working { reason: NodeReason::Applying, .. }));
    assert!(matches!(scene.data(), ("Unknown", NodeReason::Applying, _)));
    scene.pass();
    assert!(matches!(scene.health(), Health::Working { reason: NodeReason::Waiting, .. }));
    assert!(matches!(scene.data(), ("Unknown", NodeReason::Waiting, _)));
    scene.conditions("all-n0000", POLLED, ("True", "Sampled"));
    scene.conditions("all-n0001", POLLED, ("False", "Unreachable"));
    assert!(matches!(scene.health(), Health::Good(NodeReason::Applied, _)));
    let expected = "1 of 2 NodeConfigs have unknown values; all-n0001: Unreachable".to_owned();
    assert_eq!(scene.data(), ("False", NodeReason::SomeUnknown, expected));
    scene.conditions("all-n0001", ("Unknown", "Suspended"), ("Unknown", "Suspended"));
    assert!(matches!(scene.health(), Health::Good(NodeReason::Applied, _)));
    assert!(matches!(scene.data(), ("Unknown", NodeReason::Suspended, _)));
    scene.conditions("all-n0001", POLLED, ("True", "Sampled"));
    assert!(matches!(scene.health(), Health::Good(NodeReason::Applied, _)));
    assert!(matches!(scene.data(), ("True", NodeReason::Sampled, _)));
    scene.set("all-n0001", |config| config.metadata.generation = Some(2));
    assert!(matches!(scene.health(), Health::Working { reason: NodeReason::Waiting, .. }), "of an older spec");
}

#[test]
fn a_template_is_not_applied_while_a_config_is_refused() {
    let mut scene = Scene::new(ENDPOINT, 2);
    scene.pass();
    scene.conditions("all-n0000", POLLED, ("True", "Sampled"));
    scene.conditions("all-n0001", ("False", "NodeConflict"), ("False", "NodeConflict"));
    let Health::Retrying(NodeReason::NodeConfigsNotReady, message) = scene.health() else { panic!() };
    assert_eq!(message, "1 of 2 NodeConfigs are not Ready; all-n0001: NodeConflict");
}

#[test]
fn names_that_are_too_long_stay_different() {
    let (template, node) = ("t".repeat(200), "n".repeat(100));
    let names = [
        name::of(&template, &node),
        name::of(&template, &format!("{node}x")),
        name::of(&format!("{template}t"), &node),
    ];
    assert!(names.iter().all(|name| name.len() <= 253));
    assert!(names[0] != names[1] && names[0] != names[2] && names[1] != names[2]);
    assert_eq!(name::of("all", "a.b.c"), "all-a.b.c");
    let dotted = name::of(&"t".repeat(241), &format!(".{node}"));
    assert!(!dotted.contains("-.") && !dotted.contains(".-") && !dotted.contains("--"), "{dotted}");
    assert_eq!((name::label(&"t".repeat(63)).is_some(), name::label(&"t".repeat(64))), (true, None));
}

#[test]
fn a_selector_that_can_match_nothing_is_refused() {
    for (term, words) in [
        (json!({"key": "a", "operator": "Is"}), "operator must be one of"),
        (json!({"key": "a", "operator": "In"}), "values is empty"),
        (json!({"key": "a", "operator": "Exists", "values": ["b"]}), "takes none"),
    ] {
        let selector = serde_json::from_value(json!({"matchExpressions": [term]})).unwrap();
        let refused = parse_selector(&selector).unwrap_err();
        assert!(refused.contains(words) && refused.contains("matchExpressions[0]"), "{refused}");
    }
    assert!(parse_selector(&Default::default()).unwrap().matches(&worker().labels));
}
