//! Controllers: the loops that bring the cluster to what the planners decide. A folder for each kind.

pub mod closed_loop;
pub mod workload_action;
