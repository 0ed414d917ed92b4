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

use crate::api::closed_loop::ClosedLoop;
use crate::clients::web::Web;
use crate::logic::facts::Key;
use crate::logic::world::loops::Family;
use crate::metrics::ReasonLabel;
use crate::runtime::context::Context;
use crate::runtime::error::Error;
use crate::runtime::run::{Again, Controller, Outcome};
use memory::Memory;
use sources::Polls;
use target::Kinds;

/// At most this much later than asked for, so that what waits for the same moment does not come at once.
const JITTER: Duration = Duration::from_millis(50);

/// Everything the controller works with.
pub struct ClosedLoops {
    pub ctx: Context,
    /// For servers that users name.
    pub web: Arc<Web>,
    /// How long one of those may take.
    pub request_timeout: Duration,
    /// The kinds of which fields may be changed, as `group/Kind`.
    pub patchable: Vec<String>,
    pub state: State,
}

/// What the controller keeps between two passes; a crash may lose it.
pub struct State {
    memories: Mutex<HashMap<Key, Memory>>,
    kinds: Mutex<Kinds>,
    polls: Polls,
}

impl State {
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
    stirred: bool,
}

impl Pass {
    /// Asks to be looked at again then.
    fn again(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

impl Controller for ClosedLoops {
    type Kind = ClosedLoop;
    const NAME: &'static str = "closed-loop";

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(family) = self.ctx.store.read(|world| world.family(&key)) else {
            self.state.memories().remove(&key);
            self.state.polls.forget(&key);
            return Ok(Again::OnChange);
        };
        if family.parent.metadata.deletion_timestamp.is_some() {
            self.state.polls.forget(&key);
            return Ok(Again::OnChange);
        }
        let memory = self.state.memories().remove(&key).unwrap_or_default();
        let mut pass = Pass { key, family: family.own(), memory, due: None, stirred: false };
        let done = self.hops(&mut pass).await;
        let (due, stirred) = (pass.due, pass.stirred);
        self.state.memories().insert(pass.key, pass.memory);
        if let Err(error) = &done {
            self.ctx.metrics.api_errors.get_or_create(&ReasonLabel { reason: error.reason() }).inc();
        }
        done?;
        if stirred {
            return Ok(Again::After(Duration::ZERO));
        }
        Ok(due.map_or(Again::OnChange, |at| {
            let left = Duration::try_from(at.duration_since(self.ctx.now())).unwrap_or(Duration::ZERO);
            Again::After(left + JITTER.mul_f64(fastrand::f64()))
        }))
    }
}

impl ClosedLoops {
    /// The hops in their order. What was begun is brought to its end first, and what was decided is begun at once.
    async fn hops(self: &Arc<Self>, pass: &mut Pass) -> Result<(), Error> {
        let assessed = parent::keep(self, pass).await?;
        let assessment = &assessed.assessment;
        if let Some((watch, rules)) = assessment.stages.as_ref().filter(|_| pass.memory.strangers.is_none()) {
            execution::hop(self, pass, assessment).await?;
            let known = monitoring::hop(self, pass, assessment, watch).await?;
            if self.ctx.is_over() {
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
}
