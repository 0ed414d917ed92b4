//! The ledger: an annotation on a workload, written in one patch with `spec.replicas`, that says which slot changed them.
//!
//! It makes a change of replicas happen once: after a crash, or after an autoscaler wrote in between, the slot is either in
//! the ledger, and so its change was made, or it is not, and so it was not.

use serde::{Deserialize, Serialize};

/// What the last change of replicas was. JSON in [`crate::api::marks::LEDGER`].
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// The slot that made it.
    pub slot: String,
    /// The slot took its change back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undone: bool,
    /// Replicas before.
    pub from: i32,
    /// Replicas after.
    pub to: i32,
    /// The young pods that the set had then, so that the one made for this change can be told from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
}

impl Ledger {
    /// Reads the annotation; what somebody else wrote there counts as no ledger.
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
