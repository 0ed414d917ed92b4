//! Controllers: the loops that bring the cluster to what the planners decide. A folder for each kind, all of one shape: observe,
//! plan, act, report. They communicate through spec and status only.

pub mod closed_loop;
pub mod decision;
pub mod execution;
pub mod monitoring;
pub mod outbound;
mod status_cache;
pub mod workload_action;
