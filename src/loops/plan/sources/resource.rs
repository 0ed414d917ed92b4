//! Usage of pods, from metrics.k8s.io.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::pods::{MeasuredPod, PODS, PodList, PodMeta, number};
use super::reduced::{PodUse, reduced};
use crate::monitoring::SourceResult;
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
    let count = used.items.count.max(pods.items.count);
    if count > PODS {
        return Err(format!("the source has {count} pods, more than {PODS}"));
    }
    let metrics: HashMap<&str, &PodMetrics> =
        used.items.kept.iter().map(|metrics| (metrics.metadata.name.as_str(), metrics)).collect();
    let mut uses = Vec::new();
    for pod in pods.counted() {
        uses.push(pod_use(source, pod, metrics.get(pod.name()).copied(), now)?);
    }
    reduced(source.of.unwrap_or_default(), uses)
}

fn pod_use(
    source: &ResourceUse,
    pod: &MeasuredPod,
    metrics: Option<&PodMetrics>,
    now: Timestamp,
) -> Result<PodUse, String> {
    if pod.is_pending() {
        return Ok(PodUse::Starting);
    }
    let requests = pod.requested(source)?;
    let unit = source.unit.unwrap_or_default();
    let usage = match metrics {
        Some(metrics) => metrics.usage(source, pod)?,
        None => None,
    };
    let (Some(metrics), Some(usage)) = (metrics, usage) else {
        return Ok(PodUse::Missing(match unit {
            UseUnit::Usage => requests,
            UseUnit::Utilization => Some(100.0),
        }));
    };
    if source.resource == ResourceName::Cpu
        && pod.is_starting(metrics.measured_at().unwrap_or(now), metrics.window(), now)
    {
        return Ok(PodUse::Starting);
    }
    match (unit, requests) {
        (UseUnit::Usage, _) => Ok(PodUse::Measured(usage, metrics.measured_at())),
        (UseUnit::Utilization, Some(requests)) => Ok(PodUse::Measured(100.0 * usage / requests, metrics.measured_at())),
        (UseUnit::Utilization, None) => Err(format!("pod {} requests no {}", pod.name(), source.resource.as_str())),
    }
}

impl PodMetrics {
    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Usage of one container, as text.
    pub(super) fn usage_of(&self, container: &str, resource: ResourceName) -> Option<&str> {
        self.containers.iter().find(|metrics| metrics.name == container)?.usage.of(resource)
    }

    pub(super) fn measured_at(&self) -> Option<Timestamp> {
        self.timestamp.as_deref()?.parse().ok()
    }

    pub(super) fn window(&self) -> SignedDuration {
        self.window.as_deref().and_then(|window| duration::parse(window).ok()).unwrap_or_default()
    }

    /// Returns the usage of the selected containers; None if one of them is not measured.
    fn usage(&self, source: &ResourceUse, pod: &MeasuredPod) -> Result<Option<f64>, String> {
        let (resource, name) = (source.resource.as_str(), pod.name());
        let mut sum = 0.0;
        for container in pod.selected(source) {
            let mut measured = self.containers.iter();
            let Some(metrics) = measured.find(|metrics| metrics.name == container.name) else { return Ok(None) };
            let Some(usage) = metrics.usage.of(source.resource) else { return Ok(None) };
            sum += number(usage, || format!("{resource} of pod {name}"))?;
        }
        Ok(Some(sum))
    }
}
