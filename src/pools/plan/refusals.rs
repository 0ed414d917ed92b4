//! Writes that the API server refuses until somebody changes something, or does not answer, but without which jobs can
//! be handed over: the pool goes on, a condition shows the refusal, and the operator tries again within ten minutes.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::PoolProblem;
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
    /// The API server does not answer in time. Usually an admission webhook hangs.
    NoAnswer,
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
        let pause = match (cause, earlier) {
            (RefusalCause::Permission | RefusalCause::NoAnswer, None) => CONFIRM,
            // Nobody may have to change anything.
            (RefusalCause::NoAnswer, Some(last)) => last.pause.saturating_mul(2).min(RETRY),
            (RefusalCause::Permission | RefusalCause::Admission | RefusalCause::OldCrd, _) => RETRY,
        };
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
        self.pause <= CONFIRM
    }

    /// When the write is tried again, and the words of the API server: the end of a message.
    pub(super) fn ending(&self) -> String {
        let message = &self.message;
        match self.cause {
            RefusalCause::NoAnswer => format!("the operator tries again, at least every ten minutes: {message}"),
            RefusalCause::Permission | RefusalCause::Admission | RefusalCause::OldCrd => {
                format!("the operator tries again every ten minutes. The API server says: {message}")
            }
        }
    }

    pub(super) fn reason(&self) -> PoolReason {
        match self.cause {
            RefusalCause::Permission => PoolReason::Forbidden,
            RefusalCause::Admission | RefusalCause::OldCrd | RefusalCause::NoAnswer => PoolReason::WriteFailed,
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
        RefusalCause::Admission | RefusalCause::OldCrd | RefusalCause::NoAnswer => {
            "let admission policies and webhooks accept this annotation of pods by the operator".to_owned()
        }
    };
    let message = format!(
        "pods cannot be annotated with {}, the slot that each occupies, so more jobs than necessary may move when the \
         operator restarts: {advice}. Jobs are handed over as usual, and {}",
        marks::WORKER,
        refusal.ending()
    );
    Some(refusal.condition(pool, SLOTS_RECORDED, &message, stamp))
}

/// Returns the problem of a pool whose pods cannot be annotated with the versions of their lists.
pub fn versions_problem(refusal: &WriteRefusal) -> PoolProblem {
    let advice = match refusal.cause {
        RefusalCause::Permission => missing_rule("", "pods", "patch"),
        RefusalCause::Admission | RefusalCause::OldCrd | RefusalCause::NoAnswer => {
            "let admission policies and webhooks accept this annotation of pods by the operator".to_owned()
        }
    };
    let message = format!(
        "pods cannot be annotated with {}, so workers read their lists later or, without probes, not at all: {advice}. \
         Jobs are handed over nevertheless, and {}",
        marks::JOB_VERSION,
        refusal.ending()
    );
    PoolProblem::passing(PoolReason::WriteFailed, message)
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
        RefusalCause::Admission | RefusalCause::OldCrd | RefusalCause::NoAnswer => {
            "let admission policies and webhooks accept the deletion by the operator, or delete them"
        }
    };
    let message = format!(
        "{} of workers that are gone cannot be deleted, such as {first}: {advice}. They list no jobs that other workers \
         have, jobs are handed over as usual, and {}",
        counted(names.len(), "ConfigMap"),
        refusal.ending()
    );
    Some(refusal.condition(pool, SURPLUS_DELETED, &message, stamp))
}
