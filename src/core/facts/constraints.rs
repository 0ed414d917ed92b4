//! Constraints of the scheduler between a pod and other pods: host ports, extended resources, and required affinity and
//! anti-affinity. Few pods have any of it, and one cluster has 150,000 pods, so the facts are small.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Affinity, Container, PodAffinityTerm, PodSpec, WeightedPodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{ResourceAmounts, texts};
use crate::quantity;

/// Maximum number of ports and of extended resources of a pod that count. The scheduler decides about more.
const MOST: usize = 64;

/// Constraints between a pod and other pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodConstraints {
    pub ports: Box<[HostPort]>,
    /// Requests of resources that are not members of [`super::Requests`], by name.
    pub extended: Box<[(Box<str>, i64)]>,
    /// Required anti-affinity.
    pub apart: Box<[PodTerm]>,
    /// Required affinity.
    pub beside: Box<[PodTerm]>,
}

/// A port of the node that a container uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    pub port: u16,
    protocol: PortProtocol,
    /// Address of the node; None for all addresses.
    address: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortProtocol {
    Tcp,
    Udp,
    Sctp,
}

impl HostPort {
    /// Whether two pods on one node cannot use both ports.
    pub fn clashes(&self, other: &Self) -> bool {
        let shares_address = self.address.is_none() || other.address.is_none() || self.address == other.address;
        self.port == other.port && self.protocol == other.protocol && shares_address
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let protocol = match self.protocol {
            PortProtocol::Tcp => "TCP",
            PortProtocol::Udp => "UDP",
            PortProtocol::Sctp => "SCTP",
        };
        write!(f, "{}/{protocol}", self.port)
    }
}

/// A term of a required pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTerm {
    /// Label of nodes. Nodes with the same value are one domain.
    pub topology: Box<str>,
    pub namespaces: TermNamespaces,
    /// Requirements on the labels of the other pods. None: no pod matches.
    requirements: Option<Box<[LabelRequirement]>>,
}

/// Namespaces of the pods that a term concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermNamespaces {
    /// The pod's own namespace.
    Own,
    All,
    /// The named ones. A selector of namespaces is not evaluated, since their labels are not known.
    Named(Box<[Box<str>]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct LabelRequirement {
    key: Box<str>,
    operator: LabelOperator,
    values: Box<[Box<str>]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LabelOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    /// One that the API does not define. It matches nothing.
    Unknown,
}

impl PodTerm {
    /// Whether the term of a pod in namespace `own` concerns a pod in this namespace with these labels.
    pub fn concerns(&self, own: &str, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        let is_near = match &self.namespaces {
            TermNamespaces::Own => own == namespace,
            TermNamespaces::All => true,
            TermNamespaces::Named(names) => names.iter().any(|name| **name == *namespace),
        };
        is_near && self.requirements.as_ref().is_some_and(|all| all.iter().all(|one| one.holds(labels)))
    }

    /// Estimate of the memory that the texts occupy, in bytes.
    fn text_bytes(&self) -> usize {
        let names = match &self.namespaces {
            TermNamespaces::Own | TermNamespaces::All => 0,
            TermNamespaces::Named(names) => texts::of_texts(names),
        };
        let requirements = self.requirements.iter().flatten().map(|one| {
            size_of::<LabelRequirement>()
                .saturating_add(texts::of_text(&one.key))
                .saturating_add(texts::of_texts(&one.values))
        });
        let own = size_of::<Self>().saturating_add(texts::of_text(&self.topology)).saturating_add(names);
        requirements.fold(own, usize::saturating_add)
    }
}

impl LabelRequirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&*self.key);
        let is_listed = |value: &String| self.values.iter().any(|one| **one == **value);
        match self.operator {
            LabelOperator::In => value.is_some_and(is_listed),
            LabelOperator::NotIn => value.is_none_or(|value| !is_listed(value)),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::Unknown => false,
        }
    }
}

impl PodConstraints {
    /// The constraints of a pod with this spec; None if it has none.
    pub fn of(spec: &PodSpec) -> Option<Box<Self>> {
        let (apart, beside) = spec.affinity.as_ref().map(terms).unwrap_or_default();
        let all = Self { ports: ports(spec), extended: extended(spec), apart, beside };
        (all != Self::default()).then(|| Box::new(all))
    }

    /// The same of a template. The API server merges the labels that `matchLabelKeys` and `mismatchLabelKeys` name into
    /// the selectors of pods, but not into those of templates.
    pub fn of_template(spec: &PodSpec, labels: &BTreeMap<String, String>) -> Option<Box<Self>> {
        let mut all = Self::of(spec)?;
        let affinity = spec.affinity.as_ref();
        let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let apart = apart.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_deref());
        let beside = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let beside = beside.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_deref());
        for (terms, given) in [(&mut all.apart, apart), (&mut all.beside, beside)] {
            for (term, given) in terms.iter_mut().zip(given.unwrap_or_default()) {
                term.merge(given, labels);
            }
        }
        Some(all)
    }

    /// Whether pods on the same node matter.
    pub fn uses_node(&self) -> bool {
        !self.ports.is_empty() || !self.extended.is_empty()
    }

    /// The part that concerns the node alone, for a pod in a namespace that the operator does not watch.
    pub fn on_node_only(self) -> Option<Self> {
        let on_node = Self { apart: Box::default(), beside: Box::default(), ..self };
        on_node.uses_node().then_some(on_node)
    }

    /// Requested amount of an extended resource.
    pub fn amount(&self, resource: &str) -> i64 {
        self.extended.iter().find(|(name, _)| **name == *resource).map_or(0, |(_, amount)| *amount)
    }

    /// Estimate of the memory that the constraints occupy, in bytes.
    pub fn text_bytes(&self) -> usize {
        let ports =
            self.ports.iter().map(|port| size_of::<HostPort>() + port.address.as_deref().map_or(0, texts::of_text));
        let extended = self.extended.iter().map(|(name, _)| size_of::<(Box<str>, i64)>() + texts::of_text(name));
        let terms = self.apart.iter().chain(&self.beside).map(PodTerm::text_bytes);
        ports.chain(extended).chain(terms).fold(size_of::<Self>(), usize::saturating_add)
    }
}

/// A term of a preferred pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferredTerm {
    /// Positive for affinity, negative for anti-affinity.
    pub weight: i32,
    pub term: PodTerm,
}

impl PreferredTerm {
    /// The preferred terms of a template with this affinity and these labels; see [`PodConstraints::of_template`].
    pub fn of(affinity: &Affinity, labels: &BTreeMap<String, String>) -> Vec<Self> {
        let beside = affinity.pod_affinity.as_ref();
        let beside = beside.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_deref());
        let apart = affinity.pod_anti_affinity.as_ref();
        let apart = apart.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_deref());
        let read = |given: &WeightedPodAffinityTerm, sign: i32| {
            let mut term = PodTerm::from(&given.pod_affinity_term);
            term.merge(&given.pod_affinity_term, labels);
            Self { weight: given.weight.saturating_mul(sign), term }
        };
        let beside = beside.unwrap_or_default().iter().map(|given| read(given, 1));
        beside.chain(apart.unwrap_or_default().iter().map(|given| read(given, -1))).collect()
    }
}

impl PodTerm {
    fn merge(&mut self, given: &PodAffinityTerm, labels: &BTreeMap<String, String>) {
        let Some(requirements) = self.requirements.take() else { return };
        let mut requirements = requirements.into_vec();
        let keys = [(&given.match_label_keys, LabelOperator::In), (&given.mismatch_label_keys, LabelOperator::NotIn)];
        for (keys, operator) in keys {
            for key in keys.iter().flatten() {
                let Some(value) = labels.get(key) else { continue };
                let values = [value.as_str().into()].into();
                requirements.push(LabelRequirement { key: key.as_str().into(), operator, values });
            }
        }
        self.requirements = Some(requirements.into());
    }
}

impl From<&PodAffinityTerm> for PodTerm {
    fn from(term: &PodAffinityTerm) -> Self {
        let named = || term.namespaces.iter().flatten().map(|name| name.as_str().into()).collect::<Box<[Box<str>]>>();
        let selector = term.namespace_selector.as_ref();
        let is_empty = |selector: &LabelSelector| {
            selector.match_labels.iter().all(BTreeMap::is_empty) && selector.match_expressions.iter().all(Vec::is_empty)
        };
        let namespaces = match selector {
            Some(selector) if is_empty(selector) => TermNamespaces::All,
            None if term.namespaces.iter().all(Vec::is_empty) => TermNamespaces::Own,
            _ => TermNamespaces::Named(named()),
        };
        let topology = term.topology_key.as_str().into();
        Self { topology, namespaces, requirements: term.label_selector.as_ref().map(requirements) }
    }
}

fn requirements(selector: &LabelSelector) -> Box<[LabelRequirement]> {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| LabelRequirement {
        key: key.as_str().into(),
        operator: LabelOperator::In,
        values: [value.as_str().into()].into(),
    });
    let expressions = selector.match_expressions.iter().flatten().map(|one| LabelRequirement {
        key: one.key.as_str().into(),
        operator: match one.operator.as_str() {
            "In" => LabelOperator::In,
            "NotIn" => LabelOperator::NotIn,
            "Exists" => LabelOperator::Exists,
            "DoesNotExist" => LabelOperator::DoesNotExist,
            _ => LabelOperator::Unknown,
        },
        values: one.values.iter().flatten().map(|value| value.as_str().into()).collect(),
    });
    labels.chain(expressions).collect()
}

/// The terms of the required anti-affinity and of the required affinity.
fn terms(affinity: &Affinity) -> (Box<[PodTerm]>, Box<[PodTerm]>) {
    let apart = affinity.pod_anti_affinity.as_ref();
    let apart = apart.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
    let beside = affinity.pod_affinity.as_ref();
    let beside = beside.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
    let of = |terms: Option<&Vec<PodAffinityTerm>>| terms.into_iter().flatten().map(PodTerm::from).collect();
    (of(apart), of(beside))
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// The host ports of containers and sidecars. With `hostNetwork`, each port of a container is one.
fn ports(spec: &PodSpec) -> Box<[HostPort]> {
    let sidecars = spec.init_containers.iter().flatten().filter(|one| is_sidecar(one));
    let given = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let by_host = spec.host_network == Some(true);
    let found = given.filter_map(|port| {
        let number = port.host_port.filter(|port| *port > 0).or_else(|| by_host.then_some(port.container_port))?;
        let protocol = match port.protocol.as_deref() {
            Some("UDP") => PortProtocol::Udp,
            Some("SCTP") => PortProtocol::Sctp,
            _ => PortProtocol::Tcp,
        };
        let address = port.host_ip.as_deref().filter(|address| !matches!(*address, "" | "0.0.0.0" | "::"));
        let address = address.map(|address| texts::name(address).into());
        Some(HostPort { port: u16::try_from(number).ok()?, protocol, address })
    });
    found.take(MOST).collect()
}

/// The requests of resources that are not members of [`super::Requests`], computed as the scheduler does: see
/// [`super::ContainerRequests::total`].
fn extended(spec: &PodSpec) -> Box<[(Box<str>, i64)]> {
    let inits = spec.init_containers.as_deref().unwrap_or_default();
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for container in inits.iter().chain(&spec.containers) {
        let requests = container.resources.iter().filter_map(|resources| resources.requests.as_ref()).flatten();
        names.extend(requests.map(|(name, _)| name.as_str()).filter(|name| !ResourceAmounts::has(name)));
    }
    let mut found = Vec::new();
    for name in names.into_iter().take(MOST) {
        let (mut sidecars, mut peak) = (0_i64, 0_i64);
        for init in inits {
            let amount = amount(init, name);
            if is_sidecar(init) {
                sidecars = sidecars.saturating_add(amount);
                peak = peak.max(sidecars);
            } else {
                peak = peak.max(sidecars.saturating_add(amount));
            }
        }
        let containers = spec.containers.iter().map(|one| amount(one, name)).fold(sidecars, i64::saturating_add);
        if containers.max(peak) > 0 {
            found.push((texts::name(name).into(), containers.max(peak)));
        }
    }
    found.into()
}

fn amount(container: &Container, name: &str) -> i64 {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    requests.and_then(|requests| quantity::bytes(&requests.get(name)?.0).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn of(spec: Value) -> Option<Box<PodConstraints>> {
        PodConstraints::of(&serde_json::from_value(spec).expect("a pod spec"))
    }

    fn port(spec: Value) -> HostPort {
        let spec = json!({"containers": [{"name": "c", "ports": [spec]}]});
        of(spec).expect("a host port").ports[0].clone()
    }

    #[rstest]
    #[case::same(json!({"containerPort": 1, "hostPort": 80}), json!({"containerPort": 2, "hostPort": 80}), true)]
    #[case::another_port(json!({"containerPort": 1, "hostPort": 80}), json!({"containerPort": 1, "hostPort": 81}), false)]
    #[case::another_protocol(json!({"containerPort": 1, "hostPort": 80}), json!({"containerPort": 1, "hostPort": 80, "protocol": "UDP"}), false)]
    #[case::any_address(json!({"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.1"}), json!({"containerPort": 1, "hostPort": 80, "hostIP": "0.0.0.0"}), true)]
    #[case::other_address(json!({"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.1"}), json!({"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.2"}), false)]
    fn ports_clash_as_for_the_scheduler(#[case] one: Value, #[case] other: Value, #[case] clashes: bool) {
        let (one, other) = (port(one), port(other));
        assert_eq!((one.clashes(&other), other.clashes(&one)), (clashes, clashes));
    }

    #[rstest]
    #[case::no_host_port(json!({"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}), 0)]
    #[case::host_network(json!({"hostNetwork": true, "containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}), 1)]
    #[case::sidecar(json!({"containers": [], "initContainers": [{"name": "s", "restartPolicy": "Always", "ports": [{"containerPort": 1, "hostPort": 80}]}]}), 1)]
    #[case::init(json!({"containers": [], "initContainers": [{"name": "s", "ports": [{"containerPort": 1, "hostPort": 80}]}]}), 0)]
    fn ports_of_containers_that_keep_running_count(#[case] spec: Value, #[case] count: usize) {
        assert_eq!(of(spec).map_or(0, |found| found.ports.len()), count);
    }

    #[test]
    fn extended_resources_are_counted_as_the_scheduler_does() {
        let asks = |name: &str, count: &str, restart: Option<&str>| json!({"name": "c", "restartPolicy": restart, "resources": {"requests": {name: count, "cpu": "1"}}});
        let spec = json!({
            "containers": [asks("example.com/fpga", "1", None), asks("example.com/fpga", "2", None)],
            "initContainers": [asks("example.com/fpga", "1", Some("Always")), asks("hugepages-2Mi", "4Mi", None)],
        });
        let found = of(spec).expect("constraints");
        assert_eq!(
            (found.amount("example.com/fpga"), found.amount("hugepages-2Mi"), found.amount("cpu")),
            (4, 4 << 20, 0)
        );
        assert_eq!(of(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]})), None);
    }

    fn term(term: Value) -> PodTerm {
        let spec = json!({"containers": [], "affinity": {"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
        of(spec).expect("a term").apart[0].clone()
    }

    #[rstest]
    #[case::labels(json!({"labelSelector": {"matchLabels": {"app": "web"}}}), "own", true)]
    #[case::other_labels(json!({"labelSelector": {"matchLabels": {"app": "db"}}}), "own", false)]
    #[case::empty(json!({"labelSelector": {}}), "own", true)]
    #[case::none(json!({}), "own", false)]
    #[case::expressions(json!({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}, {"key": "tier", "operator": "DoesNotExist"}]}}), "own", true)]
    #[case::unknown_operator(json!({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}}), "own", false)]
    #[case::other_namespace(json!({"labelSelector": {}}), "other", false)]
    #[case::named(json!({"labelSelector": {}, "namespaces": ["other"]}), "other", true)]
    #[case::named_others(json!({"labelSelector": {}, "namespaces": ["other"]}), "own", false)]
    #[case::all(json!({"labelSelector": {}, "namespaceSelector": {}}), "other", true)]
    #[case::selected(json!({"labelSelector": {}, "namespaceSelector": {"matchLabels": {"a": "b"}}}), "own", false)]
    fn a_term_concerns_the_pods_that_it_selects(#[case] given: Value, #[case] namespace: &str, #[case] concerns: bool) {
        let mut given = given;
        given["topologyKey"] = json!("zone");
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        assert_eq!(term(given).concerns("own", namespace, &labels), concerns);
    }

    #[test]
    fn a_template_has_the_labels_that_the_api_server_merges() {
        let spec = json!({"containers": [], "affinity": {"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", "labelSelector": {},
                "matchLabelKeys": ["hash", "missing"], "mismatchLabelKeys": ["tenant"]}]}}});
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let own = BTreeMap::from([label("hash", "1"), label("tenant", "a")]);
        let spec: PodSpec = serde_json::from_value(spec).expect("a pod spec");
        let found = PodConstraints::of_template(&spec, &own).expect("a term");
        let concerns =
            |labels: &[(String, String)]| found.apart[0].concerns("n", "n", &labels.iter().cloned().collect());
        assert!(concerns(&[label("hash", "1"), label("tenant", "b")]));
        assert!(!concerns(&[label("hash", "2"), label("tenant", "b")]));
        assert!(!concerns(&[label("hash", "1"), label("tenant", "a")]));
    }
}
