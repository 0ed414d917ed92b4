//! What the demo and the benches stand on: a cluster, the operator installed in it as a user would, and the operator as a
//! process with the rights of its own service account.
//!
//! The tests have a harness of their own in tests/common, with faults; nothing here breaks anything on purpose.

pub mod cluster;
pub mod install;
pub mod operator;
pub mod process;
