//! Aggregation of the values of pods.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Aggregation of several numbers.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregate {
    #[default]
    Mean,
    Max,
    Min,
    Sum,
}
