//! Tests of the simulated cluster against the known behavior of real ones.

mod api_server;
mod budgets;
mod deployments;
mod nodes;
mod replica_sets;
mod victim_order;

use std::collections::BTreeSet;
use std::sync::Arc;

use ganglion_api::marks;
use ganglion_core::facts::Key;

use super::api::{Api, FailingWebhook, If, Refused};
use super::build::{NAMESPACE, PodShape};
use super::object::{Action, Deployment, Fate, Meta, Node, Phase, Pod, Rule, Set, Template};
use super::{Part, SimulatedCluster, victims};
use crate::random::Rng;

fn key(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

fn shape() -> PodShape {
    PodShape { cpu: 100, grace: 30, ..PodShape::default() }
}

/// Four nodes, and a Deployment `web` that settled an hour ago.
fn settled(seed: u64, replicas: i32) -> SimulatedCluster {
    let mut cluster = SimulatedCluster::new(Api::new(Rng::new(seed)));
    for index in 0..4 {
        cluster.api.add_node(&format!("node-{index}"), "a", 10_000, 50, Fate::Good);
    }
    cluster.api.add_deployment("web", replicas, &shape());
    while cluster.quiesce() {}
    cluster.api.clock += 3_600_000;
    while cluster.quiesce() {}
    cluster
}

fn pods(cluster: &SimulatedCluster) -> Vec<Arc<Pod>> {
    cluster.api.pods.values().cloned().collect()
}

fn serving(cluster: &SimulatedCluster) -> usize {
    cluster.api.pods.values().filter(|pod| pod.is_serving()).count()
}
