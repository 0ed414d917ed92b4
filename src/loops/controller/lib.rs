//! Controllers of ClosedLoop, Monitoring, Decision and Execution: they carry out what `ganglion_loops_plan` decides.
//!
//! The four controllers communicate through spec and status only.

pub mod closed_loop;
pub mod decision;
pub mod execution;
pub mod monitoring;
mod status_cache;
pub mod target;
pub mod traces;

#[cfg(test)]
mod tests;
