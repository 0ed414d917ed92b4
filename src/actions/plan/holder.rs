//! The holder of a ReplicaSet's replica count: the set itself, a Deployment, or an object of another kind. A
//! StatefulSet is its own holder.
//!
//! An object of another kind is identified by the owner references of its ReplicaSets. That is enough for moves.
//! Actions that change replicas also need the object as the controller has read it.

use crate::world::{ActionsWorld, OwnerReading};
use ganglion_api::reasons::Reason;
use ganglion_api::refs::WorkloadRef;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{DeploymentFact, Key, Owner, OwnerFact, ReplicaSetFact, StatefulSetFact, Uid, group};
use ganglion_core::world::World;

use super::context::Work;
use super::scope::{Outlook, Scope, StartRefusal};

#[derive(Clone, Copy, Debug)]
pub enum Holder<'a> {
    /// The ReplicaSet.
    Set,
    Deployment(&'a DeploymentFact),
    /// A StatefulSet. The part that it has in common with a ReplicaSet is used as the set.
    Stateful(&'a StatefulSetFact),
    /// An object of another kind, and the reading of it if the action needs one.
    Other(&'a Owner, Option<&'a OwnerFact>),
}

impl<'a> Holder<'a> {
    /// The holder of this ReplicaSet's replicas. The error is a Deployment that is not known.
    pub fn of(world: &'a World, set: &'a ReplicaSetFact) -> Result<Self, &'a Owner> {
        match &set.controller {
            None => Ok(Self::Set),
            Some(owner) if owner.kind == "Deployment" && group(&set.controller_version) == "apps" => {
                let deployment = world.get::<DeploymentFact>(&Key::new(&set.id.key.namespace, &owner.name));
                deployment.map(Self::Deployment).ok_or(owner)
            }
            Some(owner) => Ok(Self::Other(owner, None)),
        }
    }
}

/// The ReplicaSet with the replicas of an object of another kind: the first one that has any, or the only one if none
/// has.
pub fn current_set<'a>(
    world: &'a World,
    namespace: &str,
    workload: &WorkloadRef,
) -> Result<&'a ReplicaSetFact, StartRefusal> {
    let WorkloadRef { kind, name, .. } = workload;
    let sets = || world.sets_of_named(namespace, workload).filter(|set| !set.terminating);
    if let Some(set) = sets().find(|set| set.scale.replicas > 0) {
        return Ok(set);
    }
    match (sets().next(), sets().count()) {
        (Some(only), 1) => Ok(only),
        (Some(_), many) => {
            let advice = "scale it to at least one replica first";
            let message = format!("{kind} {name} has no replicas, and {many} ReplicaSets that could get one; {advice}");
            Err(StartRefusal::soon(Reason::NotEnoughReplicas, message))
        }
        (None, _) => {
            let advice =
                "check its API version, kind and name; a kind that makes its pods without ReplicaSets is not supported";
            let message = format!("no ReplicaSet in namespace {namespace} belongs to {kind} {name}; {advice}");
            Err(StartRefusal::soon(Reason::WorkloadNotFound, message))
        }
    }
}

impl<'a> Scope<'a> {
    /// The same scope with the reading of an owner of another kind, for actions that change its replicas. The error
    /// says why they cannot be changed.
    pub fn with_owner(self, world: &'a World) -> Result<Self, StartRefusal> {
        let Holder::Other(owner, _) = self.holder else { return Ok(self) };
        let Owner { kind, name, uid } = owner;
        match world.owner(uid) {
            Some(OwnerReading::Known(fact)) if !fact.terminating => {
                Ok(Self { holder: Holder::Other(owner, Some(&**fact)), ..self })
            }
            Some(OwnerReading::Known(_)) => {
                Err(StartRefusal::soon(Reason::WorkloadNotFound, format!("{kind} {name} is being deleted")))
            }
            Some(OwnerReading::Unfit { reason, message }) => Err(StartRefusal::now(*reason, message.clone())),
            None => {
                let message = format!("{kind} {name} has not been read yet");
                Err(StartRefusal { reason: Reason::Queued, message, outlook: Outlook::Passing })
            }
        }
    }
}

/// An object of another kind that the controller reads before it plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededOwner {
    pub namespace: String,
    pub workload: WorkloadRef,
    pub uid: Uid,
    /// Its ReplicaSet, which is read after it.
    pub set: Key,
    /// Whether slots have started. The object is then read before each plan.
    pub working: bool,
}

/// The object of another kind whose replicas the action changes, or on which the action must clean up.
pub fn needed_owner(world: &World, action: &WorkloadAction) -> Option<NeededOwner> {
    let work = Work::of(&action.spec).ok().filter(|work| work.verb.scales())?;
    let namespace = action.metadata.namespace.as_deref().unwrap_or_default();
    let slots = action.status.as_ref().map(|status| status.slots.as_slice()).unwrap_or_default();
    let has_ended = action.status.as_ref().is_some_and(|status| status.finished_at.is_some());
    if has_ended && (slots.is_empty() || action.metadata.finalizers.iter().flatten().next().is_none()) {
        return None;
    }
    // An owner that the action may not change is not read either.
    let of_slot = |slot| Scope::of_slot(world, namespace, slot).filter(|scope| scope.is_named_by(&slot.workload));
    let scope = match slots.iter().find_map(of_slot) {
        Some(scope) => scope,
        None => {
            let named = work.workload?;
            Scope::of_workload(world, namespace, named).ok().filter(|scope| scope.is_named_by(named))?
        }
    };
    let Holder::Other(owner, _) = scope.holder else { return None };
    Some(NeededOwner {
        namespace: namespace.to_owned(),
        workload: scope.workload(),
        uid: owner.uid.clone(),
        set: scope.set.id.key.clone(),
        working: !slots.is_empty(),
    })
}
