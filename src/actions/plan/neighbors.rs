//! Required affinity and anti-affinity between a new pod and the pods of the cluster. Source of the rules:
//! kube-scheduler's InterPodAffinity.
//!
//! The pods are read once for each decision. Afterwards, a node is evaluated by its labels alone. Pods in namespaces
//! that the operator does not watch, and terms that select namespaces by label, are left to the scheduler.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::nodes::NodeRefusal;
use crate::scope::Scope;
use crate::slot::is_old_stateful;
use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::Step;
use ganglion_core::facts::{Key, NodeFact, PodFact, PodTerm, SlotId, TemplateFact, TermNamespaces, Uid};
use ganglion_core::world::World;

/// A label of nodes with its value.
type Domain<'a> = (&'a str, &'a str);

/// Pods that do not count as neighbors of a new pod.
#[derive(Default)]
pub struct Departing<'p> {
    /// Pods that leave before the new pod runs.
    pub pods: Vec<&'p Uid>,
    /// Pods that leave when the new pod runs.
    pub later: Vec<&'p Uid>,
    /// The old pod of the slot, if it still counts.
    pub staying: Option<&'p Uid>,
    /// The slot that the decision is for.
    pub slot: Option<&'p SlotId>,
}

/// Pods that run when the new pods of a set run and the pods that slots and the decision move away are gone.
pub struct Remaining<'d> {
    departing: &'d Departing<'d>,
    /// Old pods of slots.
    leaving: HashSet<Key>,
}

impl<'d> Remaining<'d> {
    pub fn of(world: &World, scope: &Scope, departing: &'d Departing<'d>) -> Self {
        let namespace = &scope.set.id.key.namespace;
        let slots = world.slots_on(&scope.set.id.uid).filter(|slot| slot.step != Step::RollingBack);
        let victims = slots.filter_map(|slot| slot.victim.as_ref());
        let victims = victims.filter(|victim| departing.staying.is_none() || victim.uid.as_ref() != departing.staying);
        Self { departing, leaving: victims.map(|victim| Key::new(namespace, &victim.name)).collect() }
    }

    pub fn includes(&self, pod: &PodFact) -> bool {
        pod.is_active()
            && !self.departing.pods.contains(&&pod.id.uid)
            && !self.departing.later.contains(&&pod.id.uid)
            && !self.leaving.contains(&pod.id.key)
    }
}

/// The pods in the namespaces that these terms of a pod in namespace `own` name.
pub fn pods_concerned<'a, 't>(
    world: &'a World,
    own: &'t str,
    terms: impl Iterator<Item = &'t TermNamespaces>,
) -> Vec<&'a PodFact> {
    let mut namespaces: Vec<&str> = Vec::new();
    let mut all = false;
    for term in terms {
        match term {
            TermNamespaces::Own => namespaces.push(own),
            TermNamespaces::All => all = true,
            TermNamespaces::Named(names) => namespaces.extend(names.iter().map(AsRef::as_ref)),
        }
    }
    namespaces.sort_unstable();
    namespaces.dedup();
    if all {
        return world.all::<PodFact>().collect();
    }
    namespaces.into_iter().flat_map(|namespace| world.within::<PodFact>(namespace)).collect()
}

/// Nodes on which other pods allow a pod of a template to run.
pub struct Neighbors<'a, 'f> {
    namespace: &'f str,
    template: &'f TemplateFact,
    /// Domains that a pod keeps the new pod out of, each with the name of the pod.
    closed: HashMap<Domain<'a>, String>,
    /// For each term of the required affinity, the domains with a pod that all terms concern.
    near: Vec<HashSet<Domain<'a>>>,
}

/// A pod as far as its neighbors are concerned.
struct Neighbor<'p> {
    namespace: &'p str,
    name: &'p str,
    labels: &'p BTreeMap<String, String>,
    apart: &'p [PodTerm],
}

impl<'a, 'f> Neighbors<'a, 'f> {
    /// The neighbors of pods of this set.
    pub fn of(world: &'a World, scope: &Scope<'f>, departing: &Departing) -> Option<Self> {
        let template = scope.set.template.as_deref()?;
        let namespace = scope.set.id.key.namespace.as_str();
        let near = vec![HashSet::new(); beside(template).len()];
        let mut all = Self { namespace, template, closed: HashMap::new(), near };
        let counts = |pod: &&PodFact| !pod.finished && !pod.reduced && !departing.pods.contains(&&pod.id.uid);
        for pod in world.repelling(namespace).filter(counts) {
            all.note(world, pod);
        }
        let terms = apart(template).iter().chain(beside(template)).map(|term| &term.namespaces);
        for pod in pods_concerned(world, namespace, terms).into_iter().filter(counts) {
            all.note(world, pod);
        }
        for (action, slot) in world.slots_at_work().filter(|(_, slot)| departing.slot != Some(&slot.id)) {
            let Some(planned) = slot.replacement.as_ref() else { continue };
            let pod = world.pod(&Key::new(&action.namespace, &planned.name));
            let is_bound = pod.is_some_and(|pod| pod.node.is_some() && !is_old_stateful(slot, pod));
            let arriving = Scope::of_slot(world, &action.namespace, slot).filter(|_| !is_bound);
            let template = arriving.and_then(|scope| scope.set.template.as_deref());
            if let (Some(template), Some(node)) = (template, world.node(&planned.node)) {
                let (namespace, name, labels) = (action.namespace.as_str(), planned.name.as_str(), &template.labels);
                all.place(&Neighbor { namespace, name, labels, apart: apart(template) }, node);
            }
        }
        Some(all)
    }

    fn note(&mut self, world: &'a World, pod: &PodFact) {
        let Some(node) = pod.node.as_ref().and_then(|name| world.node(name)) else { return };
        let apart = pod.constraints.as_ref().map_or(&[][..], |constraints| &constraints.apart);
        let Key { namespace, name } = &pod.id.key;
        self.place(&Neighbor { namespace, name, labels: &pod.labels, apart }, node);
    }

    /// Counts a pod on this node.
    fn place(&mut self, pod: &Neighbor, node: &'a NodeFact) {
        let template = self.template;
        let own = apart(template).iter().filter(|term| term.concerns(self.namespace, pod.namespace, pod.labels));
        let theirs = pod.apart.iter().filter(|term| term.concerns(pod.namespace, self.namespace, &template.labels));
        for term in own.chain(theirs) {
            if let Some((label, value)) = node.labels.get_key_value(&*term.topology) {
                self.closed.entry((label, value)).or_insert_with(|| format!("{}/{}", pod.namespace, pod.name));
            }
        }
        let terms = beside(template);
        if terms.iter().all(|term| term.concerns(self.namespace, pod.namespace, pod.labels)) {
            for (term, near) in terms.iter().zip(&mut self.near) {
                near.extend(
                    node.labels.get_key_value(&*term.topology).map(|(label, value)| (label.as_str(), value.as_str())),
                );
            }
        }
    }

    /// Counts one more pod of the template on this node. Returns whether that can close other nodes.
    pub fn add(&mut self, node: &'a NodeFact) -> bool {
        let (namespace, template) = (self.namespace, self.template);
        let own = Neighbor { namespace, name: "of this action", labels: &template.labels, apart: apart(template) };
        self.place(&own, node);
        !apart(template).is_empty()
    }

    /// Counts a new pod of this set, which may be another one, on this node.
    pub fn add_of(&mut self, scope: &Scope, node: &'a NodeFact) {
        let Some(template) = scope.set.template.as_deref() else { return };
        let (namespace, name) = (scope.set.id.key.namespace.as_str(), "of this action");
        self.place(&Neighbor { namespace, name, labels: &template.labels, apart: apart(template) }, node);
    }

    /// Why other pods keep a pod of the template off this node.
    pub fn refusal(&self, node: &NodeFact) -> Option<NodeRefusal> {
        let name = node.name();
        let refuse = |message: String| Some((Reason::NodeOccupied, message));
        let labels = node.labels.iter().filter(|_| !self.closed.is_empty());
        let closed = labels
            .into_iter()
            .find_map(|(label, value)| Some((label, value, self.closed.get(&(label.as_str(), value.as_str()))?)));
        if let Some((label, value, pod)) = closed {
            let message = format!("required anti-affinity keeps the pod away from pod {pod} ({label}={value})");
            return refuse(format!("{name}: {message}"));
        }
        let terms = beside(self.template);
        // The first pod of a group that is near itself may run on every node that has the labels.
        let is_first = self.near.iter().all(HashSet::is_empty)
            && terms.iter().all(|term| term.concerns(self.namespace, self.namespace, &self.template.labels));
        let far = terms.iter().zip(&self.near).find(|(term, near)| {
            let value = node.labels.get(&*term.topology);
            value.is_none_or(|value| !is_first && !near.contains(&(&*term.topology, value.as_str())))
        });
        let (term, _) = far?;
        refuse(format!("{name}: no pod that its required affinity names runs there ({})", term.topology))
    }
}

/// Terms of the template's required anti-affinity.
pub fn apart(template: &TemplateFact) -> &[PodTerm] {
    template.constraints.as_ref().map_or(&[], |constraints| &constraints.apart)
}

fn beside(template: &TemplateFact) -> &[PodTerm] {
    template.constraints.as_ref().map_or(&[], |constraints| &constraints.beside)
}
