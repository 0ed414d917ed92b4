//! The ledger: an annotation on a workload with the last change of `spec.replicas` by a slot, written in the same
//! patch.
//!
//! It ensures that a change of replicas happens once: even after a crash or a write of an autoscaler, a slot has made
//! its change if and only if the ledger names the slot.

use ganglion_api::identity::SlotId;
use serde::{Deserialize, Serialize};

/// The last change of replicas, stored as JSON in [`ganglion_api::marks::LEDGER`].
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// Slot that made the change.
    pub slot: SlotId,
    /// The slot reverted its change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undone: bool,
    /// Replicas before the change.
    pub from: i32,
    /// Replicas after the change.
    pub to: i32,
    /// Young pods of the ReplicaSet at the time of the change, to distinguish the pod created for this change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
}

impl Ledger {
    /// Parses the annotation; None if the annotation is missing or malformed.
    pub fn parse(text: Option<&str>) -> Option<Self> {
        serde_json::from_str(text?).ok()
    }

    /// Text of the annotation.
    pub fn render(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
