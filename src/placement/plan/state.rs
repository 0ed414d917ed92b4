//! The status of a policy: its conditions, and for how many nodes each agent has data.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::agents::AgentError;
use super::inventory::Inventory;
use super::policy::CompiledPolicy;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::placement_policy::status::AgentStatus;
use ganglion_api::placement_policy::{PlacementPolicySpec, PlacementPolicyStatus, PolicyMode};
use ganglion_core::conditions::{Health, Stamp, summary};
use ganglion_core::words::counted;

/// Number of nodes for which each agent has the data that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Number of nodes that accept pods.
    pub nodes: i64,
    pub agents: Vec<AgentStatus>,
}

impl Coverage {
    /// Coverage of the nodes that accept pods.
    pub fn of(policy: &CompiledPolicy, inventory: &Inventory, now: Timestamp) -> Self {
        let nodes: Vec<_> = inventory.nodes().filter(|node| node.row.counted).collect();
        let agents = policy.agents.iter().map(|member| {
            let lacking: Vec<String> =
                nodes.iter().filter_map(|node| member.agent.lacks(node, now, &policy.rules)).collect();
            AgentStatus {
                name: member.name.clone(),
                nodes: number(nodes.len().saturating_sub(lacking.len())),
                message: lacking.into_iter().next(),
            }
        });
        Self { nodes: number(nodes.len()), agents: agents.collect() }
    }

    /// Whether each agent covers no, some or all nodes in both. The exact counts are ignored.
    pub fn is_like(&self, other: &Self) -> bool {
        let kind = |all: i64, known: i64| (known == 0, known == all);
        let kinds = |coverage: &Self| -> Vec<_> {
            coverage.agents.iter().map(|agent| (agent.name.clone(), kind(coverage.nodes, agent.nodes))).collect()
        };
        kinds(self) == kinds(other)
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Health of a valid policy.
pub fn health(policy: &CompiledPolicy, coverage: &Coverage) -> Health<PolicyReason> {
    let blind = coverage.agents.iter().find(|agent| coverage.nodes > 0 && agent.nodes == 0);
    if let Some(agent) = blind {
        let lacks = agent.message.as_deref().unwrap_or_default();
        let message = format!("agent {} has no data about any node: {lacks}", agent.name);
        return Health::Retrying(PolicyReason::AgentsWithoutData, message);
    }
    let nodes = counted(coverage.nodes, "node");
    match policy.mode {
        PolicyMode::Active => Health::Good(PolicyReason::Serving, format!("filters and scores {nodes}")),
        PolicyMode::Shadow => {
            let message = format!("filters and scores {nodes}; mode: Shadow only logs the result");
            Health::Good(PolicyReason::Shadowing, message)
        }
    }
}

/// Status of a valid policy. `memory` is the namespace and name of the ConfigMap with its learned values.
pub fn status(
    old: &[Condition],
    spec: &PlacementPolicySpec,
    health: &Health<PolicyReason>,
    coverage: &Coverage,
    memory: Option<String>,
    stamp: Stamp,
) -> PlacementPolicyStatus {
    PlacementPolicyStatus {
        observed_generation: Some(stamp.generation),
        conditions: summary(old, health, stamp),
        summary: Some(short(spec)),
        nodes: Some(coverage.nodes),
        agents: coverage.agents.clone(),
        memory,
    }
}

/// Status of a policy with an invalid spec.
pub fn refused(old: &[Condition], (reason, message): &AgentError, stamp: Stamp) -> PlacementPolicyStatus {
    PlacementPolicyStatus {
        observed_generation: Some(stamp.generation),
        conditions: summary(old, &Health::Stalled(*reason, message.clone()), stamp),
        ..PlacementPolicyStatus::default()
    }
}

/// Agent names with weights other than 1, such as `safe:5,pack`.
fn short(spec: &PlacementPolicySpec) -> String {
    let agents = spec.agents.iter().map(|agent| match agent.weight {
        None | Some(1) => agent.name.clone(),
        Some(weight) => format!("{}:{weight}", agent.name),
    });
    agents.collect::<Vec<_>>().join(",")
}
