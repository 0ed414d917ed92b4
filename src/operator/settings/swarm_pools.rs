//! Settings of the SwarmPool controller.

use serde::Deserialize;

/// Settings of the SwarmPool controller.
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SwarmPools {
    /// Number of pools that are reconciled at the same time, 1 to 1000. Default: 8.
    pub concurrency: usize,
    /// Maximum number of concurrent version probes of workers, 1 to 10000. Default: 256.
    pub probes: usize,
}

impl Default for SwarmPools {
    fn default() -> Self {
        Self { concurrency: 8, probes: 256 }
    }
}
