//! The plan of a reconcile and the status of a policy: its conditions, and for how many nodes each agent has data.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::agents::AgentError;
use super::inventory::Inventory;
use super::learned::SavePlan;
use super::policy::CompiledPolicy;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::placement_policy::status::AgentStatus;
use ganglion_api::placement_policy::{PlacementPolicySpec, PlacementPolicyStatus, PolicyMode};
use ganglion_core::conditions::{DATA_AVAILABLE, Health, Stamp, condition, summary};
use ganglion_core::status::{StatusChange, StatusPolicy, StatusTiming};
use ganglion_core::words::counted;

/// Changes of counts share a write, since nodes gain and lose data all the time.
const COVERAGE_WRITES: StatusPolicy = StatusPolicy { details_after: SignedDuration::from_mins(1), heartbeat: None };

/// Decision about a policy.
#[derive(Debug)]
pub enum PolicyPlan {
    /// The spec is invalid, until somebody changes it.
    Invalid(AgentError),
    Valid {
        health: Health<PolicyReason>,
        coverage: Coverage,
        save: SavePlan,
    },
}

/// The coverage in the status, and the time at which it was counted.
#[derive(Clone, Debug)]
pub struct ReportedCoverage {
    pub coverage: Coverage,
    pub counted_at: Timestamp,
}

impl ReportedCoverage {
    /// Coverage to report: the previous one if only counts changed within a minute.
    #[must_use]
    pub fn next(previous: Option<Self>, current: Coverage, now: Timestamp) -> Self {
        let Some(previous) = previous else { return Self { coverage: current, counted_at: now } };
        let change = previous.coverage.change(&current);
        match COVERAGE_WRITES.timing(change, Some(previous.counted_at), now) {
            StatusTiming::Now => Self { coverage: current, counted_at: now },
            StatusTiming::At(_) | StatusTiming::Never => previous,
        }
    }
}

/// Number of nodes for which each agent has the data that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Number of nodes that accept pods.
    pub nodes: i64,
    pub agents: Vec<AgentStatus>,
}

impl Coverage {
    /// Coverage of the nodes that accept pods.
    pub fn count(policy: &CompiledPolicy, inventory: &Inventory, now: Timestamp) -> Self {
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

    /// Difference to a newer coverage. An edge if an agent no longer covers none, some or all of the nodes as before.
    fn change(&self, newer: &Self) -> StatusChange {
        if self == newer {
            StatusChange::None
        } else if self.extents().eq(newer.extents()) {
            StatusChange::Details
        } else {
            StatusChange::Edge
        }
    }

    /// Each agent, whether it covers no node, and whether it covers all nodes.
    fn extents(&self) -> impl Iterator<Item = (&str, bool, bool)> {
        self.agents.iter().map(|agent| (agent.name.as_str(), agent.nodes == 0, agent.nodes == self.nodes))
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Health of a valid policy. It does not depend on data: a policy is often applied together with what measures the
/// nodes.
pub fn health(policy: &CompiledPolicy, coverage: &Coverage) -> Health<PolicyReason> {
    let nodes = counted(coverage.nodes, "node");
    match policy.mode {
        PolicyMode::Active => Health::Good(PolicyReason::Serving, format!("filters and scores {nodes}")),
        PolicyMode::Shadow => {
            let message = format!("filters and scores {nodes}; mode: Shadow only logs the result");
            Health::Good(PolicyReason::Shadowing, message)
        }
    }
}

/// Condition DataAvailable: whether each agent has data about at least one node.
fn data_available(old: &[Condition], coverage: &Coverage, stamp: Stamp) -> Condition {
    let blind = coverage.agents.iter().find(|agent| agent.nodes == 0);
    let (status, reason, message) = match blind {
        _ if coverage.nodes == 0 => ("Unknown", PolicyReason::NoNodes, "no node accepts pods".to_owned()),
        None => {
            let least = coverage.agents.iter().map(|agent| agent.nodes).min().unwrap_or_default();
            let message = format!("each agent has data about at least {least} of {}", counted(coverage.nodes, "node"));
            ("True", PolicyReason::AgentsHaveData, message)
        }
        Some(agent) => {
            let lacks = agent.message.as_deref().unwrap_or_default();
            let message = format!("agent {} has no data about any node: {lacks}", agent.name);
            ("False", PolicyReason::AgentsWithoutData, message)
        }
    };
    condition(old, DATA_AVAILABLE, status, reason.as_ref(), &message, stamp)
}

/// Status of a valid policy. `memory` is the namespace and name of the ConfigMap with its learned values.
pub fn valid_status(
    old: &[Condition],
    spec: &PlacementPolicySpec,
    health: &Health<PolicyReason>,
    coverage: &Coverage,
    memory: Option<String>,
    stamp: Stamp,
) -> PlacementPolicyStatus {
    let mut conditions = summary(old, health, stamp);
    conditions.push(data_available(old, coverage, stamp));
    PlacementPolicyStatus {
        observed_generation: Some(stamp.generation),
        conditions,
        summary: Some(short(spec)),
        nodes: Some(coverage.nodes),
        agents: coverage.agents.clone(),
        memory,
        labels: None,
        valid_until: None,
    }
}

/// Status of a policy with an invalid spec.
pub fn invalid_status(old: &[Condition], (reason, message): &AgentError, stamp: Stamp) -> PlacementPolicyStatus {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn coverage(nodes: i64, covered: i64) -> Coverage {
        Coverage { nodes, agents: vec![AgentStatus { name: "safe".to_owned(), nodes: covered, message: None }] }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn data_are_available_if_every_agent_has_some() {
        let stamp = Stamp { generation: 1, now: at(0) };
        let state = |nodes, covered| {
            let found = data_available(&[], &coverage(nodes, covered), stamp);
            (found.status, found.reason, found.message)
        };
        let expected = |status: &str, reason: &str, message: &str| (status.into(), reason.into(), message.into());
        assert_eq!(state(3, 1), expected("True", "AgentsHaveData", "each agent has data about at least 1 of 3 nodes"));
        let blind = "agent safe has no data about any node: ";
        assert_eq!(state(3, 0), expected("False", "AgentsWithoutData", blind));
        assert_eq!(state(0, 0), expected("Unknown", "NoNodes", "no node accepts pods"));
    }

    #[test]
    fn changes_of_counts_share_a_report_and_the_loss_of_all_nodes_is_reported_at_once() {
        let first = ReportedCoverage::next(None, coverage(9, 5), at(0));
        assert_eq!(first.coverage, coverage(9, 5));
        let next = |current, second| ReportedCoverage::next(Some(first.clone()), current, at(second));
        assert_eq!(next(coverage(9, 6), 59).coverage, coverage(9, 5));
        assert_eq!(next(coverage(9, 6), 60).coverage, coverage(9, 6));
        assert_eq!(next(coverage(8, 5), 1).coverage, coverage(9, 5));
        assert_eq!(next(coverage(9, 9), 1).coverage, coverage(9, 9));
        assert_eq!(next(coverage(9, 0), 1).coverage, coverage(9, 0));
        assert_eq!(next(coverage(9, 5), 99).counted_at, at(0));
    }
}
