//! The operator on a real control plane: actions of users, and what users see.
//!
//! Every test starts its own operator in its own namespace; the crate `testkit` provides the tools. A test fails if its
//! control plane cannot be started.

mod action_cli;
mod acts;
mod admission;
mod alike;
mod applications;
mod availability;
mod bystanders;
mod checks;
mod choices;
mod cluster_check;
mod crash;
mod drain;
mod equal;
mod foreign;
mod forged;
mod gitops;
mod harness;
mod hostile;
mod installs;
mod large;
mod lifecycle;
mod loop_conflicts;
mod loop_faults;
mod loop_hpa;
mod loop_modes;
mod loop_nodes;
mod loop_polls;
mod loop_preflight;
mod loop_rungs;
mod loop_sources;
mod loop_tampering;
mod loop_webhooks;
mod loops;
mod moves;
mod node_accuracy;
mod node_configs;
mod node_hpa;
mod node_sources;
mod node_templates;
mod notify;
mod originals;
mod owners;
mod placement;
mod placement_bursts;
mod placement_certificates;
mod placement_rewards;
mod placement_usage;
mod policies;
mod pool_faults;
mod pool_former;
mod pool_rights;
mod pool_workers;
mod pools;
mod random;
mod receipts;
mod refused;
<<<<<<< HEAD
mod release;
=======
mod remove;
>>>>>>> 3bcb0069 (cli: remove everything of the operator from the cluster)
mod replacements;
mod rollouts;

mod samples;
mod scaling;
mod scenes;
mod senders;
mod stalled;
mod stateful;
mod storms;
mod successors;
mod swap_faults;
mod swaps;
mod unreadable;
mod upgrades;
mod usage;
