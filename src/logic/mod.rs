//! Pure decisions: facts in, decisions out. No clock, client, I/O or logging; time and settings are arguments.

pub mod amounts;
pub mod closed_loop;
pub mod conditions;
pub mod digest;
pub mod duration;
pub mod expression;
pub mod facts;
pub mod figures;
pub mod layout;
pub mod namespaces;
pub mod node_config;
pub mod node_values;
pub mod placement;
pub mod power_curve;
pub mod quantity;
pub mod swarm_pool;
pub mod words;
pub mod workload_action;
pub mod world;
