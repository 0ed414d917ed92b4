//! References to Secrets and ConfigMaps of the object's own namespace, which several kinds share. A kind without a namespace has a
//! field beside them that names one.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// A Secret in the object's own namespace.
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

/// Certificate authorities that a server's certificate is verified with. Exactly one member is set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.secret) != has(self.configMap)").message("set exactly one of secret, configMap"),
)]
pub struct CaRef {
    /// A key of a Secret that holds certificates as PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<KeyRef>,
    /// A key of a ConfigMap that holds certificates as PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<KeyRef>,
}

/// One key of a Secret or ConfigMap in the object's own namespace.
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
