//! The plan of a drain: what happens to each pod on the nodes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::super::hindrance::Hindrance;
use super::pods::NodePod;
use super::{MoveKey, Stay, StayCause};
use ganglion_api::refs::WorkloadRef;
use ganglion_core::facts::{ClaimFact, Key, NodeName};

/// Facts about the workloads and volumes of the pods. Facts that may not be read are missing; the operator then
/// decides.
#[derive(Clone, Debug, Default)]
pub struct PodSurroundings {
    /// The Deployments of ReplicaSets.
    pub deployments: BTreeMap<Key, WorkloadRef>,
    /// The Deployments with `strategy: Recreate`.
    pub recreating: BTreeSet<Key>,
    pub claims: BTreeMap<Key, ClaimFact>,
    /// PersistentVolumes whose data are on one node.
    pub local: BTreeSet<String>,
    /// Objects that may not be read, with the message of the API server.
    pub unread: BTreeSet<String>,
}

/// The replicas of a workload that leave a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadMove {
    pub namespace: String,
    pub workload: WorkloadRef,
    pub node: NodeName,
    pub pods: Vec<String>,
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

/// The decisions about the pods on the nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainPlan {
    /// Sorted by namespace, workload and node.
    pub moves: Vec<WorkloadMove>,
    /// Pods that stay in any case.
    pub stays: Vec<Stay>,
    /// Pods of Jobs, which run to their end.
    pub jobs: Vec<Stay>,
    /// Pods that leave soon: they terminate, or an action works on them.
    pub leaving: Vec<Stay>,
    /// Unknown facts about the pods, as text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The decision about one pod.
enum Fate {
    Ignored,
    Moves(WorkloadRef),
    Stays(Stay),
    Runs(Stay),
    Leaves(Stay),
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
                Fate::Runs(stay) => plan.jobs.push(stay),
                Fate::Leaves(stay) => plan.leaving.push(stay),
                Fate::Moves(workload) => {
                    let key = MoveKey::new(&pod.key.namespace, &workload, &pod.node);
                    let found = moves.entry(key).or_insert_with(|| WorkloadMove {
                        namespace: pod.key.namespace.clone(),
                        node: pod.node.clone(),
                        pods: Vec::new(),
                        hindrances: hindrances(pod, &workload, around),
                        workload,
                    });
                    found.pods.push(pod.key.name.clone());
                }
            }
        }
        plan.moves = moves.into_values().collect();
        plan.stays
            .sort_by(|a, b| (a.is_expected(), &a.namespace, &a.what).cmp(&(b.is_expected(), &b.namespace, &b.what)));
        plan
    }
}

fn fate(pod: &NodePod, around: &PodSurroundings) -> Fate {
    let Key { namespace, name } = &pod.key;
    let owner = pod.owner.as_ref().map(|owner| format!("{}/{}", owner.kind, owner.name));
    let stay = |cause, message: String, advice: Option<String>| Stay {
        namespace: namespace.clone(),
        what: format!("Pod/{name}"),
        node: pod.node.clone(),
        pods: 1,
        cause,
        reason: None,
        message,
        advice,
    };
    let kind = pod.owner.as_ref().map(|owner| owner.kind.as_str());
    match (kind, owner) {
        _ if pod.finished => Fate::Ignored,
        _ if pod.mirror => {
            Fate::Stays(stay(StayCause::StaticPod, "its node's kubelet runs it from a file".into(), None))
        }
        (Some("DaemonSet"), Some(owner)) => {
            Fate::Stays(stay(StayCause::DaemonSet, format!("{owner} runs one pod on each node"), None))
        }
        _ if pod.in_motion => Fate::Leaves(stay(StayCause::NotYet, "an action moves it".into(), None)),
        _ if pod.terminating => Fate::Leaves(stay(StayCause::NotYet, "it terminates".into(), None)),
        (None, _) | (_, None) => {
            let advice = format!("To remove it: kubectl delete pod {name} -n {namespace}. Nothing makes it again.");
            Fate::Stays(stay(StayCause::BarePod, "it belongs to no workload".into(), Some(advice)))
        }
        (Some("Job"), Some(owner)) => {
            let advice =
                format!("To end it now: kubectl delete pod {name} -n {namespace}. Its Job begins it again elsewhere.");
            Fate::Runs(stay(StayCause::Job, format!("{owner} runs to its end"), Some(advice)))
        }
        (Some("ReplicaSet" | "StatefulSet"), Some(_)) => moves(pod, around, stay),
        (Some(_), Some(owner)) => {
            let advice =
                format!("To have it made again elsewhere, if {owner} does: kubectl delete pod {name} -n {namespace}");
            Fate::Stays(stay(
                StayCause::UnknownOwner,
                format!("{owner} is of a kind that is not handled"),
                Some(advice),
            ))
        }
    }
}

fn moves(pod: &NodePod, around: &PodSurroundings, stay: impl Fn(StayCause, String, Option<String>) -> Stay) -> Fate {
    let Some(owner) = &pod.owner else { return Fate::Ignored };
    let volume = pod.volumes.claims.iter().find_map(|claim| {
        let fact = around.claims.get(&Key::new(&pod.key.namespace, claim))?;
        fact.volume.as_ref().filter(|volume| around.local.contains(*volume)).map(|volume| (claim, volume))
    });
    if let Some((claim, volume)) = volume {
        let message = format!("volume {volume} of claim {claim} is on this node only");
        let advice = "Its pods cannot run elsewhere: move the data first, or delete claim and pod to start over.";
        return Fate::Stays(stay(StayCause::LocalVolume, message, Some(advice.to_owned())));
    }
    let key = Key::new(&pod.key.namespace, &owner.name);
    let deployment = around.deployments.get(&key).filter(|_| owner.kind == "ReplicaSet");
    Fate::Moves(deployment.unwrap_or(owner).clone())
}

fn hindrances(pod: &NodePod, workload: &WorkloadRef, around: &PodSurroundings) -> Vec<Hindrance> {
    let key = |name: &String| Key::new(&pod.key.namespace, name);
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
