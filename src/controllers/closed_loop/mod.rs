//! The closed-loop controller: takes each loop through its hops, each in a file of its own.
//!
//! One pass works on one loop and its three children, and no two passes on the same: their key is the loop's. What a hop
//! wrote is handed straight to the next; the watch is the way back after a crash, and both ways come to the same. Decides
//! nothing about loops: that is `logic::closed_loop`. Keeps nothing that a crash must not lose.
//!
//! | file | hop |
//! |---|---|
//! | `assessed` | what the loop is found to be |
//! | `parent` | the loop's children are made and kept, its own status is written |
//! | `monitoring`, `decision`, `execution` | the three stages |
//! | `sources/` | what is asked for, beside the passes |
//! | `target/` | what acts is looked at and changed, as the loop's account |
//! | `events` | what is told of a loop |
//! | `objects`, `memory` | writes of our own kinds; what one pass leaves to the next |

mod assessed;
mod decision;
mod events;
mod execution;
mod memory;
mod monitoring;
mod objects;
mod parent;
mod sources;
mod target;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::caches::{Shared, SharedLoops, SharedRivals};
use crate::clients::web::Web;
use crate::controllers::error::Error;
use crate::controllers::events::Events;
use crate::controllers::queue::Queue;
use crate::controllers::{Again, Controller, Outcome};
use crate::logic::facts::Key;
use crate::logic::world::loops::Family;
use crate::metrics::{Metrics, ReasonLabel};
use memory::Memory;
use sources::Polls;
use target::Kinds;

/// At most this much later than asked for, so that what waits for the same moment does not come at once.
const JITTER: Duration = Duration::from_millis(50);

/// Everything the controller works with.
pub struct ClosedLoopController {
    pub client: Client,
    pub loops: SharedLoops,
    /// The autoscalers that may act on a loop's target.
    pub rivals: SharedRivals,
    /// For the ReplicaSets and the WorkloadActions.
    pub world: Shared,
    pub queue: Arc<Queue<Key>>,
    /// The queue of WorkloadActions, for those that loops make.
    pub actions: Arc<Queue<Key>>,
    /// How long one request may take.
    pub timeout: Duration,
    /// For servers that users name.
    pub web: Arc<Web>,
    /// How long one of those may take.
    pub request_timeout: Duration,
    /// What time it is; a simulation has its own.
    pub clock: fn() -> Timestamp,
    /// The kinds of which fields may be changed, as `group/Kind`.
    pub patchable: Vec<String>,
    pub metrics: Metrics,
    pub events: Events,
    /// Cancelled when this replica must not act any more.
    pub leader: CancellationToken,
    /// Cancelled when passes should come to an end.
    pub stop: CancellationToken,
    pub state: ControllerMemory,
}

/// What the controller keeps between two passes; a crash may lose it.
pub struct ControllerMemory {
    memories: Mutex<HashMap<Key, Memory>>,
    kinds: Mutex<Kinds>,
    polls: Polls,
}

impl ControllerMemory {
    /// So many loops may wait for their sources at the same time.
    #[must_use]
    pub fn new(polls: usize) -> Self {
        Self { memories: Mutex::default(), kinds: Mutex::default(), polls: Polls::new(polls) }
    }

    fn memories(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kinds(&self) -> MutexGuard<'_, Kinds> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One loop, as a pass has it: what is known of it, renewed by each of our own writes, and what the pass leaves behind.
struct Pass {
    key: Key,
    family: Family,
    memory: Memory,
    /// The earliest time at which there is something to do again.
    due: Option<Timestamp>,
    /// The answer to a write showed that somebody else has changed something: the watch may not tell of it any more.
    changed_by_others: bool,
}

impl Pass {
    /// Asks to be looked at again then.
    fn again(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

impl Controller for ClosedLoopController {
    type Key = Key;
    const NAME: &'static str = "closed-loop";

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(family) = self.loops.read(|loops| loops.family(&key)) else {
            self.state.memories().remove(&key);
            self.state.polls.forget(&key);
            return Ok(Again::OnChange);
        };
        if family.parent.metadata.deletion_timestamp.is_some() {
            self.state.polls.forget(&key);
            return Ok(Again::OnChange);
        }
        let memory = self.state.memories().remove(&key).unwrap_or_default();
        let mut pass = Pass { key, family: family.own(), memory, due: None, changed_by_others: false };
        let done = self.hops(&mut pass).await;
        let (due, changed_by_others) = (pass.due, pass.changed_by_others);
        self.state.memories().insert(pass.key, pass.memory);
        if let Err(error) = &done {
            self.metrics.api_errors.get_or_create(&ReasonLabel { reason: error.reason() }).inc();
        }
        done?;
        if changed_by_others {
            return Ok(Again::After(Duration::ZERO));
        }
        Ok(due.map_or(Again::OnChange, |at| {
            let left = Duration::try_from(at.duration_since(self.now())).unwrap_or(Duration::ZERO);
            Again::After(left + JITTER.mul_f64(fastrand::f64()))
        }))
    }
}

impl ClosedLoopController {
    /// The hops in their order. What was begun is brought to its end first, and what was decided is begun at once.
    async fn hops(self: &Arc<Self>, pass: &mut Pass) -> Result<(), Error> {
        let assessed = parent::keep(self, pass).await?;
        let assessment = &assessed.assessment;
        if let Some((watch, rules)) = assessment.stages.as_ref().filter(|_| pass.memory.not_owned.is_none()) {
            execution::hop(self, pass, assessment).await?;
            let known = monitoring::hop(self, pass, assessment, watch).await?;
            if self.is_over() {
                return Ok(());
            }
            if !known {
                return parent::report(self, pass, &assessed).await;
            }
            decision::hop(self, pass, rules).await?;
            execution::hop(self, pass, assessment).await?;
        } else {
            self.state.polls.forget(&pass.key);
        }
        parent::report(self, pass, &assessed).await
    }

    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Nothing new is begun any more.
    fn is_over(&self) -> bool {
        self.leader.is_cancelled() || self.stop.is_cancelled()
    }

    /// A request, bounded in time, with its error classified.
    async fn timed<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
        if self.leader.is_cancelled() {
            return Err(Error::NotLeader);
        }
        match tokio::time::timeout(self.timeout, call).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Error::Timeout(self.timeout)),
        }
    }
}
