//! Reads and changes the target of a loop as the loop's account, so that a loop can do no more than its account may.
//!
//! Used by the execution controller, which acts, and by the preflight of the closed-loop controller, which only reads.
//!
//! Owns only the translation of requests and answers. Tuning another loop is the exception: the operator itself writes
//! it, since that loop's `tunable` authorizes the writer.

mod action;
mod patch;
mod pods;
mod resize;
mod scale;
mod trials;
mod tune;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;

use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::action::{Rung, Webhook};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::status::SeenOwner;
use ganglion_api::execution::Claim;
use ganglion_api::marks;
use ganglion_core::facts::{Key, Uid, scaled_path};
use ganglion_core::json_patch::JsonPatch;
use ganglion_core::names::DEFAULT_ACCOUNT;
use ganglion_loops_plan::execution::ownership::TargetObject;
use ganglion_loops_plan::execution::{EffectResult, ExecutionEffect, ObjectVersion, TargetState};
use ganglion_loops_plan::rung;
use ganglion_outbound::client::Outgoing;
use ganglion_runtime::account::Account;
use ganglion_runtime::context::Context;
use ganglion_runtime::discovery::{DiscoveredKind, Discovery};
use ganglion_runtime::error::Error;
use ganglion_runtime::refusals::Refusals;

/// Maximum number of pods of a workload.
const PODS: usize = 10_000;
pub use trials::Trials;

/// Dependencies of reading and changing targets. Cheap to clone.
#[derive(Clone)]
pub struct Targets {
    pub ctx: Context,
    pub discovery: Arc<Discovery>,
    /// Kinds whose fields may be changed, as `group/Kind`.
    pub patchable: Arc<[String]>,
}

/// Loop and its target.
#[derive(Clone)]
pub struct Actor {
    /// Key of the loop.
    pub loop_key: Key,
    /// uid of its Execution, which owns the WorkloadActions that it creates.
    uid: Uid,
    pub target: TargetRef,
    pub account: Account,
    /// Forbidden requests of earlier reconciles. A successful read does not clear them: it does not show that the
    /// account may change the target.
    pub refusals: Refusals,
    /// Owners of fields of the target that were seen before.
    owners: Vec<SeenOwner>,
}

impl Actor {
    /// Actor for the loop of this name. `target` and `account` come from the spec of its Execution or of the loop.
    pub fn new(targets: &Targets, loop_key: &Key, target: &TargetRef, account: Option<&str>) -> Self {
        let account = Account {
            writer: targets.ctx.writer.clone(),
            namespace: loop_key.namespace.clone(),
            name: account.unwrap_or(DEFAULT_ACCOUNT).to_owned(),
            manager: marks::EXECUTION_MANAGER,
        };
        Self {
            loop_key: loop_key.clone(),
            uid: Uid::default(),
            target: target.clone(),
            account,
            refusals: Refusals::default(),
            owners: Vec::new(),
        }
    }

    /// Sets the uid of the Execution.
    pub fn executing(self, uid: Uid) -> Self {
        Self { uid, ..self }
    }

    /// Sets the refusals of earlier requests.
    pub fn after(self, refusals: Refusals) -> Self {
        Self { refusals, ..self }
    }

    /// Sets the owners of fields that were seen before.
    pub fn remembering(self, owners: &[SeenOwner]) -> Self {
        Self { owners: owners.to_vec(), ..self }
    }

    /// Whether an owner of this field was seen before.
    fn remembers(&self, dimension: &str) -> bool {
        self.owners.iter().any(|seen| seen.dimension == dimension)
    }

    /// Version of the target, with the last writer and the owner of the fields that the rung changes.
    fn field_version(
        &self,
        object: &DynamicObject,
        rung: &Rung,
        paths: &[String],
        replicas_path: Option<&str>,
    ) -> ObjectVersion {
        let (target, namespace) = (&self.target, self.loop_key.namespace.as_str());
        let fields = TargetObject { target, namespace, object };
        ObjectVersion {
            written_by: fields.last_writer(paths),
            owned: fields.owned_field(&rung::dimension_on(rung, replicas_path), paths, &self.owners).map(Box::new),
            replicas_path: replicas_path.map(str::to_owned),
            ..object_version(&object.metadata)
        }
    }

    /// State of a target that does not exist.
    fn not_found(&self) -> TargetState {
        let TargetRef { kind, name, .. } = &self.target;
        let namespace = &self.loop_key.namespace;
        TargetState::NotFound(format!(
            "there is no {kind} {name} in namespace {namespace}: create it, or correct spec.target"
        ))
    }

    /// Returns the message for a missing permission; an error until the refusal is believed.
    pub fn forbidden(&mut self, now: Timestamp, refused: &str) -> Result<String, Error> {
        self.refusals.note_forbidden(refused, now)?;
        Ok(self.account.refusal_message(refused))
    }
}

/// Discovers the target's kind; none if the API server does not know it.
pub async fn discover(targets: &Targets, target: &TargetRef) -> Result<Option<DiscoveredKind>, Error> {
    targets.discovery.find(&targets.ctx, &target.api_version, &target.kind).await
}

/// The request to the receiver of an event.
pub fn webhook_request(webhook: &Webhook, within: Duration) -> Outgoing<'_> {
    Outgoing {
        url: &webhook.url,
        auth: webhook.auth.as_ref(),
        ca: webhook.ca.as_ref(),
        headers: webhook.headers.as_deref().unwrap_or_default(),
        within,
    }
}

/// Path of the number of replicas in this object: by the definition of its kind, or by an earlier write of its scale.
fn replicas_path(kind: &DiscoveredKind, object: &DynamicObject) -> Option<String> {
    kind.replicas_path.clone().or_else(|| scaled_path(&object.metadata).filter(|_| kind.has_scale))
}

/// State of a target of an unknown kind.
fn unknown_kind(target: &TargetRef) -> TargetState {
    TargetState::NotFound(unknown_kind_message(target))
}

/// Error for an effect on a target of an unknown kind.
fn no_such_kind(target: &TargetRef) -> Error {
    Error::NotFound(unknown_kind_message(target))
}

fn unknown_kind_message(target: &TargetRef) -> String {
    format!("the API server does not know kind {} in {}: correct spec.target", target.kind, target.api_version)
}

/// Reads the state of the target that decides whether the rung could begin now.
async fn read_ahead(targets: &Targets, actor: &mut Actor, rung: &Rung) -> Result<TargetState, Error> {
    match &rung.workload_action {
        Some(template) if template.move_.is_some() => action::read_ahead(targets, actor, rung, template).await,
        Some(_) | None => read(targets, actor, rung, None).await,
    }
}

/// Reads the state of the target that the rung needs. `claim` is the recorded intent, if any.
pub async fn read(
    targets: &Targets,
    actor: &mut Actor,
    rung: &Rung,
    claim: Option<&Claim>,
) -> Result<TargetState, Error> {
    let state = if rung.scale.is_some() {
        scale::read(targets, actor, rung, claim).await
    } else if rung.tune.is_some() {
        tune::read(targets, actor).await
    } else if let Some(template) = &rung.workload_action {
        match claim {
            Some(claim) => action::read(targets, actor, claim).await,
            // The action itself finds out whether it can move replicas.
            None if template.move_.is_some() => Ok(TargetState::WorkloadAction(None)),
            None => action::read_ahead(targets, actor, rung, template).await,
        }
    } else if let Some(resize) = &rung.resize {
        resize::read(targets, actor, rung, resize, claim.is_none()).await
    } else if let Some(field) = &rung.patch {
        patch::read(targets, actor, rung, &field.path).await
    } else if rung.webhook.is_some() {
        Ok(TargetState::Nothing)
    } else {
        Ok(TargetState::Unfit(
            LoopReason::NotSupported,
            "this version of the operator does not support the decided rung".to_owned(),
        ))
    };
    match state {
        Ok(state) => Ok(state),
        Err(Error::Forbidden(refused)) => actor.forbidden(targets.ctx.now(), &refused).map(TargetState::Forbidden),
        Err(Error::NotFound(_)) => Ok(actor.not_found()),
        Err(error) => Err(error),
    }
}

/// Returns the parts of an object that preconditions need.
fn object_version(meta: &ObjectMeta) -> ObjectVersion {
    ObjectVersion {
        uid: Uid::of(meta),
        generation: meta.generation.unwrap_or(0),
        version: meta.resource_version.clone().unwrap_or_default(),
        ..ObjectVersion::default()
    }
}

/// Starts a JSON patch that changes only this generation of the object.
fn patch_of(object: &ObjectVersion) -> JsonPatch {
    JsonPatch::at_generation(&object.uid, object.generation)
}

/// Carries out the effect. Returns an error if this process lost the lease, or if a refusal is not believed yet.
pub async fn act(targets: &Targets, actor: &mut Actor, effect: &ExecutionEffect) -> Result<EffectResult, Error> {
    let writer = &targets.ctx.writer;
    let done = match effect {
        ExecutionEffect::Scale { target, replicas } => {
            writer.counted("ScaleTarget", scale::act(targets, actor, target, *replicas)).await
        }
        ExecutionEffect::Tune { uid, tuning } => writer.counted("Tune", tune::act(targets, actor, uid, tuning)).await,
        ExecutionEffect::Create { name, spec } => {
            writer.counted("MakeAction", action::act(targets, actor, name, spec)).await
        }
        ExecutionEffect::Resize { pods, container, resource } => {
            writer.counted("ResizePods", resize::act(actor, pods, container.as_deref(), *resource)).await
        }
        ExecutionEffect::TakeBack { pods, container, resource } => {
            let done = resize::take_back(actor, pods, container.as_deref(), *resource);
            writer.counted("TakeBackResize", done).await
        }
        ExecutionEffect::Template { target, index, container, resource, from, to } => {
            let change = (*resource, from, to);
            let done = resize::act_on_template(targets, actor, target, *index, container.as_deref(), change);
            writer.counted("ResizeTemplate", done).await
        }
        ExecutionEffect::Patch { target, path, value } => {
            writer.counted("PatchField", patch::act(targets, actor, target, path, value)).await
        }
        // Webhooks are sent in separate tasks, not here.
        ExecutionEffect::Send { .. } => return Ok(EffectResult::Unclear("it was not sent".to_owned())),
    };
    let result = match done {
        Ok(there) => EffectResult::Done(there),
        Err(Error::NotLeader) => return Err(Error::NotLeader),
        Err(Error::Forbidden(refused)) => {
            return actor.forbidden(targets.ctx.now(), &refused).map(EffectResult::Forbidden);
        }
        Err(Error::Denied(message)) => EffectResult::Refused(message),
        Err(outdated @ Error::Dropped(_)) => EffectResult::Refused(outdated.to_string()),
        Err(Error::Conflict(_) | Error::AlreadyExists(_)) => EffectResult::Conflict,
        Err(Error::NotFound(words)) => EffectResult::NotFound(words),
        Err(
            error @ (Error::Doubtful(_)
            | Error::Throttled(_)
            | Error::Timeout(_)
            | Error::Unavailable(_)
            | Error::Full
            | Error::Malformed(_)
            | Error::Broken),
        ) => EffectResult::Unclear(error.to_string()),
    };
    actor.refusals.clear_forbidden();
    Ok(result)
}
