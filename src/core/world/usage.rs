//! The usage of nodes as metrics.k8s.io serves it: read while the expression of an action asks for it, and only then.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use super::World;
use crate::expression::MeasuredView;
use crate::node_values::measured;
use ganglion_api::workload_action::WorkloadAction;

/// How old a measurement may be: metrics-server measures every 15 s, or once a minute where it is told so.
pub const OLDEST: SignedDuration = SignedDuration::from_secs(150);

/// What a node uses, as parts of 1 of what it has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeUse {
    pub cpu: Option<f64>,
    pub memory: Option<f64>,
    /// When it was measured.
    pub at: Timestamp,
}

/// What is known of the usage of nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasuredUsage {
    nodes: HashMap<String, NodeUse>,
    /// When it was last read.
    read_at: Option<Timestamp>,
    /// Why the last attempt to read it failed.
    problem: Option<String>,
}

impl World {
    /// The usage of all nodes was read.
    pub fn put_usage(&mut self, nodes: HashMap<String, NodeUse>, now: Timestamp) {
        self.usage = MeasuredUsage { nodes, read_at: Some(now), problem: None };
    }

    /// The usage could not be read. What was read before counts until it is too old.
    pub fn usage_failed(&mut self, problem: String) {
        self.usage.problem = Some(problem);
    }

    /// What is measured of a node, for expressions: by its NodeConfigs, and its usage otherwise by metrics.k8s.io.
    #[must_use]
    pub fn measured(&self, node: &str, now: Timestamp) -> MeasuredView {
        let known = measured(self.node_configs_of(node), now);
        let is_fresh = |usage: &&NodeUse| now.duration_since(usage.at) <= OLDEST;
        let usage = self.usage.nodes.get(node).filter(is_fresh);
        MeasuredView { cpu: known.cpu.or_else(|| usage?.cpu), memory: known.memory.or_else(|| usage?.memory), ..known }
    }

    /// Whether an expression of an action that has not ended reads the usage of nodes.
    #[must_use]
    pub fn wants_usage(&self) -> bool {
        self.index.expressions.any(|expression| expression.reads_usage())
    }

    /// Why an action cannot be planned yet whose expressions read the usage of nodes: it was not read lately. None if NodeConfigs
    /// measure every node. One that tests by `has(…)` whether a usage is known can be planned where it is known that there is none.
    #[must_use]
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
