//! Plan of one NodeConfig: what to measure, and whether it may be measured: its namespace, its node, and other
//! NodeConfigs of the same node.

use jiff::Timestamp;

use ganglion_api::node_config::NodeConfig;
use ganglion_api::node_config::status::NodeValue;
use ganglion_core::facts::{Identity, Key};
use ganglion_core::namespaces::Namespaces;

use crate::node_spec::{ParsedNodeSpec, SpecProblem};

/// Name of the error of predicted power among the values in metrics.
pub const POWER_ERROR: &str = "powerError";

/// Measurements of a node, and whether they are allowed.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    pub parsed: Result<ParsedNodeSpec, SpecProblem>,
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
        let standing = Standing::assess(object, namespaces, node_exists, others);
        Self { parsed: ParsedNodeSpec::parse(&object.spec), standing }
    }

    /// Parsed spec; None if the NodeConfig must not be measured.
    pub fn measured(&self) -> Option<&ParsedNodeSpec> {
        let parsed = self.parsed.as_ref().ok().filter(|parsed| !parsed.suspended);
        parsed.filter(|_| self.standing == Standing::Clear)
    }

    /// Metric series that stay. If the NodeConfig is suspended or its node is missing, the series become stale.
    pub fn metric_series(&self) -> MetricSeries<'_> {
        match (&self.parsed, &self.standing) {
            (Err(_), _) | (_, Standing::Conflict(_) | Standing::NamespaceRefused(_)) => MetricSeries::default(),
            (Ok(parsed), Standing::Clear | Standing::NodeNotFound) => {
                let error = parsed.error_window.map(|_| POWER_ERROR);
                let values = parsed.values().map(NodeValue::as_str).chain(error).collect();
                MetricSeries { node: parsed.node.as_str(), values }
            }
        }
    }
}

/// Whether a NodeConfig may be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The NodeConfig may be measured.
    Clear,
    /// The operator's settings exclude the namespace; the text names the setting.
    NamespaceRefused(String),
    /// The cluster has no node of this name.
    NodeNotFound,
    /// This older NodeConfig describes the same node.
    Conflict(Key),
}

impl Standing {
    /// Compares this NodeConfig with all others of its node. The order is the same for each of them: the oldest
    /// NodeConfig wins, ties are resolved by namespace and name.
    pub fn assess<'a>(
        own: &NodeConfig,
        namespaces: Namespaces,
        node_exists: bool,
        others: impl IntoIterator<Item = &'a NodeConfig>,
    ) -> Self {
        let (key, age) = (key_of(own), age(own));
        if let Some(words) = namespaces.refusal(&key.namespace) {
            return Self::NamespaceRefused(words);
        }
        // A NodeConfig in an excluded namespace is never measured. A suspended one keeps its claim on the node.
        let others = others.into_iter().filter(|other| {
            other.spec.node_name == own.spec.node_name
                && other.metadata.deletion_timestamp.is_none()
                && namespaces.refusal(&key_of(other).namespace).is_none()
        });
        let first = others.map(|other| (self::age(other), key_of(other))).min();
        match first.filter(|first| *first < (age, key)) {
            Some((_, older)) => Self::Conflict(older),
            None if !node_exists => Self::NodeNotFound,
            None => Self::Clear,
        }
    }
}

/// Creation time; an object without one counts as new.
fn age(object: &NodeConfig) -> Timestamp {
    object.metadata.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0)
}

fn key_of(object: &NodeConfig) -> Key {
    Identity::from(&object.metadata).key
}
