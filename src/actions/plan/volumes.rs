//! The bound volumes of a replica, and the nodes on which they allow it to run.
//!
//! A volume names its nodes in `spec.nodeAffinity`: one node for a local volume, a zone for most others. A claim that
//! is not bound, or that is not known, allows every node: the scheduler decides.

use crate::nodes::{NodeRefusal, selects};
use crate::scope::{Scope, StartRefusal};
use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::NodeChoice;
use ganglion_core::facts::{Key, NodeFact, VolumeFact};
use ganglion_core::world::World;

/// The bound volumes of a replica that cannot be used on all nodes.
#[derive(Debug, Default)]
pub struct BoundVolumes<'a> {
    /// Each with the name of its claim.
    volumes: Vec<(String, &'a VolumeFact)>,
}

impl<'a> BoundVolumes<'a> {
    /// The volumes of the replica with this name. The name matters for a StatefulSet only.
    pub fn of(world: &'a World, scope: &Scope, pod: &str) -> Self {
        let template = scope.set.template.as_ref();
        let own = scope.stateful().zip(scope.stateful().and_then(|set| set.ordinal(pod)));
        let claims: Vec<String> = match own {
            Some((set, ordinal)) => set.claims_of(ordinal).collect(),
            None => template.map(|template| template.claims.clone()).unwrap_or_default(),
        };
        let namespace = &scope.set.id.key.namespace;
        let bound = claims.into_iter().filter_map(|claim| {
            let volume = world.volume_of(&Key::new(namespace.clone(), claim.clone()))?;
            volume.affinity.as_ref()?;
            Some((claim, volume))
        });
        Self { volumes: bound.collect() }
    }

    /// Why the replica cannot run on this node.
    pub fn refusal(&self, node: &NodeFact) -> Option<NodeRefusal> {
        let words = self.blocked_on(node)?;
        let message = format!("node {}: {words} cannot be used there because of its node affinity", node.id.key.name);
        Some((Reason::VolumeOnOtherNode, message))
    }

    /// The first volume that cannot be used on this node, as text.
    fn blocked_on(&self, node: &NodeFact) -> Option<String> {
        let is_blocked = |volume: &VolumeFact| volume.affinity.as_ref().is_some_and(|nodes| !selects(nodes, node));
        let (claim, volume) = self.volumes.iter().find(|(_, volume)| is_blocked(volume))?;
        Some(format!("volume {} of claim {claim}", volume.id.key.name))
    }

    /// The refusal of a replica whose volumes keep it off every node that could otherwise be considered. `refused` are
    /// the nodes of the plan, each with its reason.
    pub fn confinement(&self, world: &World, refused: &[NodeChoice]) -> Option<StartRefusal> {
        let is_asked =
            |node: &&NodeChoice| !matches!(node.refused, Some(Reason::NodeExcluded | Reason::AlreadyOnTarget));
        let mut asked = refused.iter().filter(is_asked).peekable();
        let first = world.node(&asked.peek()?.name)?;
        if !asked.all(|node| node.refused == Some(Reason::VolumeOnOtherNode)) {
            return None;
        }
        let words = self.blocked_on(first)?;
        Some(StartRefusal::soon(Reason::VolumeOnOtherNode, format!("{words} cannot be used on another node")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use ganglion_core::facts::Identity;

    fn node(labels: &[(&str, &str)], name: &str) -> NodeFact {
        NodeFact {
            id: Identity { key: Key::new("", name), ..Identity::default() },
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..NodeFact::default()
        }
    }

    fn volume(terms: &[Value]) -> VolumeFact {
        let required = json!({"nodeSelectorTerms": terms});
        VolumeFact { affinity: Some(serde_json::from_value(required).unwrap()), ..VolumeFact::default() }
    }

    fn allows(volumes: &[&VolumeFact], node: &NodeFact) -> bool {
        let volumes = volumes.iter().map(|volume| ("data".to_owned(), *volume)).collect();
        BoundVolumes { volumes }.refusal(node).is_none()
    }

    /// A requirement, the value of the label that it reads on a node, and whether it holds there.
    fn requirement() -> impl Strategy<Value = (Value, Option<u8>, bool)> {
        let operators = prop::sample::select(vec!["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]);
        let values = prop::collection::vec(0u8..4, 1..3);
        (operators, values, prop::option::of(0u8..4)).prop_map(|(operator, values, label)| {
            let given = match operator {
                "Exists" | "DoesNotExist" => Vec::new(),
                "Gt" | "Lt" => vec![values[0]],
                _ => values,
            };
            let holds = match (operator, label) {
                ("In", Some(label)) => given.contains(&label),
                ("NotIn", Some(label)) => !given.contains(&label),
                ("Gt", Some(label)) => label > given[0],
                ("Lt", Some(label)) => label < given[0],
                ("Exists", label) => label.is_some(),
                ("DoesNotExist" | "NotIn", None) => true,
                _ => false,
            };
            let texts: Vec<String> = given.iter().map(u8::to_string).collect();
            (json!({"operator": operator, "values": texts}), label, holds)
        })
    }

    /// The terms of a volume, each with its requirements.
    fn terms() -> impl Strategy<Value = Vec<Vec<(Value, Option<u8>, bool)>>> {
        prop::collection::vec(prop::collection::vec(requirement(), 1..3), 1..3)
    }

    proptest! {
        /// All requirements of a term hold, or the term does not; one term of a volume is enough; every volume must
        /// allow the node.
        #[test]
        fn a_node_is_allowed_as_the_scheduler_does(
            volumes in prop::collection::vec(terms(), 1..3),
        ) {
            let mut labels = Vec::new();
            let mut expected = true;
            let mut facts = Vec::new();
            for (at, terms) in volumes.iter().enumerate() {
                let mut one_holds = false;
                let mut affinity = Vec::new();
                for (term_at, term) in terms.iter().enumerate() {
                    let mut expressions = Vec::new();
                    for (index, (requirement, label, _)) in term.iter().enumerate() {
                        let key = format!("key-{at}-{term_at}-{index}");
                        let mut requirement = requirement.clone();
                        requirement["key"] = json!(key);
                        expressions.push(requirement);
                        labels.extend(label.map(|label| (key, label.to_string())));
                    }
                    one_holds |= term.iter().all(|(_, _, holds)| *holds);
                    affinity.push(json!({"matchExpressions": expressions}));
                }
                expected &= one_holds;
                facts.push(volume(&affinity));
            }
            let labels: Vec<(&str, &str)> = labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            let all: Vec<&VolumeFact> = facts.iter().collect();
            prop_assert_eq!(allows(&all, &node(&labels, "n")), expected);
        }
    }

    #[test]
    fn fields_name_a_node_and_a_term_without_requirements_allows_none() {
        let field =
            |operator: &str| json!({"matchFields": [{"key": "metadata.name", "operator": operator, "values": ["n"]}]});
        for (terms, there, elsewhere) in [
            (vec![field("In")], true, false),
            (vec![field("NotIn")], false, true),
            (vec![field("In"), field("NotIn")], true, true),
            (vec![json!({})], false, false),
            (vec![], false, false),
        ] {
            let one = volume(&terms);
            assert_eq!((allows(&[&one], &node(&[], "n")), allows(&[&one], &node(&[], "m"))), (there, elsewhere));
        }
        assert!(allows(&[], &node(&[], "n")), "no volume has no affinity");
    }
}
