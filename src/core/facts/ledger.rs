//! The ledger: an annotation on a workload that names the slot that changed `spec.replicas`, written in the same patch.
//!
//! It ensures that a change of replicas happens once: after a crash or a write of an autoscaler, the change of a slot was made if
//! and only if the slot is in the ledger.

use serde::{Deserialize, Serialize};

/// The last change of replicas. JSON in [`ganglion_api::marks::LEDGER`].
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// The slot that made the change.
    pub slot: String,
    /// The slot reverted its change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undone: bool,
    /// Replicas before.
    pub from: i32,
    /// Replicas after.
    pub to: i32,
    /// The young pods that the ReplicaSet had then, to distinguish the pod created for this change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
}

impl Ledger {
    /// Parses the annotation; other content counts as no ledger.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Option<Self> {
        serde_json::from_str(text?).ok()
    }

    /// The annotation's text.
    #[must_use]
    pub fn render(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
