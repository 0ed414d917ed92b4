//! Notifications about the end of an action: one for each receiver of `spec.notify`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of the notification of one receiver.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Notification {
    /// URL of the receiver, without its query, at most 256 characters.
    pub url: String,
    /// Pending: the receiver has not accepted the event yet. Delivered: it has accepted the event. Failed: no further
    /// attempt is made.
    pub outcome: NotificationOutcome,
    /// Number of attempts so far, including attempts that could not be sent; at most 10.
    pub attempts: i32,
    /// When the last attempt ended; unset before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt_at: Option<Time>,
    /// When the next attempt is made; unset before the first attempt, which is made at once, and after the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Time>,
    /// HTTP status of the last response; unset if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// See [`Notification::outcome`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NotificationOutcome {
    #[default]
    Pending,
    Delivered,
    Failed,
}
