//! The reasons of PlacementPolicies: one closed set of words for conditions, events and metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reasons::reasons;

reasons! {
    /// Reason for the state of a PlacementPolicy. The docs of each word are for users.
    PolicyReason:

    /// kube-scheduler and WorkloadActions get the policy's filters and scores.
    Serving,
    /// kube-scheduler gets no opinion, by `mode: Shadow`.
    Shadowing,
    /// Some agents know nothing of any node, and have no opinion; the message says what they lack.
    AgentsWithoutData,
    /// What the agents had learned is lost, as the ConfigMap with it cannot be read; they start over. An event, no condition.
    MemoryLost,
    /// A field has a value that cannot be read; the message names the field.
    InvalidObject,
    /// An option of an agent is invalid; the message names it and what is valid.
    SpecInvalid,
    /// An expression does not parse, or names something unknown; the message says where.
    ExpressionInvalid,

    // Of the condition UsagePublished.
    /// The usage of nodes is written on them; the message says if that of some is not known.
    Published,
    /// Prometheus has not been asked yet.
    NotAsked,
    /// An older policy publishes the usage of nodes; the message names it.
    PublishedByAnother,
    /// The operator does not act in the namespace of the Secrets, by its settings.
    NamespaceRefused,
    /// A Secret or a ConfigMap cannot be read; the message says which.
    SecretUnavailable,
    /// Prometheus refuses the login, which is not tried again for a while.
    LoginRefused,
    /// The certificate of Prometheus is not trusted.
    CertificateRefused,
    /// The address of Prometheus is not allowed.
    AddressRefused,
    /// Prometheus does not answer.
    Unreachable,
    /// Prometheus gives an answer that cannot be used.
    AnswerInvalid,
    /// Prometheus does not have the usage of any node; the message says what is missing.
    UsageUnknown,
    /// A node could not be annotated; the message says why.
    NodeNotWritten,

    // Of the condition MemorySaved.
    /// What the agents have learned is in the ConfigMap that `status.memory` names.
    Saved,
    /// What the agents have learned is not saved, as the operator lacks a right; the message says which.
    Forbidden,
    /// What the agents have learned is not saved; the message says why.
    NotSaved,
}
