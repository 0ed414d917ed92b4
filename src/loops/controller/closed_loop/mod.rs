//! The closed-loop controller: maintains the three children of a loop and reports the loop's state.
//!
//! | step | content |
//! |---|---|
//! | observe | the loop, its cached children, related loops and autoscalers |
//! | plan | [`ganglion_loops_plan::validate`] (`assessed`) |
//! | act | the specs of the children (`children`) |
//! | in the background | checks of the target and of the account's permissions (`preflight`) |
//! | report | the status of the loop (`report`) |
//!
//! The controllers of the children measure, decide and act. Everything in memory may be lost in a crash.

mod assessed;
mod children;
mod events;
mod preflight;
mod report;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use crate::target::Targets;
pub use assessed::Assessed;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::{ClosedLoop, LoopMode};
use ganglion_api::marks;
use ganglion_core::facts::Key;
use ganglion_core::names::{DEFAULT_ACCOUNT, is_name};
use ganglion_core::namespaces::Namespaces;
use ganglion_core::world::loops::Family;
use ganglion_loops_plan::common::PARSE_AGAIN;
use ganglion_loops_plan::validate::assessment::NamespaceAccess;
use ganglion_outbound::client::OutboundClient;
use ganglion_runtime::account::Account;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::impersonation::Impersonation;
use ganglion_runtime::invalid::{self, StatusWrite};
use ganglion_runtime::run::{Controller, ReconcileResult};
use preflight::Preflights;

/// Controller and its dependencies.
pub struct ClosedLoopController {
    pub ctx: Context,
    pub namespaces: Namespaces,
    pub impersonation: Impersonation,
    pub targets: Targets,
    pub outbound: Arc<OutboundClient>,
    pub memory: ClosedLoopMemory,
}

/// In-memory state between reconciles.
#[derive(Default)]
pub struct ClosedLoopMemory {
    objects: Mutex<HashMap<Key, Memory>>,
    preflights: Preflights,
}

/// In-memory state of one loop.
#[derive(Default)]
struct Memory {
    /// Last assessment.
    assessed: Option<Arc<Assessed>>,
    /// Time of the last write of the loop's status.
    reported_at: Option<Timestamp>,
    /// Time at which the next summary of decisions is written.
    summary_due: Option<Timestamp>,
}

impl ClosedLoopMemory {
    fn loops(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for ClosedLoopController {
    type Kind = ClosedLoop;
    const NAME: &'static str = "closed-loop";

    async fn reconcile(self: Arc<Self>, key: Key) -> ReconcileResult {
        let (reason, by) = (
            LoopReason::InvalidObject.as_str(),
            (marks::LOOP_STATUS_MANAGER, StatusWrite::Apply { others: &["tuning"] }),
        );
        if let Some(done) = invalid::pass::<ClosedLoop>(&self.ctx, &key, reason, by).await {
            return done;
        }
        let mut memory = self.memory.loops().remove(&key).unwrap_or_default();
        let alive = |family: &Family| family.parent.metadata.deletion_timestamp.is_none();
        let Some(family) = self.ctx.store.read(|world| world.family(&key)).filter(alive) else {
            self.memory.preflights.forget(&key);
            return self.ctx.finish(Ok(None));
        };
        let done = self.keep(&key, family, &mut memory).await;
        self.memory.loops().insert(key, memory);
        self.ctx.finish(done)
    }
}

impl ClosedLoopController {
    /// Assesses the loop, maintains its children, and writes its status. Returns the time of the next reconcile.
    async fn keep(
        self: &Arc<Self>,
        key: &Key,
        family: Family,
        memory: &mut Memory,
    ) -> Result<Option<Timestamp>, Error> {
        let (access, asked_again) = self.access(key, &family.parent).await?;
        let assessed = Assessed::of(&self.ctx, key, &family.parent, access, memory.assessed.as_ref());
        memory.assessed = Some(Arc::clone(&assessed));
        let acts = assessed.assessment.problem.is_none() && family.parent.spec.mode != LoopMode::Paused;
        let (preflight, checked_again) = self.memory.preflights.turn(self, &family, acts);
        let kept = children::keep(&self.ctx, key, &family, &assessed.assessment).await;
        let not_owned = kept.as_ref().ok().and_then(|not_owned| not_owned.as_deref());
        let reported = report::write(&self.ctx, key, &assessed, (not_owned, preflight.as_ref()), memory).await;
        kept?;
        let until = assessed.assessment.effective.until.as_ref().map(|until| until.0);
        let again = assessed.assessment.is_passing().then(|| self.ctx.now() + PARSE_AGAIN);
        Ok(reported?.into_iter().chain(until).chain(again).chain(asked_again).chain(checked_again).min())
    }

    /// Checks whether the operator may act in the loop's namespace. Also returns the time of the next check.
    async fn access(&self, key: &Key, parent: &ClosedLoop) -> Result<(NamespaceAccess, Option<Timestamp>), Error> {
        if let Some(message) = self.namespaces.refusal(&key.namespace) {
            return Ok((NamespaceAccess::Refused(message), None));
        }
        let account = Account {
            writer: self.ctx.writer.clone(),
            namespace: key.namespace.clone(),
            name: parent.spec.service_account_name.clone().unwrap_or_else(|| DEFAULT_ACCOUNT.to_owned()),
            manager: marks::LOOP_MANAGER,
        };
        // The assessment reports an invalid name.
        if !is_name(&account.name) {
            return Ok((NamespaceAccess::Granted, None));
        }
        let answer = self.impersonation.ask(&self.ctx, &account).await?;
        Ok((answer.refused.map_or(NamespaceAccess::Granted, NamespaceAccess::NotBound), Some(answer.until)))
    }
}
