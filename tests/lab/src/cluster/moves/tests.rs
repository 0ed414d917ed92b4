//! Moves on some nodes, decided by the shipped loop and planner.

use serde_json::json;

use super::*;
use crate::fleet::{FleetServer, ServerModel};

const REPLICA: PodRequest = PodRequest { pod: 0, service: Some(3), cpu: 1.0, memory: 1.0 };

/// A node with ten threads that adds this many watts per thread.
fn server(watts: f64) -> LabNode {
    let name = format!("m{watts}");
    let model = ServerModel { name, threads: 10.0, idle_watts: 50.0, full_watts: 50.0 + 10.0 * watts };
    LabNode::new(FleetServer { site: 0, model: Arc::new(model) })
}

/// A cluster in which replicas of one service run.
struct MovingCluster {
    operator: LabOperator,
    nodes: Vec<LabNode>,
}

impl MovingCluster {
    /// Replicas with the indexes 0, 1, …, one on each of these nodes.
    fn new(rules: MoveRules, agents: Option<&Value>, mut nodes: Vec<LabNode>, replicas: &[usize]) -> Self {
        let service = MovableService { service: 3, request: REPLICA, site: 0 };
        let mut operator = LabOperator::new(rules, agents, vec![service], &nodes).unwrap();
        for (pod, node) in replicas.iter().enumerate() {
            let request = PodRequest { pod, ..REPLICA };
            nodes[*node].bind(&request, 0);
            operator.bound(&request, *node, 0);
            operator.started(&request, *node, 0);
        }
        Self { operator, nodes }
    }

    /// Measures these used cores, and lets the operator act.
    fn step(&mut self, used: &[f64], now: i64) -> Vec<BegunMove> {
        self.nodes.iter_mut().zip(used).for_each(|(node, used)| node.record(*used, *used));
        self.operator.sampled(&self.nodes, &vec![20.0; self.nodes.len()], now);
        self.operator.step(&self.nodes, now).unwrap()
    }

    /// Binds the replacement of a move.
    fn start(&mut self, begun: &BegunMove, pod: usize, now: i64) {
        let request = PodRequest { pod, ..REPLICA };
        self.operator.replace(begun, &request);
        self.nodes[begun.node].bind(&request, now);
        self.operator.bound(&request, begun.node, now);
    }
}

fn places(begun: &[BegunMove]) -> Vec<(usize, usize)> {
    begun.iter().map(|begun| (begun.pod, begun.node)).collect()
}

#[test]
fn a_busy_node_is_relieved_after_half_a_minute() {
    let mut cluster = MovingCluster::new(MoveRules::Relief, None, vec![server(10.0), server(10.0)], &[0, 0]);
    assert_eq!(cluster.step(&[9.5, 1.0], 30), []);
    assert_eq!(cluster.step(&[9.5, 1.0], 45), []);
    let begun = cluster.step(&[9.5, 1.0], 60);
    // The first one by name, since the replicas are equal otherwise.
    assert_eq!(places(&begun), [(0, 1)]);
}

#[test]
fn a_calm_node_keeps_its_replicas() {
    let mut cluster = MovingCluster::new(MoveRules::Relief, None, vec![server(10.0), server(10.0)], &[0, 0]);
    for now in (30..600).step_by(30) {
        assert_eq!(cluster.step(&[8.9, 1.0], now), [], "{now}");
    }
}

#[test]
fn a_loop_waits_for_its_move_and_for_its_dwell_time() {
    let mut cluster = MovingCluster::new(MoveRules::Relief, None, vec![server(10.0), server(10.0)], &[0, 0, 0]);
    let mut moves = Vec::new();
    for now in (15..=300).step_by(15) {
        for begun in cluster.step(&[9.5, 1.0], now) {
            moves.push((now, begun.pod));
            cluster.start(&begun, 10 + moves.len(), now);
        }
        if now == 90 {
            let replacement = PodRequest { pod: 11, ..REPLICA };
            cluster.operator.hand_over(&replacement, 1, 60, now).unwrap();
            cluster.operator.ended(&PodRequest { pod: 0, ..REPLICA });
        }
    }
    // The loop reads at 105 s that the first one has ended. The second one does not end.
    assert_eq!(moves, [(60, 0), (165, 1)]);
}

#[test]
fn the_policy_chooses_the_target() {
    let agents = json!([{"name": "power", "power": {}}]);
    let nodes = || vec![server(10.0), server(9.0), server(1.0)];
    let mut cluster = MovingCluster::new(MoveRules::Relief, Some(&agents), nodes(), &[0]);
    cluster.step(&[9.5, 1.0, 5.0], 30);
    assert_eq!(places(&cluster.step(&[9.5, 1.0, 5.0], 60)), [(0, 2)], "the node that adds least power");
    let mut without = MovingCluster::new(MoveRules::Relief, None, nodes(), &[0, 2]);
    without.step(&[9.5, 1.0, 5.0], 30);
    assert_eq!(places(&without.step(&[9.5, 1.0, 5.0], 60)), [(0, 1)], "the node with most room");
}

/// No node is below 70 %: the action fails, and the loop tries again after its pause.
#[test]
fn a_move_without_a_target_is_tried_again() {
    let mut cluster = MovingCluster::new(MoveRules::Relief, None, vec![server(10.0), server(10.0)], &[0]);
    for now in (30..300).step_by(30) {
        assert_eq!(cluster.step(&[9.5, 8.0], now), [], "{now}");
    }
    let later: Vec<_> = (300..420).step_by(30).flat_map(|now| cluster.step(&[9.5, 2.0], now)).collect();
    assert_eq!(places(&later), [(0, 1)]);
}

/// The replica is scaled away while its replacement starts: the loop may act again.
#[test]
fn a_move_is_cancelled() {
    let mut cluster = MovingCluster::new(MoveRules::Relief, None, vec![server(10.0), server(10.0)], &[0, 0]);
    cluster.step(&[9.5, 1.0], 30);
    let begun = cluster.step(&[9.5, 1.0], 60);
    cluster.start(&begun[0], 11, 60);
    cluster.operator.ended(&PodRequest { pod: 0, ..REPLICA });
    let replacement = PodRequest { pod: 11, ..REPLICA };
    cluster.operator.cancel(&replacement, 75).unwrap();
    cluster.operator.ended(&replacement);
    let later: Vec<_> = (90..300).step_by(30).flat_map(|now| cluster.step(&[9.5, 1.0], now)).collect();
    assert_eq!(places(&later), [(1, 1)]);
}

#[test]
fn consolidation_moves_replicas_to_the_best_model() {
    let nodes = || vec![server(9.0), server(5.0), server(1.0)];
    let mut cluster = MovingCluster::new(MoveRules::Consolidation, None, nodes(), &[1, 2]);
    assert_eq!(places(&cluster.step(&[1.0, 1.0, 1.0], 30)), [(0, 2)]);
    let mut calm = MovingCluster::new(MoveRules::Relief, None, nodes(), &[1, 2]);
    assert_eq!(calm.step(&[1.0, 1.0, 1.0], 30), []);
}
