//! Pods that a source selects, as the API server lists them: whether they count, and what they request.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::common::later;
use crate::track::Nanos;
use ganglion_api::closed_loop::metric::ResourceUse;
use ganglion_core::amounts::{Amounts, or_default};
use ganglion_core::items::Items;
use ganglion_core::words::kind_of_text;

/// Maximum number of pods of a source.
pub(super) const PODS: usize = 10_000;

/// The fields of a `PodList` that are used here.
#[derive(Default, Deserialize)]
pub struct PodList {
    #[serde(default)]
    pub items: Items<MeasuredPod, PODS>,
}

/// Pod that the source selects.
#[derive(Debug, Deserialize)]
pub struct MeasuredPod {
    metadata: PodMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

/// Identity of a pod, or of its measurement.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodMeta {
    pub name: String,
    #[serde(default)]
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "or_default")]
    owner_references: Vec<PodOwner>,
}

#[derive(Debug, Deserialize)]
struct PodOwner {
    uid: String,
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    resources: Resources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    phase: Option<String>,
    start_time: Option<String>,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<PodReadiness>,
    #[serde(deserialize_with = "or_default")]
    container_statuses: Vec<AllocatedContainer>,
    #[serde(deserialize_with = "or_default")]
    init_container_statuses: Vec<AllocatedContainer>,
    /// Allocated resources at pod level.
    #[serde(deserialize_with = "or_default")]
    allocated_resources: Amounts,
}

/// Resources that the node has allocated to a container.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AllocatedContainer {
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    allocated_resources: Amounts,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodReadiness {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    last_transition_time: Option<String>,
}

/// Container of a pod.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Container {
    pub name: String,
    #[serde(default)]
    resources: Resources,
    #[serde(default)]
    restart_policy: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: Amounts,
}

/// Time after the start of a pod in which its cpu usage counts only if the pod is ready for a whole period of
/// measurement, as in a HorizontalPodAutoscaler: programs that start use more than later.
const CPU_INITIALIZATION: SignedDuration = SignedDuration::from_mins(5);

/// Time after the start of a pod in which a condition Ready that turned False was not True before.
const INITIAL_READINESS: SignedDuration = SignedDuration::from_secs(30);

impl PodList {
    /// Error if a source has more pods than are read: some would be left out. `measured`: number of measured pods.
    pub(super) fn check_count(&self, measured: usize) -> Result<(), String> {
        let count = measured.max(self.items.count);
        if count > PODS { Err(format!("the source has {count} pods, more than {PODS}")) } else { Ok(()) }
    }

    /// Pods that count: they neither have ended nor are being deleted.
    pub(super) fn counted(&self) -> impl Iterator<Item = &MeasuredPod> {
        self.items.kept.iter().filter(|pod| pod.counts())
    }
}

impl MeasuredPod {
    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    fn counts(&self) -> bool {
        self.metadata.deletion_timestamp.is_none()
            && !matches!(self.status.phase.as_deref(), Some("Failed" | "Succeeded"))
    }

    /// uid of the controller.
    pub(super) fn controller(&self) -> Option<&str> {
        let mut owners = self.metadata.owner_references.iter();
        owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
    }

    pub(super) fn phase(&self) -> Option<&str> {
        self.status.phase.as_deref()
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn started_at(&self) -> Option<Timestamp> {
        self.status.start_time.as_deref()?.parse().ok()
    }

    /// Status of the condition Ready, and since when.
    pub(super) fn readiness(&self) -> Option<(&str, Timestamp)> {
        let ready = self.status.conditions.iter().find(|condition| condition.kind == "Ready")?;
        let since = ready.last_transition_time.as_deref().and_then(|text| text.parse().ok());
        Some((&ready.status, since.unwrap_or(Timestamp::MIN)))
    }

    /// The request at pod level, unless the source is about one container.
    fn pod_level_request(&self, source: &ResourceUse) -> Option<&str> {
        self.spec.resources.requests.of(source.resource).filter(|_| source.container.is_none())
    }

    /// Returns the request at pod level, or else the sum of the requests of the selected containers. An error names the
    /// container without one, and the pod.
    pub(super) fn requests_of(&self, source: &ResourceUse) -> Result<Nanos, String> {
        let (resource, name) = (source.resource.as_str(), self.name());
        if let Some(request) = self.pod_level_request(source) {
            return parsed(request, || format!("the request for {resource} of pod {name}"));
        }
        let mut sum = 0_i128;
        for container in self.selected(source) {
            let request = container.resources.requests.of(source.resource).ok_or_else(|| {
                format!(
                    "container {} of pod {name} requests no {resource}: set a request, or container, so that another one \
                     counts",
                    container.name
                )
            })?;
            let request = parsed(request, || format!("the request for {resource} of pod {name}"))?;
            sum = sum.saturating_add(request.billionths());
        }
        Ok(Nanos::new(sum))
    }

    /// Returns what the node has allocated at the level of the request: to the pod, or to the selected containers. None
    /// if it does not say so for each.
    pub(super) fn allocated_to(&self, source: &ResourceUse) -> Option<Nanos> {
        if self.pod_level_request(source).is_some() {
            return Nanos::parse(self.status.allocated_resources.of(source.resource)?).ok();
        }
        let statuses = self.status.container_statuses.iter().chain(&self.status.init_container_statuses);
        let mut sum = 0_i128;
        for container in self.selected(source) {
            let status = statuses.clone().find(|status| status.name == container.name)?;
            let allocated = status.allocated_resources.of(source.resource)?;
            sum = sum.saturating_add(Nanos::parse(allocated).ok()?.billionths());
        }
        Some(Nanos::new(sum))
    }

    pub(super) fn is_pending(&self) -> bool {
        self.status.phase.as_deref() == Some("Pending")
    }

    /// Returns the containers that the source selects, including sidecars.
    pub(super) fn selected<'a>(&'a self, source: &'a ResourceUse) -> impl Iterator<Item = &'a Container> {
        let sidecars = self.spec.init_containers.iter();
        let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let all = self.spec.containers.iter().chain(sidecars);
        all.filter(|container| source.container.as_ref().is_none_or(|only| *only == container.name))
    }

    /// Returns the request at pod level, or else the sum of the requests of the selected containers; None if one of
    /// them requests nothing.
    pub(super) fn requested(&self, source: &ResourceUse) -> Result<Option<Nanos>, String> {
        let (resource, name) = (source.resource.as_str(), &self.metadata.name);
        let (mut requests, mut any) = (Vec::new(), false);
        let mut is_complete = true;
        for container in self.selected(source) {
            any = true;
            match container.resources.requests.of(source.resource) {
                Some(request) => {
                    requests.push(parsed(request, || format!("the request for {resource} of pod {name}"))?)
                }
                None => is_complete = false,
            }
        }
        if !any {
            return Err(format!("pod {name} has no container {}", source.container.as_deref().unwrap_or_default()));
        }
        if let Some(request) = self.pod_level_request(source) {
            return parsed(request, || format!("the request for {resource} of pod {name}")).map(Some);
        }
        let sum: Nanos = requests.into_iter().sum();
        Ok((is_complete && sum.is_positive()).then_some(sum))
    }

    /// Whether cpu usage that was measured at this time, over a period of this length, may be that of a program that
    /// starts.
    pub(super) fn is_starting(&self, measured: Timestamp, window: SignedDuration, now: Timestamp) -> bool {
        let time = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
        let ready = self.status.conditions.iter().find(|condition| condition.kind == "Ready");
        let (Some(ready), Some(started)) = (ready, time(&self.status.start_time)) else { return true };
        let changed = time(&ready.last_transition_time).unwrap_or(Timestamp::MIN);
        let is_ready = ready.status != "False";
        if later(started, CPU_INITIALIZATION) > now {
            !is_ready || measured < later(changed, window)
        } else {
            !is_ready && later(started, INITIAL_READINESS) > changed
        }
    }
}

/// Parses a quantity of an answer. Error messages leave the text out.
pub(super) fn parsed(text: &str, what: impl Fn() -> String) -> Result<Nanos, String> {
    Nanos::parse(text).map_err(|_| format!("{} is {}, not a quantity", what(), kind_of_text(text)))
}
