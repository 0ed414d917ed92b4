//! Nodes that a user selects by node name, labels and expression. All of them must match.

use std::collections::BTreeMap;

use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_api::refs::{NodeSource, Target};
use ganglion_core::expression::Expression;
use ganglion_core::facts::{NodeFact, NodeName};
use ganglion_core::world::World;

use super::nodes::{NodeRefusal, Nodes};
use super::scope::StartRefusal;

/// The user's selection of nodes.
#[derive(Default)]
pub struct Filter<'a> {
    name: Option<&'a NodeName>,
    selector: Option<&'a BTreeMap<String, String>>,
    expression: Option<Expression>,
    /// Nodes that are excluded.
    except: Option<Box<Filter<'a>>>,
    /// Nodes that are tried first, in this order.
    preferences: Vec<Filter<'a>>,
}

impl<'a> Filter<'a> {
    fn new(
        world: &World,
        name: Option<&'a NodeName>,
        selector: Option<&'a BTreeMap<String, String>>,
        condition: Option<&str>,
    ) -> Result<Self, StartRefusal> {
        let expression = condition.map(|text| world.expression(text)).transpose();
        let expression = expression.map_err(|error| StartRefusal::expression(&error))?;
        Ok(Self { name, selector, expression, ..Self::default() })
    }

    pub fn source(world: &World, source: Option<&'a NodeSource>) -> Result<Self, StartRefusal> {
        source.map_or(Ok(Self::default()), |source| {
            Self::new(world, source.node_name.as_ref(), source.node_selector.as_ref(), source.condition.as_deref())
        })
    }

    /// The target nodes without the nodes that the replicas leave.
    pub fn apart(world: &World, target: Option<&'a Target>, source: &'a NodeSource) -> Result<Self, StartRefusal> {
        let except = Some(Box::new(Self::source(world, Some(source))?));
        Ok(Self { except, ..Self::target(world, target, None)? })
    }

    /// The target nodes. Without a target: all nodes except those that the replicas leave.
    pub fn target(
        world: &World,
        target: Option<&'a Target>,
        source: Option<&'a NodeSource>,
    ) -> Result<Self, StartRefusal> {
        let Some(to) = target else {
            let except = source.map(|_| Self::source(world, source).map(Box::new)).transpose()?;
            return Ok(Self { except, ..Self::default() });
        };
        let preferred = to.preferences.iter().flatten();
        let preferred =
            preferred.map(|one| Self::new(world, None, one.node_selector.as_ref(), one.condition.as_deref()));
        let preferences = preferred.collect::<Result<_, StartRefusal>>()?;
        let all = Self::new(world, to.node_name.as_ref(), to.node_selector.as_ref(), to.condition.as_deref())?;
        Ok(Self { preferences, ..all })
    }

    /// Whether a replica on this node has no reason to move: the node matches the target, and if the target matches all
    /// nodes, it also meets the first preference.
    ///
    /// Fails like [`Filter::selects`].
    pub fn is_best(&self, nodes: &Nodes, node: &NodeFact) -> Result<bool, String> {
        let is_any = self.name.is_none() && self.selector.is_none() && self.expression.is_none();
        let first = self.preferences.first().map_or(Ok(false), |first| first.selects(nodes, node));
        Ok((!is_any || first?) && self.selects(nodes, node)?)
    }

    pub fn names_another(&self, node: &NodeFact) -> bool {
        self.name.is_some_and(|name| *name != *node.id.key.name)
    }

    /// Index of the first preference that the node meets. For a node that meets none, the number of preferences.
    pub fn preference(&self, nodes: &Nodes, node: &NodeFact) -> usize {
        let met = self.preferences.iter().position(|preference| preference.admits(nodes, node).is_ok());
        met.unwrap_or(self.preferences.len())
    }

    /// Whether pods on a node may be the reason why the node is not selected.
    pub fn reads_pods(&self) -> bool {
        self.expression.as_ref().is_some_and(Expression::reads_pods)
    }

    pub fn has_preferences(&self) -> bool {
        !self.preferences.is_empty()
    }

    /// Whether this is the index of a preference, not the value for nodes that meet none.
    pub fn prefers(&self, preference: usize) -> bool {
        preference < self.preferences.len()
    }

    /// Whether the node is selected. The error says why that is not known: the node must be measured again.
    pub fn selects(&self, nodes: &Nodes, node: &NodeFact) -> Result<bool, String> {
        match self.admits(nodes, node) {
            Ok(()) => Ok(true),
            Err((Reason::UsageOutdated, why)) => Err(why),
            Err(_) => Ok(false),
        }
    }

    /// Whether the node is selected. The error says why it is not (NodeExcluded), or why that is not known
    /// (UsageOutdated).
    pub fn admits(&self, nodes: &Nodes, node: &NodeFact) -> Result<(), NodeRefusal> {
        let excluded = |why: String| Err((Reason::NodeExcluded, why));
        let excepted = self.except.as_ref().map_or(Ok(false), |except| except.selects(nodes, node));
        if excepted.map_err(|why| (Reason::UsageOutdated, why))? {
            return excluded("the replicas leave it".to_owned());
        }
        if self.names_another(node) {
            return excluded(format!("not node {}", self.name.map(NodeName::as_str).unwrap_or_default()));
        }
        if let Some((key, value)) = self
            .selector
            .and_then(|selector| selector.iter().find(|(key, value)| node.labels.get(*key) != Some(*value)))
        {
            return excluded(format!("has no label {key}={value}"));
        }
        match &self.expression {
            Some(expression) if !nodes.satisfies(node, expression)? => {
                excluded(format!("`{}` does not hold", expression.as_str()))
            }
            _ => Ok(()),
        }
    }
}

/// The source as text, for messages and columns.
pub fn source_words(source: &NodeSource) -> String {
    place_words(source.node_name.as_ref(), source.node_selector.as_ref(), source.condition.as_deref())
}

/// The target as text, for messages and columns.
pub fn target_words(target: &Target) -> String {
    let asked = place_words(target.node_name.as_ref(), target.node_selector.as_ref(), target.condition.as_deref());
    match &target.policy {
        _ if !asked.is_empty() => asked,
        Some(policy) => format!("policy {policy}"),
        None => "any node".to_owned(),
    }
}

/// Labels as text, in the syntax of `kubectl -l`.
pub fn labels_words(labels: &BTreeMap<String, String>) -> String {
    place_words(None, Some(labels), None).replace(", ", ",")
}

fn place_words(
    name: Option<&NodeName>,
    selector: Option<&BTreeMap<String, String>>,
    condition: Option<&str>,
) -> String {
    let labels = selector.iter().flat_map(|selector| selector.iter()).map(|(key, value)| format!("{key}={value}"));
    let words: Vec<String> =
        name.map(NodeName::to_string).into_iter().chain(labels).chain(condition.map(str::to_owned)).collect();
    let mut text = words.join(", ");
    if text.chars().count() > 48 {
        text = text.chars().take(47).chain(['…']).collect();
    }
    text
}
