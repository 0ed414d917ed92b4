//! Tests of the loops' stages: what a user reads, and what holds whatever happens.

mod assessment;
mod bench;
mod chain;
mod children;
mod crashes;
mod decision;
mod execution;
mod explain;
mod goal;
mod last_served;
mod limits;
mod monitoring;
mod parity;
mod properties;
mod release;
mod resize;
mod tuning;
