//! Pure decisions about SwarmPools: parses jobs, assigns them to workers, and plans the handover of jobs between
//! workers.
//!
//! | file | description |
//! |---|---|
//! | `jobs` | parses the jobs of a pool from its spec and from ConfigMaps |
//! | `crew` | determines the workers: maps pods to slots |
//! | `deal` | assigns jobs to slots |
//! | `file` | reads and writes the job lists of workers, and the handover record beside them |
//! | `plan` | plans the next step of the handover, so that no two workers run the same job |
//! | `state` | computes the health and the status of a pool |
//! | `explain` | describes a pool in a terminal |
//! | `yaml` | limits the cost of reading YAML that users wrote |

pub mod crew;
pub mod deal;
pub mod explain;
pub mod file;
pub mod jobs;
pub mod plan;
pub mod state;
#[cfg(test)]
mod tests;
pub mod world;
mod yaml;

use std::sync::Arc;

/// One unit of work, as its source describes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job {
    pub name: Arc<str>,
    /// Load that the job adds to its worker, 1 to 1,000.
    pub weight: u32,
    /// true: the job gets a worker that runs no other job, as long as there are enough workers.
    pub dedicated: bool,
}
