//! Writes that the API server refuses until somebody changes something, but without which jobs can be handed over: the
//! pool goes on, a condition of its own shows the refusal, and the operator tries again after ten minutes.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use ganglion_api::marks;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_core::conditions::{self, Stamp};
use ganglion_core::words::counted;

/// Condition of a pool whose pods cannot be annotated with their slots, because the API server refuses that.
pub const SLOTS_RECORDED: &str = "SlotsRecorded";

/// Condition of a pool whose surplus ConfigMaps cannot be deleted, because the API server refuses that.
pub const SURPLUS_DELETED: &str = "SurplusDeleted";

/// Pause after a refused write.
const RETRY: SignedDuration = SignedDuration::from_mins(10);

/// Pause after the first write for which a permission was missing: an API server that has just started refuses requests
/// until it has loaded its roles.
const CONFIRM: SignedDuration = SignedDuration::from_secs(10);

/// Why the API server refuses a write until somebody changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// The operator lacks a permission.
    Permission,
    /// Validation, admission or a quota refuses the value.
    Admission,
    /// The CRD is older than the operator: it lacks the scale subresource or a field of the status.
    OldCrd,
}

/// The last of the writes of one kind that were refused, without an accepted one in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteRefusal {
    pub cause: RefusalCause,
    /// Message of the API server.
    pub message: String,
    at: Timestamp,
    pause: SignedDuration,
}

impl WriteRefusal {
    /// A write that was refused now. `earlier`: the refusal before it.
    pub fn new(earlier: Option<&Self>, cause: RefusalCause, message: impl Into<String>, now: Timestamp) -> Self {
        let may_pass = cause == RefusalCause::Permission && earlier.is_none();
        let pause = if may_pass { CONFIRM } else { RETRY };
        Self { cause, message: message.into(), at: now, pause }
    }

    /// Whether it is too early to try again. If the clock was set back, it is not.
    pub fn waits(&self, now: Timestamp) -> bool {
        let elapsed = now.duration_since(self.at);
        !elapsed.is_negative() && elapsed < self.pause
    }

    /// Time at which the write is tried again, which wakes nobody.
    pub fn retry_at(&self) -> Option<Timestamp> {
        self.at.checked_add(self.pause).ok()
    }

    /// Whether the refusal may be one of an API server that has just started.
    pub(super) fn may_pass(&self) -> bool {
        self.pause < RETRY
    }

    pub(super) fn reason(&self) -> PoolReason {
        match self.cause {
            RefusalCause::Permission => PoolReason::Forbidden,
            RefusalCause::Admission | RefusalCause::OldCrd => PoolReason::WriteFailed,
        }
    }

    /// Condition that is False because of the refusal.
    pub(super) fn condition(&self, pool: &SwarmPool, kind: &str, message: &str, stamp: Stamp) -> Condition {
        let old = pool.status.as_ref().map_or(&[][..], |status| &status.conditions);
        conditions::condition(old, kind, "False", self.reason().as_str(), message, stamp)
    }
}

/// Advice about a permission that the manifests of an older version do not grant.
pub(super) fn missing_rule(group: &str, resource: &str, verb: &str) -> String {
    let group = if group.is_empty() { "\"\"" } else { group };
    format!(
        "add the rule {{apiGroups: [{group}], resources: [{resource}], verbs: [{verb}]}} to the operator's ClusterRole, or \
         apply kustomize/base of the operator's version again"
    )
}

/// Returns the condition of a pool whose pods cannot be annotated with their slots. `refused`: the last refused
/// annotation.
pub fn slots_condition(pool: &SwarmPool, refused: Option<&WriteRefusal>, stamp: Stamp) -> Option<Condition> {
    let refusal = refused.filter(|refusal| !refusal.may_pass())?;
    let advice = match refusal.cause {
        RefusalCause::Permission => missing_rule("", "pods", "patch"),
        RefusalCause::Admission | RefusalCause::OldCrd => {
            "let admission policies and webhooks accept this annotation of pods by the operator".to_owned()
        }
    };
    let message = format!(
        "pods cannot be annotated with {}, the slot that each occupies, so more jobs than necessary may move when the \
         operator restarts: {advice}. Jobs are handed over as usual, and the operator tries again every ten minutes. The \
         API server says: {}",
        marks::WORKER,
        refusal.message
    );
    Some(refusal.condition(pool, SLOTS_RECORDED, &message, stamp))
}

/// Returns the condition of a pool that cannot delete ConfigMaps of workers that are gone. `names`: these ConfigMaps.
/// `refused`: the last refused deletion.
pub fn surplus_condition(
    pool: &SwarmPool,
    names: &[&str],
    refused: Option<&WriteRefusal>,
    stamp: Stamp,
) -> Option<Condition> {
    let refusal = refused.filter(|refusal| !refusal.may_pass())?;
    let first = names.first()?;
    let advice = match refusal.cause {
        RefusalCause::Permission => {
            "add the rule {apiGroups: [\"\"], resources: [configmaps], verbs: [delete]} to the ClusterRole \
             ganglion-namespace, or delete them"
        }
        RefusalCause::Admission | RefusalCause::OldCrd => {
            "let admission policies and webhooks accept the deletion by the operator, or delete them"
        }
    };
    let message = format!(
        "{} of workers that are gone cannot be deleted, such as {first}: {advice}. They list no jobs that other workers \
         have, jobs are handed over as usual, and the operator tries again every ten minutes. The API server says: {}",
        counted(names.len(), "ConfigMap"),
        refusal.message
    );
    Some(refusal.condition(pool, SURPLUS_DELETED, &message, stamp))
}
