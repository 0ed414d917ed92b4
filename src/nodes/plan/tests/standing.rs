//! Several NodeConfigs of one node, and NodeConfigs that must not be measured.

use proptest::prelude::*;

use super::*;
use ganglion_api::node_config::NodeConfig;
use ganglion_core::facts::Key;
use ganglion_core::namespaces::Namespaces;

fn object(namespace: &str, name: &str, made: i64, node: &str) -> NodeConfig {
    let mut object = NodeConfig::new(name, spec(json!({"nodeName": node})));
    object.metadata.namespace = Some(namespace.into());
    object.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(made)));
    object
}

fn standing(own: &NodeConfig, others: &[NodeConfig]) -> Standing {
    Standing::assess(own, Namespaces::default(), true, others)
}

#[test]
fn the_older_one_wins_then_the_first_by_name() {
    let (old, young) = (object("b", "z", 1, "n"), object("a", "a", 2, "n"));
    let both = [old.clone(), young.clone()];
    assert_eq!(standing(&old, &both), Standing::Clear);
    assert_eq!(standing(&young, &both), Standing::Conflict(Key::new("b", "z")));
    let twin = object("a", "z", 1, "n");
    assert_eq!(standing(&old, &[old.clone(), twin]), Standing::Conflict(Key::new("a", "z")));
    assert_eq!(standing(&young, &[object("a", "b", 1, "other")]), Standing::Clear);
    assert_eq!(standing(&young, &[object("kube-system", "b", 1, "n")]), Standing::Clear, "that one is never measured");
    let mut going = object("a", "b", 1, "n");
    going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(3)));
    assert_eq!(standing(&young, &[going]), Standing::Clear);
}

#[test]
fn a_missing_node_and_an_excluded_namespace() {
    let one = object("a", "a", 1, "n");
    assert_eq!(Standing::assess(&one, Namespaces::default(), false, []), Standing::NodeNotFound);
    let refused = Standing::assess(&object("kube-system", "a", 1, "n"), Namespaces::default(), true, []);
    assert!(matches!(refused, Standing::NamespaceRefused(_)));
}

proptest! {
    #[test]
    fn of_many_exactly_one_is_measured(ages in proptest::collection::vec((0_i64..3, 0_u8..4, 0_u8..4), 1..12)) {
        let mut names = std::collections::BTreeSet::new();
        let all: Vec<NodeConfig> = ages
            .into_iter()
            .filter(|(_, namespace, name)| names.insert((*namespace, *name)))
            .map(|(made, namespace, name)| object(&namespace.to_string(), &name.to_string(), made, "n"))
            .collect();
        let clear = all.iter().filter(|own| standing(own, &all) == Standing::Clear).count();
        prop_assert_eq!(clear, 1);
    }
}
