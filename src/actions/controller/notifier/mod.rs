//! Notifies receivers of the end of actions. Each attempt is made in a task of its own, so that a slow receiver delays no
//! reconcile; reconciles begin the attempts that are due and record those that were made.
//!
//! Owns the attempts under way and their number: fair by namespace, and apart from the requests of loops, which hanging
//! receivers must not delay. What is not recorded when the process ends is made again.
//!
//! | file | what |
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
use ganglion_core::facts::{Identity, Key};
use ganglion_outbound::client::OutboundClient;
use ganglion_outbound::fair_limit::FairLimit;
use ganglion_runtime::context::Context;
use ganglion_runtime::metrics::{LimitLabel, ReasonLabel};

/// Attempts at the same time; a quarter of it for one namespace.
const ATTEMPTS: usize = 32;

/// The most attempts of one namespace that are made or wait for their turn. The others are begun later.
const MOST: usize = 64;

/// After which time the actions are reconciled again for which there was no room; once to twice that.
const PAUSE: Duration = Duration::from_secs(5);

/// See the module.
pub struct Notifier {
    ctx: Context,
    outbound: Arc<OutboundClient>,
    attempts: FairLimit,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    actions: HashMap<Key, Notified>,
    /// Attempts under way of each namespace.
    by_namespace: HashMap<String, usize>,
}

/// The attempts for one action.
#[derive(Default)]
struct Notified {
    uid: String,
    under_way: BTreeSet<AttemptId>,
    /// Those that are not recorded yet.
    made: Vec<AttemptMade>,
}

impl Notifier {
    /// Sends requests through this client.
    #[must_use]
    pub fn new(ctx: Context, outbound: Arc<OutboundClient>) -> Arc<Self> {
        let full = ctx.metrics.outbound_full.get_or_create(&LimitLabel { limit: "notifications" }).clone();
        Arc::new(Self { ctx, outbound, attempts: FairLimit::new(ATTEMPTS, full), memory: Mutex::default() })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down the attempts that were made and are not recorded yet.
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

    /// Begins the attempts that are due. Their end requeues the action.
    pub fn begin(self: &Arc<Self>, action: &Arc<WorkloadAction>) {
        let due = notify::due(action, self.ctx.now());
        if due.is_empty() {
            return;
        }
        let id = Identity::from(&action.metadata);
        let mut memory = self.memory();
        let Memory { actions, by_namespace } = &mut *memory;
        let known = actions.entry(id.key.clone()).or_default();
        if known.uid != id.uid {
            *known = Notified { uid: id.uid.clone(), ..Notified::default() };
        }
        let is_known = |known: &Notified, one: AttemptId| {
            known.under_way.contains(&one) || known.made.iter().any(|made| made.id == one)
        };
        let new: Vec<AttemptId> = due.into_iter().filter(|one| !is_known(known, *one)).collect();
        for attempt in new {
            let under_way = by_namespace.entry(id.key.namespace.clone()).or_default();
            if *under_way >= MOST {
                let pause = PAUSE.mul_f64(1.0 + fastrand::f64());
                self.ctx.store.queue::<WorkloadAction>().add_after(id.key.clone(), pause);
                return;
            }
            *under_way += 1;
            known.under_way.insert(attempt);
            let task = UnderWay { notifier: Arc::clone(self), action: id.clone(), attempt, result: None };
            tokio::spawn(task.make(Arc::clone(action)));
        }
    }

    /// Forgets a deleted action. Its attempts under way are made.
    pub fn forget(&self, key: &Key) {
        self.memory().actions.remove(key);
    }

    /// An attempt has ended.
    fn end(&self, action: &Identity, made: AttemptMade) {
        let mut memory = self.memory();
        let Memory { actions, by_namespace } = &mut *memory;
        if let Some(under_way) = by_namespace.get_mut(&action.key.namespace) {
            *under_way -= 1;
            if *under_way == 0 {
                by_namespace.remove(&action.key.namespace);
            }
        }
        // Forgotten, or of an earlier object of this name.
        let Some(known) = actions.get_mut(&action.key).filter(|known| known.uid == action.uid) else { return };
        known.under_way.remove(&made.id);
        known.made.push(made);
        drop(memory);
        self.ctx.store.queue::<WorkloadAction>().add([action.key.clone()]);
    }
}

/// An attempt under way. Dropped, it has ended.
struct UnderWay {
    notifier: Arc<Notifier>,
    action: Identity,
    attempt: AttemptId,
    result: Option<AttemptResult>,
}

impl UnderWay {
    async fn make(mut self, action: Arc<WorkloadAction>) {
        let notifier = Arc::clone(&self.notifier);
        let _permit = notifier.attempts.take(&self.action.key.namespace, 1).await;
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
            // A panic, or the end of the process. It counts, so that the attempts have an end.
            error!(object = %self.action.key, "an attempt to notify a receiver was broken off");
            AttemptResult::Missed {
                code: None,
                message: "the attempt was broken off by a fault of the operator".into(),
            }
        });
        let made = AttemptMade { id: self.attempt, at: self.notifier.ctx.now(), result };
        self.notifier.end(&self.action, made);
    }
}

#[cfg(test)]
mod tests;
