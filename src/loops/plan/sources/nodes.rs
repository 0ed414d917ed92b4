//! Value of one node, or aggregate of several, from the status of their NodeConfigs.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::common::number_text;
use crate::monitoring::SourceResult;
use ganglion_api::closed_loop::source::{NodeAggregate, NodeConfigField};
use ganglion_api::node_config::NodeConfigStatus;
use ganglion_core::node_values::{fresh, means};

/// Node that the source may select.
#[derive(Clone, Copy, Debug)]
pub struct KnownNode<'a> {
    pub name: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    /// Status of its NodeConfig in the namespace that the source names; None if there is no NodeConfig.
    pub status: Option<&'a NodeConfigStatus>,
}

/// Computes the value. Nodes without a fresh value are ignored, except in a sum, which would be too low without them.
/// An error names the first such node by name.
pub fn amount<'a>(
    source: &NodeConfigField,
    nodes: impl IntoIterator<Item = KnownNode<'a>>,
    now: Timestamp,
) -> SourceResult {
    let (mut values, mut problems) = (Vec::new(), Vec::new());
    for node in nodes.into_iter().filter(|node| means(source, node.name, node.labels)) {
        match node.status {
            None => problems.push((node.name, "it has no NodeConfig".to_owned())),
            Some(status) => match fresh(Some(status), source.field, now) {
                Ok(value) => values.push(value),
                Err(problem) => problems.push((node.name, problem)),
            },
        }
    }
    let (count, field) = (values.len() as f64, source.field.as_str());
    let of = source.of.unwrap_or_default();
    let first = problems.iter().min();
    let value = match (of, first) {
        (_, None) if values.is_empty() => return Err(nobody(source)),
        (NodeAggregate::Count, _) => count,
        (NodeAggregate::Sum, Some((name, problem))) => return Err(format!("{field} of node {name}: {problem}")),
        (_, Some((name, problem))) if values.is_empty() => return Err(format!("{field} of node {name}: {problem}")),
        (NodeAggregate::Sum, None) => values.iter().sum(),
        (NodeAggregate::Mean, _) => values.iter().sum::<f64>() / count,
        (NodeAggregate::Max, _) => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        (NodeAggregate::Min, _) => values.iter().copied().fold(f64::INFINITY, f64::min),
    };
    Ok(number_text(value).0.into())
}

/// Message if the source selects no node.
fn nobody(source: &NodeConfigField) -> String {
    match &source.node_name {
        Some(name) => format!("there is no node {name}"),
        None => "no node has the labels of nodeSelector".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    /// Evaluates the source on six nodes: three in row a, of which one is stale; one in row b; one in row c without a
    /// NodeConfig; and a stale one in row d.
    fn found(source: Value) -> Result<String, String> {
        let source: NodeConfigField = serde_json::from_value(source).unwrap();
        let status = |value: &str, stale: bool| -> NodeConfigStatus {
            let mut reading = json!({"value": value});
            if stale {
                reading["stale"] = json!(true);
                reading["problem"] = json!("no answer");
            }
            serde_json::from_value(json!({"validUntil": "2026-01-01T00:00:00Z", "cpu": reading})).unwrap()
        };
        let all = [
            ("a1", "a", Some(status("10", false))),
            ("a2", "a", Some(status("20.5", false))),
            ("a3", "a", Some(status("99", true))),
            ("b1", "b", Some(status("-4", false))),
            ("c1", "c", None),
            ("d1", "d", Some(status("1", true))),
        ];
        let labels = |row: &str| BTreeMap::from([("row".to_owned(), row.to_owned())]);
        let labelled: Vec<_> = all.iter().map(|(name, row, status)| (*name, labels(row), status.as_ref())).collect();
        let nodes = labelled.iter().map(|(name, labels, status)| KnownNode { name, labels, status: *status });
        amount(&source, nodes, Timestamp::UNIX_EPOCH).map(|found| found.value)
    }

    #[rstest]
    #[case(json!({"nodeName": "a2", "field": "cpu"}), Ok("20.5"))]
    #[case(json!({"nodeName": "a3", "field": "cpu"}), Err("cpu of node a3: it is stale: no answer"))]
    #[case(json!({"nodeName": "a2", "field": "power"}), Err("power of node a2: it is not measured"))]
    #[case(json!({"nodeName": "c1", "field": "cpu"}), Err("cpu of node c1: it has no NodeConfig"))]
    #[case(json!({"nodeName": "z", "field": "cpu"}), Err("there is no node z"))]
    #[case(json!({"nodeSelector": {"row": "a"}, "field": "cpu"}), Ok("15.25"))]
    #[case(json!({"nodeSelector": {"row": "a"}, "field": "cpu", "of": "Max"}), Ok("20.5"))]
    #[case(json!({"nodeSelector": {"row": "a"}, "field": "cpu", "of": "Min"}), Ok("10"))]
    #[case(json!({"nodeSelector": {"row": "a"}, "field": "cpu", "of": "Count"}), Ok("2"))]
    #[case(json!({"nodeSelector": {"row": "a"}, "field": "cpu", "of": "Sum"}), Err("cpu of node a3: it is stale: no answer"))]
    #[case(json!({"nodeSelector": {"row": "b"}, "field": "cpu", "of": "Sum"}), Ok("-4"))]
    #[case(json!({"nodeSelector": {"row": "c"}, "field": "cpu", "of": "Count"}), Ok("0"))]
    #[case(json!({"nodeSelector": {"row": "d"}, "field": "cpu"}), Err("cpu of node d1: it is stale: no answer"))]
    #[case(json!({"nodeSelector": {"row": "e"}, "field": "cpu"}), Err("no node has the labels of nodeSelector"))]
    #[case(json!({"nodeSelector": {"row": "e"}, "field": "cpu", "of": "Count"}), Err("no node has the labels of nodeSelector"))]
    fn nodes_become_one_number(#[case] source: Value, #[case] expected: Result<&str, &str>) {
        assert_eq!(found(source).as_deref().map_err(String::as_str), expected);
    }
}
