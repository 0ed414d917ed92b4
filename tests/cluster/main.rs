//! The operator on a real control plane: what a user would do, and what a user would see.
//!
//! Every test starts its own operator in a namespace of its own; the crate `testkit` is the harness. A test that cannot have its
//! control plane fails.

mod action_cli;
mod acts;
mod admission;
mod alike;
mod applications;
mod checks;
mod choices;
mod crash;
mod drain;
mod foreign;
mod harness;
mod installs;
mod lifecycle;
mod loop_conflicts;
mod loop_faults;
mod loop_modes;
mod loop_nodes;
mod loop_polls;
mod loop_preflight;
mod loop_rungs;
mod loop_sources;
mod loop_webhooks;
mod loops;
mod moves;
mod node_configs;
mod node_hpa;
mod node_sources;
mod node_templates;
mod notify;
mod originals;
mod owners;
mod placement;
mod placement_certificates;
mod placement_rewards;
mod placement_usage;
mod pool_faults;
mod pool_rights;
mod pool_workers;
mod pools;
mod random;
mod receipts;
mod refused;
mod replacements;
mod rollouts;

mod samples;
mod scaling;
mod scenes;
mod senders;
mod stalled;
mod stateful;
mod storms;
mod swap_faults;
mod swaps;
mod unreadable;
mod usage;
