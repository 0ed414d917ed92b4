//! How jobs are dealt out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which worker gets which job.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AssignmentStrategy {
    /// Moves as few jobs as possible when workers or jobs come and go.
    #[default]
    Stable,
    /// Each worker has a block of jobs that are next to each other by name.
    Contiguous,
}
