//! The custom resources: their Rust types are the only source of the CRD manifests.
//!
//! Owns serde, schema and CEL rules of every kind, the words of conditions and marks. Decides nothing and does no I/O.

pub mod closed_loop;
pub mod decision;
pub mod execution;
pub mod foreign;
pub mod marks;
pub mod monitoring;
pub mod reasons;
pub mod receipt;
pub mod sample;
pub mod scalars;
pub mod targets;
pub mod workload_action;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSON};
use kube::core::crd::CustomResourceExt;

/// The API group of every kind.
pub const GROUP: &str = "ganglion.dev";

/// `status.observedGeneration` of an object that no controller has looked at yet.
pub const UNSEEN_GENERATION: i64 = -1;

/// Every CRD of this operator.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![
        with_unseen_status(workload_action::WorkloadAction::crd()),
        receipt::WorkloadActionReceipt::crd(),
        with_unseen_status(closed_loop::ClosedLoop::crd()),
        monitoring::Monitoring::crd(),
        with_unseen_status(decision::Decision::crd()),
        with_unseen_status(execution::Execution::crd()),
    ]
}

/// Gives a new object `status: {observedGeneration: -1}`, so that kstatus does not call it healthy before a
/// controller has seen it. The derive has no way to say this, hence the edit of the generated schema.
fn with_unseen_status(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        let status = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
            .and_then(|root| root.properties.as_mut())
            .and_then(|properties| properties.get_mut("status"));
        if let Some(status) = status {
            status.default = Some(JSON(serde_json::json!({ "observedGeneration": UNSEEN_GENERATION })));
        }
    }
    crd
}
