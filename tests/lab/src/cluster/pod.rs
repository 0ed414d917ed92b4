//! A pod of the simulated cluster, and the CPU that it wants.

use super::request::PodRequest;
use crate::trace::UsageSeries;

/// Demand of a pod for CPU.
#[derive(Clone, Debug)]
pub enum PodDemand {
    /// A job: its series by the work that it has done. `progress`: seconds of its lifetime that are done.
    Job { usage: UsageSeries, lifetime: f64, progress: f64 },
    /// A pod of a service that nobody scales: its series by the time since its arrival. It ends at this time.
    Alone { usage: UsageSeries, arrival: f64, ends: f64 },
    /// A replica of a scaled service, by its index. The ready replicas share the demand.
    Replica { service: usize },
    /// The replacement of a pod that moves. It serves once the old pod is evicted.
    Replacement,
}

/// Position of a pod in its life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LabPlace {
    /// Waits for a node.
    Pending,
    /// Bound to a node since this time in seconds.
    Bound {
        node: usize,
        since: i64,
    },
    Gone,
}

/// A pod.
#[derive(Clone, Debug)]
pub struct LabPod {
    pub request: PodRequest,
    /// Index of the site on which it has to run.
    pub site: usize,
    /// Time in seconds at which it was created.
    pub created: i64,
    pub demand: PodDemand,
    pub place: LabPlace,
    /// Cores that it got in the last step.
    pub used: f64,
}

impl LabPod {
    /// A pod that waits for a node from this time on.
    pub fn new(request: PodRequest, site: usize, demand: PodDemand, created: i64) -> Self {
        Self { request, site, created, demand, place: LabPlace::Pending, used: 0.0 }
    }

    pub fn node(&self) -> Option<usize> {
        match self.place {
            LabPlace::Bound { node, .. } => Some(node),
            LabPlace::Pending | LabPlace::Gone => None,
        }
    }

    /// Whether the pod has been bound for this many seconds.
    pub fn is_bound_for(&self, seconds: i64, now: i64) -> bool {
        matches!(self.place, LabPlace::Bound { since, .. } if now - since >= seconds)
    }

    /// Whether its work or its time is over.
    pub fn is_over(&self, now: i64) -> bool {
        match &self.demand {
            PodDemand::Job { lifetime, progress, .. } => progress >= lifetime,
            PodDemand::Alone { ends, .. } => now as f64 >= *ends,
            PodDemand::Replica { .. } | PodDemand::Replacement => false,
        }
    }

    /// Records a step of this many seconds in which the pod got a part of the cores that it wanted.
    pub fn advance(&mut self, part: f64, seconds: f64) {
        if let PodDemand::Job { progress, .. } = &mut self.demand {
            *progress += part * seconds;
        }
    }
}
