//! Points of policies for simulated nodes, by the shipped planner.

use std::sync::Arc;

use serde_json::json;

use super::PolicyScheduler;
use crate::cluster::{LabNode, Placer, PodRequest, UsageStatistics};
use crate::fleet::{FleetServer, ServerModel};

/// A node with this many threads that adds ten watts per thread.
pub fn node(threads: f64) -> LabNode {
    server(threads, 10.0)
}

fn server(threads: f64, watts: f64) -> LabNode {
    let model = ServerModel { name: "m".to_owned(), threads, idle_watts: 50.0, full_watts: 50.0 + watts * threads };
    LabNode::new(FleetServer { site: 0, model: Arc::new(model) })
}

const POD: PodRequest = PodRequest { pod: 7, service: None, cpu: 1.0, memory: 2.0 };

fn points(agents: &serde_json::Value, nodes: &mut [LabNode]) -> Vec<Option<f64>> {
    let mut scheduler = PolicyScheduler::new(agents, nodes).unwrap();
    scheduler.sampled(nodes, &vec![20.0; nodes.len()], 60).unwrap();
    let candidates: Vec<usize> = (0..nodes.len()).collect();
    scheduler.points(&POD, &candidates, nodes, 60).unwrap()
}

/// The pod adds ten watts on one node and two on the other: 10 and 2 points with weight 50.
#[test]
fn power_prefers_the_node_that_adds_least() {
    let mut nodes = [server(16.0, 10.0), server(16.0, 2.0)];
    let points = points(&json!([{"name": "power", "power": {}}]), &mut nodes);
    let [old, new] = points[..] else { panic!("{points:?}") };
    assert!((new.unwrap() - old.unwrap() - 8.0 * 50.0).abs() < 1e-9, "{old:?} {new:?}");
}

#[test]
fn safe_rejects_a_node_at_risk() {
    let mut nodes = [node(10.0), node(10.0)];
    nodes[0].sampled = Some((60, UsageStatistics { mean: 8.5, deviation: 1.0 }));
    nodes[1].sampled = Some((60, UsageStatistics { mean: 4.0, deviation: 1.0 }));
    let points = points(&json!([{"name": "safe", "safe": {}}]), &mut nodes);
    assert!(points[0].is_none() && points[1].is_some(), "{points:?}");
}

#[test]
fn safe_counts_pods_that_usage_does_not_show() {
    let mut nodes = [node(10.0)];
    nodes[0].sampled = Some((60, UsageStatistics { mean: 4.0, deviation: 1.0 }));
    let mut scheduler = PolicyScheduler::new(&json!([{"name": "safe", "safe": {}}]), &nodes).unwrap();
    scheduler.sampled(&nodes, &[20.0], 60).unwrap();
    let accepts = |scheduler: &mut PolicyScheduler| scheduler.points(&POD, &[0], &nodes, 60).unwrap()[0].is_some();
    assert!(accepts(&mut scheduler));
    let large = PodRequest { pod: 8, service: None, cpu: 5.0, memory: 2.0 };
    scheduler.bound(&large, 0, 60).unwrap();
    assert!(!accepts(&mut scheduler), "the pod counts from its binding on");
    scheduler.started(&large, 0, 60).unwrap();
    assert!(!accepts(&mut scheduler), "the pod counts while it is not part of the sample");
    scheduler.ended(&large).unwrap();
    assert!(accepts(&mut scheduler), "the pod has left");
}

#[test]
fn congestion_prefers_the_calm_node() {
    let mut nodes = [node(10.0), node(10.0)];
    for (node, wanted) in nodes.iter_mut().zip([10.0, 1.0]) {
        node.record(wanted, wanted);
        node.sampled = Some((60, UsageStatistics::default()));
    }
    let points = points(&json!([{"name": "congestion", "congestion": {}}]), &mut nodes);
    let [busy, calm] = points[..] else { panic!("{points:?}") };
    // 0 and 9 of 10 points.
    assert!((calm.unwrap() - busy.unwrap() - 9.0 * 50.0).abs() < 1e-9, "{points:?}");
}
