//! Usage of pods, from metrics.k8s.io.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::pods::{MeasuredPod, PODS, PodList, PodMeta, parsed};
use super::reduced::{PodUse, reduced};
use crate::monitoring::SourceResult;
use crate::track::{Nanos, PodSample};
use ganglion_api::closed_loop::metric::{ResourceName, ResourceUse, UseUnit};
use ganglion_core::amounts::{Amounts, or_default};
use ganglion_core::duration;
use ganglion_core::items::Items;

/// The fields of a `PodMetricsList` of metrics.k8s.io that are used here.
#[derive(Default, Deserialize)]
pub struct PodMetricsList {
    /// One item per measured pod.
    #[serde(default)]
    pub items: Items<PodMetrics, PODS>,
}

/// The usage of one pod.
#[derive(Debug, Deserialize)]
pub struct PodMetrics {
    metadata: PodMeta,
    /// The end of the period of the measurement.
    #[serde(default)]
    timestamp: Option<String>,
    /// Length of that period.
    #[serde(default)]
    window: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    containers: Vec<ContainerMetrics>,
}

#[derive(Debug, Deserialize)]
struct ContainerMetrics {
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    usage: Amounts,
}

/// Returns the usage of the pods as one number, with the time of the oldest measurement. If pods are not measured, or
/// are not ready yet, the range says what the number may be with them.
pub fn pod_usage(source: &ResourceUse, used: &PodMetricsList, pods: &PodList, now: Timestamp) -> SourceResult {
    pods.check_count(used.items.count)?;
    let samples = usage_samples(source, used, pods, now)?;
    let mut uses = Vec::new();
    for pod in pods.counted() {
        uses.push(pod_use(source, pod, samples.get(pod.name()), now)?);
    }
    reduced(source.of.unwrap_or_default(), uses)
}

/// Returns the sample of each pod that is measured: the usage of the selected containers, in cores or bytes. A pod of
/// which a container is not measured has none. A measurement without a time counts as one of now.
pub fn usage_samples<'a>(
    source: &ResourceUse,
    used: &PodMetricsList,
    pods: &'a PodList,
    now: Timestamp,
) -> Result<HashMap<&'a str, PodSample>, String> {
    let metrics: HashMap<&str, &PodMetrics> =
        used.items.kept.iter().map(|metrics| (metrics.metadata.name.as_str(), metrics)).collect();
    let mut samples = HashMap::new();
    for pod in pods.counted() {
        let Some(metrics) = metrics.get(pod.name()) else { continue };
        if let Some(value) = metrics.usage(source, pod)? {
            let at = metrics.measured_at().unwrap_or(now);
            samples.insert(pod.name(), PodSample { value, at, window: metrics.window() });
        }
    }
    Ok(samples)
}

fn pod_use(
    source: &ResourceUse,
    pod: &MeasuredPod,
    sample: Option<&PodSample>,
    now: Timestamp,
) -> Result<PodUse, String> {
    if pod.is_pending() {
        return Ok(PodUse::Starting);
    }
    let requests = pod.requested(source)?;
    let unit = source.unit.unwrap_or_default();
    let Some(PodSample { value: usage, at, window }) = sample.copied() else {
        return Ok(PodUse::Missing(match unit {
            UseUnit::Usage => requests,
            UseUnit::Utilization => Some(Nanos::from_whole(100)),
        }));
    };
    if source.resource == ResourceName::Cpu && pod.is_starting(at, window, now) {
        return Ok(PodUse::Starting);
    }
    match (unit, requests) {
        (UseUnit::Usage, _) => Ok(PodUse::Measured(usage, at)),
        (UseUnit::Utilization, Some(requests)) => Ok(PodUse::Measured(percent(usage, requests), at)),
        (UseUnit::Utilization, None) => Err(format!("pod {} requests no {}", pod.name(), source.resource.as_str())),
    }
}

/// Usage in percent of the requests, to the nearest billionth.
fn percent(usage: Nanos, requests: Nanos) -> Nanos {
    let ratio = usage.billionths() as f64 / requests.billionths() as f64;
    Nanos::new((ratio * 100e9).round() as i128)
}

impl PodMetrics {
    fn measured_at(&self) -> Option<Timestamp> {
        self.timestamp.as_deref()?.parse().ok()
    }

    fn window(&self) -> SignedDuration {
        self.window.as_deref().and_then(|window| duration::parse(window).ok()).unwrap_or_default()
    }

    /// Returns the usage of the selected containers; None if one of them is not measured.
    fn usage(&self, source: &ResourceUse, pod: &MeasuredPod) -> Result<Option<Nanos>, String> {
        let (resource, name) = (source.resource.as_str(), pod.name());
        let mut used = Vec::new();
        for container in pod.selected(source) {
            let mut measured = self.containers.iter();
            let Some(metrics) = measured.find(|metrics| metrics.name == container.name) else { return Ok(None) };
            let Some(usage) = metrics.usage.of(source.resource) else { return Ok(None) };
            used.push(parsed(usage, || format!("{resource} of pod {name}"))?);
        }
        Ok(Some(used.into_iter().sum()))
    }
}
