//! The order of the nodes that fit, as far as the pods of a workload prefer some of them: spread over nodes and zones,
//! and the preferred terms of their template.
//!
//! The scores are those of kube-scheduler with its default weights (PodTopologySpread, InterPodAffinity, NodeAffinity,
//! TaintToleration), so that a replica goes where the scheduler would put it. The pods that replicas leave do not
//! count. Preferred terms of pods of other workloads are not known.

use std::collections::{BTreeMap, HashMap, HashSet};

use k8s_openapi::api::core::v1::{Affinity, PreferredSchedulingTerm};
use serde::Deserialize;

use crate::world::ActionsWorld;
use ganglion_api::workload_action::status::{Protocol, Slot, Step};
use ganglion_core::facts::{Key, NodeFact, NodeName, PodFact, PreferredTerm, TemplateFact};
use ganglion_core::world::World;

use super::neighbors::{Departing, Remaining, pods_concerned};
use super::nodes::{satisfied, unwelcome_taints};
use super::scope::Scope;
use super::slot::is_old_stateful;
use super::spread::SpreadRules;
use super::successor;

/// Label of the zone of a node.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The maxSkew of kube-scheduler's default constraints, by node and by zone.
const NODE_SKEW: f64 = 3.0;
const ZONE_SKEW: f64 = 5.0;

/// The largest score of one rule.
const MOST: f64 = 100.0;

/// The default weights of kube-scheduler.
const SPREAD_WEIGHT: f64 = 2.0;
const POD_AFFINITY_WEIGHT: f64 = 2.0;
const NODE_AFFINITY_WEIGHT: f64 = 2.0;
const TAINT_WEIGHT: f64 = 3.0;

#[derive(Deserialize, Default)]
#[serde(default)]
struct PreferringTemplate {
    spec: PreferringSpec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PreferringSpec {
    affinity: Option<Affinity>,
}

/// Preferences of the pods of one template.
pub struct Preferences<'a, 'f> {
    namespace: &'f str,
    template: &'f TemplateFact,
    /// Replicas of the workload on each node, and in each zone.
    on_nodes: HashMap<NodeName, f64>,
    in_zones: HashMap<&'a str, f64>,
    /// Constraints that are ignored where they cannot be met.
    spread: SpreadRules,
    terms: Vec<PreferredTerm>,
    /// Sum of the weights of the terms that pods in a domain meet, by label and value of nodes.
    near: HashMap<(&'a str, &'a str), f64>,
    node_terms: Vec<PreferredSchedulingTerm>,
}

impl<'a, 'f> Preferences<'a, 'f> {
    /// The preferences of pods of this set; None if its template is not known.
    pub fn of(world: &'a World, scope: &Scope<'f>, departing: &Departing) -> Option<Self> {
        let template = scope.set.template.as_deref()?;
        let parsed: PreferringTemplate = serde_json::from_str(&template.json).unwrap_or_default();
        let affinity = parsed.spec.affinity.unwrap_or_default();
        let terms = PreferredTerm::of(&affinity, &template.labels);
        let node_terms =
            affinity.node_affinity.and_then(|one| one.preferred_during_scheduling_ignored_during_execution);
        let mut all = Self {
            namespace: scope.set.id.key.namespace.as_str(),
            template,
            on_nodes: HashMap::new(),
            in_zones: HashMap::new(),
            spread: SpreadRules::preferred(template).counted(world, scope, departing),
            terms,
            near: HashMap::new(),
            node_terms: node_terms.unwrap_or_default(),
        };
        let remaining = Remaining::of(world, scope, departing);
        for node in own_nodes(world, scope, departing, &remaining) {
            all.count(node);
        }
        all.note_others(world, scope, departing, &remaining);
        Some(all)
    }

    /// Counts the pods that the preferred terms may concern.
    fn note_others(&mut self, world: &'a World, scope: &Scope, departing: &Departing, remaining: &Remaining) {
        if self.terms.is_empty() {
            return;
        }
        let namespaces = self.terms.iter().map(|one| &one.term.namespaces);
        let pods = pods_concerned(world, self.namespace, namespaces);
        for pod in pods.into_iter().filter(|pod| remaining.includes(pod)) {
            if let Some(node) = pod.node.as_ref().and_then(|name| world.node(name)) {
                self.note(&pod.id.key.namespace, &pod.labels, node);
            }
        }
        let slots = planned(world, scope, departing);
        let unbound = slots.filter(|(_, pod)| pod.is_none_or(|pod| pod.node.is_none()));
        let nodes: Vec<&NodeFact> =
            unbound.filter_map(|(slot, _)| world.node(&slot.replacement.as_ref()?.node)).collect();
        let (namespace, labels) = (self.namespace, &self.template.labels);
        nodes.into_iter().for_each(|node| self.note(namespace, labels, node));
    }

    /// Counts a pod with these labels on this node for the preferred terms.
    fn note(&mut self, namespace: &str, labels: &BTreeMap<String, String>, node: &'a NodeFact) {
        for PreferredTerm { weight, term } in &self.terms {
            if term.concerns(self.namespace, namespace, labels)
                && let Some((label, value)) = node.labels.get_key_value(&*term.topology)
            {
                *self.near.entry((label, value)).or_default() += f64::from(*weight);
            }
        }
    }

    fn count(&mut self, node: &'a NodeFact) {
        *self.on_nodes.entry(node.name()).or_default() += 1.0;
        if let Some(zone) = node.labels.get(ZONE) {
            *self.in_zones.entry(zone).or_default() += 1.0;
        }
    }

    /// Counts one more replica of the workload on this node.
    pub fn add(&mut self, node: &'a NodeFact) {
        self.count(node);
        self.spread.add(node);
        let (namespace, labels) = (self.namespace, &self.template.labels);
        self.note(namespace, labels, node);
    }

    /// Scores of these nodes, in thousandths. A score depends on the other nodes, too.
    pub fn scores(&self, nodes: &[&NodeFact]) -> Vec<i64> {
        let parts = [
            (SPREAD_WEIGHT, self.spread_scores(nodes)),
            (POD_AFFINITY_WEIGHT, self.pod_affinity_scores(nodes)),
            (NODE_AFFINITY_WEIGHT, self.node_affinity_scores(nodes)),
            (TAINT_WEIGHT, self.taint_scores(nodes)),
        ];
        let mut sums = vec![0.0; nodes.len()];
        for (weight, scores) in parts {
            sums.iter_mut().zip(scores).for_each(|(sum, score)| *sum += weight * score);
        }
        sums.into_iter().map(thousandths).collect()
    }

    /// As kube-scheduler's default constraints: few replicas of the workload on the node and in its zone.
    fn spread_scores(&self, nodes: &[&NodeFact]) -> Vec<f64> {
        let zones: HashSet<&String> = nodes.iter().filter_map(|node| node.labels.get(ZONE)).collect();
        let (by_node, by_zone) = (size_weight(nodes.len()), size_weight(zones.len()));
        let weights = self.spread.size_weights(nodes);
        let cost = |node: &&NodeFact| {
            let here = self.on_nodes.get(&node.name()).copied().unwrap_or(0.0);
            let near = node.labels.get(ZONE).and_then(|zone| self.in_zones.get(zone.as_str())).copied().unwrap_or(0.0);
            let own = here * by_node + NODE_SKEW - 1.0 + near * by_zone + ZONE_SKEW - 1.0;
            self.spread.cost(node, &weights).map(|declared| own + declared)
        };
        let costs: Vec<Option<f64>> = nodes.iter().map(cost).collect();
        let known = || costs.iter().flatten().copied();
        let (least, most) = (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max));
        // A node without the labels of the template's constraints comes last.
        let score = |cost: Option<f64>| cost.map_or(0.0, |cost| MOST * (most + least - cost) / most);
        costs.into_iter().map(score).collect()
    }

    fn pod_affinity_scores(&self, nodes: &[&NodeFact]) -> Vec<f64> {
        if self.near.is_empty() {
            return vec![0.0; nodes.len()];
        }
        let topologies: HashSet<&str> = self.terms.iter().map(|one| &*one.term.topology).collect();
        let sum = |node: &&NodeFact| {
            let values = topologies.iter().filter_map(|label| Some((*label, node.labels.get(*label)?.as_str())));
            values.filter_map(|domain| self.near.get(&domain)).sum()
        };
        let sums: Vec<f64> = nodes.iter().map(sum).collect();
        let least = sums.iter().copied().fold(f64::INFINITY, f64::min);
        let most = sums.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let range = most - least;
        sums.into_iter().map(|sum| if range > 0.0 { MOST * (sum - least) / range } else { 0.0 }).collect()
    }

    fn node_affinity_scores(&self, nodes: &[&NodeFact]) -> Vec<f64> {
        let sum = |node: &&NodeFact| {
            let met = self.node_terms.iter().filter(|term| satisfied(node, &term.preference));
            met.map(|term| f64::from(term.weight)).sum()
        };
        let sums: Vec<f64> = nodes.iter().map(sum).collect();
        let most = sums.iter().copied().fold(0.0, f64::max);
        sums.into_iter().map(|sum| if most > 0.0 { MOST * sum / most } else { 0.0 }).collect()
    }

    fn taint_scores(&self, nodes: &[&NodeFact]) -> Vec<f64> {
        let counts: Vec<f64> = nodes.iter().map(|node| amount(unwelcome_taints(node, self.template))).collect();
        let most = counts.iter().copied().fold(0.0, f64::max);
        counts.into_iter().map(|count| if most > 0.0 { MOST - MOST * count / most } else { MOST }).collect()
    }
}

/// The nodes of the replicas that remain, and of new pods of slots; a node with several is listed several times.
fn own_nodes<'a>(world: &'a World, scope: &Scope, departing: &Departing, remaining: &Remaining) -> Vec<&'a NodeFact> {
    let set = &scope.set.id.uid;
    let pods = world.pods_of(set).filter(|pod| remaining.includes(pod));
    let arriving = planned(world, scope, departing).filter(|(_, pod)| !pod.is_some_and(|pod| pod.is_of(set)));
    let arriving = arriving.filter_map(|(slot, pod)| {
        let planned = slot.replacement.as_ref().map(|planned| &planned.node);
        pod.and_then(|pod| pod.node.as_ref()).or(planned)
    });
    pods.filter_map(|pod| pod.node.as_ref()).chain(arriving).filter_map(|name| world.node(name)).collect()
}

/// Slots with new pods of the set, each with its new pod if that exists. The successor of a replica that has left its
/// set is a pod of the set like any other.
fn planned<'a>(
    world: &'a World,
    scope: &Scope,
    departing: &Departing,
) -> impl Iterator<Item = (&'a Slot, Option<&'a PodFact>)> {
    let namespace = scope.set.id.key.namespace.clone();
    let own = departing.slot.cloned();
    let slots = world
        .slots_on(&scope.set.id.uid)
        .filter(move |slot| slot.step != Step::RollingBack && own.as_ref() != Some(&slot.id));
    slots.filter_map(move |slot| {
        let planned = slot.replacement.as_ref()?;
        if slot.protocol == Protocol::Successor && successor::has_left(world, &namespace, slot) {
            return None;
        }
        let pod = world.pod(&Key::new(&namespace, &planned.name)).filter(|pod| !is_old_stateful(slot, pod));
        Some((slot, pod))
    })
}

/// Weight of a constraint with this number of domains, as kube-scheduler weighs it.
pub fn size_weight(domains: usize) -> f64 {
    (amount(domains) + 2.0).ln()
}

/// A number of pods, nodes or taints.
#[expect(clippy::cast_precision_loss, reason = "there are fewer")]
pub fn amount(number: usize) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, reason = "scores are small, and casts of floats saturate")]
fn thousandths(score: f64) -> i64 {
    (score * 1e3).round() as i64
}
