//! The model: WorkloadActions on a small simulated cluster, faster than the world and less kind.

mod check;
mod cluster;
mod driver;
mod operator;
mod random;
mod setup;
