//! Topology spread constraints of a pod, counted as they are when the replicas that move are gone.
//!
//! Source of the rules: kube-scheduler's PodTopologySpread. The scheduler counts the old pods, which still run when it
//! places the new ones, or ignores the domain that they leave. Either way the pods that are left may violate the
//! constraint, so the planner checks it, too.

use std::collections::{BTreeMap, HashMap, HashSet};

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use kube::core::{Selector, SelectorExt as _};
use serde::Deserialize;

use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::Step;
use ganglion_core::facts::{Key, NodeFact, PodFact, TemplateFact};
use ganglion_core::world::World;

use super::neighbors::{Departing, Remaining};
use super::nodes::{NodeRefusal, is_tolerated, wanted_by};
use super::preferences::{amount, size_weight};
use super::scope::Scope;

#[derive(Deserialize, Default)]
#[serde(default)]
struct SpreadTemplate {
    spec: SpreadSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct SpreadSpec {
    topology_spread_constraints: Vec<TopologySpreadConstraint>,
}

/// Label of a node that is unique to it: a constraint by this label concerns one node only.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// One constraint, and the number of pods in each domain.
struct SpreadRule {
    key: String,
    max_skew: i64,
    min_domains: usize,
    selector: Selector,
    /// 1 if the constraint counts pods of the template itself.
    own: i64,
    /// `nodeAffinityPolicy: Honor`, the default: only nodes that the template selects count.
    honors_affinity: bool,
    /// `nodeTaintsPolicy: Honor`: only nodes whose taints the template tolerates count.
    honors_taints: bool,
    domains: HashMap<String, i64>,
}

/// The required constraints of a template, or its preferred ones.
pub struct SpreadRules(Vec<SpreadRule>);

impl SpreadRules {
    /// The required constraints of a template, without any pods.
    pub fn required(template: &TemplateFact) -> Self {
        Self::parsed(template, "DoNotSchedule")
    }

    /// The constraints that the scheduler ignores where it cannot meet them, without any pods.
    pub fn preferred(template: &TemplateFact) -> Self {
        Self::parsed(template, "ScheduleAnyway")
    }

    fn parsed(template: &TemplateFact, when_unsatisfiable: &str) -> Self {
        let parsed: SpreadTemplate = serde_json::from_str(&template.json).unwrap_or_default();
        let all = parsed.spec.topology_spread_constraints.into_iter();
        let all = all.filter(|one| one.when_unsatisfiable == when_unsatisfiable);
        Self(all.filter_map(|one| SpreadRule::new(one, template)).collect())
    }

    /// The largest maxSkew of the constraints that count pods of the template; 0 if there is none.
    pub fn most_skew(&self) -> i64 {
        self.0.iter().filter(|rule| rule.own > 0).map(|rule| rule.max_skew).max().unwrap_or(0)
    }

    /// Whether a constraint counts pods of the template by another label of nodes than this one.
    pub fn counts_own_pods_by_other_than(&self, key: &str) -> bool {
        self.0.iter().any(|rule| rule.own > 0 && rule.key != key)
    }

    /// The required constraints of pods of this set; see [`SpreadRules::counted`].
    pub fn of(world: &World, scope: &Scope, departing: &Departing) -> Self {
        let template = scope.set.template.as_deref();
        template.map_or(Self(Vec::new()), |template| Self::required(template).counted(world, scope, departing))
    }

    /// The constraints with the pods that remain. New pods of slots count on their nodes.
    pub fn counted(self, world: &World, scope: &Scope, departing: &Departing) -> Self {
        let Self(mut rules) = self;
        let Some(template) = scope.set.template.as_deref().filter(|_| !rules.is_empty()) else { return Self(rules) };
        let keys: Vec<String> = rules.iter().map(|rule| rule.key.clone()).collect();
        let is_eligible = |node: &NodeFact| keys.iter().all(|key| node.labels.contains_key(key)) && !node.terminating;
        for node in world.nodes().filter(|node| is_eligible(node)) {
            for rule in rules.iter_mut().filter(|rule| rule.includes(node, template)) {
                rule.domains.entry(node.labels[&rule.key].clone()).or_default();
            }
        }
        let namespace = &scope.set.id.key.namespace;
        let remaining = Remaining::of(world, scope, departing);
        for pod in world.within::<PodFact>(namespace).filter(|pod| remaining.includes(pod)) {
            let Some(node) = pod.node.as_ref().and_then(|name| world.node(name)).filter(|node| is_eligible(node))
            else {
                continue;
            };
            let counts = |rule: &&mut SpreadRule| rule.selector.matches(&pod.labels) && rule.includes(node, template);
            for rule in rules.iter_mut().filter(counts) {
                *rule.domains.entry(node.labels[&rule.key].clone()).or_default() += 1;
            }
        }
        let mut all = Self(rules);
        let slots = world.slots_on(&scope.set.id.uid).filter(|slot| slot.step != Step::RollingBack);
        for slot in slots.filter(|slot| departing.slot != Some(&slot.id)) {
            let Some(planned) = &slot.replacement else { continue };
            let is_bound = world.pod(&Key::new(namespace, &planned.name)).is_some_and(|pod| pod.node.is_some());
            if let Some(node) = world.node(&planned.node).filter(|node| !is_bound && is_eligible(node)) {
                all.add(node);
            }
        }
        all
    }

    /// Weight of each constraint among these nodes; see [`SpreadRules::cost`].
    pub fn size_weights(&self, nodes: &[&NodeFact]) -> Vec<f64> {
        let weight = |rule: &SpreadRule| {
            let domains: HashSet<&String> = nodes.iter().filter_map(|node| node.labels.get(&rule.key)).collect();
            size_weight(domains.len())
        };
        self.0.iter().map(weight).collect()
    }

    /// Cost of the node by the constraints with these weights, as kube-scheduler computes it for preferred ones. None
    /// if the node lacks a label.
    pub fn cost(&self, node: &NodeFact, weights: &[f64]) -> Option<f64> {
        let cost = |(rule, weight): (&SpreadRule, &f64)| {
            let here = rule.domains.get(node.labels.get(&rule.key)?).copied().unwrap_or(0);
            let [here, skew] = [here, rule.max_skew - 1].map(|number| amount(usize::try_from(number).unwrap_or(0)));
            Some(here * weight + skew)
        };
        self.0.iter().zip(weights).map(cost).sum()
    }

    /// Whether there is any constraint.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts one more pod of the template on this node.
    pub fn add(&mut self, node: &NodeFact) {
        for rule in &mut self.0 {
            if let Some(value) = node.labels.get(&rule.key) {
                *rule.domains.entry(value.clone()).or_default() += rule.own;
            }
        }
    }

    /// Why one more pod on this node would violate a constraint.
    pub fn refusal(&self, node: &NodeFact) -> Option<NodeRefusal> {
        let name = node.name();
        self.0.iter().find_map(|rule| {
            let SpreadRule { key, max_skew, .. } = rule;
            let Some(value) = node.labels.get(key) else {
                let message = format!("{name}: no label {key}, by which the pod's own constraint spreads the replicas");
                return Some((Reason::NodeOccupied, message));
            };
            let here = rule.domains.get(value).copied().unwrap_or(0);
            (here + rule.own - rule.least() > *max_skew).then(|| {
                let message = format!(
                    "{name}: the pod's own constraint (topologySpreadConstraints, maxSkew {max_skew}) allows no more \
                     replicas with {key}={value}"
                );
                (Reason::NodeOccupied, message)
            })
        })
    }
}

impl SpreadRule {
    /// Whether the pods on this node count, by the policies of the constraint.
    fn includes(&self, node: &NodeFact, template: &TemplateFact) -> bool {
        let is_wanted = !self.honors_affinity || wanted_by(node, template);
        is_wanted && (!self.honors_taints || is_tolerated(node, template))
    }

    /// None if the constraint is malformed; the API server then refuses the pod.
    fn new(constraint: TopologySpreadConstraint, template: &TemplateFact) -> Option<Self> {
        let keys = constraint.match_label_keys.unwrap_or_default();
        let mut given = constraint.label_selector?;
        let labels = given.match_labels.get_or_insert_with(BTreeMap::new);
        labels.extend(
            keys.into_iter()
                .filter_map(|key| template.labels.get_key_value(&key))
                .map(|(key, value)| (key.clone(), value.clone())),
        );
        let selector = Selector::try_from(given).ok()?;
        Some(Self {
            own: i64::from(selector.matches(&template.labels)),
            key: constraint.topology_key,
            max_skew: i64::from(constraint.max_skew),
            min_domains: usize::try_from(constraint.min_domains.unwrap_or(1)).unwrap_or(1),
            selector,
            honors_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
            domains: HashMap::new(),
        })
    }

    /// Number of pods in the domain with the fewest; 0 if there are fewer domains than required.
    fn least(&self) -> i64 {
        if self.domains.len() < self.min_domains { 0 } else { self.domains.values().copied().min().unwrap_or(0) }
    }
}
