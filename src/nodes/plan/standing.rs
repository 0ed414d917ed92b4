//! Whether a NodeConfig may be measured at all: its namespace, its node, and others of the same node.

use jiff::Timestamp;

use ganglion_api::node_config::NodeConfig;
use ganglion_core::facts::{Identity, Key};
use ganglion_core::namespaces::Namespaces;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may.
    Clear,
    /// The settings exclude its namespace; the text says which.
    NamespaceRefused(String),
    /// The cluster has no such node.
    NodeNotFound,
    /// This older one describes the same node.
    Conflict(Key),
}

impl Standing {
    /// The standing of this NodeConfig beside all others of its node. Which of two wins does not depend on who asks: the older
    /// one, then the first by namespace and name.
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
        // One in an excluded namespace is never measured; one that is suspended still holds its node.
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

/// When it was made; one without a time counts as new.
fn age(object: &NodeConfig) -> Timestamp {
    object.metadata.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0)
}

fn key_of(object: &NodeConfig) -> Key {
    Identity::from(&object.metadata).key
}
