//! Facts about pods.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodStatus};

use super::requests::{Requests, cores, requests};
use super::stateful_set::{is_gated, pinned_to};
use super::{Identity, NodeName, Owner, PodConstraints, PodMembership, PodRun, SlimPod, SlotId, Uid, pod_type, texts};
use ganglion_api::marks;
use ganglion_api::reasons::Reason;

/// Labels and annotations of this operator on a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    pub slot: Option<SlotId>,
    pub role: Option<String>,
    pub peers: Option<String>,
    /// The pod deletion cost, no matter who wrote it.
    pub cost: Option<String>,
    /// Number of the SwarmPool worker that the pod runs.
    pub worker: Option<String>,
    /// Version of the worker's jobs that the operator last wrote.
    pub job_version: Option<String>,
    /// Version of the worker's jobs that the pod reports.
    pub observed_version: Option<String>,
}

/// Reason why the containers of a pod do not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub reason: Reason,
    pub message: String,
}

/// End of a pod that is being deleted, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodEnd {
    /// Reason and message of the condition DisruptionTarget: who deleted the pod, if it was not a client.
    pub cause: Option<String>,
    /// Names of the finalizers; the pod exists until they are removed.
    pub finalizers: Option<String>,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodFact {
    pub id: Identity,
    pub created: Timestamp,
    /// The name was generated (`generateName`). Names of pods created by the operator are not.
    pub generated: bool,
    pub labels: BTreeMap<String, String>,
    /// The pod has annotations.
    pub annotated: bool,
    pub marks: Marks,
    pub controller: Option<Owner>,
    pub node: Option<NodeName>,
    /// IP address of the pod.
    pub ip: Option<String>,
    /// Time at which the pod became Ready, by the clock of its kubelet; None if it is not Ready.
    pub ready_since: Option<Timestamp>,
    /// Time at which this process first saw the pod Ready since then, by its own clock.
    pub ready_seen: Option<Timestamp>,
    pub terminating: bool,
    /// All containers have terminated (phase Succeeded or Failed).
    pub finished: bool,
    /// Mirror pod of a static pod, which only its kubelet controls.
    pub mirror: bool,
    /// Termination grace period in seconds.
    pub grace_seconds: i64,
    /// The scheduler's message while no node fits.
    pub unschedulable: Option<String>,
    pub trouble: Option<Trouble>,
    /// Its kubelet has refused the pod, since the node lacks a resource or a port that it needs.
    pub refused: bool,
    /// How the pod ends; None if it is not being deleted.
    pub end: Option<Box<PodEnd>>,
    /// The operator's scheduling gate holds the pod.
    pub gated: bool,
    /// Node that a pod of a StatefulSet is pinned to.
    pub pin: Option<NodeName>,
    pub hold: PodHold,
    /// The scheduler preempts no pods for this one (`preemptionPolicy: Never`).
    pub non_preempting: bool,
    /// Constraints between the pod and others; not kept if the fact is reduced.
    pub constraints: Option<Box<PodConstraints>>,
    pub membership: Option<PodMembership>,
    /// `spec.schedulerName`.
    pub scheduler: String,
    pub run: PodRun,
    /// Labels are not kept; see [`super::Reducible`].
    pub reduced: bool,
}

/// Resources that a pod occupies on its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodHold {
    pub requests: Requests,
    /// CPU in millicores as the agent `power` counts it: for each container its request, or else its limit.
    pub cores: i64,
    /// Time at which the pod was bound to its node.
    pub bound: Timestamp,
    /// No container of the pod has run yet.
    pub pending: bool,
    /// `spec.priority`, which admission sets.
    pub priority: i32,
}

impl PodFact {
    /// Node of the pod and the resources that it occupies there; None if the pod is unbound or finished.
    pub fn held(&self) -> Option<(&NodeName, PodHold)> {
        Some((self.node.as_ref().filter(|_| !self.finished)?, self.hold))
    }

    /// Node of the pod if it has host ports or extended resources there.
    pub fn constrained_node(&self) -> Option<&NodeName> {
        let uses_node = self.constraints.as_ref().is_some_and(|constraints| constraints.uses_node());
        self.node.as_ref().filter(|_| uses_node && !self.finished)
    }

    /// Preserves `terminating`, since a deletion is never undone, and the time at which the pod was first seen Ready.
    /// After an eviction of ours, the store marks the pod as terminating before the watch reports it; meanwhile the
    /// watch reports the condition DisruptionTarget of a pod that is not terminating yet.
    pub fn follow(&mut self, stored: &Self) {
        if stored.id.uid != self.id.uid {
            return;
        }
        self.terminating |= stored.terminating;
        if self.ready_since == stored.ready_since {
            self.ready_seen = stored.ready_seen;
        }
    }

    /// Notes the time at which the pod is seen.
    pub fn see(&mut self, now: Timestamp) {
        if self.ready_since.is_some() {
            self.ready_seen.get_or_insert(now);
        }
    }

    /// Time since which the pod has been Ready. A time that a kubelet with a wrong clock has written, before the pod
    /// was created or after it was seen, is replaced by the time at which this process first saw the pod Ready.
    pub fn ready_from(&self) -> Option<Timestamp> {
        let told = self.ready_since?;
        let is_impossible = |seen: &Timestamp| told < self.created || *seen < told;
        Some(self.ready_seen.filter(is_impossible).unwrap_or(told))
    }

    /// Whether the pod counts for its ReplicaSet: neither finished nor being deleted.
    pub fn is_active(&self) -> bool {
        !self.terminating && !self.finished
    }

    /// Whether the pod is active and Ready.
    pub fn is_ready(&self) -> bool {
        self.is_active() && self.ready_since.is_some()
    }

    /// Whether the ReplicaSet with this uid controls the pod.
    pub fn is_of(&self, set_uid: &Uid) -> bool {
        self.controller.as_ref().is_some_and(|owner| owner.uid == *set_uid)
    }

    /// Type of the pod; see [`pod_type`].
    pub fn pod_type(&self) -> &str {
        pod_type(&self.labels, &self.id.key.name)
    }

    /// Whether the pods differ only in how their containers run (and in the version).
    pub fn differs_in_run_only(&self, other: &Self) -> bool {
        let as_other = || {
            let mut one = Self { run: other.run.clone(), ..self.clone() };
            one.id.version.clone_from(&other.id.version);
            one
        };
        // The cheap comparison goes first: `run` rarely differs.
        self.run != other.run && as_other() == *other
    }

    /// Whether the pod carries the mark of this slot.
    pub fn is_marked_by(&self, slot: &SlotId) -> bool {
        self.marks.slot.as_ref() == Some(slot)
    }
}

/// A pod in a namespace that the operator does not watch, reduced to the resources that it occupies on its node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutsidePodFact {
    pub id: Identity,
    pub node: Option<NodeName>,
    /// All containers have terminated (phase Succeeded or Failed).
    pub finished: bool,
    pub hold: PodHold,
    /// Constraints between the pod and others on its node.
    pub constraints: Option<Box<PodConstraints>>,
}

impl OutsidePodFact {
    /// See [`PodFact::held`].
    pub fn held(&self) -> Option<(&NodeName, PodHold)> {
        Some((self.node.as_ref().filter(|_| !self.finished)?, self.hold))
    }

    /// See [`PodFact::constrained_node`].
    pub fn constrained_node(&self) -> Option<&NodeName> {
        self.node.as_ref().filter(|_| self.constraints.is_some() && !self.finished)
    }
}

impl From<SlimPod> for OutsidePodFact {
    fn from(pod: SlimPod) -> Self {
        let PodFact { id, node, finished, hold, constraints, .. } = pod.into();
        let constraints = constraints.and_then(|all| all.on_node_only()).map(Box::new);
        Self { id, node, finished, hold, constraints }
    }
}

impl PodFact {
    /// The fact of a pod. Its membership is given, since the types of k8s-openapi do not have `spec.schedulingGroup`:
    /// each pod, and each answer to a write, is read as a [`SlimPod`].
    pub(super) fn new(pod: &Pod, membership: Option<PodMembership>) -> Self {
        let meta = &pod.metadata;
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let condition = |kind: &str| {
            status
                .and_then(|status| status.conditions.as_ref())
                .and_then(|all| all.iter().find(|one| one.type_ == kind))
        };
        let annotation =
            |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key)).map(|text| texts::name(text));
        let controller = Owner::controller_of(meta);
        let is_stateful = controller.as_ref().is_some_and(|owner| owner.kind == "StatefulSet");
        Self {
            id: meta.into(),
            created: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            generated: meta.generate_name.is_some(),
            labels: meta.labels.clone().unwrap_or_default(),
            annotated: meta.annotations.as_ref().is_some_and(|all| !all.is_empty()),
            marks: Marks {
                slot: annotation(marks::SLOT).map(SlotId::from),
                role: annotation(marks::ROLE),
                peers: meta.annotations.as_ref().and_then(|all| all.get(marks::PEERS)).map(|text| texts::list(text)),
                cost: annotation(marks::DELETION_COST),
                worker: annotation(marks::WORKER),
                job_version: annotation(marks::JOB_VERSION),
                observed_version: annotation(marks::OBSERVED_VERSION),
            },
            controller,
            gated: is_gated(spec.and_then(|spec| spec.scheduling_gates.as_deref())),
            pin: is_stateful.then(|| pinned_to(pod)).flatten(),
            node: spec.and_then(|spec| spec.node_name.clone()).filter(|name| !name.is_empty()).map(NodeName::from),
            ip: status.and_then(|status| status.pod_ip.clone()).filter(|ip| !ip.is_empty()),
            ready_since: condition("Ready")
                .filter(|ready| ready.status == "True")
                .map(|ready| ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)),
            ready_seen: None,
            terminating: meta.deletion_timestamp.is_some(),
            finished: matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed")),
            refused: status.is_some_and(is_refused),
            // An eviction that was not carried out leaves the condition on a pod that runs.
            end: meta.deletion_timestamp.as_ref().map(|_| {
                let target = condition("DisruptionTarget").filter(|target| target.status == "True");
                Box::new(PodEnd::new(meta.finalizers.as_deref().unwrap_or_default(), target))
            }),
            mirror: annotation("kubernetes.io/config.mirror").is_some(),
            grace_seconds: spec.and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30),
            unschedulable: condition("PodScheduled")
                .filter(|scheduled| scheduled.status == "False" && scheduled.reason.as_deref() == Some("Unschedulable"))
                .map(|scheduled| texts::message(scheduled.message.as_deref().unwrap_or_default())),
            trouble: status.and_then(|status| {
                let inits = status.init_container_statuses.iter().flatten();
                let of_container = inits.chain(status.container_statuses.iter().flatten()).find_map(trouble);
                of_container.or_else(|| failure(status))
            }),
            hold: spec
                .map(|spec| PodHold {
                    requests: requests(spec),
                    cores: cores(spec),
                    bound: condition("PodScheduled")
                        .filter(|scheduled| scheduled.status == "True")
                        .and_then(|scheduled| scheduled.last_transition_time.as_ref())
                        .or(meta.creation_timestamp.as_ref())
                        .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
                    pending: matches!(status.and_then(|status| status.phase.as_deref()), None | Some("Pending")),
                    priority: spec.priority.unwrap_or(0),
                })
                .unwrap_or_default(),
            non_preempting: spec.and_then(|spec| spec.preemption_policy.as_deref()) == Some("Never"),
            constraints: spec.and_then(PodConstraints::of),
            membership,
            scheduler: texts::name(spec.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or_default()),
            run: PodRun::from(pod),
            reduced: false,
        }
    }
}

impl PodEnd {
    fn new(finalizers: &[String], target: Option<&PodCondition>) -> Self {
        let words = |target: &PodCondition| {
            let words = [target.reason.as_deref(), target.message.as_deref()].into_iter().flatten();
            words.filter(|words| !words.is_empty()).collect::<Vec<_>>().join(": ")
        };
        let cause = target.map(words).filter(|words| !words.is_empty());
        Self {
            cause: cause.map(|words| texts::message(&words)),
            finalizers: (!finalizers.is_empty()).then(|| texts::message(&finalizers.join(", "))),
        }
    }
}

/// Trouble of a pod in phase Failed, in the kubelet's words: it was evicted, or the node did not admit it.
fn failure(status: &PodStatus) -> Option<Trouble> {
    let is_failed = status.phase.as_deref() == Some("Failed");
    let words = [status.reason.as_deref(), status.message.as_deref()].into_iter().flatten().collect::<Vec<_>>();
    (is_failed && !words.is_empty())
        .then(|| Trouble { reason: Reason::ReplacementLost, message: texts::message(&words.join(": ")) })
}

/// Whether the kubelet has not admitted the pod for lack of a resource (`OutOfcpu`) or of a port of the node.
fn is_refused(status: &PodStatus) -> bool {
    let reason = status.reason.as_deref().filter(|_| status.phase.as_deref() == Some("Failed"));
    reason.is_some_and(|reason| reason.starts_with("OutOf") || reason == "NodePorts")
}

/// Trouble of a container that cannot start without intervention, from the kubelet's waiting reason.
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
    Some(Trouble { reason, message: texts::message(&message) })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("CrashLoopBackOff", Some(Reason::ReplacementCrashed))]
    #[case("ImagePullBackOff", Some(Reason::ImagePullFailed))]
    #[case("ContainerCreating", None)]
    fn only_what_needs_help_is_trouble(#[case] waiting: &str, #[case] reason: Option<Reason>) {
        let pod: SlimPod = serde_json::from_value(json!({
            "metadata": {"name": "p"},
            "status": {"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": waiting}}}]},
        }))
        .expect("a pod");
        assert_eq!(PodFact::from(pod).trouble.map(|trouble| trouble.reason), reason);
    }

    #[rstest]
    #[case::cpu("Failed", "OutOfcpu", true)]
    #[case::devices("Failed", "OutOfnvidia.com/gpu", true)]
    #[case::port("Failed", "NodePorts", true)]
    #[case::taint("Failed", "TaintToleration", false)]
    #[case::evicted("Failed", "Evicted", false)]
    #[case::runs("Running", "OutOfcpu", false)]
    fn a_pod_for_which_its_node_has_no_room_is_refused(#[case] phase: &str, #[case] why: &str, #[case] expected: bool) {
        let status = json!({"phase": phase, "reason": why});
        let pod: SlimPod = serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).expect("a pod");
        assert_eq!(PodFact::from(pod).refused, expected);
    }

    #[rstest]
    #[case("Failed", Some("OutOfcpu: Pod was rejected"))]
    #[case("Running", None)]
    fn a_failed_pod_has_the_words_of_the_kubelet(#[case] phase: &str, #[case] message: Option<&str>) {
        let pod: SlimPod = serde_json::from_value(json!({
            "metadata": {"name": "p"},
            "status": {"phase": phase, "reason": "OutOfcpu", "message": "Pod was rejected"},
        }))
        .expect("a pod");
        assert_eq!(PodFact::from(pod).trouble.map(|trouble| trouble.message).as_deref(), message);
    }

    #[rstest]
    #[case::runs(json!({"name": "p"}), None)]
    #[case::ends(
        json!({"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a.example/b", "c.example/d"]}),
        Some(PodEnd {
            cause: Some("PreemptionByScheduler: for another".into()),
            finalizers: Some("a.example/b, c.example/d".into()),
        }),
    )]
    fn the_end_of_a_pod_has_the_words_of_the_api_server(
        #[case] metadata: serde_json::Value,
        #[case] end: Option<PodEnd>,
    ) {
        let target = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for another",
        });
        let pod: SlimPod =
            serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": [target]}})).expect("a pod");
        assert_eq!(PodFact::from(pod).end.map(|end| *end), end);
    }
}
