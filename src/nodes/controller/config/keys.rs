//! Keys of polls: polls of one NodeConfig, and shared polls whose answer covers many nodes.

use std::sync::Arc;

use jiff::SignedDuration;

use ganglion_api::node_config::source::CpuUsageFormat;
use ganglion_core::facts::Key;
use ganglion_nodes_plan::asked::{Question, Server};

/// Key of a poll.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PollKey {
    /// Poll for one NodeConfig.
    Own(Question, Key),
    /// Poll for all NodeConfigs that name this source.
    Shared(Arc<SharedSource>),
}

/// Source whose answer covers many nodes. The namespace is part of the identity, since Secrets differ between
/// namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SharedSource {
    Prometheus { namespace: String, server: Server, window: SignedDuration, label: String },
    MetricsServer,
    Model { namespace: String, server: Server, format: CpuUsageFormat },
}

impl PollKey {
    /// Whether the poll requests predictions from a model.
    pub fn is_model(&self) -> bool {
        matches!(self, Self::Shared(source) if matches!(**source, SharedSource::Model { .. }))
    }

    /// Question of the poll.
    pub fn question(&self) -> Question {
        match self {
            Self::Own(question, _) => *question,
            Self::Shared(source) => match **source {
                SharedSource::Prometheus { .. } | SharedSource::MetricsServer => Question::Usage,
                SharedSource::Model { .. } => Question::Power,
            },
        }
    }
}
