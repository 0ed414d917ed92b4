//! Placement: filters and scores the candidate nodes of a pod.
//!
//! | file | what |
//! |---|---|
//! | `policy` | a compiled policy: its agents, and how their filters and scores are combined |
//! | `agents` | the agents of a policy, one file each |
//! | `question` | the input of the agents: the pod, the candidates and related data |
//! | `inventory`, `record` | the data of all nodes and of one node, as agents read it |
//! | `placed_pod` | the pod to place |
//! | `answered` | pods that schedulers got nodes for and that are not bound yet |
//! | `ranking` | the order of nodes for pods that an action will create |
//! | `preempted` | pods that a scheduler may preempt |
//! | `learned` | what policies learn from pods, saved across restarts |
//! | `labels` | delivery by labels of nodes |
//! | `verdicts` | the opinion of a policy about each node, from which labels are calculated |
//! | `state`, `explain` | the status of a policy; the explanation of its result for one pod |
//!
//! The formulas, on plain numbers:
//!
//! | file | what |
//! |---|---|
//! | `safe` | the risk of overload of a node, and its balance, from measured usage |
//! | `risk` | the risk that a utilisation exceeds a threshold |
//! | `congestion` | the congestion factor that a node annotation publishes |
//! | `pigeon` | the distribution of requests over all nodes |
//! | `power` | the watts that a pod adds to a node |
//! | `publish` | usage from Prometheus, published as node annotations |
//! | `pod_spread` | the regions, zones or nodes that a share of a ReplicaSet's pods is spread over |
//! | `sample` | published numbers and times as text, and their expiry |
//! | `wire` | scores in the extender protocol |
//!
//! Scores are real numbers from 0 to 10; only `wire` rounds them. Agents do not depend on each other.

pub mod agents;
pub mod answered;
pub mod congestion;
pub mod explain;
pub mod inventory;
pub mod labels;
pub mod learned;
pub mod pigeon;
mod placed_pod;
pub mod pod_spread;
pub mod policy;
pub mod power;
pub mod preempted;
pub mod publish;
pub mod question;
pub mod ranking;
pub mod record;
pub mod risk;
pub mod safe;
pub mod sample;
pub mod state;
#[cfg(test)]
mod tests;
pub mod verdicts;
pub mod wire;
pub mod world;
