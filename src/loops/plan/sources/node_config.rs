//! Values that are aggregated from the statuses of NodeConfigs.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::common::number_text;
use crate::monitoring::{SourceResult, SourceValue};
use ganglion_api::closed_loop::metric::{NodeAggregate, NodeConfigField};
use ganglion_api::node_config::NodeConfigStatus;
use ganglion_core::facts::NodeName;
use ganglion_core::node_values::{fresh, means};

/// Node that the source may select.
#[derive(Clone, Debug)]
pub struct SelectableNode<'a> {
    pub name: NodeName,
    pub labels: &'a BTreeMap<String, String>,
    /// Status of its NodeConfig in the namespace that the source names; None if there is no NodeConfig.
    pub status: Option<&'a NodeConfigStatus>,
}

/// Computes the value. Nodes without a fresh value are ignored, except in a sum, which would be too low without them.
/// An error names the first such node by name.
pub fn node_value<'a>(
    source: &NodeConfigField,
    nodes: impl IntoIterator<Item = SelectableNode<'a>>,
    now: Timestamp,
) -> SourceResult {
    let (mut values, mut problems) = (Vec::new(), Vec::new());
    for node in nodes.into_iter().filter(|node| means(source, &node.name, node.labels)) {
        match node.status {
            None => problems.push((node.name, "it has no NodeConfig".to_owned())),
            Some(status) => match fresh(Some(status), source.field, now) {
                Ok(value) => values.push((value, sampled_at(status, source))),
                Err(problem) => problems.push((node.name, problem)),
            },
        }
    }
    let (count, field) = (values.len() as f64, source.field.as_str());
    let of = source.of.unwrap_or_default();
    let first = problems.iter().min();
    let times = || values.iter().filter_map(|(_, at)| *at);
    let numbers = || values.iter().map(|(value, _)| *value);
    let (value, measured) = match (of, first) {
        (_, None) if values.is_empty() => return Err(no_node_message(source)),
        (NodeAggregate::Count, _) => (count, times().min()),
        (NodeAggregate::Sum, Some((name, problem))) => return Err(format!("{field} of node {name}: {problem}")),
        (_, Some((name, problem))) if values.is_empty() => return Err(format!("{field} of node {name}: {problem}")),
        (NodeAggregate::Sum, None) => (numbers().sum(), times().min()),
        (NodeAggregate::Mean, _) => (numbers().sum::<f64>() / count, times().min()),
        (NodeAggregate::Max, _) => extreme(values.iter().max_by(|one, other| one.0.total_cmp(&other.0))),
        (NodeAggregate::Min, _) => extreme(values.iter().min_by(|one, other| one.0.total_cmp(&other.0))),
    };
    Ok(SourceValue { measured, ..SourceValue::from(number_text(value).0) })
}

/// When the value of the node was measured. A later measurement that differs by less than the deadband is not written
/// before the heartbeat, so the value counts as measured at this time until then.
fn sampled_at(status: &NodeConfigStatus, source: &NodeConfigField) -> Option<Timestamp> {
    status.reading(source.field)?.sampled_at.as_ref().map(|at| at.0)
}

fn extreme(value: Option<&(f64, Option<Timestamp>)>) -> (f64, Option<Timestamp>) {
    value.copied().unwrap_or((0.0, None))
}

/// Message if the source selects no node.
fn no_node_message(source: &NodeConfigField) -> String {
    match &source.node_name {
        Some(name) => format!("there is no node {name}"),
        None => "no node has the labels of nodeSelector".to_owned(),
    }
}
