//! Facts about nodes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

use super::{Identity, NodeName, Requests, ResourceAmounts, texts};
use crate::quantity;
use ganglion_api::marks;

/// Annotations on nodes that placement reads. They are published by a PlacementPolicy or by other programs.
pub const PUBLISHED: [&str; 18] = [
    "mean-used-cpu",
    "std-used-cpu",
    "forecasted-used-cpu",
    "mean-free-cpu",
    "std-free-cpu",
    "forcasted-free-cpu",
    "forecasted-free-cpu",
    "mean-used-memory",
    "std-used-memory",
    "forecasted-used-memory",
    "mean-free-memory",
    "std-free-memory",
    "forcasted-free-memory",
    "forecasted-free-memory",
    CONGESTION,
    CONGESTION_SAMPLED_AT,
    USAGE_SAMPLED_AT,
    USAGE_SAMPLES,
];

/// Annotation: congestion factor.
pub const CONGESTION: &str = "congestion-factor";

/// Annotation: time at which the congestion factor was measured.
pub const CONGESTION_SAMPLED_AT: &str = "ganglion.dev/congestion-sampled-at";

/// Annotation: time at which the usage in the other annotations was measured.
pub const USAGE_SAMPLED_AT: &str = "ganglion.dev/usage-sampled-at";

/// Annotation: number of samples behind the values in the other annotations.
pub const USAGE_SAMPLES: &str = "ganglion.dev/usage-samples";

/// Key prefix of the taints of control plane nodes.
const NODE_ROLE: &str = "node-role.kubernetes.io/";

/// Maximum length of a published annotation, in characters, without surrounding blanks.
const MAX_PUBLISHED: usize = 64;

/// Maximum length of the history of a label in bytes. A longer one has another form.
pub const MAX_LABEL_HISTORY: usize = 176;

/// Replaces a longer annotation. It is neither a number nor a time, so readers treat it as malformed; a truncated value
/// could be a different number.
const TOO_LONG: &str = "longer than 64 characters";

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFact {
    pub id: Identity,
    pub created: Timestamp,
    pub labels: BTreeMap<String, String>,
    /// Time at which the operator last wrote labels.
    pub labeled_at: Option<Timestamp>,
    /// Histories of the labels with scores of policies, by key: annotations that the operator writes with the labels.
    pub label_histories: Box<[(Box<str>, Box<str>)]>,
    /// Internal addresses, IPv4 and IPv6, in the order of the status.
    pub addresses: Vec<String>,
    pub ready: bool,
    /// `spec.unschedulable`.
    pub cordoned: bool,
    pub taints: Vec<Taint>,
    pub allocatable: Requests,
    /// Allocatable amounts of resources that are not members of [`Requests`], by name.
    pub extended: Box<[(Box<str>, i64)]>,
    /// Capacity of the machine; more than what is allocatable.
    pub capacity: Requests,
    /// Maximum number of pods.
    pub pod_capacity: i64,
    pub terminating: bool,
    /// Its annotations among [`PUBLISHED`].
    pub published: BTreeMap<&'static str, String>,
}

impl NodeFact {
    /// The name of the node.
    pub fn name(&self) -> NodeName {
        self.id.key.name.as_str().into()
    }

    /// History of the label with this key, as it is written.
    pub fn label_history(&self, key: &str) -> Option<&str> {
        self.label_histories.iter().find(|(found, _)| **found == *key).map(|(_, history)| &**history)
    }

    /// Whether the same selectors and names mean both nodes: a heartbeat changes neither labels nor addresses.
    pub fn is_selected_like(&self, other: &Self) -> bool {
        self.id.uid == other.id.uid && self.labels == other.labels && self.addresses == other.addresses
    }

    /// Whether pods may be scheduled to the node, possibly only pods that tolerate a taint. False for control plane
    /// nodes whose role taint repels pods.
    pub fn takes_pods(&self) -> bool {
        let of_role = |taint: &Taint| taint.effect != "PreferNoSchedule" && taint.key.starts_with(NODE_ROLE);
        self.ready && !self.cordoned && !self.terminating && !self.taints.iter().any(of_role)
    }
}

fn published(annotations: Option<&BTreeMap<String, String>>) -> BTreeMap<&'static str, String> {
    let found = |key: &'static str| Some((key, kept(annotations?.get(key)?)));
    PUBLISHED.into_iter().filter_map(found).collect()
}

fn kept(text: &str) -> String {
    let text = text.trim();
    let is_long = text.chars().nth(MAX_PUBLISHED).is_some();
    let kept = if is_long { TOO_LONG } else { text };
    kept.to_owned()
}

/// Annotations with the keys of labels, as far as they can be histories.
fn label_histories(annotations: Option<&BTreeMap<String, String>>) -> Box<[(Box<str>, Box<str>)]> {
    let can_be =
        |key: &str, text: &str| key.starts_with(marks::LABEL_DOMAIN) && (1..=MAX_LABEL_HISTORY).contains(&text.len());
    let found = annotations.into_iter().flatten().filter(|(key, text)| can_be(key, text));
    found.map(|(key, text)| (key.as_str().into(), text.as_str().into())).collect()
}

/// Time of the last write by the manager of our labels.
fn labeled_at(managers: &[ManagedFieldsEntry]) -> Option<Timestamp> {
    let ours = managers.iter().filter(|entry| entry.manager.as_deref() == Some(marks::LABEL_MANAGER));
    ours.filter_map(|entry| Some(entry.time.as_ref()?.0)).max()
}

/// The amounts that count for [`super::PodConstraints::extended`].
fn extended(allocatable: Option<&BTreeMap<String, Quantity>>) -> Box<[(Box<str>, i64)]> {
    let others = allocatable.into_iter().flatten().filter(|(name, _)| *name != "pods" && !ResourceAmounts::has(name));
    let found = others.filter_map(|(name, amount)| Some((texts::name(name).into(), quantity::bytes(&amount.0).ok()?)));
    found.collect()
}

impl From<Node> for NodeFact {
    fn from(node: Node) -> Self {
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        let capacity = status.and_then(|status| status.capacity.as_ref());
        Self {
            id: (&node.metadata).into(),
            created: node.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            labeled_at: labeled_at(node.metadata.managed_fields.as_deref().unwrap_or_default()),
            label_histories: label_histories(node.metadata.annotations.as_ref()),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            addresses: status
                .and_then(|status| status.addresses.as_ref())
                .map(|all| all.iter().filter(|one| one.type_ == "InternalIP").map(|one| one.address.clone()).collect())
                .unwrap_or_default(),
            ready: status
                .and_then(|status| status.conditions.as_ref())
                .is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True")),
            cordoned: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            allocatable: Requests::of(allocatable, Requests::default()),
            extended: extended(allocatable),
            capacity: Requests::of(capacity, Requests::default()),
            pod_capacity: allocatable
                .and_then(|map| map.get("pods"))
                .and_then(|text| quantity::bytes(&text.0).ok())
                .unwrap_or(0),
            published: published(node.metadata.annotations.as_ref()),
            terminating: node.metadata.deletion_timestamp.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::{Value, json};

    use super::*;

    fn node(version: &str, heartbeat: &str, addresses: Value) -> Node {
        let value = json!({
            "metadata": {"name": "n", "resourceVersion": version, "labels": {"kubernetes.io/hostname": "host"}},
            "status": {
                "addresses": addresses,
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}],
                "images": [{"names": [heartbeat], "sizeBytes": 1}],
            },
        });
        serde_json::from_value(value).expect("a node")
    }

    #[test]
    fn only_internal_addresses_are_kept_and_in_their_order() {
        let addresses = json!([
            {"type": "Hostname", "address": "host"},
            {"type": "InternalIP", "address": "fd00::1"},
            {"type": "ExternalIP", "address": "192.0.2.1"},
            {"type": "InternalIP", "address": "10.0.0.1"},
        ]);
        let fact = NodeFact::from(node("1", "2026-11-23T00:00:00Z", addresses));
        assert_eq!(fact.addresses, ["fd00::1", "10.0.0.1"]);
    }

    #[test]
    fn annotations_are_kept_whole_or_not_at_all() {
        let digits = |count: usize| "5".repeat(count);
        let blanks = " ".repeat(2 * MAX_PUBLISHED);
        let texts = [
            (" 12.5\n".to_owned(), "12.5".to_owned()),
            (format!("{blanks}5{blanks}"), "5".to_owned()),
            (digits(MAX_PUBLISHED), digits(MAX_PUBLISHED)),
            (digits(MAX_PUBLISHED + 1), TOO_LONG.to_owned()),
        ];
        for (text, kept) in texts {
            let keys = [CONGESTION, CONGESTION_SAMPLED_AT, "another"];
            let annotations = BTreeMap::from(keys.map(|key| (key.to_owned(), text.clone())));
            let expected = BTreeMap::from([(CONGESTION, kept.clone()), (CONGESTION_SAMPLED_AT, kept)]);
            assert_eq!(published(Some(&annotations)), expected);
        }
    }

    #[test]
    fn only_histories_of_labels_are_kept_and_only_short_ones() {
        let key = |name: &str| format!("{}{name}", marks::LABEL_DOMAIN);
        let long = "1".repeat(MAX_LABEL_HISTORY + 1);
        let annotations = [
            (key("a"), "12@1764364800".to_owned()),
            (key("b"), String::new()),
            (key("c"), long),
            ("other/a".to_owned(), "3@1764364800".to_owned()),
        ];
        let node = Node {
            metadata: ObjectMeta { annotations: Some(annotations.into()), ..ObjectMeta::default() },
            ..Node::default()
        };
        let fact = NodeFact::from(node);
        assert_eq!(fact.label_histories.len(), 1);
        assert_eq!(fact.label_history(&key("a")), Some("12@1764364800"));
        assert_eq!(fact.label_history(&key("b")), None);
    }

    #[test]
    fn a_heartbeat_changes_no_more_than_the_version() {
        let addresses = || json!([{"type": "InternalIP", "address": "10.0.0.1"}]);
        let before = NodeFact::from(node("1", "2026-11-23T00:00:00Z", addresses()));
        let mut after = NodeFact::from(node("2", "2026-11-23T00:00:10Z", addresses()));
        assert_ne!(before, after);
        after.id.version = "1".to_owned();
        assert_eq!(before, after);
    }
}
