//! Nodes that can take a new replica, which of them is best, and why the others are refused.
//!
//! The default scheduler decides about every pod. This module only avoids attempts that cannot succeed, and explains
//! why. Source of the rules: kube-scheduler's NodeUnschedulable, TaintToleration, NodeAffinity and NodeResourcesFit.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};

use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{NodeChoice, Protocol};
use ganglion_core::expression::{Expression, NodeView, PodsView, ResourceView};
use ganglion_core::facts::{Key, NodeFact, NodeName, Requests, TemplateFact};
use ganglion_core::quantity;
use ganglion_core::world::World;

use super::scope::Scope;
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

/// The nodes with their loads, for one decision.
#[derive(Debug)]
pub struct Nodes<'a> {
    world: &'a World,
    now: Timestamp,
    /// Load that this decision has assigned to each node or removed from it.
    sent: HashMap<NodeName, Load>,
    /// An action whose replicas count only if they have a new pod.
    except: Option<&'a Key>,
}

impl<'a> Nodes<'a> {
    pub fn new(world: &'a World, now: Timestamp) -> Self {
        Self { world, now, sent: HashMap::new(), except: None }
    }

    /// The same, but this action's replicas count only if they have a new pod. For a decision about replicas without
    /// one.
    pub fn without(self, action: &'a Key) -> Self {
        Self { except: Some(action), ..self }
    }

    /// Removes this pod from the load of the node.
    pub fn remove(&mut self, node: &NodeName, requests: Requests) {
        let load = self.sent.entry(node.to_owned()).or_default();
        (load.pods, load.requests) = (load.pods - 1, load.requests - requests);
    }

    /// Adds one more replica to the load of the node.
    pub fn add(&mut self, node: &NodeName, requests: Requests) {
        self.sent.entry(node.to_owned()).or_default().add(requests);
    }

    /// The load of this node: pods bound to it, and replacement pods of actions that are not bound yet.
    pub fn load(&self, node: &NodeName) -> Load {
        let (pods, requests) = self.world.usage(node);
        let sent = self.sent.get(node).copied().unwrap_or_default();
        let mut load = Load { pods: pods + sent.pods, requests: requests + sent.requests, cores: sent.cores };
        for (action, slot) in self.world.slots_to(node) {
            let Some(replacement) = &slot.replacement else { continue };
            if slot.protocol == Protocol::Successor && successor::has_arrived(self.world, &action.namespace, slot) {
                continue;
            }
            let known = self.world.pod(&Key::new(&action.namespace, &replacement.name));
            let counts = known.is_some() || self.except != Some(action);
            // The old pod of a StatefulSet has the name of the new one.
            if counts
                && known.is_none_or(|pod| pod.node.as_ref() != Some(node) && !(slot.scheduled && pod.node.is_some()))
            {
                let set = Scope::of_slot(self.world, &action.namespace, slot).map(|scope| scope.set);
                let template = set.and_then(|set| set.template.as_deref());
                load.add(template.map(|template| template.requests).unwrap_or_default());
                load.cores += template.map_or(0, |template| template.cores);
            }
        }
        load
    }

    /// Whether the expression holds for this node.
    pub fn satisfies(&self, node: &NodeFact, expression: &Expression) -> Result<bool, String> {
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
        expression.matches(&view).map_err(|error| error.to_string())
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
                format!("node {name} is cordoned; `kubectl uncordon {name}`, or apply a new action with another node"),
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
        self.room(node, pod.map(|pod| pod.requests).unwrap_or_default())
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
        ];
        for (resource, size, used, asked) in resources {
            let free = size.saturating_sub(used);
            if asked > 0 && asked > free {
                let (kind, left) = (resource.name(), resource.amount(free.max(0)));
                let message = format!("{name}: {kind}: {} requested, {left} left", resource.amount(asked));
                return Err((Reason::NodeFull, message));
            }
            let left = i128::from(free.saturating_sub(asked)) * 1000;
            share = share.min(if size > 0 { i64::try_from(left / i128::from(size)).unwrap_or(0) } else { 0 });
        }
        Ok(share)
    }
}

/// A resource that pods request.
#[derive(Clone, Copy)]
enum Resource {
    Cpu,
    Memory,
}

impl Resource {
    fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }

    fn amount(self, value: i64) -> String {
        match self {
            Self::Cpu => quantity::show_millis(value),
            Self::Memory => quantity::show_bytes(value),
        }
    }
}

/// Entry of the plan for a chosen or possible node.
pub fn possible(name: &NodeName, share: i64, replicas: i32) -> NodeChoice {
    let message = format!("{}.{} % free with one more replica", share / 10, (share % 10).abs());
    NodeChoice { name: name.to_owned(), replicas, message, refused: None }
}

/// The first taint that the pod does not tolerate.
pub fn untolerated<'t>(taints: &'t [Taint], tolerations: &[Toleration]) -> Option<&'t Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(taint, toleration)))
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
fn wanted_by(node: &NodeFact, pod: &TemplateFact) -> bool {
    let selected = pod.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    let required = pod.node_affinity.as_ref();
    selected && required.is_none_or(|required| selects(required, node))
}

/// Whether a node meets any of the terms.
pub fn selects(selector: &NodeSelector, node: &NodeFact) -> bool {
    selector.node_selector_terms.iter().any(|term| satisfied(node, term))
}

/// Whether the node meets all requirements of a term. A term without requirements matches nothing.
fn satisfied(node: &NodeFact, term: &NodeSelectorTerm) -> bool {
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
        nodes.add(&"n1".into(), Requests::default());
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
            nodes.add(&"n1".into(), pod.requests);
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
