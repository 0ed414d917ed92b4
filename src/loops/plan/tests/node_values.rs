//! Tests of values that are aggregated from the statuses of NodeConfigs.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use crate::sources::{SelectableNode, node_value};
use ganglion_api::closed_loop::metric::NodeConfigField;
use ganglion_api::node_config::NodeConfigStatus;

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
    let nodes =
        labelled.iter().map(|(name, labels, status)| SelectableNode { name: (*name).into(), labels, status: *status });
    node_value(&source, nodes, Timestamp::UNIX_EPOCH).map(|found| found.value)
}

/// One measurement serves one action: the oldest one of an aggregate, and that of the node with the extreme value.
#[rstest]
#[case("Mean", 10)]
#[case("Sum", 10)]
#[case("Count", 10)]
#[case("Max", 20)]
#[case("Min", 30)]
fn a_value_was_measured_when_its_nodes_were(#[case] of: &str, #[case] second: i64) {
    let source = json!({"nodeSelector": {}, "field": "cpu", "of": of});
    let source: NodeConfigField = serde_json::from_value(source).unwrap();
    let at = |second| Timestamp::from_second(second).unwrap();
    let statuses = [(10, "50"), (20, "90"), (30, "10")].map(|(second, value)| -> NodeConfigStatus {
        let reading = json!({"value": value, "sampledAt": at(second).to_string()});
        serde_json::from_value(json!({"validUntil": "2026-01-01T00:00:00Z", "cpu": reading})).unwrap()
    });
    let labels = BTreeMap::new();
    let names = ["a", "b", "c"];
    let nodes = names.iter().zip(&statuses).map(|(name, status)| SelectableNode {
        name: (*name).into(),
        labels: &labels,
        status: Some(status),
    });
    assert_eq!(node_value(&source, nodes, at(40)).unwrap().measured, Some(at(second)));
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
