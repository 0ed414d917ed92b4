//! The reasons of PlacementPolicies: one closed set of words for conditions, events and metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::reasons::reasons;

reasons! {
    /// Reason for the state of a PlacementPolicy. The docs of each word are for users.
    PolicyReason:

    /// kube-scheduler and WorkloadActions get the policy's filters and scores.
    Serving,
    /// kube-scheduler gets no opinion, by `mode: Shadow`.
    Shadowing,
    /// Some agents know nothing of any node, and have no opinion; the message says what they lack.
    AgentsWithoutData,
    /// A field has a value that cannot be read; the message names the field.
    InvalidObject,
    /// An option of an agent is invalid; the message names it and what is valid.
    SpecInvalid,
    /// An expression does not parse, or names something unknown; the message says where.
    ExpressionInvalid,
}
