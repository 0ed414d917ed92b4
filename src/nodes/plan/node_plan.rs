//! Plan of one NodeConfig: what to measure, and whether it may be measured.

use ganglion_api::node_config::NodeConfig;
use ganglion_api::node_config::status::NodeValue;
use ganglion_core::namespaces::Namespaces;

use crate::asked::{Asked, SpecProblem};
use crate::standing::Standing;

/// Measurements of a node, and whether they are allowed.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    pub asked: Result<Asked, SpecProblem>,
    pub standing: Standing,
}

/// Node and values whose metric series stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricSeries<'a> {
    pub node: &'a str,
    pub values: Vec<&'static str>,
}

impl NodePlan {
    /// Plans this NodeConfig. `others` are the other NodeConfigs of its node.
    pub fn new<'a>(
        object: &NodeConfig,
        namespaces: Namespaces,
        node_exists: bool,
        others: impl IntoIterator<Item = &'a NodeConfig>,
    ) -> Self {
        let standing = Standing::of(object, namespaces, node_exists, others);
        Self { asked: Asked::parse(&object.spec), standing }
    }

    /// Parsed spec; None if the NodeConfig must not be measured.
    pub fn measured(&self) -> Option<&Asked> {
        let asked = self.asked.as_ref().ok().filter(|asked| !asked.suspended);
        asked.filter(|_| self.standing == Standing::Clear)
    }

    /// Metric series that stay. If the NodeConfig is suspended or its node is missing, the series become stale.
    pub fn metric_series(&self) -> MetricSeries<'_> {
        match (&self.asked, &self.standing) {
            (Err(_), _) | (_, Standing::Conflict(_) | Standing::NamespaceRefused(_)) => MetricSeries::default(),
            (Ok(asked), Standing::Clear | Standing::NodeNotFound) => {
                MetricSeries { node: &asked.node, values: asked.values().map(NodeValue::as_str).collect() }
            }
        }
    }
}
