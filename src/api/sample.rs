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
    /// What was measured, by the metric's name or the `key` of its source, each as a string: `{cpu: "2", memory: "40"}`.
    /// What is no number counts as unknown, never as zero. At most 16.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16), extend("additionalProperties" = { "type": "string", "maxLength": 64 }))]
    pub values: BTreeMap<String, String>,
}

/// Which sample this is. The same tag in two children means that they speak of the same sample.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Tag {
    /// When the sample was measured, to the microsecond, UTC.
    pub time: MicroTime,
    /// The sample's number in its loop. Order and equality go by it.
    pub sequence: i64,
    /// In a loop that is pushed to and asks as well: when the last sample that was pushed to it by then was measured, since
    /// the two go by different clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed: Option<MicroTime>,
}
