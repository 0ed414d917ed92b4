//! Nodes that can take a new replica, which of them is best, and why the others are refused.
//!
//! The default scheduler decides about every pod. This module only avoids attempts that cannot succeed, and explains
//! why. Source of the rules: kube-scheduler's NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts and
//! NodeResourcesFit. [`super::neighbors`] and [`super::volumes`] have those about other pods and volumes.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};

use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::{NodeChoice, Protocol, Slot};
use ganglion_core::expression::{Expression, NodeView, PodsView, ResourceView};
use ganglion_core::facts::{
    GPU, Key, NodeFact, NodeName, PodConstraints, PodFact, Requests, SlotId, TemplateFact, Uid,
};
use ganglion_core::quantity;
use ganglion_core::world::World;

use super::scope::Scope;
use super::slot::is_old_stateful;
use super::successor;

/// Pods on a node and in motion to it, with their requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    pub pods: i64,
    pub requests: Requests,
    /// CPU in millicores of the pods in motion only, as policies count pods that do not run yet.
    pub cores: i64,
}

impl Load {
    fn add(&mut self, requests: Requests) {
        self.pods += 1;
        self.requests = self.requests + requests;
    }
}

/// A refusal of one node.
pub type NodeRefusal = (Reason, String);

/// Changes of nodes by other actions than the one that is planned.
#[derive(Debug)]
pub struct OtherChanges<'a> {
    pub action: &'a WorkloadAction,
    /// The only namespace whose actions count; None if all count.
    pub namespace: Option<&'a str>,
    /// Nodes that replicas are leaving or arriving at now.
    pub in_motion: HashSet<&'a NodeName>,
}

/// The nodes with their loads, for one decision.
#[derive(Debug)]
pub struct Nodes<'a> {
    world: &'a World,
    now: Timestamp,
    /// Load that this decision has assigned to each node or removed from it.
    sent: HashMap<NodeName, Load>,
    /// Constraints of the replicas that this decision has assigned to each node.
    assigned: HashMap<NodeName, Vec<PodConstraints>>,
    /// Pods that this decision removes from their nodes.
    removed: HashSet<Uid>,
    /// An action whose replicas count only if they have a new pod.
    except: Option<&'a Key>,
    /// Slots that do not count.
    slots_out: Vec<&'a SlotId>,
    /// Whether pods on their way to a node count.
    reserves: bool,
    /// Changes that measured values must be newer than; None if all values count.
    others: Option<OtherChanges<'a>>,
    /// Whether all pods of a ReplicaSet have arrived, by its uid. Many slots of one set may be on their way to a node.
    arrived: RefCell<HashMap<Uid, bool>>,
}

impl<'a> Nodes<'a> {
    pub fn new(world: &'a World, now: Timestamp) -> Self {
        let (sent, assigned, removed) = (HashMap::new(), HashMap::new(), HashSet::new());
        Self {
            world,
            now,
            sent,
            assigned,
            removed,
            except: None,
            slots_out: Vec::new(),
            reserves: true,
            others: None,
            arrived: RefCell::default(),
        }
    }

    /// The same, but the measured values of a node are only used if they are newer than these changes. Otherwise, all
    /// actions that have the same reason would be carried out, although the first one removes it.
    pub fn measured_after(self, others: OtherChanges<'a>) -> Self {
        Self { others: Some(others), ..self }
    }

    pub fn world(&self) -> &'a World {
        self.world
    }

    /// The same, but this action's replicas count only if they have a new pod. For a decision about replicas without
    /// one.
    pub fn without(self, action: &'a Key) -> Self {
        Self { except: Some(action), ..self }
    }

    /// The same without this slot. For a decision about its new pod.
    pub fn without_slot(mut self, slot: &'a SlotId) -> Self {
        self.slots_out.push(slot);
        self
    }

    /// The same without reserved room. For pods that the scheduler may place before those that have reserved it.
    pub fn without_slots(self) -> Self {
        Self { reserves: false, ..self }
    }

    /// Removes this pod from the load of its node.
    pub fn remove(&mut self, pod: &PodFact) {
        let Some(node) = &pod.node else { return };
        let load = self.sent.entry(node.to_owned()).or_default();
        (load.pods, load.requests) = (load.pods - 1, load.requests - pod.hold.requests);
        self.removed.insert(pod.id.uid.clone());
    }

    /// Adds one more replica to the load of the node.
    pub fn add(&mut self, node: &NodeName, template: Option<&TemplateFact>) {
        let requests = template.map(|template| template.requests).unwrap_or_default();
        self.sent.entry(node.to_owned()).or_default().add(requests);
        let constraints = template.and_then(|template| template.constraints.as_deref());
        if let Some(constraints) = constraints.filter(|constraints| constraints.uses_node()) {
            self.assigned.entry(node.to_owned()).or_default().push(constraints.clone());
        }
    }

    /// The load of this node: pods bound to it, and replacement pods of actions that are not bound yet.
    pub fn load(&self, node: &NodeName) -> Load {
        let (pods, requests) = self.world.usage(node);
        let sent = self.sent.get(node).copied().unwrap_or_default();
        let mut load = Load { pods: pods + sent.pods, requests: requests + sent.requests, cores: sent.cores };
        for template in self.arriving(node) {
            load.add(template.map(|template| template.requests).unwrap_or_default());
            load.cores += template.map_or(0, |template| template.cores);
        }
        load
    }

    /// Templates of the replacement pods on their way to this node.
    fn arriving<'s>(&'s self, node: &'s NodeName) -> impl Iterator<Item = Option<&'a TemplateFact>> + use<'a, 's> {
        let slots = self.world.slots_to(node).filter(|(action, slot)| {
            let Some(replacement) = &slot.replacement else { return false };
            if slot.protocol == Protocol::Successor && self.has_arrived(&action.namespace, slot) {
                return false;
            }
            let known = self.world.pod(&Key::new(&action.namespace, &replacement.name));
            // The old pod of a StatefulSet has the name of the new one.
            let known = known.filter(|pod| !is_old_stateful(slot, pod));
            let counts = known.is_some() || self.except != Some(*action);
            let is_bound = |pod: &PodFact| pod.node.as_ref() == Some(node) || (slot.scheduled && pod.node.is_some());
            counts && self.reserves && !self.slots_out.contains(&&slot.id) && !known.is_some_and(is_bound)
        });
        slots.map(|(action, slot)| {
            let set = Scope::of_slot(self.world, &action.namespace, slot).map(|scope| scope.set);
            set.and_then(|set| set.template.as_deref())
        })
    }

    /// Whether no reservation is needed for the successor of this slot.
    fn has_arrived(&self, namespace: &str, slot: &Slot) -> bool {
        let is_complete = || successor::is_complete(self.world, namespace, slot);
        let set = &slot.replica_set.uid;
        successor::has_left(self.world, namespace, slot)
            && *self.arrived.borrow_mut().entry(set.clone()).or_insert_with(is_complete)
    }

    /// Why the values that the expression reads are older than the last change of the node by another action.
    fn outdated(&self, name: &NodeName, expression: &Expression) -> Option<NodeRefusal> {
        let others = self.others.as_ref()?;
        let mut values = expression.load_values().peekable();
        values.peek()?;
        let refuse = |why: String| Some((Reason::UsageOutdated, why));
        if others.in_motion.contains(name) {
            return refuse(format!("another action is moving a replica from or to node {name}"));
        }
        let changed = self.world.changed_at(name, others.action, others.namespace, self.now)?;
        let mut since = values.filter_map(|value| self.world.measured_since(name, value, self.now));
        // Recorded times are in whole seconds.
        since.any(|since| since <= changed).then_some(())?;
        refuse(format!("node {name} has not been measured since another action moved a replica from or to it"))
    }

    /// Whether the expression holds for this node.
    pub fn satisfies(&self, node: &NodeFact, expression: &Expression) -> Result<bool, NodeRefusal> {
        let name = node.name();
        let load = self.load(&name);
        let (there, _) = self.world.usage(&name);
        let resource = |allocatable, requested| ResourceView { allocatable, requested };
        let view = NodeView {
            name: name.as_str(),
            labels: &node.labels,
            taints: &node.taints,
            ready: node.ready,
            schedulable: !node.cordoned,
            pods: PodsView { count: load.pods, arriving: load.pods - there, capacity: node.pod_capacity },
            cpu: resource(node.allocatable.cpu, load.requests.cpu),
            memory: resource(node.allocatable.memory, load.requests.memory),
            measured: self.world.measured(&name, self.now),
        };
        if let Some(refusal) = self.outdated(&name, expression) {
            return expression.matches_with_any_load(&view).ok_or(refusal);
        }
        expression.matches(&view).map_err(|error| (Reason::NodeExcluded, error.to_string()))
    }

    /// The share of the node's scarcest resource that stays free with one more such pod, in thousandths; or why the
    /// node cannot take the pod.
    pub fn assess(&self, node: &NodeFact, pod: Option<&TemplateFact>) -> Result<i64, NodeRefusal> {
        let name = &node.id.key.name;
        let refuse = |reason, message: String| Err((reason, message));
        if node.terminating {
            return refuse(Reason::NodeGone, format!("node {name} is being deleted"));
        }
        if !node.ready {
            return refuse(Reason::NodeNotReady, format!("node {name} is not Ready"));
        }
        if node.cordoned {
            return refuse(
                Reason::NodeCordoned,
                format!("node {name} is cordoned (to use it: kubectl uncordon {name})"),
            );
        }
        if let Some(taint) = pod.and_then(|pod| untolerated(&node.taints, &pod.tolerations)) {
            let taint = format!("{}={}:{}", taint.key, taint.value.as_deref().unwrap_or_default(), taint.effect);
            return refuse(
                Reason::NodeTainted,
                format!("node {name} has the taint {taint}, which the pod does not tolerate"),
            );
        }
        if !pod.is_none_or(|pod| wanted_by(node, pod)) {
            return refuse(
                Reason::NodeExcluded,
                format!("the pod's own node selector or affinity excludes node {name}"),
            );
        }
        let share = self.room(node, pod.map(|pod| pod.requests).unwrap_or_default())?;
        let constraints = pod.and_then(|pod| pod.constraints.as_deref());
        match constraints.filter(|constraints| constraints.uses_node()) {
            Some(constraints) => self.beside_others(node, constraints).map(|()| share),
            None => Ok(share),
        }
    }

    /// Whether the host ports are free on the node, and the extended resources are enough.
    fn beside_others(&self, node: &NodeFact, asked: &PodConstraints) -> Result<(), NodeRefusal> {
        let name = node.name();
        let there = self.world.constraints_on(&name).filter(|(id, _)| !self.removed.contains(&id.uid));
        let there = there.map(|(id, constraints)| (format!("pod {}", id.key), constraints));
        let arriving = self.arriving(&name).flatten().filter_map(|template| template.constraints.as_deref());
        let arriving = arriving.chain(self.assigned.get(&name).into_iter().flatten());
        let others: Vec<(String, &PodConstraints)> =
            there.chain(arriving.map(|constraints| ("a pod on its way there".to_owned(), constraints))).collect();
        for (pod, constraints) in &others {
            let mut ports = asked.ports.iter();
            if let Some(port) = ports.find(|port| constraints.ports.iter().any(|other| port.clashes(other))) {
                return Err((Reason::NodeOccupied, format!("{name}: host port {port} is taken by {pod}")));
            }
        }
        for (resource, amount) in &asked.extended {
            let size = node.extended.iter().find(|(known, _)| known == resource).map_or(0, |(_, size)| *size);
            let used = others.iter().map(|(_, other)| other.amount(resource)).fold(0, i64::saturating_add);
            let left = size.saturating_sub(used).max(0);
            if *amount > left {
                let message = format!("{name}: {resource}: {amount} requested, {left} left");
                return Err((Reason::NodeFull, message));
            }
        }
        Ok(())
    }

    fn room(&self, node: &NodeFact, request: Requests) -> Result<i64, NodeRefusal> {
        let name = node.name();
        let load = self.load(&name);
        if load.pods >= node.pod_capacity {
            let message = format!("{name}: pods: {} of {}", load.pods, node.pod_capacity);
            return Err((Reason::NodeFull, message));
        }
        // Pods count as a resource, so that replicas without requests spread, too.
        let mut share = (node.pod_capacity - load.pods - 1).saturating_mul(1000) / node.pod_capacity;
        let resources = [
            (Resource::Cpu, node.allocatable.cpu, load.requests.cpu, request.cpu),
            (Resource::Memory, node.allocatable.memory, load.requests.memory, request.memory),
            (Resource::Gpu, node.allocatable.gpu, load.requests.gpu, request.gpu),
            (Resource::Storage, node.allocatable.storage, load.requests.storage, request.storage),
        ];
        for (resource, size, used, asked) in resources {
            let free = size.saturating_sub(used);
            if asked > 0 && asked > free {
                let (kind, left) = (resource.name(), resource.amount(free.max(0)));
                let message = format!("{name}: {kind}: {} requested, {left} left", resource.amount(asked));
                return Err((Reason::NodeFull, message));
            }
            if matches!(resource, Resource::Cpu | Resource::Memory) {
                let left = i128::from(free.saturating_sub(asked)) * 1000;
                share = share.min(if size > 0 { i64::try_from(left / i128::from(size)).unwrap_or(0) } else { 0 });
            }
        }
        Ok(share)
    }
}

/// A resource that pods request.
#[derive(Clone, Copy)]
enum Resource {
    Cpu,
    Memory,
    Gpu,
    Storage,
}

impl Resource {
    fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Gpu => GPU,
            Self::Storage => "ephemeral-storage",
        }
    }

    fn amount(self, value: i64) -> String {
        match self {
            Self::Cpu => quantity::show_millis(value),
            Self::Memory | Self::Storage => quantity::show_bytes(value),
            Self::Gpu => value.to_string(),
        }
    }
}

/// Entry of the plan for a chosen or possible node.
pub fn possible(name: &NodeName, share: i64, replicas: i32) -> NodeChoice {
    let message = format!("{}.{} % free with one more replica", share / 10, (share % 10).abs());
    NodeChoice { name: name.to_owned(), replicas, message, refused: None }
}

/// The first taint that the pod does not tolerate.
fn untolerated<'t>(taints: &'t [Taint], tolerations: &[Toleration]) -> Option<&'t Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(taint, toleration)))
}

/// Number of the node's taints with effect `PreferNoSchedule` that the pod does not tolerate.
pub fn unwelcome_taints(node: &NodeFact, pod: &TemplateFact) -> usize {
    let preferred = node.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
    preferred.filter(|taint| !pod.tolerations.iter().any(|toleration| tolerates(taint, toleration))).count()
}

/// Whether the template tolerates all taints of the node, that of a cordon included.
pub fn is_tolerated(node: &NodeFact, pod: &TemplateFact) -> bool {
    let is_closed = node.cordoned && !tolerates_cordon(&pod.tolerations);
    !is_closed && untolerated(&node.taints, &pod.tolerations).is_none()
}

/// Whether pods with these tolerations are scheduled to cordoned nodes.
pub fn tolerates_cordon(tolerations: &[Toleration]) -> bool {
    let cordon = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    tolerations.iter().any(|toleration| tolerates(&cordon, toleration))
}

fn tolerates(taint: &Taint, toleration: &Toleration) -> bool {
    toleration.effect.as_deref().is_none_or(|effect| effect.is_empty() || effect == taint.effect)
        && toleration.key.as_deref().is_none_or(|key| key.is_empty() || key == taint.key)
        && match toleration.operator.as_deref() {
            Some("Exists") => true,
            _ => {
                toleration.key.is_some()
                    && toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or("")
            }
        }
}

/// Whether the pod's own node selector and required node affinity allow the node.
pub fn wanted_by(node: &NodeFact, pod: &TemplateFact) -> bool {
    let selected = pod.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    let required = pod.node_affinity.as_ref();
    selected && required.is_none_or(|required| selects(required, node))
}

/// Whether a node meets any of the terms.
pub fn selects(selector: &NodeSelector, node: &NodeFact) -> bool {
    selector.node_selector_terms.iter().any(|term| satisfied(node, term))
}

/// Whether the node meets all requirements of a term. A term without requirements matches nothing.
pub fn satisfied(node: &NodeFact, term: &NodeSelectorTerm) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let field = |requirement: &NodeSelectorRequirement| {
        let value = (requirement.key == "metadata.name").then_some(&node.id.key.name);
        meets(value, requirement)
    };
    !(labels.is_empty() && fields.is_empty())
        && labels.iter().all(|requirement| meets(node.labels.get(&requirement.key), requirement))
        && fields.iter().all(field)
}

fn meets(value: Option<&String>, requirement: &NodeSelectorRequirement) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let number = |text: Option<&String>| text.and_then(|text| text.parse::<i64>().ok());
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(value).zip(number(values.first())).is_some_and(|(value, bound)| value > bound),
        "Lt" => number(value).zip(number(values.first())).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use ganglion_core::facts::Identity;

    fn node() -> NodeFact {
        NodeFact {
            id: Identity { key: Key::new("", "n1"), ..Identity::default() },
            labels: [("zone".to_owned(), "a".to_owned()), ("size".to_owned(), "7".to_owned())].into(),
            ready: true,
            allocatable: Requests { cpu: 2000, memory: 1000, ..Requests::default() },
            pod_capacity: 2,
            ..NodeFact::default()
        }
    }

    fn template(spec: Value) -> TemplateFact {
        serde_json::from_str(&json!({ "spec": spec }).to_string()).expect("a pod template")
    }

    fn assess(node: &NodeFact, pod: Value) -> Result<i64, Reason> {
        let world = crate::world::registered();
        Nodes::new(&world, Timestamp::UNIX_EPOCH).assess(node, Some(&template(pod))).map_err(|(reason, _)| reason)
    }

    fn asking(cpu: &str, memory: &str) -> Value {
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]})
    }

    #[rstest]
    #[case::half(asking("1", "0"), Ok(500))]
    #[case::all(asking("2", "0"), Ok(0))]
    #[case::more_cpu(asking("2001m", "0"), Err(Reason::NodeFull))]
    #[case::more_memory(asking("0", "1001"), Err(Reason::NodeFull))]
    fn room_is_what_is_allocatable(#[case] pod: Value, #[case] expected: Result<i64, Reason>) {
        assert_eq!(assess(&node(), pod), expected);
    }

    #[test]
    fn replicas_that_ask_for_nothing_spread_all_the_same() {
        let world = crate::world::registered();
        let mut nodes = Nodes::new(&world, Timestamp::UNIX_EPOCH);
        assert_eq!(nodes.assess(&node(), None), Ok(500));
        nodes.add(&"n1".into(), None);
        assert_eq!(nodes.assess(&node(), None), Ok(0));
    }

    #[test]
    fn what_is_on_its_way_takes_room() {
        let world = crate::world::registered();
        let mut nodes = Nodes::new(&world, Timestamp::UNIX_EPOCH);
        let node = node();
        let pod = template(asking("1", "0"));
        for left in [500, 0] {
            assert_eq!(nodes.assess(&node, Some(&pod)).ok(), Some(left));
            nodes.add(&"n1".into(), Some(&pod));
        }
        assert_eq!(nodes.assess(&node, Some(&pod)).map_err(|(reason, _)| reason), Err(Reason::NodeFull));
        assert!(nodes.assess(&node, None).is_err(), "two pods are its capacity");
    }

    #[rstest]
    #[case::none(json!([]), Err(Reason::NodeTainted))]
    #[case::exact(json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]), Ok(500))]
    #[case::any_effect(json!([{"key": "gpu", "operator": "Exists"}]), Ok(500))]
    #[case::everything(json!([{"operator": "Exists"}]), Ok(500))]
    #[case::other_value(json!([{"key": "gpu", "value": "no"}]), Err(Reason::NodeTainted))]
    #[case::other_effect(json!([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}]), Err(Reason::NodeTainted))]
    fn taints_are_tolerated_as_the_scheduler_does(#[case] tolerations: Value, #[case] expected: Result<i64, Reason>) {
        let taint =
            Taint { key: "gpu".into(), value: Some("yes".into()), effect: "NoSchedule".into(), time_added: None };
        let node = NodeFact { taints: vec![taint], ..node() };
        assert_eq!(assess(&node, json!({"containers": [], "tolerations": tolerations})), expected);
    }

    #[rstest]
    #[case(json!({"key": "zone", "operator": "In", "values": ["b", "a"]}), true)]
    #[case(json!({"key": "zone", "operator": "NotIn", "values": ["a"]}), false)]
    #[case(json!({"key": "none", "operator": "NotIn", "values": ["a"]}), true)]
    #[case(json!({"key": "zone", "operator": "DoesNotExist"}), false)]
    #[case(json!({"key": "size", "operator": "Gt", "values": ["6"]}), true)]
    #[case(json!({"key": "size", "operator": "Lt", "values": ["7"]}), false)]
    #[case(json!({"key": "zone", "operator": "Near"}), false)]
    fn affinity_is_read_as_the_scheduler_does(#[case] requirement: Value, #[case] fits: bool) {
        let term = |term: Value| {
            json!({"containers": [], "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}})
        };
        let expected = if fits { Ok(500) } else { Err(Reason::NodeExcluded) };
        assert_eq!(assess(&node(), term(json!({"matchExpressions": [requirement]}))), expected);
        assert_eq!(assess(&node(), term(json!({}))), Err(Reason::NodeExcluded), "an empty term matches nothing");
    }
}
