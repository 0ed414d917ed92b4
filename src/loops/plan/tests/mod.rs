//! Tests of all stages together: the messages for users, and properties. The tests of one stage are in its folder.

pub mod bench;
mod children;
mod hpa;
mod node_values;
mod parity;
pub mod properties;
mod source_rules;
mod timers;
mod trace;
mod tracking;
