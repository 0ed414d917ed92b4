//! Usage of nodes from metrics.k8s.io. It is only read while the expression of an action needs it.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use super::World;
use crate::expression::MeasuredView;
use crate::node_values::measured;
use ganglion_api::workload_action::WorkloadAction;

/// Maximum age of a measurement: metrics-server measures every 15 s, or every minute if so configured.
pub const OLDEST: SignedDuration = SignedDuration::from_secs(150);

/// Usage of a node, as a fraction of its allocatable resources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeUse {
    pub cpu: Option<f64>,
    pub memory: Option<f64>,
    /// Time of the measurement.
    pub at: Timestamp,
}

/// Cached usage of all nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasuredUsage {
    nodes: HashMap<String, NodeUse>,
    /// Time of the last successful reading.
    read_at: Option<Timestamp>,
    /// Reason why the last attempt to read it failed.
    problem: Option<String>,
}

impl World {
    /// Stores the usage of all nodes.
    pub fn put_usage(&mut self, nodes: HashMap<String, NodeUse>, now: Timestamp) {
        self.usage = MeasuredUsage { nodes, read_at: Some(now), problem: None };
    }

    /// Records that the usage could not be read. The last usage counts until it is too old.
    pub fn usage_failed(&mut self, problem: String) {
        self.usage.problem = Some(problem);
    }

    /// Measured values of a node, for expressions: from its NodeConfigs; a missing CPU or memory usage comes from
    /// metrics.k8s.io.
    pub fn measured(&self, node: &str, now: Timestamp) -> MeasuredView {
        let known = measured(self.node_configs_of(node), now);
        let is_fresh = |usage: &&NodeUse| now.duration_since(usage.at) <= OLDEST;
        let usage = self.usage.nodes.get(node).filter(is_fresh);
        MeasuredView { cpu: known.cpu.or_else(|| usage?.cpu), memory: known.memory.or_else(|| usage?.memory), ..known }
    }

    /// Whether an expression of an unfinished action reads the usage of nodes.
    pub fn wants_usage(&self) -> bool {
        self.index.expressions.any(|expression| expression.reads_usage())
    }

    /// Reason why an action whose expressions read the usage of nodes cannot be planned yet: the usage was not read
    /// recently. None if NodeConfigs measure every node. If reading fails, expressions that test with `has(…)` whether
    /// the usage is available do not block the plan.
    pub fn unknown_usage(&self, action: &WorkloadAction, now: Timestamp) -> Option<String> {
        let mut all = super::expressions::conditions(&action.spec).filter_map(|text| self.expression(text).ok());
        let MeasuredUsage { read_at, problem, .. } = &self.usage;
        let reads = match problem {
            None => all.any(|expression| expression.reads_usage()),
            Some(_) => all.any(|expression| expression.needs_usage()),
        };
        let is_known = read_at.is_some_and(|at| now.duration_since(at) <= OLDEST);
        let is_measured = |node: &str| {
            let known = measured(self.node_configs_of(node), now);
            known.cpu.is_some() && known.memory.is_some()
        };
        if !reads || is_known || self.nodes().all(|node| is_measured(&node.id.key.name)) {
            return None;
        }
        Some(problem.clone().unwrap_or_else(|| "metrics.k8s.io has not been read yet".to_owned()))
    }
}
