//! Pods of a target with the samples of one metric, for tracking.

use std::collections::HashMap;

use super::pods::{MeasuredPod, PodList};
use crate::track::{self, Nanos, PodPhase, PodReady, PodSample, TrackedPod};
use ganglion_api::closed_loop::metric::ResourceUse;

/// Returns the target's own pods with their samples. `is_own`: whether the target owns the pods of this controller, by
/// uid. `resource`: source of the samples if they are usage, which the requests of the pods belong to.
pub fn tracked_pods(
    pods: &PodList,
    samples: &HashMap<&str, PodSample>,
    resource: Option<&ResourceUse>,
    is_own: impl Fn(Option<&str>) -> bool,
) -> Vec<TrackedPod> {
    let own = pods.items.kept.iter().filter(|pod| is_own(pod.controller()));
    let tracked = own.map(|pod| TrackedPod {
        sample: samples.get(pod.name()).copied(),
        requests: resource.map_or(Ok(Nanos::ZERO), |source| pod.requests_of(source)),
        allocated: resource.and_then(|source| pod.allocated_to(source)),
        ..tracked_pod(pod)
    });
    tracked.collect()
}

/// Returns the number of own pods that are ready.
pub fn ready_pods(pods: &PodList, is_own: impl Fn(Option<&str>) -> bool) -> u32 {
    track::ready_pods(&tracked_pods(pods, &HashMap::new(), None, is_own))
}

/// The pod without its values.
fn tracked_pod(pod: &MeasuredPod) -> TrackedPod {
    TrackedPod {
        name: pod.name().to_owned(),
        phase: match pod.phase() {
            Some("Pending") => PodPhase::Pending,
            Some("Running") => PodPhase::Running,
            Some("Succeeded") => PodPhase::Succeeded,
            Some("Failed") => PodPhase::Failed,
            Some(_) | None => PodPhase::Unknown,
        },
        is_deleting: pod.is_deleting(),
        started: pod.started_at(),
        ready: pod.readiness().map(|(status, since)| PodReady {
            is_ready: match status {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            },
            since,
        }),
        sample: None,
        requests: Ok(Nanos::ZERO),
        allocated: None,
    }
}
