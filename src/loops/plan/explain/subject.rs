//! Input of an explanation: a loop and its children, as read from the API server.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::closed_loop::metric::Metric;
use ganglion_api::decision::{Decision, DecisionStatus};
use ganglion_api::execution::{Execution, ExecutionStatus};
use ganglion_api::monitoring::{Monitoring, MonitoringStatus};
use ganglion_core::conditions;

/// A loop and its existing children.
#[derive(Clone, Copy, Debug)]
pub struct ExplainedLoop<'a> {
    pub parent: &'a ClosedLoop,
    pub monitoring: Option<&'a Monitoring>,
    pub decision: Option<&'a Decision>,
    pub execution: Option<&'a Execution>,
    pub now: Timestamp,
}

impl ExplainedLoop<'_> {
    pub fn watched(&self) -> Option<&MonitoringStatus> {
        self.monitoring?.status.as_ref()
    }

    pub fn decided(&self) -> Option<&DecisionStatus> {
        self.decision?.status.as_ref()
    }

    pub fn executed(&self) -> Option<&ExecutionStatus> {
        self.execution?.status.as_ref()
    }

    /// Returns the metrics with their effective levels: the Monitoring contains the tuned ones.
    pub fn metrics(&self) -> &[Metric] {
        self.monitoring.map_or(&self.parent.spec.metrics, |monitoring| &monitoring.spec.metrics)
    }

    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        conditions::find(&self.parent.status.as_ref()?.conditions, kind)
    }
}
