//! Facts about pods.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, ResourceRequirements};

use super::{Identity, Owner};
use crate::api::marks;
use crate::api::reasons::Reason;
use crate::logic::quantity;

/// Requested resources: CPU in millicores, memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub cpu: i64,
    pub memory: i64,
}

impl std::ops::Add for Requests {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { cpu: self.cpu.saturating_add(other.cpu), memory: self.memory.saturating_add(other.memory) }
    }
}

impl std::ops::Sub for Requests {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { cpu: self.cpu.saturating_sub(other.cpu), memory: self.memory.saturating_sub(other.memory) }
    }
}

impl Requests {
    fn max(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), memory: self.memory.max(other.memory) }
    }
}

/// The labels and annotations that this operator wrote on a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    pub slot: Option<String>,
    pub role: Option<String>,
    pub peers: Option<String>,
    /// The pod's deletion cost, whoever wrote it.
    pub cost: Option<String>,
    /// The number of the worker of a SwarmPool that the pod is.
    pub worker: Option<String>,
    /// The version of its jobs, as it was last told.
    pub job_version: Option<String>,
    /// The version of its jobs, as the pod itself reports.
    pub observed_version: Option<String>,
}

/// Why a pod's containers do not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub reason: Reason,
    pub message: String,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodFact {
    pub id: Identity,
    pub created: Timestamp,
    /// Its name was generated (`generateName`); names of the operator's pods are not.
    pub generated: bool,
    pub labels: BTreeMap<String, String>,
    /// It has annotations.
    pub annotated: bool,
    pub marks: Marks,
    pub controller: Option<Owner>,
    pub node: Option<String>,
    /// Its address.
    pub ip: Option<String>,
    /// When it became Ready; None if it is not.
    pub ready_since: Option<Timestamp>,
    pub terminating: bool,
    /// Its containers have terminated (phase Succeeded or Failed).
    pub finished: bool,
    /// It is a mirror pod of a static pod, which only its kubelet controls.
    pub mirror: bool,
    /// Termination grace period in seconds.
    pub grace_seconds: i64,
    /// The scheduler's message while it finds no node.
    pub unschedulable: Option<String>,
    pub trouble: Option<Trouble>,
    pub requests: Requests,
}

impl PodFact {
    /// Whether it counts for its ReplicaSet: neither terminated nor being deleted.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.terminating && !self.finished
    }

    /// Whether it is active and Ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_active() && self.ready_since.is_some()
    }

    /// Whether the ReplicaSet with this uid controls it.
    #[must_use]
    pub fn is_of(&self, set_uid: &str) -> bool {
        self.controller.as_ref().is_some_and(|owner| owner.uid == set_uid)
    }

    /// Whether it has the mark of this slot.
    #[must_use]
    pub fn is_marked_by(&self, slot: &str) -> bool {
        self.marks.slot.as_deref() == Some(slot)
    }
}

/// A pod of a namespace that the operator does not watch: only what it takes of its node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutsidePodFact {
    pub id: Identity,
    pub node: Option<String>,
    /// Its containers have terminated (phase Succeeded or Failed).
    pub finished: bool,
    pub requests: Requests,
}

impl From<Pod> for OutsidePodFact {
    fn from(pod: Pod) -> Self {
        let PodFact { id, node, finished, requests, .. } = pod.into();
        Self { id, node, finished, requests }
    }
}

impl From<Pod> for PodFact {
    fn from(pod: Pod) -> Self {
        let meta = &pod.metadata;
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let condition = |kind: &str| {
            status
                .and_then(|status| status.conditions.as_ref())
                .and_then(|all| all.iter().find(|one| one.type_ == kind))
        };
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        Self {
            id: meta.into(),
            created: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            generated: meta.generate_name.is_some(),
            labels: meta.labels.clone().unwrap_or_default(),
            annotated: meta.annotations.as_ref().is_some_and(|all| !all.is_empty()),
            marks: Marks {
                slot: annotation(marks::SLOT),
                role: annotation(marks::ROLE),
                peers: annotation(marks::PEERS),
                cost: annotation(marks::DELETION_COST),
                worker: annotation(marks::WORKER),
                job_version: annotation(marks::JOB_VERSION),
                observed_version: annotation(marks::OBSERVED_VERSION),
            },
            controller: Owner::controller_of(meta),
            node: spec.and_then(|spec| spec.node_name.clone()).filter(|name| !name.is_empty()),
            ip: status.and_then(|status| status.pod_ip.clone()).filter(|ip| !ip.is_empty()),
            ready_since: condition("Ready")
                .filter(|ready| ready.status == "True")
                .map(|ready| ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)),
            terminating: meta.deletion_timestamp.is_some(),
            finished: matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed")),
            mirror: annotation("kubernetes.io/config.mirror").is_some(),
            grace_seconds: spec.and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30),
            unschedulable: condition("PodScheduled")
                .filter(|scheduled| scheduled.status == "False" && scheduled.reason.as_deref() == Some("Unschedulable"))
                .map(|scheduled| scheduled.message.clone().unwrap_or_default()),
            trouble: status.and_then(|status| {
                let inits = status.init_container_statuses.iter().flatten();
                inits.chain(status.container_statuses.iter().flatten()).find_map(trouble)
            }),
            requests: spec.map(requests).unwrap_or_default(),
        }
    }
}

/// The kubelet's reason for a container that cannot start without intervention.
fn trouble(status: &ContainerStatus) -> Option<Trouble> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let reason = match waiting.reason.as_deref()? {
        "CrashLoopBackOff" | "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            Reason::ReplacementCrashed
        }
        "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => Reason::ImagePullFailed,
        _ => return None,
    };
    let word = waiting.reason.as_deref().unwrap_or_default();
    let message = match waiting.message.as_deref() {
        Some(text) if !text.is_empty() => format!("container {}: {word}: {text}", status.name),
        _ => format!("container {}: {word}", status.name),
    };
    Some(Trouble { reason, message })
}

/// The effective request of a pod, as the scheduler computes it: the larger of containers plus sidecars and the largest init
/// container plus the sidecars started before it; the pod-level request overrides it, if set; plus the overhead.
#[must_use]
pub fn requests(spec: &PodSpec) -> Requests {
    let (mut side, mut peak) = (Requests::default(), Requests::default());
    for init in spec.init_containers.iter().flatten() {
        if init.restart_policy.as_deref() == Some("Always") {
            side = side + container(init);
            peak = peak.max(side);
        } else {
            peak = peak.max(side + container(init));
        }
    }
    let all = spec.containers.iter().map(container).fold(side, std::ops::Add::add).max(peak);
    let pod = spec.resources.as_ref();
    let overhead = spec.overhead.as_ref();
    Requests {
        cpu: named(pod, "cpu", quantity::cpu_millis).unwrap_or(all.cpu),
        memory: named(pod, "memory", quantity::bytes).unwrap_or(all.memory),
    } + Requests {
        cpu: overhead.and_then(|map| map.get("cpu")).and_then(|text| quantity::cpu_millis(&text.0).ok()).unwrap_or(0),
        memory: overhead.and_then(|map| map.get("memory")).and_then(|text| quantity::bytes(&text.0).ok()).unwrap_or(0),
    }
}

fn container(container: &Container) -> Requests {
    let resources = container.resources.as_ref();
    Requests {
        cpu: named(resources, "cpu", quantity::cpu_millis).unwrap_or(0),
        memory: named(resources, "memory", quantity::bytes).unwrap_or(0),
    }
}

/// One request by name. The API server has validated it, so text that does not parse counts as no request.
fn named<E>(resources: Option<&ResourceRequirements>, name: &str, parse: fn(&str) -> Result<i64, E>) -> Option<i64> {
    let text = resources?.requests.as_ref()?.get(name)?;
    parse(&text.0).ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn asking(cpu: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(cpu: &str) -> Value {
        json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}})
    }

    #[rstest]
    #[case::sum(json!({"containers": [asking("1"), asking("500m")]}), 1500)]
    #[case::nothing(json!({"containers": [{"name": "c"}]}), 0)]
    #[case::large_init(json!({"containers": [asking("1")], "initContainers": [asking("3")]}), 3000)]
    #[case::sidecar_beside_init(json!({"containers": [asking("1")], "initContainers": [sidecar("1"), asking("3")]}), 4000)]
    #[case::init_before_sidecar(json!({"containers": [asking("1")], "initContainers": [asking("3"), sidecar("1")]}), 3000)]
    #[case::sidecar_beside_containers(json!({"containers": [asking("2")], "initContainers": [sidecar("1")]}), 3000)]
    #[case::overhead(json!({"containers": [asking("1")], "overhead": {"cpu": "250m"}}), 1250)]
    #[case::whole_pod(json!({"containers": [asking("1")], "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "1"}}), 5000)]
    fn requests_are_counted_as_the_scheduler_does(#[case] spec: Value, #[case] millis: i64) {
        let spec: PodSpec = serde_json::from_value(spec).expect("a pod spec");
        assert_eq!(requests(&spec).cpu, millis);
    }

    /// A container, or the pod as a whole, as the vectors of the agents write it.
    fn from_vector(vector: &Value) -> Value {
        json!({
            "name": "c",
            "resources": {"requests": vector},
            "restartPolicy": vector.get("restart_policy"),
        })
    }

    #[test]
    fn requests_meet_the_vectors_of_the_agents() {
        let vectors: Value =
            serde_json::from_str(include_str!("../placement/tests/agents_vectors.json")).expect("JSON");
        let vectors = vectors["public"]["safe"].as_array().expect("a list");
        assert!(!vectors.is_empty());
        for vector in vectors {
            let (pod, expected) = (&vector["pod"], &vector["expected"]["pod_request"]);
            let all =
                |key: &str| -> Vec<Value> { pod[key].as_array().into_iter().flatten().map(from_vector).collect() };
            let spec = json!({
                "containers": all("containers"),
                "initContainers": all("init_containers"),
                "resources": pod.get("pod_level").map(|requests| json!({"requests": requests})),
                "overhead": pod.get("overhead"),
            });
            let Requests { cpu, memory } = requests(&serde_json::from_value(spec).expect("a pod spec"));
            let expected = (expected["cpu_millicores"].as_i64(), expected["memory_bytes"].as_i64());
            assert_eq!((Some(cpu), Some(memory)), expected, "{}", vector["id"]);
        }
    }

    #[rstest]
    #[case("CrashLoopBackOff", Some(Reason::ReplacementCrashed))]
    #[case("ImagePullBackOff", Some(Reason::ImagePullFailed))]
    #[case("ContainerCreating", None)]
    fn only_what_needs_help_is_trouble(#[case] waiting: &str, #[case] reason: Option<Reason>) {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p"},
            "status": {"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": waiting}}}]},
        }))
        .expect("a pod");
        assert_eq!(PodFact::from(pod).trouble.map(|trouble| trouble.reason), reason);
    }
}
