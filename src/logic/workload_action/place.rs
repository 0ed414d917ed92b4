//! The nodes that a user selects: by node name, labels and expression, all of which must match.

use std::collections::BTreeMap;

use crate::api::targets::{NodeSource, Target};
use crate::logic::expression::Expression;
use crate::logic::facts::NodeFact;
use crate::logic::world::World;

use super::nodes::Nodes;
use super::scope::Stop;

/// The user's selection of nodes.
#[derive(Default)]
pub struct Filter<'a> {
    name: Option<&'a str>,
    selector: Option<&'a BTreeMap<String, String>>,
    expression: Option<Expression>,
}

impl<'a> Filter<'a> {
    fn new(
        world: &World,
        name: Option<&'a str>,
        selector: Option<&'a BTreeMap<String, String>>,
        condition: Option<&str>,
    ) -> Result<Self, Stop> {
        let expression = condition.map(|text| world.expression(text)).transpose();
        let expression = expression.map_err(|error| Stop::expression(&error))?;
        Ok(Self { name, selector, expression })
    }

    pub fn source(world: &World, source: Option<&'a NodeSource>) -> Result<Self, Stop> {
        source.map_or(Ok(Self::default()), |source| {
            Self::new(world, source.node_name.as_deref(), source.node_selector.as_ref(), source.condition.as_deref())
        })
    }

    pub fn target(world: &World, target: Option<&'a Target>) -> Result<Self, Stop> {
        target.map_or(Ok(Self::default()), |target| {
            Self::new(world, target.node_name.as_deref(), target.node_selector.as_ref(), target.condition.as_deref())
        })
    }

    pub fn is_empty(&self) -> bool {
        self.name.is_none() && self.selector.is_none() && self.expression.is_none()
    }

    pub fn names_another(&self, node: &NodeFact) -> bool {
        self.name.is_some_and(|name| name != node.id.key.name)
    }

    pub fn admits(&self, nodes: &Nodes, node: &NodeFact) -> Result<(), String> {
        if self.names_another(node) {
            return Err(format!("not node {}", self.name.unwrap_or_default()));
        }
        if let Some((key, value)) = self
            .selector
            .and_then(|selector| selector.iter().find(|(key, value)| node.labels.get(*key) != Some(*value)))
        {
            return Err(format!("has no label {key}={value}"));
        }
        match &self.expression {
            Some(expression) if !nodes.satisfies(node, expression)? => {
                Err(format!("`{}` does not hold", expression.as_str()))
            }
            _ => Ok(()),
        }
    }
}

/// The source as text, for messages and columns.
#[must_use]
pub fn source_words(source: &NodeSource) -> String {
    place_words(source.node_name.as_deref(), source.node_selector.as_ref(), source.condition.as_deref())
}

/// The target as text, for messages and columns.
#[must_use]
pub fn target_words(target: &Target) -> String {
    place_words(target.node_name.as_deref(), target.node_selector.as_ref(), target.condition.as_deref())
}

fn place_words(name: Option<&str>, selector: Option<&BTreeMap<String, String>>, condition: Option<&str>) -> String {
    let labels = selector.iter().flat_map(|selector| selector.iter()).map(|(key, value)| format!("{key}={value}"));
    let words: Vec<String> =
        name.map(str::to_owned).into_iter().chain(labels).chain(condition.map(str::to_owned)).collect();
    let mut text = words.join(", ");
    if text.chars().count() > 48 {
        text = text.chars().take(47).chain(['…']).collect();
    }
    text
}
