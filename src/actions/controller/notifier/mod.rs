//! Notifies receivers of the end of actions. Each attempt runs in its own task, so that a slow receiver delays no
//! reconcile. Reconciles start due attempts and record finished ones.
//!
//! Owns the running attempts and their limits. The limits are fair by namespace and separate from the requests of
//! loops, so that hanging receivers do not delay loops. If the process ends before an attempt is recorded, the attempt
//! is made again.
//!
//! | file | content |
//! |---|---|
//! | `send` | one attempt: the Secret, the signature, the request |

mod send;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::{error, info};

use ganglion_actions_plan::effect::Effect;
use ganglion_actions_plan::notify::{self, AttemptId, AttemptMade, AttemptResult};
use ganglion_api::workload_action::{WorkloadAction, WorkloadActionStatus};
use ganglion_core::facts::{Identity, Key, Uid};
use ganglion_outbound::client::OutboundClient;
use ganglion_runtime::context::Context;
use ganglion_runtime::fairness::{FairLimit, TenantCounts};
use ganglion_runtime::metrics::{LimitLabel, ReasonLabel};

/// Maximum number of attempts at the same time. One namespace gets at most a quarter of it.
const ATTEMPTS: usize = 32;

/// Maximum number of attempts of one namespace that run or wait for their turn. Further attempts start later.
const MOST: usize = 64;

/// Delay before an action is reconciled again if [`MOST`] is reached: once to twice this time.
const PAUSE: Duration = Duration::from_secs(5);

pub struct Notifier {
    ctx: Context,
    outbound: Arc<OutboundClient>,
    attempts: FairLimit,
    memory: Mutex<NotifierMemory>,
}

#[derive(Default)]
struct NotifierMemory {
    actions: HashMap<Key, Notified>,
    /// Number of attempts of each namespace that run or wait for their turn.
    by_namespace: TenantCounts<String>,
}

/// Attempts of one action.
#[derive(Default)]
struct Notified {
    uid: Uid,
    under_way: BTreeSet<AttemptId>,
    /// Finished attempts that are not recorded yet.
    made: Vec<AttemptMade>,
}

impl Notifier {
    /// Creates a notifier that sends requests through this client.
    pub fn new(ctx: Context, outbound: Arc<OutboundClient>) -> Arc<Self> {
        let full = ctx.metrics.outbound_full.get_or_create(&LimitLabel { limit: "notifications" }).clone();
        Arc::new(Self { ctx, outbound, attempts: FairLimit::new(ATTEMPTS, full), memory: Mutex::default() })
    }

    fn memory(&self) -> MutexGuard<'_, NotifierMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the effect that records the finished attempts; None if the status contains them already.
    pub fn record(&self, action: &WorkloadAction) -> Option<Effect> {
        let id = Identity::from(&action.metadata);
        let mut memory = self.memory();
        let known = memory.actions.get_mut(&id.key).filter(|known| known.uid == id.uid)?;
        known.made.retain(|made| notify::is_news(action, made.id));
        let status = notify::recorded(action, &known.made, self.ctx.now(), fastrand::f64());
        if known.made.is_empty() && known.under_way.is_empty() {
            memory.actions.remove(&id.key);
        }
        status.map(|status: WorkloadActionStatus| Effect::Record { action: id, status: Box::new(status) })
    }

    /// Starts the attempts that are due. The end of an attempt enqueues the action.
    pub fn begin(self: &Arc<Self>, action: &Arc<WorkloadAction>) {
        let due = notify::due(action, self.ctx.now());
        if due.is_empty() {
            return;
        }
        let id = Identity::from(&action.metadata);
        let mut memory = self.memory();
        let NotifierMemory { actions, by_namespace } = &mut *memory;
        let known = actions.entry(id.key.clone()).or_default();
        if known.uid != id.uid {
            *known = Notified { uid: id.uid.clone(), ..Notified::default() };
        }
        let is_known = |known: &Notified, one: AttemptId| {
            known.under_way.contains(&one) || known.made.iter().any(|made| made.id == one)
        };
        let new: Vec<AttemptId> = due.into_iter().filter(|one| !is_known(known, *one)).collect();
        for attempt in new {
            if by_namespace.count(&id.key.namespace) >= MOST {
                let pause = PAUSE.mul_f64(1.0 + fastrand::f64());
                self.ctx.store.queue::<WorkloadAction>().add_after(id.key.clone(), pause);
                return;
            }
            by_namespace.add(id.key.namespace.clone());
            known.under_way.insert(attempt);
            let task = UnderWay { notifier: Arc::clone(self), action: id.clone(), attempt, result: None };
            tokio::spawn(task.make(Arc::clone(action)));
        }
    }

    /// Forgets a deleted action. Its running attempts are completed.
    pub fn forget(&self, key: &Key) {
        self.memory().actions.remove(key);
    }

    /// Handles the end of an attempt.
    fn end(&self, action: &Identity, made: AttemptMade) {
        let mut memory = self.memory();
        let NotifierMemory { actions, by_namespace } = &mut *memory;
        by_namespace.remove(&action.key.namespace);
        // The action was forgotten, or the attempt belongs to an earlier object of this name.
        let Some(known) = actions.get_mut(&action.key).filter(|known| known.uid == action.uid) else { return };
        known.under_way.remove(&made.id);
        known.made.push(made);
        drop(memory);
        self.ctx.store.queue::<WorkloadAction>().add([action.key.clone()]);
    }
}

/// A running attempt. Dropping it ends the attempt.
struct UnderWay {
    notifier: Arc<Notifier>,
    action: Identity,
    attempt: AttemptId,
    result: Option<AttemptResult>,
}

impl UnderWay {
    async fn make(mut self, action: Arc<WorkloadAction>) {
        let notifier = Arc::clone(&self.notifier);
        let _permit = notifier.attempts.acquire(&self.action.key.namespace, 1).await;
        let (key, receiver, number) = (&self.action.key, self.attempt.receiver, self.attempt.number);
        let (word, result) = send::send(&notifier.ctx, &notifier.outbound, &action, receiver).await;
        notifier.ctx.metrics.notifications.get_or_create(&ReasonLabel { reason: word }).inc();
        info!(object = %key, receiver, number, result = word, "a receiver was notified");
        self.result = Some(result);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let result = self.result.take().unwrap_or_else(|| {
            // A panic, or the end of the process. It counts as an attempt, so that the number of attempts is bounded.
            error!(object = %self.action.key, "an attempt to notify a receiver was interrupted");
            AttemptResult::Missed {
                code: None,
                message: "the attempt was interrupted by a fault of the operator".into(),
            }
        });
        let made = AttemptMade { id: self.attempt, at: self.notifier.ctx.now(), result };
        self.notifier.end(&self.action, made);
    }
}

#[cfg(test)]
mod tests;
