//! The notifications of an action's end: one for each receiver of `spec.notify`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of the notification of one receiver.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Notification {
    /// URL of the receiver, without its query, at most 256 characters.
    pub url: String,
    /// Pending until the receiver has accepted the event (Delivered) or no further attempt is made (Failed).
    pub outcome: NotificationOutcome,
    /// Number of attempts so far, those that could not be sent included; at most 10.
    pub attempts: i32,
    /// When the last attempt ended; unset before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt_at: Option<Time>,
    /// When the next attempt is made; unset before the first attempt, which is made at once, and after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Time>,
    /// HTTP status of the last answer; unset if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Why the last attempt failed, as text.
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
