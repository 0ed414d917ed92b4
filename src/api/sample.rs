//! What travels through the hops of a loop: the sample, and the tag by which it is known again.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// What a sender measured at one moment.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// When it was measured: RFC 3339, to the microsecond, such as `2026-11-21T10:00:00.000001Z`. A sample that is not
    /// younger than the last one, or lies more than 10 seconds in the future, is refused and counted.
    #[schemars(length(min = 20, max = 40))]
    pub time: String,
    /// The values by the metric's name or the `key` of its source, each as a string: `{cpu: "2", memory: "40"}`. A text that
    /// is not a number counts as unknown, never as zero. At most 16.
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
    /// The sample's number in its loop. Samples are ordered and compared by it.
    pub sequence: i64,
    /// In a loop with pushed and polled metrics: when the last pushed sample by then was measured, as the two use different
    /// clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed: Option<MicroTime>,
}
