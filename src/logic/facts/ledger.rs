//! The ledger: an annotation on a workload, written in one patch with `spec.replicas`, that says which slot changed them.
//!
//! It makes a change of replicas happen once: after a crash, or after an autoscaler wrote in between, the slot is either in
//! the ledger, and so its change was made, or it is not, and so it was not.

use serde::{Deserialize, Serialize};

/// The last change of replicas. JSON in [`crate::api::marks::LEDGER`].
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// The slot that made the change.
    pub slot: String,
    /// Whether the slot has undone its change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undone: bool,
    /// Replicas before.
    pub from: i32,
    /// Replicas after.
    pub to: i32,
    /// The young pods that the set had then: the pod that it creates for this change is not among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
}

impl Ledger {
    /// Reads the annotation; None if it is not a ledger of ours.
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
