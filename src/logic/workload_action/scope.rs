//! The workload of an action: from the user's reference to the ReplicaSet, or StatefulSet, whose pods it works on.

use std::collections::BTreeMap;

use crate::api::marks;
use crate::api::reasons::Reason;
use crate::api::targets::WorkloadRef;
use crate::api::workload_action::status::Slot;
use crate::logic::expression::{Concern, ExpressionError};
use crate::logic::facts::{DeploymentFact, Identity, Key, Owner, PodFact, SetFact, StatefulSetFact};
use crate::logic::world::World;

use super::effect::{Scalable, ScalableKind};
use crate::logic::facts::Ledger;

/// Why an action cannot start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub reason: Reason,
    pub message: String,
    pub outlook: Outlook,
}

/// Whether the cause of a [`Stop`] may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// It stays.
    Final,
    /// It may be a late watch, since the object may just have been created.
    Late,
    /// It is this process, for a moment.
    Passing,
}

impl Stop {
    pub fn now(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), outlook: Outlook::Final }
    }

    pub fn soon(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), outlook: Outlook::Late }
    }

    /// An expression that cannot be used.
    pub fn expression(error: &ExpressionError) -> Self {
        let message = format!("where: {error}");
        match error.concern() {
            Concern::Process => Self { reason: Reason::Queued, message, outlook: Outlook::Passing },
            Concern::Text | Concern::Node => Self::now(Reason::ExpressionInvalid, message),
        }
    }
}

/// A workload and the ReplicaSet that has its pods; or a StatefulSet, with what it has in common with a ReplicaSet.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    pub set: &'a SetFact,
    /// None for a ReplicaSet that no Deployment owns.
    pub deployment: Option<&'a DeploymentFact>,
    pub stateful: Option<&'a StatefulSetFact>,
}

impl<'a> Scope<'a> {
    /// The scope of a workload that the user named.
    pub fn of_workload(world: &'a World, namespace: &str, workload: &WorkloadRef) -> Result<Self, Stop> {
        let key = Key::new(namespace, &workload.name);
        match (workload.api_version.as_str(), workload.kind.as_str()) {
            ("apps/v1", "Deployment") => {
                let deployment = world.deployment(&key).filter(|deployment| !deployment.terminating);
                let deployment = deployment.ok_or_else(|| missing(workload, namespace))?;
                let set = current_set(world, deployment).ok_or_else(|| {
                    Stop::soon(Reason::WorkloadNotFound, format!("Deployment {} has no ReplicaSet yet", workload.name))
                })?;
                Ok(Self { set, deployment: Some(deployment), stateful: None })
            }
            ("apps/v1", "StatefulSet") => {
                let set = world.stateful_set(&key).filter(|set| !set.terminating);
                Ok(Self::of_stateful(set.ok_or_else(|| missing(workload, namespace))?))
            }
            ("apps/v1", "ReplicaSet") => {
                let set = world.set(&key).filter(|set| !set.terminating);
                Self::of_set(world, set.ok_or_else(|| missing(workload, namespace))?)
            }
            (version, kind) => Err(unsupported(version, kind)),
        }
    }

    /// The scope of a pod that the user named.
    pub fn of_pod(world: &'a World, namespace: &str, name: &str) -> Result<(Self, &'a PodFact), Stop> {
        let pod = world.pod(&Key::new(namespace, name)).ok_or_else(|| {
            let advice = "look at `kubectl get pods`: a replica has a new name after each restart of its workload";
            Stop::soon(Reason::PodNotFound, format!("no pod {name} in namespace {namespace}; {advice}"))
        })?;
        if pod.mirror {
            let advice = "it belongs to its node's kubelet; change the node's manifest instead";
            return Err(Stop::now(Reason::NotSupported, format!("pod {name} is a static pod: {advice}")));
        }
        if pod.marks.role.as_deref() == Some(marks::ROLE_VICTIM)
            || pod.marks.role.as_deref() == Some(marks::ROLE_REPLACEMENT)
        {
            return Err(Stop::soon(Reason::VictimBusy, format!("pod {name} is in use by another action")));
        }
        if !pod.is_active() {
            return Err(Stop::soon(
                Reason::PodNotFound,
                format!("pod {name} is terminating; apply a new action that names a running pod"),
            ));
        }
        match &pod.controller {
            None => {
                let advice = "only replicas of a Deployment, ReplicaSet or StatefulSet can be moved or removed";
                Err(Stop::now(Reason::NotSupported, format!("pod {name} belongs to no workload; {advice}")))
            }
            Some(Owner { kind, name: set, .. }) if kind == "ReplicaSet" => {
                let set = world.set(&Key::new(namespace, set)).ok_or_else(|| {
                    Stop::soon(Reason::WorkloadNotFound, format!("ReplicaSet {set} of pod {name} does not exist"))
                })?;
                Ok((Self::of_set(world, set)?, pod))
            }
            Some(Owner { kind, name: set, uid }) if kind == "StatefulSet" => {
                // Other projects have kinds of this name, too.
                let known = world.stateful_set(&Key::new(namespace, set)).filter(|known| known.id.uid == *uid);
                let set = known.ok_or_else(|| {
                    Stop::soon(
                        Reason::WorkloadNotFound,
                        format!("apps/v1 StatefulSet {set} of pod {name} does not exist"),
                    )
                })?;
                Ok((Self::of_stateful(set), pod))
            }
            Some(Owner { kind, .. }) => Err(unsupported("", kind)),
        }
    }

    fn of_stateful(set: &'a StatefulSetFact) -> Self {
        Self { set: &set.set, deployment: None, stateful: Some(set) }
    }

    /// The scope of a ReplicaSet's pods.
    pub fn of_set(world: &'a World, set: &'a SetFact) -> Result<Self, Stop> {
        let key = |owner: &Owner| Key::new(&set.id.key.namespace, &owner.name);
        match &set.controller {
            None => Ok(Self { set, deployment: None, stateful: None }),
            Some(owner) if owner.kind == "Deployment" => match world.deployment(&key(owner)) {
                Some(deployment) => Ok(Self { set, deployment: Some(deployment), stateful: None }),
                None => {
                    let message = format!("Deployment {} of ReplicaSet {} does not exist", owner.name, set.id.key.name);
                    Err(Stop::soon(Reason::WorkloadNotFound, message))
                }
            },
            Some(owner) => Err(unsupported("", &owner.kind)),
        }
    }

    /// The scope of a slot; None if the set or its Deployment is gone.
    pub fn of_slot(world: &'a World, namespace: &str, slot: &Slot) -> Option<Self> {
        let set = &slot.replica_set;
        if slot.is_stateful() {
            let known = world.stateful_set(&Key::new(namespace, &set.name));
            return known.filter(|known| known.id.uid == set.uid && !known.terminating).map(Self::of_stateful);
        }
        let set =
            world.set(&Key::new(namespace, &set.name)).filter(|known| known.id.uid == set.uid && !known.terminating)?;
        let deployment = match &set.controller {
            None => None,
            Some(owner) => {
                let known = world.deployment(&Key::new(namespace, &owner.name));
                Some(known.filter(|known| known.id.uid == owner.uid && !known.terminating)?)
            }
        };
        Some(Self { set, deployment, stateful: None })
    }

    /// The workload: the Deployment, the StatefulSet, or a ReplicaSet that no Deployment owns.
    pub fn workload(&self) -> WorkloadRef {
        let (kind, id) = match (self.deployment, self.stateful) {
            (Some(deployment), _) => ("Deployment", &deployment.id),
            (None, Some(set)) => ("StatefulSet", &set.id),
            (None, None) => ("ReplicaSet", &self.set.id),
        };
        WorkloadRef { api_version: "apps/v1".into(), kind: kind.into(), name: id.key.name.clone() }
    }

    /// Identity of the workload.
    pub fn object(&self) -> &'a Identity {
        match (self.deployment, self.stateful) {
            (Some(deployment), _) => &deployment.id,
            (None, Some(set)) => &set.id,
            (None, None) => &self.set.id,
        }
    }

    /// Labels of the workload itself.
    pub fn object_labels(&self) -> &'a BTreeMap<String, String> {
        self.deployment.map_or(&self.set.labels, |deployment| &deployment.labels)
    }

    /// The object whose `spec.replicas` counts.
    pub fn scalable(&self) -> Scalable {
        match (self.deployment, self.stateful) {
            (Some(deployment), _) => Scalable { kind: ScalableKind::Deployment, id: deployment.id.clone() },
            (None, Some(set)) => Scalable { kind: ScalableKind::StatefulSet, id: set.id.clone() },
            (None, None) => Scalable { kind: ScalableKind::ReplicaSet, id: self.set.id.clone() },
        }
    }

    /// The scale of the workload.
    pub fn scale(&self) -> &'a crate::logic::facts::ScaleFact {
        self.deployment.map_or(&self.set.scale, |deployment| &deployment.scale)
    }

    /// `spec.replicas` of the workload.
    pub fn replicas(&self) -> i32 {
        self.scale().replicas
    }

    /// Our ledger on the workload.
    pub fn ledger(&self) -> Option<Ledger> {
        Ledger::parse(self.scale().ledger.as_deref())
    }

    /// The owner of the workload's replicas, if any: an autoscaler, or a field manager of a GitOps tool.
    pub fn replicas_owner(&self, world: &World) -> Option<String> {
        let WorkloadRef { kind, name, .. } = self.workload();
        let namespace = &self.set.id.key.namespace;
        let scaler = world
            .replica_scaler_of(namespace, &kind, &name)
            .map(|scaler| format!("{} {}", scaler.kind.as_str(), scaler.id.key.name));
        scaler.or_else(|| self.scale().owned_by.as_ref().map(|manager| format!("field manager {manager}")))
    }

    /// Labels of every pod of the set.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let template = self.set.template.as_ref();
        let mut labels = template.map(|template| template.labels.clone()).unwrap_or_default();
        labels.extend(self.set.selector.labels.clone());
        labels
    }

    /// The label whose removal detaches a pod from its set, and from no Service or budget.
    pub fn detach_label(&self, world: &World) -> Result<String, Stop> {
        if self.stateful.is_some() {
            let advice = "its pods keep their names, so move them one after the other, each with an action of its own";
            let message = format!("replicas of StatefulSet {} cannot be swapped: {advice}", self.set.id.key.name);
            return Err(Stop::now(Reason::NotSupported, message));
        }
        let namespace = &self.set.id.key.namespace;
        let labels = self.labels();
        let free = |label: &&String| !world.selects_by(namespace, &labels, label);
        let hash = marks::POD_TEMPLATE_HASH.to_owned();
        let keys = &self.set.selector.labels;
        let found = keys.get_key_value(&hash).map(|(key, _)| key).filter(free).or_else(|| keys.keys().find(free));
        found.cloned().ok_or_else(|| {
            let message = format!(
                "every label in the selector of ReplicaSet {} is also selected by a Service or PodDisruptionBudget; add a \
                 label of its own to its selector and template, or let a Deployment manage it",
                self.set.id.key.name
            );
            Stop::now(Reason::NoDetachLabel, message)
        })
    }

    /// Whether a newer revision of the workload has replaced this set.
    pub fn superseded(&self, world: &World) -> bool {
        self.deployment.is_some_and(|deployment| {
            current_set(world, deployment).is_none_or(|current| current.id.uid != self.set.id.uid)
        })
    }

    /// Whether the workload's replicas are split between this set and others.
    pub fn shares_replicas(&self, world: &'a World) -> bool {
        self.superseded(world) || self.other_set(world).is_some()
    }

    fn other_set(&self, world: &'a World) -> Option<&'a SetFact> {
        let mut sets = world.sets_of(&self.deployment?.id.uid);
        sets.find(|set| set.id.uid != self.set.id.uid && set.scale.replicas > 0)
    }

    /// Whether a rollout of the workload is in progress, in any of its sets.
    pub fn rolls(&self, world: &'a World) -> bool {
        let Some(deployment) = self.deployment else { return false };
        let populated = world.sets_of(&deployment.id.uid).filter(|set| set.scale.replicas > 0);
        deployment.in_rollout() || populated.count() > 1
    }

    /// The rollout in progress, if any: a newer set, a change that the controller has not observed yet, or pods of
    /// several templates.
    pub fn rollout(&self, world: &'a World) -> Option<String> {
        if let Some(set) = self.stateful.filter(|set| set.in_rollout()) {
            return Some(format!("a rollout of StatefulSet {} is in flight", set.id.key.name));
        }
        let deployment = self.deployment?;
        let name = &deployment.id.key.name;
        if self.superseded(world) {
            return Some(format!("Deployment {name} has a newer ReplicaSet than {}", self.set.id.key.name));
        }
        if deployment.in_rollout() {
            return Some(format!("a rollout of Deployment {name} is in flight"));
        }
        self.other_set(world)
            .map(|set| format!("ReplicaSet {} of Deployment {name} still has replicas", set.id.key.name))
    }
}

/// The ReplicaSet of the Deployment's current revision.
fn current_set<'a>(world: &'a World, deployment: &DeploymentFact) -> Option<&'a SetFact> {
    let number = |set: &SetFact| set.revision.as_ref().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    world.sets_of(&deployment.id.uid).filter(|set| !set.terminating).max_by_key(|set| number(set))
}

fn missing(workload: &WorkloadRef, namespace: &str) -> Stop {
    let WorkloadRef { kind, name, .. } = workload;
    let advice = "check its kind and name; an action and its workload share one namespace";
    Stop::soon(Reason::WorkloadNotFound, format!("no {kind} {name} in namespace {namespace}; {advice}"))
}

fn unsupported(version: &str, kind: &str) -> Stop {
    let advice = match kind {
        "DaemonSet" => "it runs one pod on each node by itself; change its node selector or the nodes' labels",
        "Job" | "CronJob" => "its pods run to their end and are not replicas; delete the pod to have it run elsewhere",
        _ => "name a Deployment, a ReplicaSet or a StatefulSet (apps/v1)",
    };
    let kind = if version.is_empty() { kind.to_owned() } else { format!("{version} {kind}") };
    Stop::now(Reason::NotSupported, format!("workloads of kind {kind} are not handled: {advice}"))
}
