//! Decisions about SwarmPools: which jobs there are, which worker gets which, and what of that workers may start now.
//!
//! | file | what |
//! |---|---|
//! | `jobs` | the jobs of a pool, from its spec and from ConfigMaps |
//! | `crew` | the workers: which pod has which slot |
//! | `deal` | which worker gets which job |
//! | `file` | the files that workers read, and what is recorded beside them |
//! | `plan` | what is written next, so that no two workers have one job |
//! | `state` | how the pool is: its status |
//! | `explain` | the pool, for people |
//! | `yaml` | what YAML of others may cost |

pub mod crew;
pub mod deal;
pub mod explain;
pub mod file;
pub mod jobs;
pub mod plan;
pub mod state;
#[cfg(test)]
mod tests;
mod yaml;

use std::sync::Arc;

/// One piece of work, as its source describes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job {
    pub name: Arc<str>,
    /// Share of a worker's load that it takes, 1 to 1,000.
    pub weight: u32,
    /// Has a worker of its own, as long as there are enough.
    pub dedicated: bool,
}
