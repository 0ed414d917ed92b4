//! Pods of the target, in the groups that count differently.

use jiff::{SignedDuration, Timestamp};

use super::nanos::Nanos;

/// Time after the start of a pod in which its CPU usage may be that of its initialization: the default of
/// `--horizontal-pod-autoscaler-cpu-initialization-period`.
const INITIALIZATION: SignedDuration = SignedDuration::from_mins(5);

/// A pod that became unready within this time of its start has never been ready: the default of
/// `--horizontal-pod-autoscaler-initial-readiness-delay`.
const READINESS_DELAY: SignedDuration = SignedDuration::from_secs(30);

/// Pod of the target, with its sample of one metric. The caller leaves out pods that the target does not own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedPod {
    pub name: String,
    pub phase: PodPhase,
    /// Whether it has a deletion timestamp.
    pub is_deleting: bool,
    pub started: Option<Timestamp>,
    /// The condition Ready; None if there is none.
    pub ready: Option<PodReady>,
    pub sample: Option<PodSample>,
    /// Requests of the spec for the resource; an error names the container without one. Only Utilization uses them.
    pub requests: Result<Nanos, String>,
    /// Resources that the node has allocated, if they are known. While a resize is pending, they are what the pod has.
    pub allocated: Option<Nanos>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

/// The condition Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodReady {
    /// Status of the condition; None if it is Unknown.
    pub is_ready: Option<bool>,
    /// Last transition.
    pub since: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodSample {
    pub value: Nanos,
    /// End of the measurement.
    pub at: Timestamp,
    /// Length of the measurement.
    pub window: SignedDuration,
}

impl PodSample {
    /// Begin of the measurement.
    pub fn begun(&self) -> Option<Timestamp> {
        self.at.checked_sub(self.window).ok()
    }
}

/// Kind of the samples of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodMeasure {
    /// CPU usage: that of a pod that starts says nothing about its load.
    Cpu,
    Other,
}

impl TrackedPod {
    /// Whether the pod serves or will serve. Pods that end or have ended do not count.
    pub(super) fn counts(&self) -> bool {
        !self.is_deleting && !matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Returns what the pod may use: allocated resources, or its requests.
    pub(super) fn capacity(&self) -> Result<Nanos, &str> {
        match &self.requests {
            Ok(requests) => Ok(self.allocated.unwrap_or(*requests)),
            Err(problem) => Err(problem),
        }
    }

    fn is_initializing(&self, sample: &PodSample, now: Timestamp) -> bool {
        let (Some(ready), Some(started)) = (self.ready, self.started) else { return true };
        let is_unready = ready.is_ready == Some(false);
        if is_after(started, INITIALIZATION, now) {
            // A sample of a window that began before the pod was ready is one of its initialization.
            is_unready || is_after(ready.since, sample.window, sample.at)
        } else {
            is_unready && is_after(started, READINESS_DELAY, ready.since)
        }
    }
}

/// Whether `start + length` is after `other`.
fn is_after(start: Timestamp, length: SignedDuration, other: Timestamp) -> bool {
    length > other.duration_since(start)
}

/// Number of pods that run, are ready and do not end.
pub fn ready_pods(pods: &[TrackedPod]) -> u32 {
    let ready = pods.iter().filter(|pod| {
        pod.counts() && pod.phase == PodPhase::Running && pod.ready.is_some_and(|ready| ready.is_ready == Some(true))
    });
    u32::try_from(ready.count()).unwrap_or(u32::MAX)
}

/// Pods that count.
#[derive(Default)]
pub(super) struct PodGroups<'a> {
    /// Pods whose samples show load.
    pub measured: Vec<(&'a TrackedPod, Nanos)>,
    /// Pods that do not serve yet.
    pub unready: Vec<&'a TrackedPod>,
    /// Pods without a sample.
    pub missing: Vec<&'a TrackedPod>,
}

impl<'a> PodGroups<'a> {
    pub fn new(pods: &'a [TrackedPod], measure: PodMeasure, now: Timestamp) -> Self {
        let mut groups = Self::default();
        for pod in pods.iter().filter(|pod| pod.counts()) {
            if pod.phase == PodPhase::Pending {
                groups.unready.push(pod);
                continue;
            }
            match &pod.sample {
                None => groups.missing.push(pod),
                Some(sample) if measure == PodMeasure::Cpu && pod.is_initializing(sample, now) => {
                    groups.unready.push(pod);
                }
                Some(sample) => groups.measured.push((pod, sample.value)),
            }
        }
        groups
    }

    pub fn all(&self) -> impl Iterator<Item = &'a TrackedPod> {
        self.measured
            .iter()
            .map(|(pod, _)| *pod)
            .chain(self.unready.iter().copied())
            .chain(self.missing.iter().copied())
    }
}
