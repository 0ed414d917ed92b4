//! Whether a NodeConfig may be measured: its namespace, its node, and other NodeConfigs of the same node.

use jiff::Timestamp;

use ganglion_api::node_config::NodeConfig;
use ganglion_core::facts::{Identity, Key};
use ganglion_core::namespaces::Namespaces;

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
    pub fn of<'a>(
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
