//! WorkloadActionReceipt: proof that an action ran. It outlives an action that runs once.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::identity::Uid;
use super::scalars::TIME_PATTERN;

/// Proof that a WorkloadAction was started. The receipt of an action that runs once has no owner, so it is not deleted
/// with the action: if the action is applied again, it finds the receipt and ends as AlreadyExecuted without effect.
/// Delete the receipt to run the action again.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "ganglion.dev",
    version = "v1alpha1",
    kind = "WorkloadActionReceipt",
    plural = "workloadactionreceipts",
    shortname = "war",
    category = "ganglion",
    namespaced,
    derive = "PartialEq",
    doc = "Proof that a WorkloadAction was started. Delete it to run the same action again.",
    printcolumn(name = "Action", type_ = "string", json_path = ".spec.actionName"),
    printcolumn(name = "Outcome", type_ = "string", json_path = ".spec.outcome"),
    printcolumn(name = "Executed", type_ = "date", json_path = ".spec.executedAt"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadActionReceiptSpec {
    /// Name of the action that ran, in the receipt's namespace.
    #[schemars(length(max = 253))]
    pub action_name: String,
    /// uid of the action that ran. An action with this uid continues; an action with another uid ends as
    /// AlreadyExecuted.
    #[schemars(length(max = 64))]
    pub action_uid: Uid,
    /// Hash of the immutable part of the action's spec (SHA-256, first 40 bits, hex); it is also the suffix of the
    /// receipt's name.
    #[schemars(length(max = 64))]
    pub spec_hash: String,
    /// Time just before the first effect of the action.
    #[schemars(extend("pattern" = TIME_PATTERN))]
    pub executed_at: Time,
    /// Failed: the action did not fully succeed. Unset: it succeeded, or is still running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub outcome: Option<String>,
}
