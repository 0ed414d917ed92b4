//! Objects of other kinds that own ReplicaSets, such as Argo Rollouts. The operator does not watch these kinds, so it
//! reads the object before each plan that depends on it.

use jiff::SignedDuration;
use k8s_openapi::api::autoscaling::v1::Scale;
use kube::api::DynamicObject;

use super::act::{self, owner_path, owner_reading};
use ganglion_actions_plan::NeededOwner;
use ganglion_actions_plan::world::{ActionsWorld, OwnerReading};
use ganglion_api::reasons::Reason;
use ganglion_core::facts::{Identity, OtherKind, ReplicaSet, ReplicaSetFact, Uid};
use ganglion_core::world::World;
use ganglion_runtime::account::ObjectPath;
use ganglion_runtime::context::Context;
use ganglion_runtime::discovery::Discovery;
use ganglion_runtime::dynamic;
use ganglion_runtime::error::Error;

/// Maximum age of a reading for an action that waits. Hundreds of actions may wait for one object.
const MAX_AGE: SignedDuration = SignedDuration::from_secs(5);

/// Maximum number of reads of the object and its scale until both have the same resourceVersion.
const MAX_READS: usize = 5;

/// Reads the object and then its ReplicaSet. In this order, the ReplicaSet shows everything that the object's
/// controller had done when the object was read.
pub async fn read(ctx: &Context, discovery: &Discovery, needed: &NeededOwner) -> Result<(), Error> {
    let now = ctx.now();
    // An unfit object is read again, since somebody may have corrected it.
    let read_at = ctx.store.read(|world| world.owner_read_at(&needed.uid).filter(|_| is_known(world, &needed.uid)));
    let is_fresh = read_at.is_some_and(|at| at <= now && now.duration_since(at) < MAX_AGE);
    if is_fresh && !needed.working {
        return Ok(());
    }
    let reading = read_checked(ctx, discovery, needed).await?;
    ctx.store.write(|world| world.put_owner(&needed.uid, reading, now));
    let set = Identity { key: needed.set.clone(), ..Identity::default() };
    act::read::<ReplicaSet, ReplicaSetFact>(ctx, &set).await.map(drop)
}

fn is_known(world: &World, uid: &Uid) -> bool {
    matches!(world.owner(uid), Some(OwnerReading::Known(_)))
}

/// Reads the object if its kind is served and can be scaled.
async fn read_checked(ctx: &Context, discovery: &Discovery, needed: &NeededOwner) -> Result<OwnerReading, Error> {
    let (kind, name) = (&needed.workload.kind, &needed.workload.name);
    let api_version = &needed.workload.api_version;
    let Some(discovered) = discovery.find(ctx, api_version, kind).await? else {
        let message = format!("the API server does not serve kind {kind} in {api_version}, which owns the ReplicaSet");
        return Ok(OwnerReading::Unfit { reason: Reason::WorkloadNotFound, message });
    };
    if !discovered.has_scale {
        let message =
            format!("{kind} has no scale subresource: replicas of {kind} {name} are moved, not created or deleted");
        return Ok(OwnerReading::Unfit { reason: Reason::NotSupported, message });
    }
    let kind = OtherKind { api_version: api_version.clone(), kind: kind.clone(), plural: discovered.plural };
    match read_object(ctx, kind, needed).await {
        Err(Error::NotFound(_)) => {
            let message = format!("{} {name} is gone", needed.workload.kind);
            Ok(OwnerReading::Unfit { reason: Reason::WorkloadNotFound, message })
        }
        result => result,
    }
}

/// Reads the object. The first time, also verifies that its scale subresource counts `spec.replicas`: a kind may store
/// the number elsewhere.
async fn read_object(ctx: &Context, kind: OtherKind, needed: &NeededOwner) -> Result<OwnerReading, Error> {
    let (objects, name) = (owner_path(&kind, &needed.namespace)?, &needed.workload.name);
    let path = ObjectPath { kind: &objects, name, subresource: None };
    let proven = ctx.store.read(|world| is_known(world, &needed.uid));
    for _ in 0..MAX_READS {
        let object: DynamicObject = dynamic::get(&ctx.writer, path).await?;
        if Uid::of(&object.metadata) != needed.uid {
            return Err(Error::NotFound("another object has its name".to_owned()));
        }
        let reading = owner_reading(kind.clone(), &object);
        let OwnerReading::Known(fact) = &reading else { return Ok(reading) };
        if proven {
            return Ok(reading);
        }
        let scale: Scale = dynamic::get(&ctx.writer, ObjectPath { subresource: Some("scale"), ..path }).await?;
        if scale.metadata.resource_version.as_ref() == Some(&fact.id.version) {
            let scaled = scale.spec.and_then(|spec| spec.replicas).unwrap_or(0);
            return Ok(if scaled == fact.scale.replicas { reading } else { counted_elsewhere(&kind) });
        }
    }
    Err(Error::Conflict(format!("{} {name} keeps changing", kind.kind)))
}

fn counted_elsewhere(kind: &OtherKind) -> OwnerReading {
    let message = format!(
        "replicas of kind {} are moved, not created or deleted: its scale subresource does not count spec.replicas",
        kind.kind
    );
    OwnerReading::Unfit { reason: Reason::NotSupported, message }
}

/// The reading for a missing permission, with the message of the API server.
pub fn forbidden(needed: &NeededOwner, refused: &str) -> OwnerReading {
    let message = format!(
        "the operator may not read and change {} {}; a cluster administrator gives it this right for each kind, see \
         kustomize/components/rollouts: {refused}",
        needed.workload.kind, needed.workload.name
    );
    OwnerReading::Unfit { reason: Reason::Forbidden, message }
}
