//! The plan of a drain: what happens to each pod on the nodes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PersistentVolume;

use super::super::hindrance::Hindrance;
use super::super::nodes::selects;
use super::evictions::{EvictionOption, OwnEviction};
use super::pods::{NodePod, Termination};
use super::{MoveKey, Stay, StayCause};
use ganglion_api::refs::WorkloadRef;
use ganglion_core::facts::{ClaimFact, Identity, Key, NodeFact, NodeName, group};

/// Facts about the workloads and volumes of the pods. Facts that may not be read are missing; the operator then
/// decides.
#[derive(Clone, Debug, Default)]
pub struct PodSurroundings {
    /// The Deployments of ReplicaSets.
    pub deployments: BTreeMap<Key, WorkloadRef>,
    /// The Deployments with `strategy: Recreate`.
    pub recreating: BTreeSet<Key>,
    pub claims: BTreeMap<Key, ClaimFact>,
    /// PersistentVolumes that can be used on the drained nodes only; see [`is_confined`].
    pub confined: BTreeSet<String>,
    /// Objects that may not be read, with the message of the API server.
    pub unread: BTreeSet<String>,
}

/// Whether a volume can be used on none of these nodes, or its data would stay behind. Without the nodes, only a volume
/// of one node counts.
pub fn is_confined(volume: &PersistentVolume, others: Option<&[NodeFact]>) -> bool {
    let Some(spec) = &volume.spec else { return false };
    let affinity = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    match (affinity, others) {
        _ if spec.host_path.is_some() => true,
        (Some(nodes), Some(others)) => !others.iter().any(|node| selects(nodes, node)),
        (Some(_), None) => spec.local.is_some(),
        (None, _) => false,
    }
}

/// The replicas of a workload that leave a node.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadMove {
    pub namespace: String,
    pub workload: WorkloadRef,
    pub node: NodeName,
    pub pods: Vec<Identity>,
    /// Number of these pods without the labels of the drain's pod selector.
    pub unselected: usize,
    /// Why the new pods cannot run first, or which data are lost.
    pub hindrances: Vec<Hindrance>,
}

impl WorkloadMove {
    pub fn key(&self) -> MoveKey {
        MoveKey::new(&self.namespace, &self.workload, &self.node)
    }

    /// Kind and name of the workload.
    pub fn words(&self) -> String {
        format!("{}/{}", self.workload.kind, self.workload.name)
    }

    /// Whether its action needs `disruption: Allowed`.
    pub fn disrupts(&self) -> bool {
        self.hindrances.iter().any(Hindrance::keeps_apart)
    }

    /// The hindrances as text.
    pub fn why(&self) -> String {
        self.hindrances.iter().map(Hindrance::to_string).collect::<Vec<_>>().join(", and ")
    }
}

/// A pod that terminates, or that an action works on.
#[derive(Clone, Debug, PartialEq)]
pub struct LeavingPod {
    pub pod: Identity,
    pub stay: Stay,
    /// None while an action works on it and has not evicted it.
    pub termination: Option<Termination>,
}

/// The decisions about the pods on the nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrainPlan {
    /// Sorted by namespace, workload and node.
    pub moves: Vec<WorkloadMove>,
    /// Pods that stay in any case.
    pub stays: Vec<Stay>,
    /// Pods that no action moves, and that the command evicts itself if an option says so.
    pub evictions: Vec<OwnEviction>,
    /// Pods that leave soon: they terminate, or an action works on them.
    pub leaving: Vec<LeavingPod>,
    /// Unknown facts about the pods, as text.
    pub notes: Vec<String>,
}

/// The decision about one pod.
enum Fate {
    Ignored,
    Moves(WorkloadRef),
    Stays(Stay),
    Evictable(OwnEviction),
    Leaves(LeavingPod),
}

impl DrainPlan {
    pub fn of(pods: &[NodePod], around: &PodSurroundings) -> Self {
        let notes = around.unread.iter().map(|words| format!("Not looked at: {words}.")).collect();
        let mut plan = Self { notes, ..Self::default() };
        let mut moves: BTreeMap<MoveKey, WorkloadMove> = BTreeMap::new();
        for pod in pods {
            match fate(pod, around) {
                Fate::Ignored => {}
                Fate::Stays(stay) => plan.stays.push(stay),
                Fate::Evictable(eviction) => plan.evictions.push(eviction),
                Fate::Leaves(leaving) => plan.leaving.push(leaving),
                Fate::Moves(workload) => {
                    let key = MoveKey::new(&pod.id.key.namespace, &workload, &pod.node);
                    let found = moves.entry(key).or_insert_with(|| WorkloadMove {
                        namespace: pod.id.key.namespace.clone(),
                        node: pod.node.clone(),
                        pods: Vec::new(),
                        unselected: 0,
                        hindrances: hindrances(pod, &workload, around),
                        workload,
                    });
                    found.pods.push(pod.id.clone());
                    found.unselected += usize::from(!pod.selected);
                }
            }
        }
        // Without a selected pod, the drain does not concern the workload.
        plan.moves = moves.into_values().filter(|found| found.unselected < found.pods.len()).collect();
        plan.stays
            .sort_by(|a, b| (a.is_expected(), &a.namespace, &a.what).cmp(&(b.is_expected(), &b.namespace, &b.what)));
        plan
    }
}

fn fate(pod: &NodePod, around: &PodSurroundings) -> Fate {
    let owner = pod.owner.as_ref().map(|owner| format!("{}/{}", owner.kind, owner.name));
    let stay = |cause, message: String| Stay::of_pod(&pod.id.key, &pod.node, cause, message);
    let evictable = |option, cause, message| {
        let losses = Hindrance::of_data(&pod.volumes).collect();
        let stay = stay(cause, message);
        Fate::Evictable(OwnEviction { pod: pod.id.clone(), option, losses, finished: false, stay })
    };
    let is_workload = pod.is_of_apps("ReplicaSet") || pod.is_of_apps("StatefulSet");
    let kind = pod.owner.as_ref().map(|owner| owner.kind.as_str());
    match (kind, owner) {
        _ if pod.finished => finished(pod),
        _ if pod.mirror => Fate::Stays(stay(StayCause::StaticPod, "its node's kubelet runs it from a file".into())),
        (Some("DaemonSet"), Some(owner)) => {
            Fate::Stays(stay(StayCause::DaemonSet, format!("{owner} runs one pod on each node")))
        }
        _ if pod.late && !is_leaving(pod) => {
            let message = "it came after the node was cordoned, so it tolerates the cordon".to_owned();
            let advice = "Remove its toleration of node.kubernetes.io/unschedulable, or stop its controller.";
            Fate::Stays(Stay { advice: Some(advice.to_owned()), ..stay(StayCause::CameBack, message) })
        }
        _ if is_workload && !is_leaving(pod) => moves(pod, around),
        _ if !pod.selected => Fate::Ignored,
        _ if is_leaving(pod) => {
            let message = if pod.termination.is_some() { "it terminates" } else { "an action moves it" };
            let (stay, termination) = (stay(StayCause::NotYet, message.into()), pod.termination.clone());
            Fate::Leaves(LeavingPod { pod: pod.id.clone(), stay, termination })
        }
        (None, _) | (_, None) => {
            let message = "it belongs to no workload, so nothing makes it again".to_owned();
            evictable(EvictionOption::Force, StayCause::BarePod, message)
        }
        (Some(_), Some(_)) if confined_volume(pod, around).is_some() => moves(pod, around),
        (Some("Job"), Some(owner)) => {
            evictable(EvictionOption::EvictJobs, StayCause::Job, format!("{owner} runs to its end"))
        }
        (Some(_), Some(owner)) => {
            let group = pod.owner.as_ref().map(|owner| group(&owner.api_version)).unwrap_or_default();
            let of = if group.is_empty() { String::new() } else { format!(" of {group}") };
            let message = format!("{owner}{of} is of a kind that no action moves");
            evictable(EvictionOption::Disruption, StayCause::UnknownOwner, message)
        }
    }
}

/// A pod that has ended keeps nothing on the node but its log, so the node counts as empty with it. Where disruption is
/// allowed, it is evicted, as `kubectl drain` does. The controller of a DaemonSet, and the kubelet of a static pod,
/// replace theirs on the same node.
fn finished(pod: &NodePod) -> Fate {
    let is_of_daemon_set = pod.owner.as_ref().is_some_and(|owner| owner.kind == "DaemonSet");
    if pod.mirror || is_of_daemon_set || is_leaving(pod) || !pod.selected {
        return Fate::Ignored;
    }
    let stay = Stay::of_pod(&pod.id.key, &pod.node, StayCause::NotYet, "it has ended".to_owned());
    let option = EvictionOption::Disruption;
    Fate::Evictable(OwnEviction { pod: pod.id.clone(), option, losses: Vec::new(), finished: true, stay })
}

fn is_leaving(pod: &NodePod) -> bool {
    pod.termination.is_some() || pod.in_motion
}

/// Claim and volume of the pod that can be used on the drained nodes only.
fn confined_volume<'a>(pod: &'a NodePod, around: &'a PodSurroundings) -> Option<(&'a String, &'a String)> {
    pod.volumes.claims.iter().find_map(|claim| {
        let fact = around.claims.get(&Key::new(&pod.id.key.namespace, claim))?;
        fact.volume.as_ref().filter(|volume| around.confined.contains(*volume)).map(|volume| (claim, volume))
    })
}

fn moves(pod: &NodePod, around: &PodSurroundings) -> Fate {
    let Some(owner) = &pod.owner else { return Fate::Ignored };
    if let Some((claim, volume)) = confined_volume(pod, around).filter(|_| pod.selected) {
        let message = format!("volume {volume} of claim {claim} cannot be used on another node");
        let advice =
            format!("Add a node to which the volume can be attached (kubectl describe pv {volume}), or move its data.");
        let stay = Stay::of_pod(&pod.id.key, &pod.node, StayCause::LocalVolume, message);
        return Fate::Stays(Stay { advice: Some(advice), ..stay });
    }
    let key = Key::new(&pod.id.key.namespace, &owner.name);
    let deployment = around.deployments.get(&key).filter(|_| pod.is_of_apps("ReplicaSet"));
    Fate::Moves(deployment.unwrap_or(owner).clone())
}

fn hindrances(pod: &NodePod, workload: &WorkloadRef, around: &PodSurroundings) -> Vec<Hindrance> {
    let key = |name: &String| Key::new(&pod.id.key.namespace, name);
    let recreates = workload.kind == "Deployment" && around.recreating.contains(&key(&workload.name));
    let mut found: Vec<Hindrance> = recreates.then_some(Hindrance::Recreate).into_iter().collect();
    if workload.kind == "StatefulSet" {
        // Independent of its volumes.
        found.push(Hindrance::SameName);
    } else {
        let claims = pod.volumes.claims.iter().filter_map(|claim| around.claims.get(&key(claim)));
        found.extend(claims.filter_map(Hindrance::of_claim));
    }
    found.extend(Hindrance::of_data(&pod.volumes));
    found
}
