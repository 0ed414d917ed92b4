//! Placement: filters and scores of nodes for a pod.
//!
//! | file | what |
//! |---|---|
//! | `policy` | a policy: its agents, and how their filters and scores are combined |
//! | `agents` | the agents as policies have them, a file each |
//! | `question` | the pod, the candidates, and all else that agents read |
//! | `inventory`, `record` | the nodes, as agents know them |
//! | `memory` | what policies have learned, as it is kept over restarts |
//! | `state`, `explain` | the status of a policy, and what it says about one pod, for people |
//!
//! The formulas, of plain numbers:
//!
//! | file | what |
//! |---|---|
//! | `safe` | the risk of overload of a node, and its balance, from measured usage |
//! | `risk` | the risk that a utilisation exceeds a threshold |
//! | `beta` | the distribution of a utilisation |
//! | `congestion` | a congestion factor that others publish |
//! | `pigeon` | the distribution of requests over all nodes |
//! | `power` | the watts that a pod adds to a node; the curves of predictions, and which to fetch next |
//! | `publish` | usage from Prometheus, as annotations of nodes |
//! | `reward` | what is learned from pods that ran or failed on a node |
//! | `pod_spread` | the areas that a part of a ReplicaSet's pods is spread over |
//! | `sample` | numbers that are published as text, and their age |
//! | `wire` | scores as the scheduler takes them |
//!
//! Scores are real numbers up to 10, and are rounded by `wire` only. No agent knows another.

pub mod agents;
mod beta;
pub mod congestion;
pub mod explain;
pub mod inventory;
pub mod memory;
pub mod pigeon;
pub mod pod_spread;
pub mod policy;
pub mod power;
pub mod publish;
pub mod question;
pub mod record;
pub mod reward;
pub mod risk;
pub mod safe;
pub mod sample;
pub mod state;
#[cfg(test)]
mod tests;
pub mod wire;
