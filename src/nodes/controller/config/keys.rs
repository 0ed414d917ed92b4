//! The names of polls: what one NodeConfig asks alone, and what one answer tells of many nodes.

use std::sync::Arc;

use jiff::SignedDuration;

use ganglion_api::node_config::source::CpuUsageFormat;
use ganglion_core::facts::Key;
use ganglion_nodes_plan::asked::{Question, Server};

/// A poll.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PollKey {
    /// Of one NodeConfig.
    Own(Question, Key),
    /// Of all NodeConfigs that name this source.
    Shared(Arc<SharedSource>),
}

/// A source that is asked about many nodes at once. Those of another namespace may have other Secrets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SharedSource {
    Prometheus { namespace: String, server: Server, window: SignedDuration, label: String },
    MetricsServer,
    Model { namespace: String, server: Server, format: CpuUsageFormat },
}

impl PollKey {
    /// Whether it asks a model for predictions.
    pub fn is_model(&self) -> bool {
        matches!(self, Self::Shared(source) if matches!(**source, SharedSource::Model { .. }))
    }

    /// What it asks for.
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
