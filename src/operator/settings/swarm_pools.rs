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
    /// Maximum memory, as an estimate in bytes, for the jobs of all pools of one namespace, 1048576 to 68719476736. A
    /// job counts 480 bytes and its name. Default: 50331648.
    pub max_bytes_per_namespace: usize,
    /// Maximum memory for the jobs of all pools, at least `maxBytesPerNamespace`. Default: 201326592.
    pub max_bytes_in_all: usize,
}

impl Default for SwarmPools {
    fn default() -> Self {
        Self { concurrency: 8, probes: 256, max_bytes_per_namespace: 48 << 20, max_bytes_in_all: 192 << 20 }
    }
}
