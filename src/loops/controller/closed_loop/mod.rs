//! The closed-loop controller: maintains the three children of a loop and reports the loop's state.
//!
//! | step | content |
//! |---|---|
//! | fetch | whether the operator may act in the namespace |
//! | observe | the loop, its cached children, related loops and autoscalers |
//! | plan | `ganglion_loops_plan::validate` (`assessed`) |
//! | act | the specs of the children (`children`) |
//! | in the background | checks of the target and of the account's permissions (`preflights`) |
//! | report | the status of the loop (`report`) |
//!
//! The controllers of the children measure, decide and act. Everything in memory may be lost in a crash.

use ganglion_core::definitions::GuardProblem;
use ganglion_loops_plan::world::{Family, LoopsWorld, children_of};
mod assessed;
mod children;
mod preflights;
mod report;

use std::sync::Arc;

use jiff::Timestamp;

use crate::target::Targets;
pub use assessed::{Assessed, Neighbours};
use children::{KnownChildren, ReconciledChildren};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::{ClosedLoop, LoopMode};
use ganglion_api::marks;
use ganglion_core::facts::Key;
use ganglion_core::names::{DEFAULT_ACCOUNT, is_name};
use ganglion_core::namespaces::Namespaces;
use ganglion_core::world::Fact;
use ganglion_loops_plan::children::Children;
use ganglion_loops_plan::common::PARSE_AGAIN;
use ganglion_loops_plan::validate::assessment::NamespaceAccess;
use ganglion_outbound::client::OutboundClient;
use ganglion_runtime::account::{Account, AccountId};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::events::{EventText, reference};
use ganglion_runtime::frame::{Memories, Next, Reconciler};
use ganglion_runtime::permissions::PermissionCache;
use ganglion_runtime::status::{StatusMethod, StatusWriter};
use preflights::PreflightState;
pub use preflights::Preflights;
use report::ChildProblems;

/// Uses server-side apply, since other loops write their tunings into the same status.
const STATUS: StatusWriter = StatusWriter {
    manager: marks::LOOP_STATUS_MANAGER,
    effect: "RecordClosedLoop",
    invalid: LoopReason::InvalidObject.as_str(),
    method: StatusMethod::Apply { others: &["tuning"] },
    observes_generation: true,
};

/// Controller and its dependencies.
pub struct ClosedLoopController {
    pub ctx: Context,
    pub namespaces: Namespaces,
    /// Whether the operator may impersonate these accounts.
    pub impersonations: PermissionCache<AccountId>,
    pub targets: Targets,
    pub outbound: Arc<OutboundClient>,
    pub memories: Memories<ClosedLoopMemory>,
    pub preflights: Preflights,
}

/// In-memory state of one loop.
#[derive(Default)]
pub struct ClosedLoopMemory {
    /// Whether the operator may act in the loop's namespace.
    access: LoopAccess,
    /// Last assessment.
    assessed: Option<Arc<Assessed>>,
    preflight: Option<PreflightState>,
    children: KnownChildren,
    /// Specs that all children had at the end of the last reconcile.
    agreed: Option<Arc<Children>>,
    /// Time of the last write of the loop's status.
    reported_at: Option<Timestamp>,
    /// Time at which the next summary of decisions is written.
    summary_due: Option<Timestamp>,
}

/// Whether the operator may act in a namespace, and the time of the next check.
struct LoopAccess {
    namespace: NamespaceAccess,
    expires: Option<Timestamp>,
}

impl Default for LoopAccess {
    fn default() -> Self {
        Self { namespace: NamespaceAccess::Granted, expires: None }
    }
}

/// A loop and what it is assessed from.
pub struct ObservedLoop {
    family: Family,
    neighbours: Neighbours,
}

/// Result of the effects.
pub struct LoopDone {
    children: ReconciledChildren,
    /// Whether somebody else has changed the children that were written.
    restored: bool,
}

impl Reconciler for ClosedLoopController {
    type Kind = ClosedLoop;
    type Memory = ClosedLoopMemory;
    type Observed = ObservedLoop;
    type Plan = Arc<Assessed>;
    type Done = LoopDone;
    const NAME: &'static str = "closed-loop";

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn memories(&self) -> &Memories<ClosedLoopMemory> {
        &self.memories
    }

    async fn unreadable(&self, key: &Key) -> Option<Result<(), Error>> {
        STATUS.report_unreadable::<ClosedLoop>(&self.ctx, key).await
    }

    async fn unguarded(&self, key: &Key, problem: &GuardProblem) -> Result<(), Error> {
        STATUS.report_unguarded::<ClosedLoop>(&self.ctx, key, problem).await
    }

    async fn begin(&self, key: &Key, memory: &mut ClosedLoopMemory) -> Result<(), Error> {
        if let Some(family) = self.family(key) {
            memory.access = self.access(key, &family.parent).await?;
        }
        Ok(())
    }

    fn observe(self: &Arc<Self>, key: &Key, memory: &mut ClosedLoopMemory) -> Option<ObservedLoop> {
        let family = self.family(key)?;
        let neighbours = Neighbours::read(&self.ctx, key, &family.parent, memory.access.namespace.clone());
        Some(ObservedLoop { family, neighbours })
    }

    fn plan(&self, observed: &ObservedLoop, memory: &mut ClosedLoopMemory) -> Arc<Assessed> {
        let assessed = Assessed::cached_or_new(memory.assessed.as_ref(), &observed.neighbours, self.ctx.now());
        memory.assessed = Some(Arc::clone(&assessed));
        assessed
    }

    async fn act(
        self: &Arc<Self>,
        observed: &ObservedLoop,
        assessed: &Arc<Assessed>,
        memory: &mut ClosedLoopMemory,
    ) -> Result<LoopDone, Error> {
        let ObservedLoop { family, .. } = observed;
        let (id, says) = (family.parent.id(), Arc::clone(&assessed.assessment.children));
        let is_agreed = memory.agreed.take().is_some_and(|agreed| agreed == says);
        if !family.says.as_ref().is_some_and(|published| Arc::ptr_eq(published, &says)) {
            self.ctx.store.write(|world| world.publish_children(&id.key, &id.uid, &says));
        }
        let may_act = assessed.assessment.problem.is_none() && family.parent.spec.mode != LoopMode::Paused;
        memory.preflight = self.next_preflight(family, may_act, memory.preflight.take());
        let children = children::reconcile(&self.ctx, family, &assessed.assessment, &mut memory.children).await?;
        if !is_agreed {
            // Children that were not written may have waited for the loop.
            self.ctx.store.requeue(children_of(&id.key));
        }
        memory.agreed = Some(says);
        Ok(LoopDone { children, restored: is_agreed })
    }

    async fn report(
        self: &Arc<Self>,
        observed: &ObservedLoop,
        assessed: &Arc<Assessed>,
        done: Result<&LoopDone, &Error>,
        memory: &mut ClosedLoopMemory,
    ) -> Result<Next, Error> {
        if let Ok(LoopDone { children, restored: true }) = done
            && !children.written.is_empty()
        {
            self.ctx.events.publish(reference::<ClosedLoop>(&observed.family.parent.id()), restored(&children.written));
        }
        let not_owned = done.ok().and_then(|done| done.children.not_owned.as_deref());
        let refused = match done {
            Err(Error::Denied(words) | Error::Forbidden(words)) => Some(words.as_str()),
            Ok(_) | Err(_) => None,
        };
        let problems = ChildProblems { not_owned, refused };
        let report_at = report::write(&self.ctx, &observed.family, assessed, problems, memory).await?;
        let tuning_ends = assessed.assessment.effective.until.as_ref().map(|until| until.0);
        let parse_again = assessed.assessment.is_passing().then(|| self.ctx.now() + PARSE_AGAIN);
        let next_check = memory.preflight.as_ref().map(|preflight| preflight.due);
        Ok(Next::earliest([report_at, tuning_ends, parse_again, memory.access.expires, next_check]))
    }

    fn forget(&self, key: &Key) {
        self.preflights.cancel(key);
    }
}

/// Event about children that somebody else has changed.
fn restored(children: &[String]) -> EventText {
    let note = format!(
        "somebody else changed {}; the loop has restored it, and nothing was done by the changed spec: look at \
         managedFields for the author",
        children.join(", ")
    );
    EventText::warning("ChildRestored", note)
}

impl ClosedLoopController {
    /// Returns the loop with its children, unless it is being deleted.
    fn family(&self, key: &Key) -> Option<Family> {
        let family = self.ctx.store.read(|world| world.family(key))?;
        family.parent.metadata.deletion_timestamp.is_none().then_some(family)
    }

    /// Checks whether the operator may act in the loop's namespace.
    async fn access(&self, key: &Key, parent: &ClosedLoop) -> Result<LoopAccess, Error> {
        if let Some(message) = self.namespaces.refusal(&key.namespace) {
            return Ok(LoopAccess { namespace: NamespaceAccess::Refused(message), expires: None });
        }
        let account = Account {
            writer: self.ctx.writer.clone(),
            namespace: key.namespace.clone(),
            name: parent.spec.service_account_name.clone().unwrap_or_else(|| DEFAULT_ACCOUNT.to_owned()),
            manager: marks::LOOP_MANAGER,
        };
        // The assessment reports an invalid name.
        if !is_name(&account.name) {
            return Ok(LoopAccess::default());
        }
        let impersonated = self.impersonations.check(self.ctx.clock, account.id(), account.try_out()).await?;
        let namespace = impersonated.refusal.map_or(NamespaceAccess::Granted, NamespaceAccess::NotBound);
        Ok(LoopAccess { namespace, expires: Some(impersonated.expires) })
    }
}
