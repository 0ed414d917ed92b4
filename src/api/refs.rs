//! References that several kinds share: to Secrets and ConfigMaps in the object's own namespace (cluster-scoped kinds
//! have an additional field for the namespace), to workloads, pods and nodes, and the schema of label selectors.

use std::collections::BTreeMap;

use kube::KubeSchema;
use kube::core::Rule;
use schemars::{Schema, json_schema};
use serde::{Deserialize, Serialize};

use crate::identity::NodeName;

/// A Secret in the object's namespace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Credentials that the operator sends to a server. Exactly one member is set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.bearer) != has(self.basic)").message("set exactly one of bearer, basic"),
)]
pub struct Auth {
    /// A token that is sent as `Authorization: Bearer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer: Option<KeyRef>,
    /// A Secret whose keys `username` and `password` are sent as basic authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic: Option<SecretRef>,
}

/// Certificate authorities for verifying a server's certificate. Exactly one member is set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.secret) != has(self.configMap)").message("set exactly one of secret, configMap"),
)]
pub struct CaRef {
    /// A key of a Secret that contains PEM certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<KeyRef>,
    /// A key of a ConfigMap that contains PEM certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<KeyRef>,
}

/// A key of a Secret or ConfigMap in the object's namespace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct KeyRef {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in its data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Names of headers that no source or webhook may set: those of the connection and of credentials, for which `auth`
/// exists, the content type, which the operator sets, those by which metadata services recognize requests that are
/// meant for them, and those by which a receiver verifies a signed event: an unsigned one must not look like it.
pub const RESERVED_HEADERS: [&str; 18] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "host",
    "keep-alive",
    "metadata",
    "metadata-flavor",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
    "x-aws-ec2-metadata-token",
];

fn unreserved() -> Rule {
    let names = RESERVED_HEADERS.map(|name| format!("'{name}'")).join(", ");
    Rule::new(format!("!(self.name.lowerAscii() in [{names}])"))
        .message("the operator sets this header itself, or it must not be set; use auth for credentials")
        .field_path(".name")
}

/// A header that the operator sends to a server, such as the tenant of Mimir: `{name: X-Scope-OrgID, value: shop}`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.value) != has(self.secret)").message("set exactly one of value, secret"),
    validation = unreserved(),
)]
pub struct RequestHeader {
    /// Name of the header: letters, digits and `-`. Headers of the connection, of credentials, of signatures, and the
    /// content type cannot be set.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[a-zA-Z0-9-]+$"))]
    pub name: String,
    /// Its value: printable ASCII characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^[ -~]+$"))]
    pub value: Option<String>,
    /// A key of a Secret that contains the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<KeyRef>,
}

/// A workload in the action's namespace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRef {
    /// API version of the workload, such as `apps/v1`.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^([a-zA-Z0-9.-]{1,253}/)?[a-zA-Z0-9-]{1,63}$"))]
    pub api_version: String,
    /// Kind of the workload: Deployment, ReplicaSet, StatefulSet, or another kind that owns ReplicaSets, such as a
    /// Rollout of Argo. To change the replicas of another kind, the operator needs the permission to get and patch it,
    /// which a cluster administrator must grant.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name of the workload.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A pod in the action's namespace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PodRef {
    /// Name of the pod.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The nodes that replicas leave. A node must match all members that are set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.nodeName) || has(self.nodeSelector) || has(self.where)").message("name at least one of nodeName, nodeSelector, where; leave `from` out to take replicas from any node"),
)]
pub struct NodeSource {
    /// Only replicas on this node. Default: any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub node_name: Option<NodeName>,
    /// Only replicas on nodes with all these labels, at most 16. Default: any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16), extend("additionalProperties" = { "type": "string", "maxLength": 63 }))]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Only replicas on nodes for which this CEL expression is true, such as `node.memory.requestedShare > 0.8`: more
    /// than 80 % of its allocatable memory is requested. At most 512 characters. Default: any node.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub condition: Option<String>,
}

/// The nodes that replicas move to. A node must match all members that are set. If only nodeSelector is set, the
/// scheduler selects one of the matching nodes; otherwise the one with the largest free share of cpu and memory is
/// selected, and replicas that are about to run on a node count as running there.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.nodeName) || has(self.nodeSelector) || has(self.where) || has(self.policy) || has(self.preferences)").message("name at least one of nodeName, nodeSelector, where, policy, preferences"),
)]
pub struct Target {
    /// Name of the target node. Default: any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub node_name: Option<NodeName>,
    /// Only nodes with all these labels, at most 16. Default: any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16), extend("additionalProperties" = { "type": "string", "maxLength": 63 }))]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Only nodes for which this CEL expression is true, such as `node.pods < 3 && node.memory.requestedShare < 0.5`.
    /// The usage of a node, `node.cpu.utilization` and `node.memory.utilization`, is measured by a NodeConfig or else
    /// by metrics.k8s.io; the action waits until it is known. At most 512 characters. Default: any node.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub condition: Option<String>,
    /// Name of a PlacementPolicy that filters and ranks the matching nodes, again for each replica. Default: no policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub policy: Option<String>,
    /// Preferred nodes among the matching nodes, at most 8 entries. Nodes that match the first entry are tried first,
    /// then nodes that match the second, and so on; all other nodes are tried last. Default: no node is preferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8))]
    pub preferences: Option<Vec<NodePreference>>,
}

/// Nodes that are tried before others. A node must match all members that are set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.nodeSelector) || has(self.where)").message("name at least one of nodeSelector, where"),
)]
pub struct NodePreference {
    /// Only nodes with all these labels, at most 16. Default: any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16), extend("additionalProperties" = { "type": "string", "maxLength": 63 }))]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Nodes for which this CEL expression is true. At most 512 characters. Default: any node.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub condition: Option<String>,
}

/// Schema of a label selector for these objects, with bounds.
pub(crate) fn selector_schema(description: &str, objects: &str) -> Schema {
    json_schema!({
        "type": "object",
        "description": description,
        "properties": {
            "matchLabels": {
                "type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 63},
                "description": format!("Labels that the {objects} must have; all must match."),
            },
            "matchExpressions": {
                "type": "array", "maxItems": 64,
                "description": format!("Conditions on the labels of the {objects}; all must match."),
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "minLength": 1, "maxLength": 317, "description": "Key of the label."},
                        "operator": {
                            "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                            "description": "Relation of the label to the values.",
                        },
                        "values": {
                            "type": "array", "maxItems": 64, "items": {"type": "string", "maxLength": 63},
                            "description": "The values, for In and NotIn.",
                        },
                    },
                    "x-kubernetes-validations": [{
                        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
                        "message": "In and NotIn require values; Exists and DoesNotExist must not have values",
                    }],
                },
            },
        },
    })
}
