//! The workload-action controller: executes the next step that the planner returns, stores the result, and plans again.
//!
//! | step | content |
//! |---|---|
//! | fetch | objects whose last requests had no answer, and the owner of another kind; once per reconcile |
//! | observe | the action |
//! | plan | `ganglion_actions_plan::next`, or the step that follows from a refusal |
//! | act | the effects of the step, concurrently; then what follows from those that failed |
//! | report | the next round, or the end of the wait |
//!
//! The status of an action is the intent of its effects, so the planner writes it by an effect, and `report` does not.
//! A wait is reported the same way. Everything in memory may be lost in a crash.

use ganglion_actions_plan::world::ActionsWorld;
mod act;
mod error;
mod events;
mod fetch;
mod gate;
mod janitor;
mod notifier;
pub mod owners;
mod perform;
mod replacement;
mod reservation;
pub mod usage;
mod waits;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use ganglion_actions_plan::effect::{self, Effect};
use ganglion_actions_plan::notify::is_pending;
use ganglion_actions_plan::rank::NodeRanker;
use ganglion_actions_plan::{Limits, NeededOwner, needed_owner, next};
use ganglion_api::marks;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::{WorkloadAction, WorkloadActionStatus};
use ganglion_core::definitions::GuardProblem;
use ganglion_core::facts::Key;
use ganglion_core::world::Fact;
use ganglion_runtime::context::Context;
use ganglion_runtime::discovery::Discovery;
use ganglion_runtime::error::Error;
use ganglion_runtime::frame::{Memories, Next, Reconciler};
use ganglion_runtime::refusals::Refusals;
use ganglion_runtime::status::{StatusMethod, StatusWriter};
pub use gate::GateController;
pub use janitor::{Janitor, ROUND as JANITOR_ROUND, run as run_janitor};
pub use notifier::Notifier;
use perform::Failures;
use waits::Waits;

/// Requeue interval of a running action whose workload is of a kind that the operator does not watch.
const UNWATCHED: Duration = Duration::from_secs(1);

/// Minimum time for which effects fail before the status shows why. An API server that restarts fails for a moment.
const LASTING: SignedDuration = SignedDuration::from_secs(3);

const STATUS: StatusWriter = StatusWriter {
    manager: marks::STATUS_MANAGER,
    effect: "Record",
    invalid: Reason::InvalidObject.as_str(),
    method: StatusMethod::Update,
    observes_generation: true,
};

/// The controller: its context, settings and memory.
pub struct WorkloadActionController {
    pub ctx: Context,
    pub limits: Limits,
    /// Ranks nodes by PlacementPolicies.
    pub ranker: Arc<dyn NodeRanker + Send + Sync>,
    /// Requeue interval of an unfinished action if nothing changes.
    pub resync: Duration,
    pub notifier: Arc<Notifier>,
    pub memories: Memories<ActionMemory>,
    pub shared: SharedState,
}

/// State that the reconciles of all actions share.
#[derive(Default)]
pub struct SharedState {
    /// Locked while an admission is planned and reserved.
    admission: tokio::sync::Mutex<()>,
    /// The delay before a wait is reported depends on the number of all waits.
    waits: Mutex<Waits>,
    discovery: Discovery,
}

impl SharedState {
    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State of one action between reconciles.
#[derive(Default)]
pub struct ActionMemory {
    refusals: Refusals,
    /// Effects whose requests had no answer, so that their outcome is unknown.
    unanswered: Vec<Effect>,
    /// Time at which the API server first answered an effect with an error, if no effect has succeeded since.
    failing_since: Option<Timestamp>,
    /// State of the running reconcile.
    pass: Pass,
}

impl ActionMemory {
    /// Why effects fail, if the API server has answered with an error, or not in time, for longer than [`LASTING`]. In
    /// the words of the API server, if there are any.
    fn words_of_lasting(&mut self, error: &Error, now: Timestamp) -> Option<String> {
        let words = error.words_of_failing()?;
        let since = *self.failing_since.get_or_insert(now);
        (now.duration_since(since) >= LASTING).then_some(words)
    }
}

/// State of one reconcile, across its rounds.
#[derive(Default)]
struct Pass {
    failures: Failures,
    /// Step that follows from a refusal. Only the refusal leads to it, so it replaces the plan of the next round.
    follow_up: Option<effect::NextStep>,
}

/// Decision about the next round.
pub enum ActionPlan {
    /// Perform these effects concurrently.
    Perform(Vec<Effect>),
    /// Wait until then.
    Wait(Next),
}

impl Reconciler for WorkloadActionController {
    type Kind = WorkloadAction;
    type Memory = ActionMemory;
    type Observed = Arc<WorkloadAction>;
    type Plan = ActionPlan;
    type Done = ();
    const NAME: &'static str = "workload-action";
    /// Each round performs one step of the planner.
    const MAX_ROUNDS: usize = 32;

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn memories(&self) -> &Memories<ActionMemory> {
        &self.memories
    }

    async fn unreadable(&self, key: &Key) -> Option<Result<(), Error>> {
        STATUS.report_unreadable::<WorkloadAction>(&self.ctx, key).await
    }

    async fn unguarded(&self, key: &Key, problem: &GuardProblem) -> Result<(), Error> {
        STATUS.report_unguarded::<WorkloadAction>(&self.ctx, key, problem).await
    }

    /// Reads what is unknown. Later rounds read what their own effects changed.
    async fn begin(&self, key: &Key, memory: &mut ActionMemory) -> Result<(), Error> {
        memory.pass = Pass::default();
        self.note_first_plan(key);
        self.read_unanswered(key, memory).await?;
        self.read_owner(key, memory).await
    }

    /// Returns deleted actions, too: their finalizer is removed at the end.
    fn observe(self: &Arc<Self>, key: &Key, _: &mut ActionMemory) -> Option<Arc<WorkloadAction>> {
        self.ctx.store.read(|world| world.action(key).cloned())
    }

    /// Plans the next step. Finished attempts of notifications are recorded first, since nothing waits for them. The
    /// planner reads the cluster in place, since it is too large to be copied.
    fn plan(&self, action: &Arc<WorkloadAction>, memory: &mut ActionMemory) -> ActionPlan {
        let step = match (memory.pass.follow_up.take(), is_pending(action)) {
            (Some(step), _) => step,
            (None, true) => match self.notifier.record(action) {
                Some(effect) => effect::NextStep::Do(effect),
                None => self.next_step(&key_of(action)),
            },
            (None, false) => self.next_step(&key_of(action)),
        };
        match step {
            effect::NextStep::Do(effect) => ActionPlan::Perform(vec![effect]),
            effect::NextStep::DoAll(effects) => ActionPlan::Perform(effects),
            effect::NextStep::Wait { until, report } => self.plan_wait(action, until, report),
        }
    }

    /// Performs the effects. Attempts of notifications that are due start in tasks of their own.
    async fn act(
        self: &Arc<Self>,
        action: &Arc<WorkloadAction>,
        plan: &ActionPlan,
        memory: &mut ActionMemory,
    ) -> Result<(), Error> {
        if is_pending(action) {
            self.notifier.begin(action);
        }
        match plan {
            ActionPlan::Perform(effects) => self.perform_all(&key_of(action), effects, memory).await,
            ActionPlan::Wait(_) => Ok(()),
        }
    }

    async fn report(
        self: &Arc<Self>,
        _: &Arc<WorkloadAction>,
        plan: &ActionPlan,
        done: Result<&(), &Error>,
        _: &mut ActionMemory,
    ) -> Result<Next, Error> {
        Ok(match (plan, done) {
            (ActionPlan::Perform(_), Ok(())) => Next::Again,
            (ActionPlan::Wait(next), Ok(())) => *next,
            (_, Err(_)) => Next::AwaitChange,
        })
    }

    fn forget(&self, key: &Key) {
        self.shared.waits().forget(key);
        self.notifier.forget(key);
        self.release_reservation(key);
    }
}

impl WorkloadActionController {
    /// The planner's next step.
    fn next_step(&self, key: &Key) -> effect::NextStep {
        self.ctx.store.read(|world| next(key, world, self.ctx.now(), &self.limits, &*self.ranker))
    }

    /// Plans a wait. It is written to the status only after it has lasted for some time: most waits are shorter.
    fn plan_wait(
        &self,
        action: &Arc<WorkloadAction>,
        until: Option<Timestamp>,
        report: Option<Box<WorkloadActionStatus>>,
    ) -> ActionPlan {
        let key = key_of(action);
        let is_unfinished = action.status.as_ref().is_none_or(|status| status.finished_at.is_none());
        let resync = is_unfinished.then(|| self.resync_of(&key));
        let now = self.ctx.now();
        let wake_at = waits::wake_at(now, until, resync, fastrand::f64());
        let mut waits = self.shared.waits();
        let Some(status) = report.filter(|report| Some(&**report) != action.status.as_ref()) else {
            waits.forget(&key);
            return ActionPlan::Wait(wake_at.into());
        };
        match waits.remaining(&key, &status, now) {
            Some(left) => ActionPlan::Wait(Next::earliest([wake_at, Some(now + left)])),
            None => ActionPlan::Perform(vec![Effect::Record { action: (&action.metadata).into(), status }]),
        }
    }

    /// Requeue interval of an unfinished action. It is shorter if no watch reports the change that the action waits
    /// for.
    fn resync_of(&self, key: &Key) -> Duration {
        if self.needed_owner(key).is_some_and(|needed| needed.working) { UNWATCHED } else { self.resync }
    }

    fn needed_owner(&self, key: &Key) -> Option<NeededOwner> {
        self.ctx.store.read(|world| needed_owner(world, world.action(key)?))
    }
}

fn key_of(action: &WorkloadAction) -> Key {
    action.id().key
}

#[cfg(test)]
mod tests;
