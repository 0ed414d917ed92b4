//! Values of single pods of a target, for tracking.

use std::collections::HashMap;

use jiff::Timestamp;

use super::pods::{MeasuredPod, PodList, number};
use super::resource::{PodMetrics, PodMetricsList};
use crate::monitoring::PodSamples;
use crate::track::{self, Nanos, PodMeasure, PodPhase, PodReady, PodSample, TrackedPod};
use ganglion_api::closed_loop::metric::{ResourceName, ResourceUse};

/// Returns the usage of each own pod. `is_own`: whether the target owns the pod with this controller, by uid.
pub fn usage_samples(
    source: &ResourceUse,
    used: &PodMetricsList,
    pods: &PodList,
    is_own: impl Fn(Option<&str>) -> bool,
    now: Timestamp,
) -> Result<PodSamples, String> {
    let metrics: HashMap<&str, &PodMetrics> = used.items.kept.iter().map(|metrics| (metrics.name(), metrics)).collect();
    let own = pods.items.kept.iter().filter(|pod| is_own(pod.controller()));
    let tracked = own.map(|pod| {
        let sample = match metrics.get(pod.name()) {
            Some(metrics) => sample(source, pod, metrics, now)?,
            None => None,
        };
        Ok(TrackedPod {
            sample,
            requests: pod.requests_of(source),
            allocated: pod.allocated_to(source),
            ..tracked_pod(pod)
        })
    });
    let measure = if source.resource == ResourceName::Cpu { PodMeasure::Cpu } else { PodMeasure::Other };
    Ok(PodSamples { measure, pods: tracked.collect::<Result<_, String>>()? })
}

/// Returns the number of own pods that are ready.
pub fn ready_pods(pods: &PodList, is_own: impl Fn(Option<&str>) -> bool) -> u32 {
    let own = pods.items.kept.iter().filter(|pod| is_own(pod.controller()));
    track::ready_pods(&own.map(tracked_pod).collect::<Vec<_>>())
}

fn sample(
    source: &ResourceUse,
    pod: &MeasuredPod,
    metrics: &PodMetrics,
    now: Timestamp,
) -> Result<Option<PodSample>, String> {
    let mut sum = 0_i128;
    for container in pod.selected(source) {
        let Some(usage) = metrics.usage_of(&container.name, source.resource) else { return Ok(None) };
        number(usage, || format!("{} of pod {}", source.resource.as_str(), pod.name()))?;
        sum = sum.saturating_add(Nanos::parse(usage).map_err(|error| error.to_string())?.billionths());
    }
    let at = metrics.measured_at().unwrap_or(now);
    Ok(Some(PodSample { value: Nanos::new(sum), at, window: metrics.window() }))
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
