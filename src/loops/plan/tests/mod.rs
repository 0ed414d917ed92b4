//! Tests of the stages together: what a user reads, and what holds whatever happens. The tests of one stage stand with it.

pub mod bench;
mod children;
mod parity;
pub mod properties;
