//! The admission policies that the operator relies on: whether they are in the cluster, in force, and unmodified.
//!
//! Without them, objects of the operator could make it do what their authors must not do. The operator then reads, but
//! does not act. Knows no policy by name: the composition root says which kind needs which.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result as FmtResult};
use std::sync::LazyLock;

use crate::facts::{Key, PolicyBindingFact, PolicyFact};
use crate::world::{Fact, Follows, Requeue, State, World};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::monitoring::Monitoring;
use ganglion_api::node_config::{NodeConfig, NodeConfigTemplate};
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::workload_action::WorkloadAction;

/// Reason of the conditions of an object whose kind is not guarded.
pub const POLICY_MISSING: &str = "AdmissionPolicyMissing";

/// Advice if policies are missing.
const ADVICE: &str = "apply kustomize/base again, or only its policies: kubectl apply --server-side -f \
    kustomize/base/admission.yaml";

/// A policy that the operator expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedPolicy {
    pub name: &'static str,
    version: Vec<u64>,
    digest: String,
}

impl ExpectedPolicy {
    /// A policy of this version of Ganglion, with the digest of its spec.
    pub fn new(name: &'static str, version: &str, digest: String) -> Self {
        Self { name, version: numbers(version), digest }
    }
}

/// The numbers of a version, such as 0.10.2; empty if it is none.
fn numbers(version: &str) -> Vec<u64> {
    let numbers: Result<Vec<u64>, _> = version.split('.').map(str::parse).collect();
    numbers.unwrap_or_default()
}

/// State of an expected policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyState {
    /// In force, as this version or a newer one generated it.
    Present,
    Missing,
    /// The operator may not list and watch policies or bindings.
    Unreadable,
    /// No binding makes it deny writes everywhere.
    Unbound,
    /// Somebody has edited it.
    Modified,
    /// An older version generated it, with another spec.
    Outdated,
}

impl PolicyState {
    pub const ALL: [Self; 6] =
        [Self::Present, Self::Missing, Self::Unreadable, Self::Unbound, Self::Modified, Self::Outdated];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Present => "Present",
            Self::Missing => "Missing",
            Self::Unreadable => "Unreadable",
            Self::Unbound => "Unbound",
            Self::Modified => "Modified",
            Self::Outdated => "Outdated",
        }
    }

    fn of(expected: &ExpectedPolicy, policy: Option<&PolicyFact>, is_bound: bool) -> Self {
        let Some(policy) = policy else { return Self::Missing };
        let is_genuine = policy.claimed == policy.digest;
        if policy.digest != expected.digest && !(is_genuine && numbers(&policy.version) > expected.version) {
            let is_older = is_genuine && numbers(&policy.version) < expected.version;
            return if is_older { Self::Outdated } else { Self::Modified };
        }
        if is_bound { Self::Present } else { Self::Unbound }
    }
}

/// Why a kind is not guarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyProblem {
    /// Policies that are not in force, with their states.
    pub policies: Vec<(&'static str, PolicyState)>,
}

impl Display for PolicyProblem {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        let named: Vec<String> =
            self.policies.iter().map(|(name, state)| format!("{name} ({})", state.as_str())).collect();
        write!(
            f,
            "the operator reads but does not act, because the API server does not check who may do what: admission \
             policies not in force: {}; {ADVICE}; delete objects that untrusted users wrote in the meantime, which the \
             policies do not check afterwards",
            named.join(", ")
        )
    }
}

/// Policies that the operator expects, and the kinds that need them.
#[derive(Clone, Debug, Default)]
pub struct Guards {
    expected: BTreeMap<&'static str, ExpectedPolicy>,
    /// Names of policies by kind.
    needs: BTreeMap<&'static str, Vec<&'static str>>,
}

impl Guards {
    pub fn new(
        expected: impl IntoIterator<Item = ExpectedPolicy>,
        needs: impl IntoIterator<Item = (&'static str, Vec<&'static str>)>,
    ) -> Self {
        let expected = expected.into_iter().map(|policy| (policy.name, policy)).collect();
        Self { expected, needs: needs.into_iter().collect() }
    }

    /// Names of the expected policies.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.expected.keys().copied()
    }

    /// Kinds that need a policy.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, &[&'static str])> {
        self.needs.iter().map(|(kind, policies)| (*kind, policies.as_slice()))
    }
}

impl State for Guards {
    fn empty() -> &'static Self {
        static EMPTY: LazyLock<Guards> = LazyLock::new(Guards::default);
        &EMPTY
    }
}

impl Follows<PolicyFact> for Guards {
    fn requeue(world: &World, old: Option<&PolicyFact>, new: Option<&PolicyFact>) -> Requeue {
        requeue(world, [old, new].into_iter().flatten().map(|policy| policy.id.key.name.as_str()))
    }
}

impl Follows<PolicyBindingFact> for Guards {
    fn requeue(world: &World, old: Option<&PolicyBindingFact>, new: Option<&PolicyBindingFact>) -> Requeue {
        requeue(world, [old, new].into_iter().flatten().map(|binding| binding.policy.as_str()))
    }
}

/// Objects of all kinds if one of these policies is expected.
fn requeue<'a>(world: &World, mut policies: impl Iterator<Item = &'a str>) -> Requeue {
    if !policies.any(|name| world.state::<Guards>().expected.contains_key(name)) {
        return Requeue::none();
    }
    all::<WorkloadAction>(world)
        .and(all::<ClosedLoop>(world))
        .and(all::<Monitoring>(world))
        .and(all::<Decision>(world))
        .and(all::<Execution>(world))
        .and(all::<NodeConfig>(world))
        .and(all::<NodeConfigTemplate>(world))
        .and(all::<SwarmPool>(world))
        .and(all::<PlacementPolicy>(world))
}

fn all<F: Fact>(world: &World) -> Requeue {
    Requeue::all::<F>(world.table::<F>().keys().cloned())
}

impl World {
    /// From now on, these kinds need these policies. Without this, no kind needs one.
    pub fn guard(&mut self, guards: Guards) {
        self.follow::<Guards, PolicyFact>();
        self.follow::<Guards, PolicyBindingFact>();
        if let Some(state) = self.state_mut::<Guards>() {
            *state = guards;
        }
    }

    /// State of each expected policy.
    pub fn policy_states(&self) -> BTreeMap<&'static str, PolicyState> {
        let expected = &self.state::<Guards>().expected;
        expected.values().map(|policy| (policy.name, self.policy_state(policy))).collect()
    }

    fn policy_state(&self, expected: &ExpectedPolicy) -> PolicyState {
        if self.table::<PolicyFact>().is_unavailable() || self.table::<PolicyBindingFact>().is_unavailable() {
            return PolicyState::Unreadable;
        }
        let policy = self.get::<PolicyFact>(&Key::new("", expected.name));
        let is_bound = self.all::<PolicyBindingFact>().any(|binding| binding.policy == expected.name && binding.denies);
        PolicyState::of(expected, policy, is_bound)
    }

    /// Why objects of this kind must not be acted on; None if all policies that the kind needs are in force.
    pub fn policy_problem(&self, kind: &str) -> Option<PolicyProblem> {
        let guards = self.state::<Guards>();
        let mut policies = Vec::new();
        for name in guards.needs.get(kind)? {
            let state = guards.expected.get(name).map_or(PolicyState::Missing, |policy| self.policy_state(policy));
            if state != PolicyState::Present {
                policies.push((*name, state));
            }
        }
        (!policies.is_empty()).then_some(PolicyProblem { policies })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::facts::spec_digest;
    use crate::world::Origin;
    use ganglion_api::foreign::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
    use ganglion_api::marks;

    const NAME: &str = "guard";

    fn spec(text: &str) -> Value {
        json!({"validations": [{"expression": text}]})
    }

    /// A policy with this spec, as a version of Ganglion generated it from another spec or from the same.
    fn policy(stored: &str, generated: &str, version: &str) -> PolicyFact {
        let annotations = json!({marks::POLICY_VERSION: version, marks::POLICY_DIGEST: spec_digest(&spec(generated))});
        let policy = json!({
            "metadata": {"name": NAME, "uid": "p", "resourceVersion": "1", "annotations": annotations},
            "spec": spec(stored),
        });
        serde_json::from_value::<ValidatingAdmissionPolicy>(policy).unwrap().into()
    }

    fn binding(spec: &Value) -> PolicyBindingFact {
        let binding = json!({"metadata": {"name": "any", "uid": "b", "resourceVersion": "1"}, "spec": spec});
        serde_json::from_value::<ValidatingAdmissionPolicyBinding>(binding).unwrap().into()
    }

    /// A world of version 0.9.0, which expects the spec `true`.
    fn world() -> World {
        let mut world = World::default();
        let expected = ExpectedPolicy::new(NAME, "0.9.0", spec_digest(&spec("true")));
        world.guard(Guards::new([expected], [("SwarmPool", vec![NAME])]));
        world
    }

    fn state(policy: Option<PolicyFact>, bound: &Value) -> PolicyState {
        let mut world = world();
        policy.into_iter().for_each(|policy| drop(world.apply(policy, Origin::Watch)));
        world.apply(binding(bound), Origin::Watch);
        let state = world.policy_states()[NAME];
        assert_eq!(world.policy_problem("SwarmPool").is_none(), state == PolicyState::Present);
        assert_eq!(world.policy_problem("Pod"), None, "needs no policy");
        state
    }

    #[test]
    fn a_policy_counts_if_it_is_unmodified_and_denies() {
        let denies = json!({"policyName": NAME, "validationActions": ["Deny"]});
        for (found, expected) in [
            (None, PolicyState::Missing),
            (Some(policy("true", "true", "0.9.0")), PolicyState::Present),
            // Another version with the same spec.
            (Some(policy("true", "true", "0.8.0")), PolicyState::Present),
            (Some(policy("true", "lost", "")), PolicyState::Present),
            (Some(policy("more", "more", "0.10.0")), PolicyState::Present),
            (Some(policy("less", "less", "0.8.9")), PolicyState::Outdated),
            (Some(policy("less", "true", "0.9.0")), PolicyState::Modified),
            (Some(policy("less", "true", "0.10.0")), PolicyState::Modified),
            (Some(policy("less", "less", "0.9.0")), PolicyState::Modified),
            (Some(policy("less", "less", "newest")), PolicyState::Outdated),
        ] {
            assert_eq!(state(found.clone(), &denies), expected, "{found:?}");
        }
        for binding in [
            json!({"policyName": NAME, "validationActions": ["Warn", "Audit"]}),
            json!({"policyName": "other", "validationActions": ["Deny"]}),
            json!({"policyName": NAME, "validationActions": ["Deny"], "matchResources": {"objectSelector": {}}}),
        ] {
            assert_eq!(state(Some(policy("true", "true", "0.9.0")), &binding), PolicyState::Unbound, "{binding}");
        }
    }

    #[test]
    fn a_world_that_may_not_read_policies_says_so() {
        let mut world = world();
        world.unavailable::<PolicyBindingFact>();
        let problem = world.policy_problem("SwarmPool").unwrap().to_string();
        assert!(problem.contains("guard (Unreadable)") && problem.contains("kubectl apply"), "{problem}");
    }

    #[test]
    fn a_change_of_an_expected_policy_requeues_the_objects() {
        let mut world = world();
        let pool = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "SwarmPool",
            "metadata": {"namespace": "a", "name": "x", "uid": "x", "resourceVersion": "1"},
            "spec": {"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"}, "jobs": {}, "output": {"configMap": "w"}},
        });
        world.apply(serde_json::from_value::<SwarmPool>(pool).unwrap(), Origin::Watch);
        let requeued = world.apply(policy("true", "true", "0.9.0"), Origin::Watch);
        assert_eq!(requeued.of::<SwarmPool>().count(), 1);
        let other = binding(&json!({"policyName": "other", "validationActions": ["Deny"]}));
        assert!(world.apply(other, Origin::Watch).is_empty());
    }
}
