//! The source `scaler` of a metric: an external scaler of KEDA.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::refs::{Auth, CaRef, SecretRef};

/// A number from a server with KEDA's external-scaler protocol, `externalscaler.ExternalScaler` over gRPC. The requests
/// contain the name and namespace of the loop, and `metadata`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.metric) || !has(self.value) || self.value != 'Active'").message("value: Active is about the scaler, not about a metric: remove metric"),
)]
pub struct ScalerSource {
    /// Host and port of the server, such as `queue-scaler.shop.svc:9090`.
    #[schemars(length(min = 3, max = 260), regex(pattern = r"^([a-zA-Z0-9._-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}$"))]
    pub address: String,
    /// Name of the metric, as the scaler offers it: without the prefix `s0-`, which KEDA adds for its
    /// HorizontalPodAutoscaler. Default: the only metric that the scaler offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub metric: Option<String>,
    /// Metadata for the scaler, as in the trigger of a ScaledObject. At most 32 keys. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32), extend("additionalProperties" = { "type": "string", "maxLength": 1024 }))]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Metric: the value of the metric. Target: the target that the scaler has for the metric now; a formula can divide
    /// the value by it. Active: 1 if the scaler is active, otherwise 0. Default: Metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<ScalerValue>,
    /// Keeps the stream `StreamIsActive` open, as KEDA does for the trigger `external-push`: whenever the scaler says
    /// there that it is active, the metric is polled at once. A stream that ends or breaks says nothing; it is opened
    /// again after 2 s, and after up to 1 min if that fails. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// Encrypts the connection; `{}` is sufficient for a certificate of a public authority. Default: no encryption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ScalerTls>,
    /// Credentials that the operator sends. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
}

/// See [`ScalerSource::tls`].
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ScalerTls {
    /// Certificate authorities for verifying the server's certificate. Default: the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<CaRef>,
    /// A Secret of type `kubernetes.io/tls` with the certificate that the operator presents to the server. Default:
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<SecretRef>,
}

/// See [`ScalerSource::value`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScalerValue {
    #[default]
    Metric,
    Target,
    Active,
}
