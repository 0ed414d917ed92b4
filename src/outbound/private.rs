//! Private addresses and names of the cluster, which requests of users reach only where the settings permit it.
//!
//! Each rule says who may ask for what. The rules that apply to a request are determined before it is sent, and HTTP
//! clients are shared only between requests to which the same rules apply: a connection that was opened for one
//! namespace never serves another one that may not open it.

use std::net::IpAddr;
use std::sync::Arc;

use reqwest::Method;

use super::network::{HostPattern, Network};

/// Namespace in a rule that stands for all namespaces, and for objects without a namespace.
pub const ALL_NAMESPACES: &str = "*";

/// Rule that permits requests to private addresses. Each list narrows it; an empty list does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivateRule {
    pub namespaces: Vec<String>,
    pub networks: Vec<Network>,
    pub hosts: Vec<HostPattern>,
    pub ports: Vec<u16>,
    pub methods: Vec<Method>,
}

/// A request to a server that a user names.
#[derive(Clone, Copy, Debug)]
pub struct AskedAddress<'a> {
    /// Namespace of the object that names the server; empty for an object without a namespace.
    pub namespace: &'a str,
    pub method: &'a Method,
    /// Host as in the URL.
    pub host: &'a str,
    pub port: u16,
}

/// Where the address of a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressOrigin {
    /// A user names it.
    User,
    /// It is in the status of a pod that belongs to the object. The kubelet writes it.
    OwnPod,
}

/// Private addresses that a request may reach.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PrivateAccess {
    /// Addresses that the rules with these indexes permit.
    Rules(Arc<[usize]>),
    /// The address of a pod of the object.
    OwnPod,
}

impl PrivateAccess {
    /// The access of a request.
    pub fn of(rules: &[PrivateRule], asked: AskedAddress<'_>, origin: AddressOrigin) -> Self {
        match origin {
            AddressOrigin::OwnPod => Self::OwnPod,
            AddressOrigin::User => {
                let apply = rules.iter().enumerate().filter(|(_, rule)| rule.applies_to(asked));
                Self::Rules(apply.map(|(index, _)| index).collect())
            }
        }
    }

    /// Whether this private address may be reached.
    pub fn permits(&self, rules: &[PrivateRule], address: IpAddr) -> bool {
        match self {
            Self::Rules(indexes) => indexes.iter().filter_map(|index| rules.get(*index)).any(|rule| rule.has(address)),
            Self::OwnPod => true,
        }
    }

    /// Whether a rule of the settings names the namespace or the host. Errors may then show why a connection failed.
    pub fn is_named(&self, rules: &[PrivateRule]) -> bool {
        match self {
            Self::Rules(indexes) => {
                let mut rules = indexes.iter().filter_map(|index| rules.get(*index));
                rules.any(|rule| !rule.namespaces.is_empty() || !rule.hosts.is_empty())
            }
            Self::OwnPod => false,
        }
    }
}

impl PrivateRule {
    /// Whether the rule applies to the request, if the address is in its networks.
    fn applies_to(&self, asked: AskedAddress<'_>) -> bool {
        let AskedAddress { namespace, method, host, port } = asked;
        let is_asker = |name: &String| name == namespace || name == ALL_NAMESPACES;
        (self.namespaces.is_empty() || self.namespaces.iter().any(is_asker))
            && (self.methods.is_empty() || self.methods.contains(method))
            && (self.ports.is_empty() || self.ports.contains(&port))
            && (self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches(host)))
    }

    fn has(&self, address: IpAddr) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|network| network.contains(address))
    }

    /// Problem of a rule that would permit more than its author probably intends; None if it can be used.
    pub fn problem(&self) -> Option<&'static str> {
        let names_server = !self.networks.is_empty() || !self.hosts.is_empty();
        if !self.namespaces.is_empty() {
            return None;
        }
        match (names_server, self.ports.is_empty() || self.methods.is_empty()) {
            (false, _) => Some("a rule names namespaces, networks or hosts; the namespace \"*\" stands for all"),
            (true, true) => Some("a rule without namespaces names ports and methods, since it is for all namespaces"),
            (true, false) => None,
        }
    }
}

/// Networks that are not part of the internet: private, shared, benchmark, and reserved ones.
const PRIVATE: [&str; 9] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "192.0.0.0/24",
    "198.18.0.0/15",
    "240.0.0.0/4",
    "fc00::/7",
    "fec0::/10",
];

/// Whether the address is private.
pub fn is_private(address: IpAddr) -> bool {
    let mut networks = PRIVATE.iter().filter_map(|network| network.parse::<Network>().ok());
    networks.any(|network| network.contains(address))
}

/// Whether the name is one of the cluster: of a Service or pod, or without a domain, so that the search domains of the
/// cluster complete it.
pub fn is_cluster_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let has_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    let labels: Vec<&str> = host.split('.').collect();
    // The domain of a cluster can be configured; the part before it cannot.
    let is_service = labels.iter().skip(2).any(|label| matches!(*label, "svc" | "pod"));
    !has_address && (labels.len() == 1 || is_service || host.ends_with(".cluster.local"))
}

/// Advice for the refusal of a private address: the line of the settings that permits the request.
pub fn advice(asked: AskedAddress<'_>) -> String {
    let AskedAddress { namespace, method, host, port } = asked;
    let server = match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(address) => format!("networks: [\"{address}\"]"),
        Err(_) => format!("hosts: [{host}]"),
    };
    let who = if namespace.is_empty() { String::new() } else { format!("namespaces: [{namespace}], ") };
    format!(
        "a cluster administrator permits it by a line in outbound.privateNetworks of the operator's settings: \
         - {{{who}{server}, ports: [{port}], methods: [{method}]}}"
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    fn private_addresses_are_known(
        #[values(
            "10.1.2.3",
            "172.31.0.1",
            "192.168.0.1",
            "100.64.0.1",
            "198.18.0.1",
            "250.0.0.1",
            "fd12::1",
            "fec0::1"
        )]
        address: IpAddr,
    ) {
        assert!(is_private(address));
    }

    #[rstest]
    fn public_addresses_are_not_private(
        #[values("1.1.1.1", "172.32.0.1", "100.128.0.1", "192.0.1.1", "2606:4700::1111")] address: IpAddr,
    ) {
        assert!(!is_private(address));
    }

    #[rstest]
    #[case("prometheus", true)]
    #[case("prometheus.monitoring.svc", true)]
    #[case("Prometheus.Monitoring.SVC.", true)]
    #[case("prometheus.monitoring.svc.cluster.local", true)]
    #[case("a.b.svc.my.domain", true)]
    #[case("10-0-0-1.default.pod.cluster.local", true)]
    #[case("api.example.com", false)]
    #[case("svc.example.com", false)]
    #[case("10.0.0.1", false)]
    #[case("[fd00::1]", false)]
    fn names_of_the_cluster_are_known(#[case] host: &str, #[case] expected: bool) {
        assert_eq!(is_cluster_name(host), expected);
    }

    fn asked(namespace: &'static str, method: &'static Method, host: &'static str, port: u16) -> AskedAddress<'static> {
        AskedAddress { namespace, method, host, port }
    }

    fn platform() -> PrivateRule {
        PrivateRule { namespaces: vec!["platform".into()], ..PrivateRule::default() }
    }

    fn network() -> PrivateRule {
        PrivateRule {
            networks: vec!["10.0.0.0/8".parse().unwrap()],
            ports: vec![443],
            methods: vec![Method::GET],
            ..PrivateRule::default()
        }
    }

    fn service() -> PrivateRule {
        PrivateRule {
            hosts: vec!["prometheus.monitoring.svc".parse().unwrap()],
            ports: vec![9090],
            methods: vec![Method::GET],
            ..PrivateRule::default()
        }
    }

    #[rstest]
    #[case::nobody(asked("shop", &Method::GET, "10.1.2.3", 80), "10.1.2.3", false)]
    #[case::namespace(asked("platform", &Method::POST, "172.16.0.1", 80), "172.16.0.1", true)]
    #[case::network(asked("shop", &Method::GET, "10.1.2.3", 443), "10.1.2.3", true)]
    #[case::other_network(asked("shop", &Method::GET, "172.16.0.1", 443), "172.16.0.1", false)]
    #[case::other_method(asked("shop", &Method::POST, "10.1.2.3", 443), "10.1.2.3", false)]
    #[case::other_port(asked("shop", &Method::GET, "10.1.2.3", 8443), "10.1.2.3", false)]
    #[case::host(asked("shop", &Method::GET, "prometheus.monitoring.svc", 9090), "172.16.0.1", true)]
    #[case::other_host(asked("shop", &Method::GET, "db.monitoring.svc", 9090), "172.16.0.1", false)]
    #[case::without_namespace(asked("", &Method::GET, "10.1.2.3", 80), "10.1.2.3", false)]
    fn rules_permit_who_and_what_they_name(
        #[case] asked: AskedAddress<'_>,
        #[case] address: IpAddr,
        #[case] expected: bool,
    ) {
        let rules = [platform(), network(), service()];
        assert_eq!(PrivateAccess::of(&rules, asked, AddressOrigin::User).permits(&rules, address), expected);
        assert!(PrivateAccess::of(&rules, asked, AddressOrigin::OwnPod).permits(&rules, address));
        let all = [PrivateRule { namespaces: vec![ALL_NAMESPACES.into()], ..PrivateRule::default() }];
        assert!(PrivateAccess::of(&all, asked, AddressOrigin::User).permits(&all, address));
        assert!(!PrivateAccess::of(&[], asked, AddressOrigin::User).permits(&[], address), "refused by default");
    }

    #[test]
    fn a_rule_for_all_namespaces_is_narrow_or_explicit() {
        for rule in [platform(), network(), service()] {
            assert_eq!(rule.problem(), None, "{rule:?}");
        }
        assert!(PrivateRule::default().problem().is_some());
        assert!(PrivateRule { ports: vec![], ..network() }.problem().is_some());
        assert!(PrivateRule { methods: vec![], ..service() }.problem().is_some());
        assert!(PrivateRule { networks: vec![], ..network() }.problem().is_some());
    }

    #[test]
    fn the_advice_is_a_line_of_the_settings() {
        let words = advice(asked("shop", &Method::POST, "10.1.2.3", 9200));
        assert!(
            words.ends_with("- {namespaces: [shop], networks: [\"10.1.2.3\"], ports: [9200], methods: [POST]}"),
            "{words}"
        );
        let words = advice(asked("", &Method::GET, "prometheus.monitoring.svc", 9090));
        assert!(words.ends_with("- {hosts: [prometheus.monitoring.svc], ports: [9090], methods: [GET]}"), "{words}");
    }
}
