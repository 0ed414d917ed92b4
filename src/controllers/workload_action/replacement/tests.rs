//! Whatever the template: the pod differs from it in what it must, and in nothing else.

use k8s_openapi::api::core::v1::{Affinity, Container, NodeAffinity};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::logic::facts::Key;
use crate::logic::workload_action::effect::action_owner;

const NODE: &str = "node-7";

fn new() -> NewPod {
    NewPod {
        key: Key::new("space", "web-5d9c-abcdef01"),
        node: NODE.into(),
        slot: "0123456789abcdef".into(),
        set: Key::new("space", "web-5d9c"),
        label: "pod-template-hash".into(),
        action: Identity { key: Key::new("space", "move-web"), uid: "uid-1".into(), version: "5".into() },
    }
}

fn requirement() -> impl Strategy<Value = NodeSelectorRequirement> {
    ("[a-c]", prop_oneof!["In", "NotIn", "Exists"], vec("[x-z]", 0..3))
        .prop_map(|(key, operator, values)| NodeSelectorRequirement { key, operator, values: Some(values) })
}

fn term() -> impl Strategy<Value = NodeSelectorTerm> {
    (option::of(vec(requirement(), 0..3)), option::of(vec(requirement(), 0..2)))
        .prop_map(|(match_expressions, match_fields)| NodeSelectorTerm { match_expressions, match_fields })
}

fn affinity() -> impl Strategy<Value = Affinity> {
    option::of(option::of(vec(term(), 0..4))).prop_map(|required| Affinity {
        node_affinity: required.map(|terms| NodeAffinity {
            required_during_scheduling_ignored_during_execution: terms
                .map(|node_selector_terms| NodeSelector { node_selector_terms }),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    })
}

fn template() -> impl Strategy<Value = PodTemplateSpec> {
    let map = || option::of(btree_map(prop_oneof!["[a-c]", Just("pod-template-hash".to_owned())], "[a-z]{1,3}", 0..4));
    (map(), map(), option::of(affinity()), option::of("[a-z]{1,3}"), option::of("[a-z]{1,3}")).prop_map(
        |(labels, annotations, affinity, node_name, class)| PodTemplateSpec {
            metadata: Some(ObjectMeta { labels, annotations, ..ObjectMeta::default() }),
            spec: Some(PodSpec {
                affinity,
                node_name,
                priority_class_name: class,
                containers: vec![Container { name: "web".into(), ..Container::default() }],
                ..PodSpec::default()
            }),
        },
    )
}

fn required(pod: &Pod) -> Vec<NodeSelectorTerm> {
    terms(pod.spec.as_ref().unwrap()).unwrap()
}

fn terms(spec: &PodSpec) -> Option<Vec<NodeSelectorTerm>> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    Some(affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms.clone())
}

fn is_pin(field: &NodeSelectorRequirement) -> bool {
    field.key == "metadata.name" && field.operator == "In" && field.values.as_deref() == Some(&[NODE.to_owned()])
}

proptest! {
    #[test]
    fn no_term_lets_it_run_anywhere_else(template in template()) {
        let pod = pod(&template, &new());
        let terms = required(&pod);
        prop_assert!(!terms.is_empty());
        for term in terms {
            let pinned = term.match_fields.iter().flatten().filter(|field| is_pin(field)).count();
            // A term that matches nothing stays one.
            prop_assert!(pinned == 1 || is_empty(&term));
        }
    }

    #[test]
    fn what_the_template_requires_of_a_node_is_still_required(template in template()) {
        let pod = pod(&template, &new());
        let before = terms(template.spec.as_ref().unwrap()).unwrap_or_default();
        let after: Vec<NodeSelectorTerm> = required(&pod)
            .into_iter()
            .map(|mut term| {
                if let Some(fields) = term.match_fields.as_mut() {
                    fields.retain(|field| !is_pin(field));
                }
                term
            })
            .collect();
        let bare = |terms: &[NodeSelectorTerm]| -> Vec<_> {
            terms
                .iter()
                .filter(|term| !is_empty(term))
                .map(|term| (
                    term.match_expressions.clone().unwrap_or_default(),
                    term.match_fields.clone().unwrap_or_default(),
                ))
                .collect()
        };
        prop_assert_eq!(bare(&before), bare(&after));
        if before.iter().any(is_empty) && before.iter().all(is_empty) {
            prop_assert!(required(&pod).iter().all(is_empty), "a template that fits no node makes a pod that fits none");
        }
    }

    #[test]
    fn everything_else_is_as_in_the_template(template in template()) {
        let pod = pod(&template, &new());
        let meta = template.metadata.clone().unwrap();
        let mut labels = meta.labels.unwrap_or_default();
        labels.remove("pod-template-hash");
        prop_assert_eq!(pod.metadata.labels.clone().unwrap(), labels);

        let mut annotations = pod.metadata.annotations.clone().unwrap();
        prop_assert_eq!(annotations.remove(marks::SLOT).unwrap(), new().slot);
        prop_assert_eq!(annotations.remove(marks::ROLE).unwrap(), marks::ROLE_REPLACEMENT);
        prop_assert_eq!(annotations, meta.annotations.unwrap_or_default());

        let (mut before, mut after) = (template.spec.clone().unwrap(), pod.spec.clone().unwrap());
        prop_assert_eq!(after.node_name.take(), None, "the scheduler must see it");
        before.node_name = None;
        before.affinity = None;
        after.affinity = None;
        prop_assert_eq!(before, after);
    }
}

#[test]
fn the_action_is_its_plain_owner() {
    let pod = pod(&PodTemplateSpec::default(), &new());
    let owners = pod.metadata.owner_references.unwrap();
    assert_eq!(serde_json::to_value(owners).unwrap(), serde_json::json!([action_owner(&new().action)]));
    assert_eq!((pod.metadata.name.as_deref(), pod.metadata.generate_name), (Some("web-5d9c-abcdef01"), None));
}

#[test]
fn each_alternative_is_pinned() {
    let expression = |key: &str| NodeSelectorTerm {
        match_expressions: Some(vec![NodeSelectorRequirement {
            key: key.into(),
            operator: "Exists".into(),
            values: None,
        }]),
        match_fields: None,
    };
    let mut spec = PodSpec::default();
    spec.affinity
        .get_or_insert_default()
        .node_affinity
        .get_or_insert_default()
        .required_during_scheduling_ignored_during_execution = Some(NodeSelector {
        node_selector_terms: vec![expression("gpu"), NodeSelectorTerm::default(), expression("ssd")],
    });
    pin(&mut spec, NODE);
    let terms = terms(&spec).unwrap();
    assert_eq!(terms.len(), 2, "the empty one matched nothing and would now match the node");
    assert!(terms.iter().all(|term| term.match_fields.as_ref().unwrap().iter().any(is_pin)));
}
