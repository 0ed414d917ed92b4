//! The custom resources: the Rust types are the only source of the CRD manifests.
//!
//! This module defines serialization, schema and CEL rules of every kind, the reasons of conditions, and the labels and
//! annotations. It contains no decisions and does no I/O.

pub mod closed_loop;
mod crd;
pub mod decision;
pub mod execution;
pub mod foreign;
pub mod identity;
mod line;
pub mod marks;
pub mod monitoring;
pub mod node_config;
pub mod placement_policy;
pub mod reasons;
pub mod receipt;
pub mod refs;
pub mod scalars;
pub mod swarm_pool;
pub mod workload_action;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::crd::CustomResourceExt;

use crd::{made_by_us, with_bounds, with_unseen_status, with_whole_status};

/// API group of every kind.
pub const GROUP: &str = "ganglion.dev";

/// `status.observedGeneration` of an object that no controller has observed yet.
pub const UNSEEN_GENERATION: i64 = -1;

/// Every CRD of this operator.
pub fn all() -> Vec<CustomResourceDefinition> {
    let all = [
        with_unseen_status(with_whole_status(workload_action::WorkloadAction::crd())),
        receipt::WorkloadActionReceipt::crd(),
        with_unseen_status(closed_loop::ClosedLoop::crd()),
        made_by_us(monitoring::Monitoring::crd()),
        with_unseen_status(made_by_us(decision::Decision::crd())),
        with_unseen_status(made_by_us(execution::Execution::crd())),
        with_unseen_status(with_whole_status(node_config::NodeConfig::crd())),
        with_unseen_status(with_whole_status(node_config::NodeConfigTemplate::crd())),
        with_unseen_status(with_whole_status(swarm_pool::SwarmPool::crd())),
        with_unseen_status(with_whole_status(placement_policy::PlacementPolicy::crd())),
    ];
    all.into_iter().map(with_bounds).collect()
}
