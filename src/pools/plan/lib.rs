//! Pure decisions about SwarmPools: parses jobs, assigns them to workers, and plans the handover of jobs between
//! workers.
//!
//! | file | description |
//! |---|---|
//! | `step` | decides what the controller does next |
//! | `refusals` | writes that the API server refuses, and without which a pool goes on |
//! | `replicas` | decides whether to scale the workload |
//! | `room` | memory for jobs |
//! | `sources` | the jobs of a pool, from its spec and from ConfigMaps |
//! | `jobs` | parses the jobs of one text |
//! | `workers` | determines the workers: maps pods to slots |
//! | `desired` | the desired assignment of jobs to workers |
//! | `assign` | the algorithms of the assignment |
//! | `output` | the output ConfigMaps, as last read or written |
//! | `file` | reads and writes the job lists of workers, and the handover record beside them |
//! | `handover` | plans the next step of the handover, so that no two workers run the same job |
//! | `state` | computes the health and the status of a pool |
//! | `figures` | sums of all pools that people watch over time |
//! | `explain` | describes a pool in a terminal |
//! | `yaml` | limits the cost of reading YAML that users wrote |

pub mod assign;
pub mod desired;
pub mod explain;
pub mod figures;
pub mod file;
pub mod handover;
pub mod jobs;
pub mod output;
pub mod refusals;
pub mod replicas;
pub mod room;
pub mod sources;
pub mod state;
pub mod step;
#[cfg(test)]
mod tests;
pub mod workers;
pub mod world;
mod yaml;

use std::sync::Arc;

use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_core::conditions::Health;

/// One unit of work, as its source describes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job {
    pub name: Arc<str>,
    /// Load that the job adds to its worker, 1 to 1,000.
    pub weight: u32,
    /// true: the job gets a worker that runs no other job, as long as there are enough workers.
    pub dedicated: bool,
}

/// Problem of a pool. The message says what is wrong and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolProblem {
    pub reason: PoolReason,
    pub message: String,
    /// true: the problem may disappear without any action of a user, so the pool retries.
    pub passing: bool,
}

impl PoolProblem {
    /// A problem that a user has to solve.
    pub fn new(reason: PoolReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), passing: false }
    }

    /// A temporary problem.
    pub fn passing(reason: PoolReason, message: impl Into<String>) -> Self {
        Self { passing: true, ..Self::new(reason, message) }
    }

    /// Health of a pool with this problem.
    pub fn health(&self) -> Health<PoolReason> {
        let (reason, message) = (self.reason, self.message.clone());
        if self.passing { Health::Retrying(reason, message) } else { Health::Stalled(reason, message) }
    }
}
