//! Usage of nodes from metrics.k8s.io. It is only read while the expression of an action needs it.

use ganglion_core::facts::NodeName;
use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

/// Maximum age of a measurement: metrics-server measures every 15 s, or every minute if so configured.
const OLDEST: SignedDuration = SignedDuration::from_secs(150);

/// Usage of a node, as a fraction of its allocatable resources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeUse {
    pub cpu: Option<f64>,
    pub memory: Option<f64>,
    /// End of the time that was measured.
    pub at: Timestamp,
    /// Begin of the time that was measured.
    pub since: Timestamp,
}

/// Cached usage of all nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasuredUsage {
    nodes: HashMap<NodeName, NodeUse>,
    /// Time of the last successful reading.
    read_at: Option<Timestamp>,
    /// Reason why the last attempt to read it failed.
    problem: Option<String>,
}

impl MeasuredUsage {
    /// Stores the usage of all nodes.
    pub fn put(&mut self, nodes: HashMap<NodeName, NodeUse>, now: Timestamp) {
        *self = Self { nodes, read_at: Some(now), problem: None };
    }

    /// Records that the usage could not be read.
    pub fn failed(&mut self, problem: String) {
        self.problem = Some(problem);
    }

    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Whether the usage was read recently.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.read_at.is_some_and(|at| now.duration_since(at) <= OLDEST)
    }

    /// Usage of a node, if its measurement is recent.
    pub fn fresh(&self, node: &NodeName, now: Timestamp) -> Option<&NodeUse> {
        self.nodes.get(node).filter(|usage| now.duration_since(usage.at) <= OLDEST)
    }
}
