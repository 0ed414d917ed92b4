//! Controllers: they carry out what the planners in `logic` decide. One folder per kind, each with the steps observe, plan, act
//! and report. Controllers communicate through spec and status only.

pub mod closed_loop;
pub mod decision;
pub mod execution;
mod invalid;
pub mod monitoring;
pub mod node_config;
pub mod node_config_template;
pub mod outbound;
pub mod placement_policy;
mod status_cache;
pub mod swarm_pool;
pub mod target;
pub mod workload_action;
