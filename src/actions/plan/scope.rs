//! The workload of an action: from the user's reference to the ReplicaSet, or StatefulSet, whose pods it works on.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use crate::world::ActionsWorld;
use ganglion_api::marks;
use ganglion_api::reasons::Reason;
use ganglion_api::refs::WorkloadRef;
use ganglion_api::workload_action::status::Slot;
use ganglion_core::expression::{Concern, ExpressionError};
use ganglion_core::facts::{
    DeploymentFact, Key, Ledger, Owner, PodFact, PodMembership, ReplicaSetFact, ScaleFact, StatefulSetFact, Uid, group,
};
use ganglion_core::world::World;

use super::context::PlanContext;
use super::effect::{Scalable, ScalableKind};
use super::holder::{Holder, current_set as current_set_of_other};
use super::nodes::NodeRefusal;

/// Why an action cannot start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartRefusal {
    pub reason: Reason,
    pub message: String,
    pub outlook: Outlook,
}

/// Whether the cause of a [`StartRefusal`] may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// The cause is permanent.
    Final,
    /// The cause may be a late watch, since the object may have been created just now.
    Late,
    /// The cause is the load of nodes. While replicas of other actions are in motion, nodes have pods that will leave
    /// soon: old pods, and pods that a ReplicaSet creates for a moment.
    Load,
    /// The cause is a temporary state of this process.
    Passing,
}

impl StartRefusal {
    pub fn now(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), outlook: Outlook::Final }
    }

    pub fn soon(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), outlook: Outlook::Late }
    }

    /// A node that cannot take a replica.
    pub fn node((reason, message): NodeRefusal) -> Self {
        Self::soon(reason, message).caused_by_load(matches!(reason, Reason::NodeFull | Reason::NodeOccupied))
    }

    /// The same stop, marked as caused by the load of nodes if `by_load` is true.
    pub fn caused_by_load(self, by_load: bool) -> Self {
        if by_load { Self { outlook: Outlook::Load, ..self } } else { self }
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

/// A workload and the ReplicaSet, or StatefulSet, that owns its pods.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    pub set: &'a ReplicaSetFact,
    pub holder: Holder<'a>,
}

/// Refusal of an object that is reduced, since its namespace occupies too much memory.
pub fn reduced(object: &str) -> StartRefusal {
    StartRefusal::now(Reason::NotSupported, format!("{}; then apply a new action", reduced_words(object)))
}

/// Refusal of pods that are more than replicas.
pub fn not_alone(pods: &str, membership: PodMembership) -> StartRefusal {
    let message = format!("{pods}: they {membership}, and an action replaces replicas one by one");
    StartRefusal::now(Reason::NotSupported, message)
}

/// Why nothing is done with a reduced object, and what helps.
pub fn reduced_words(object: &str) -> String {
    format!(
        "the operator does not keep the labels, selector and template of {object}, because the objects of the \
         namespace occupy too much of its memory: shorten them, delete objects of this namespace with long labels, \
         selectors or templates, or have a cluster administrator raise objects.maxBytesPerNamespace in the operator's \
         settings"
    )
}

impl<'a> Scope<'a> {
    /// The scope of a workload that the user named, whose labels, selector and template are kept.
    pub fn of_workload(world: &'a World, namespace: &str, workload: &WorkloadRef) -> Result<Self, StartRefusal> {
        Self::named(world, namespace, workload)?.unreduced()?.alone()
    }

    fn named(world: &'a World, namespace: &str, workload: &WorkloadRef) -> Result<Self, StartRefusal> {
        let key = Key::new(namespace, &workload.name);
        match (workload.api_version.as_str(), workload.kind.as_str()) {
            ("apps/v1", "Deployment") => {
                let deployment = world.get::<DeploymentFact>(&key).filter(|deployment| !deployment.terminating);
                let deployment = deployment.ok_or_else(|| missing(workload, namespace))?;
                let set = current_set(world, deployment).ok_or_else(|| {
                    StartRefusal::soon(
                        Reason::WorkloadNotFound,
                        format!("Deployment {} has no ReplicaSet yet", workload.name),
                    )
                })?;
                Ok(Self { set, holder: Holder::Deployment(deployment) })
            }
            ("apps/v1", "ReplicaSet") => {
                let set = world.get::<ReplicaSetFact>(&key).filter(|set| !set.terminating);
                Self::of_set(world, set.ok_or_else(|| missing(workload, namespace))?)
            }
            ("apps/v1", "StatefulSet") => {
                let set = world.get::<StatefulSetFact>(&key).filter(|set| !set.terminating);
                Ok(Self::of_stateful(set.ok_or_else(|| missing(workload, namespace))?))
            }
            (version, kind) if owns_no_sets(kind) => Err(unsupported(version, kind)),
            _ => Self::of_set(world, current_set_of_other(world, namespace, workload)?),
        }
    }

    /// The scope of a pod that the user named.
    pub fn of_pod(world: &'a World, namespace: &str, name: &str) -> Result<(Self, &'a PodFact), StartRefusal> {
        let pod = world.pod(&Key::new(namespace, name)).ok_or_else(|| {
            let advice = "look at `kubectl get pods`: a replica has a new name after each restart of its workload";
            StartRefusal::soon(Reason::PodNotFound, format!("no pod {name} in namespace {namespace}; {advice}"))
        })?;
        if pod.mirror {
            let advice = "it belongs to its node's kubelet; change the node's manifest instead";
            return Err(StartRefusal::now(Reason::NotSupported, format!("pod {name} is a static pod: {advice}")));
        }
        if pod.marks.role.as_deref() == Some(marks::ROLE_VICTIM)
            || pod.marks.role.as_deref() == Some(marks::ROLE_REPLACEMENT)
        {
            return Err(StartRefusal::soon(Reason::VictimBusy, format!("pod {name} is in use by another action")));
        }
        if !pod.is_active() {
            return Err(StartRefusal::soon(
                Reason::PodNotFound,
                format!("pod {name} is terminating; apply a new action that names a running pod"),
            ));
        }
        if pod.reduced {
            return Err(reduced(&format!("pod {name}")));
        }
        if let Some(membership) = pod.membership {
            return Err(not_alone(&format!("pod {name}"), membership));
        }
        match &pod.controller {
            None => {
                let advice = "only replicas that a ReplicaSet or StatefulSet owns can be moved or removed";
                Err(StartRefusal::now(Reason::NotSupported, format!("pod {name} belongs to no workload; {advice}")))
            }
            Some(Owner { kind, name: set, .. }) if kind == "ReplicaSet" => {
                let set = world.get::<ReplicaSetFact>(&Key::new(namespace, set)).ok_or_else(|| {
                    StartRefusal::soon(
                        Reason::WorkloadNotFound,
                        format!("ReplicaSet {set} of pod {name} does not exist"),
                    )
                })?;
                Ok((Self::of_set(world, set)?.unreduced()?.alone()?, pod))
            }
            Some(Owner { kind, name: set, uid }) if kind == "StatefulSet" => {
                // Other projects also have kinds of this name.
                let known =
                    world.get::<StatefulSetFact>(&Key::new(namespace, set)).filter(|known| known.id.uid == *uid);
                let set = known.ok_or_else(|| {
                    StartRefusal::soon(
                        Reason::WorkloadNotFound,
                        format!("apps/v1 StatefulSet {set} of pod {name} does not exist"),
                    )
                })?;
                Ok((Self::of_stateful(set).unreduced()?.alone()?, pod))
            }
            Some(Owner { kind, .. }) => Err(unsupported("", kind)),
        }
    }

    pub fn of_stateful(set: &'a StatefulSetFact) -> Self {
        Self { set: &set.set, holder: Holder::Stateful(set) }
    }

    /// Refuses a workload whose labels, selector or template are not kept.
    pub fn unreduced(self) -> Result<Self, StartRefusal> {
        self.reduced_object().map_or(Ok(self), |object| Err(reduced(&object)))
    }

    /// Refuses a workload whose pods are more than replicas that can be replaced one at a time.
    pub fn alone(self) -> Result<Self, StartRefusal> {
        let WorkloadRef { kind, name, .. } = self.workload();
        let membership = self.set.template.as_ref().and_then(|template| template.membership);
        membership.map_or(Ok(self), |membership| Err(not_alone(&format!("pods of {kind} {name}"), membership)))
    }

    /// Kind and name of the workload if its labels, selector or template are not kept.
    pub fn reduced_object(&self) -> Option<String> {
        let holder = match self.holder {
            Holder::Deployment(deployment) => deployment.reduced,
            Holder::Set | Holder::Stateful(_) | Holder::Other(..) => false,
        };
        let WorkloadRef { kind, name, .. } = self.workload();
        (holder || self.set.reduced).then(|| format!("{kind} {name}"))
    }

    /// The StatefulSet, if the workload is one.
    pub fn stateful(&self) -> Option<&'a StatefulSetFact> {
        match self.holder {
            Holder::Stateful(set) => Some(set),
            Holder::Set | Holder::Deployment(_) | Holder::Other(..) => None,
        }
    }

    /// The scope of a ReplicaSet's pods.
    pub fn of_set(world: &'a World, set: &'a ReplicaSetFact) -> Result<Self, StartRefusal> {
        let holder = Holder::of(world, set).map_err(|deployment| {
            let (name, set) = (&deployment.name, &set.id.key.name);
            StartRefusal::soon(
                Reason::WorkloadNotFound,
                format!("Deployment {name} of ReplicaSet {set} does not exist"),
            )
        })?;
        Ok(Self { set, holder })
    }

    /// The scope of a slot; None if the set or its Deployment is gone.
    pub fn of_slot(world: &'a World, namespace: &str, slot: &Slot) -> Option<Self> {
        let set = &slot.replica_set;
        if slot.is_stateful() {
            let known = world.get::<StatefulSetFact>(&Key::new(namespace, &set.name));
            return known.filter(|known| known.id.uid == set.uid && !known.terminating).map(Self::of_stateful);
        }
        let set = world
            .get::<ReplicaSetFact>(&Key::new(namespace, &set.name))
            .filter(|known| known.id.uid == set.uid && !known.terminating)?;
        let holder = Holder::of(world, set).ok()?;
        if let Holder::Deployment(known) = holder {
            let is_same = set.controller.as_ref().is_some_and(|owner| owner.uid == known.id.uid);
            (is_same && !known.terminating).then_some(())?;
        }
        Some(Self { set, holder })
    }

    /// The workload: the Deployment or other object that owns the ReplicaSet, or the set itself.
    pub fn workload(&self) -> WorkloadRef {
        let (api_version, kind, name) = match self.holder {
            Holder::Deployment(deployment) => ("apps/v1", "Deployment", &deployment.id.key.name),
            Holder::Set => ("apps/v1", "ReplicaSet", &self.set.id.key.name),
            Holder::Stateful(set) => ("apps/v1", "StatefulSet", &set.id.key.name),
            Holder::Other(owner, _) => (self.set.controller_version.as_str(), owner.kind.as_str(), &owner.name),
        };
        WorkloadRef { api_version: api_version.into(), kind: kind.into(), name: name.clone() }
    }

    /// Whether this reference names the workload, in any version.
    pub fn is_named_by(&self, named: &WorkloadRef) -> bool {
        let workload = self.workload();
        let id = |one: &WorkloadRef| (group(&one.api_version).to_owned(), one.kind.clone(), one.name.clone());
        id(&workload) == id(named)
    }

    /// uid of the workload.
    pub fn object_uid(&self) -> &'a Uid {
        match self.holder {
            Holder::Deployment(deployment) => &deployment.id.uid,
            Holder::Set => &self.set.id.uid,
            Holder::Stateful(set) => &set.id.uid,
            Holder::Other(owner, _) => &owner.uid,
        }
    }

    /// Labels of the workload itself. An object of another kind is not read, so the labels of its ReplicaSet are used
    /// instead.
    pub fn object_labels(&self) -> &'a BTreeMap<String, String> {
        match self.holder {
            Holder::Deployment(deployment) => &deployment.labels,
            Holder::Set | Holder::Stateful(_) | Holder::Other(..) => &self.set.labels,
        }
    }

    /// The object whose `spec.replicas` counts. None for an object of another kind that was not read.
    pub fn scalable(&self) -> Option<Scalable> {
        let (kind, id) = match self.holder {
            Holder::Deployment(deployment) => (ScalableKind::Deployment, &deployment.id),
            Holder::Set => (ScalableKind::ReplicaSet, &self.set.id),
            Holder::Stateful(set) => (ScalableKind::StatefulSet, &set.id),
            Holder::Other(_, known) => (ScalableKind::Other(known?.kind.clone()), &known?.id),
        };
        Some(Scalable { kind, id: id.clone() })
    }

    /// Scale of the workload. For an object of another kind that was not read, the scale of its ReplicaSet.
    pub fn scale(&self) -> &'a ScaleFact {
        match self.holder {
            Holder::Deployment(deployment) => &deployment.scale,
            Holder::Other(_, Some(known)) => &known.scale,
            Holder::Set | Holder::Stateful(_) | Holder::Other(_, None) => &self.set.scale,
        }
    }

    /// Time for which a new pod must be Ready to count as available: the set's `minReadySeconds`, or the action's
    /// `stableSeconds` if it is longer.
    pub fn settling_time(&self, ctx: &PlanContext) -> SignedDuration {
        ctx.stable_time().max(SignedDuration::from_secs(i64::from(self.set.min_ready_seconds)))
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
        self.set.pod_labels()
    }

    /// The label whose removal detaches a pod from its set, but from no Service or budget.
    pub fn detach_label(&self, world: &World) -> Result<String, StartRefusal> {
        if self.stateful().is_some() {
            let advice = "its pods keep their names, so move them one after the other, each with an action of its own";
            let message = format!("replicas of StatefulSet {} cannot be swapped: {advice}", self.set.id.key.name);
            return Err(StartRefusal::now(Reason::NotSupported, message));
        }
        let namespace = &self.set.id.key.namespace;
        let labels = self.labels();
        let free = |label: &&String| !world.selects_by(namespace, &labels, label);
        let hash = marks::POD_TEMPLATE_HASH.to_owned();
        let keys = &self.set.selector.labels;
        let found = keys.get_key_value(&hash).map(|(key, _)| key).filter(free).or_else(|| keys.keys().find(free));
        found.cloned().ok_or_else(|| {
            let message = format!(
                "every label in the selector of ReplicaSet {} is also selected by a Service or PodDisruptionBudget; \
                 add a label of its own to its selector and template, or let a Deployment manage it",
                self.set.id.key.name
            );
            StartRefusal::now(Reason::NoDetachLabel, message)
        })
    }

    /// Whether a newer revision of the workload has replaced this set.
    pub fn superseded(&self, world: &World) -> bool {
        match self.holder {
            Holder::Set | Holder::Stateful(_) => false,
            Holder::Deployment(deployment) => {
                current_set(world, deployment).is_none_or(|current| current.id.uid != self.set.id.uid)
            }
            // It is unknown which set is newer: every kind marks it in its own way.
            Holder::Other(..) => self.other_set(world).is_some(),
        }
    }

    /// Whether the workload's replicas are split between this set and others.
    pub fn shares_replicas(&self, world: &'a World) -> bool {
        self.superseded(world) || self.other_set(world).is_some()
    }

    /// The ReplicaSets of the workload.
    fn sets(&self, world: &'a World) -> impl Iterator<Item = &'a ReplicaSetFact> + use<'a> {
        let owner = match self.holder {
            Holder::Set | Holder::Stateful(_) => None,
            Holder::Deployment(deployment) => Some(&deployment.id.uid),
            Holder::Other(owner, _) => Some(&owner.uid),
        };
        owner.into_iter().flat_map(|uid| world.sets_of(uid))
    }

    fn other_set(&self, world: &'a World) -> Option<&'a ReplicaSetFact> {
        self.sets(world).find(|set| set.id.uid != self.set.id.uid && set.scale.replicas > 0)
    }

    /// Whether a rollout of the workload is in progress, in any of its sets.
    pub fn rolls(&self, world: &'a World) -> bool {
        let populated = self.sets(world).filter(|set| set.scale.replicas > 0);
        let is_changing = match self.holder {
            Holder::Deployment(deployment) => deployment.in_rollout(),
            Holder::Stateful(set) => set.in_rollout(),
            Holder::Set | Holder::Other(..) => false,
        };
        is_changing || populated.count() > 1
    }

    /// The rollout that does not go on by itself, if any: it is paused, or its new pods do not become available.
    pub fn stuck_rollout(&self, world: &'a World) -> Option<StartRefusal> {
        let Holder::Deployment(deployment) = self.holder else { return None };
        if deployment.observed_generation < deployment.generation {
            return None;
        }
        let why = match (deployment.paused, deployment.stuck) {
            (true, _) => "is paused",
            (false, true) => "makes no progress (condition Progressing of the Deployment)",
            (false, false) => return None,
        };
        let other = self.other_set(world)?;
        let (name, own, other) = (&deployment.id.key.name, &self.set.id.key.name, &other.id.key.name);
        let message =
            format!("the rollout of Deployment {name} {why}, and ReplicaSets {own} and {other} have replicas");
        Some(StartRefusal::soon(Reason::RolloutStuck, message))
    }

    /// The rollout in progress, if any: a newer set, a change that the controller has not observed yet, or pods of
    /// several templates.
    pub fn rollout(&self, world: &'a World) -> Option<String> {
        let WorkloadRef { kind, name, .. } = self.workload();
        if let Holder::Deployment(deployment) = self.holder {
            if self.superseded(world) {
                return Some(format!("Deployment {name} has a newer ReplicaSet than {}", self.set.id.key.name));
            }
            if deployment.in_rollout() {
                return Some(format!("a rollout of Deployment {name} is in flight"));
            }
        }
        if self.stateful().is_some_and(StatefulSetFact::in_rollout) {
            return Some(format!("a rollout of StatefulSet {name} is in flight"));
        }
        let (own, other) = (self.set, self.other_set(world)?);
        Some(match self.holder {
            Holder::Deployment(_) => {
                format!("ReplicaSet {} of Deployment {name} still has replicas", other.id.key.name)
            }
            Holder::Set | Holder::Stateful(_) | Holder::Other(..) => format!(
                "a rollout of {kind} {name} is in flight: its ReplicaSets {} and {} both have replicas",
                own.id.key.name, other.id.key.name
            ),
        })
    }
}

/// The ReplicaSet of the Deployment's current revision.
fn current_set<'a>(world: &'a World, deployment: &DeploymentFact) -> Option<&'a ReplicaSetFact> {
    let number = |set: &ReplicaSetFact| set.revision.as_ref().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    world.sets_of(&deployment.id.uid).filter(|set| !set.terminating).max_by_key(|set| number(set))
}

fn missing(workload: &WorkloadRef, namespace: &str) -> StartRefusal {
    let WorkloadRef { kind, name, .. } = workload;
    let advice = "check its kind and name; an action and its workload share one namespace";
    StartRefusal::soon(Reason::WorkloadNotFound, format!("no {kind} {name} in namespace {namespace}; {advice}"))
}

/// Kubernetes' own kinds that make their pods themselves.
fn owns_no_sets(kind: &str) -> bool {
    matches!(kind, "DaemonSet" | "Job" | "CronJob" | "Pod" | "ReplicationController")
}

fn unsupported(version: &str, kind: &str) -> StartRefusal {
    let advice = match kind {
        "DaemonSet" => "it runs one pod on each node by itself; change its node selector or the nodes' labels",
        "Job" | "CronJob" => "its pods run to their end and are not replicas; delete the pod to have it run elsewhere",
        _ => "name a Deployment, a ReplicaSet, a StatefulSet, or an object of another kind that owns ReplicaSets",
    };
    let kind = if version.is_empty() { kind.to_owned() } else { format!("{version} {kind}") };
    StartRefusal::now(Reason::NotSupported, format!("workloads of kind {kind} are not handled: {advice}"))
}
