//! Sample that enters a loop, and the tag that identifies it in every stage.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Values that a sender measured at one time.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// Time of the measurement: RFC 3339, to the microsecond, such as `2026-11-21T10:00:00.000001Z`. A sample is
    /// rejected and counted if it is not newer than the last one, or is more than 10 seconds in the future.
    #[schemars(length(min = 20, max = 40))]
    pub time: String,
    /// Values by metric name, or by the `key` of the metric's source, each as a string: `{cpu: "2", memory: "40"}`.
    /// Text that is not a number counts as unknown, never as zero. At most 16.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16), extend("additionalProperties" = { "type": "string", "maxLength": 64 }))]
    pub values: BTreeMap<String, String>,
}

/// Identifies a sample. The same tag in two children means that they refer to the same sample.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Tag {
    /// When the sample was measured, to the microsecond, UTC.
    pub time: MicroTime,
    /// Number of the sample in its loop. It defines the order of the samples.
    pub sequence: i64,
    /// In a loop with pushed and polled metrics, the time of the last pushed sample, by the sender's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed: Option<MicroTime>,
}
