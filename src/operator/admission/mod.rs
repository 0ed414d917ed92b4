//! Admission policies: the API server lets nobody use the operator's objects for more than the author's own rights
//! allow, and bounds the operator's own account.
//!
//! One table ([`table`]) has the rights for each kind, operation and subresource. It generates the manifest
//! (`ganglion policies`), and the operator expects exactly these policies in the cluster ([`guards`]). Pure.

pub mod account;
pub mod manifest;
pub mod rights;
pub mod table;

use ganglion_core::policies::{ExpectedPolicy, Guards};

use rights::RightsRule;

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// Operations that write an object; a patch is an update.
pub const WRITES: &[Operation] = &[Operation::Create, Operation::Update];

/// A resource whose writes a policy checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarded {
    pub group: &'static str,
    /// Plural, with the subresource after a slash.
    pub resource: &'static str,
    pub operations: &'static [Operation],
}

impl Guarded {
    /// A resource of the operator's own kinds.
    pub const fn new(resource: &'static str, operations: &'static [Operation]) -> Self {
        Self::other(ganglion_api::GROUP, resource, operations)
    }

    /// A resource of another API group.
    pub const fn other(group: &'static str, resource: &'static str, operations: &'static [Operation]) -> Self {
        Self { group, resource, operations }
    }
}

/// A property that every write must keep, whatever the rights of its author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invariant {
    pub expression: String,
    /// Expression for the message of a refusal.
    pub message: String,
}

/// A ValidatingAdmissionPolicy. All its texts are CEL expressions, except names and `about`.
#[derive(Clone, Debug)]
pub struct AdmissionPolicy {
    pub name: &'static str,
    /// Explanation for readers of the manifest.
    pub about: &'static str,
    pub guards: Vec<Guarded>,
    /// The policy applies to writes for which all of these are true: name and expression.
    pub conditions: Vec<(&'static str, &'static str)>,
    /// The objects against which the policy checks a write; None if it checks the write alone.
    pub against: Option<Parameters>,
    /// Name and expression, in addition to the variables that all policies have.
    pub variables: Vec<(&'static str, String)>,
    pub rules: Vec<RightsRule>,
    pub invariants: Vec<Invariant>,
}

/// Parameters of a policy: it checks each object that has a label against each object of a kind in the same namespace.
///
/// The label keeps the writes of others apart: the API server looks up parameters and evaluates conditions for each of
/// them before it reads the conditions, and what fails there denies the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    pub version: &'static str,
    pub kind: &'static str,
    pub label: (&'static str, &'static str),
}

/// All policies.
pub fn policies() -> Vec<AdmissionPolicy> {
    let mut all = table::policies();
    all.extend([account::policy(), account::copies()]);
    all
}

/// Policies that each kind of the store depends on: its own, and those of the objects from which its controller acts.
const NEEDS: &[(&str, &[&str])] = &[
    ("WorkloadAction", &["ganglion-workloadactions", "ganglion-workloadactions-status"]),
    ("ClosedLoop", LOOPS),
    ("Monitoring", LOOPS),
    ("Decision", LOOPS),
    ("Execution", LOOPS),
    ("NodeConfig", &["ganglion-nodeconfigs"]),
    ("NodeConfigTemplate", &["ganglion-nodeconfigs"]),
    ("PlacementPolicy", &["ganglion-placementpolicies"]),
    ("SwarmPool", &["ganglion-swarmpools", "ganglion-swarmpools-status", "ganglion-swarmpools-scale"]),
];

const LOOPS: &[&str] = &["ganglion-closedloops", "ganglion-children"];

/// Policies that every kind depends on.
const ALL_NEED: &[&str] = &["ganglion-metadata", "ganglion-operator", "ganglion-operator-copies"];

/// Policies that the operator expects in the cluster before it acts.
pub fn guards() -> Guards {
    let version = env!("CARGO_PKG_VERSION");
    let all = policies();
    let expected = all.iter().map(|policy| ExpectedPolicy::new(policy.name, version, manifest::digest(policy)));
    let needs = NEEDS.iter().map(|(kind, own)| (*kind, own.iter().chain(ALL_NEED).copied().collect()));
    Guards::new(expected, needs)
}

#[cfg(test)]
mod tests;
