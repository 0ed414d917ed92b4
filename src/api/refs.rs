//! References to Secrets and ConfigMaps in the object's own namespace, shared by several kinds. Cluster-scoped kinds
//! have an additional field for the namespace.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

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
