//! Sends each CloudEvent in a task of its own, so that a slow receiver delays no other loop.
//!
//! Later reconciles read here whether an event is being sent, or its result. If the process ends before the result is
//! recorded, the claim remains, and the next process cannot find out whether the event was sent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinHandle;

use super::{ExecutionController, webhook};
use crate::target::Actor;
use ganglion_api::decision::DecisionStatus;
use ganglion_api::execution::{Execution, ExecutionStatus};
use ganglion_core::facts::Key;
use ganglion_loops_plan::execution::{EffectResult, ExecutionEffect};

/// Events in progress, by Execution.
#[derive(Default)]
pub struct Webhooks(Mutex<HashMap<Key, Sending>>);

/// Event that is being sent, or whose result is not recorded yet.
struct Sending {
    /// Number of the decision.
    seq: i64,
    effect: ExecutionEffect,
    result: Option<EffectResult>,
    _task: JoinHandle<()>,
}

fn claimed(status: &ExecutionStatus) -> Option<i64> {
    Some(status.claim.as_ref()?.seq)
}

impl Webhooks {
    fn all(&self) -> MutexGuard<'_, HashMap<Key, Sending>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the claimed event is being sent.
    pub fn is_under_way(&self, key: &Key, status: &ExecutionStatus) -> bool {
        let mut all = self.all();
        if all.get(key).is_some_and(|sending| Some(sending.seq) != claimed(status)) {
            // The result of the previous event is already recorded.
            all.remove(key);
        }
        all.get(key).is_some_and(|sending| sending.result.is_none())
    }

    /// Returns the result of the claimed event. The result stays here until it is recorded.
    pub fn answer(&self, key: &Key, status: &ExecutionStatus) -> Option<(ExecutionEffect, EffectResult)> {
        let all = self.all();
        let sending = all.get(key).filter(|sending| Some(sending.seq) == claimed(status))?;
        Some((sending.effect.clone(), sending.result.clone()?))
    }

    /// Forgets a deleted Execution. Its event is still sent.
    pub fn forget(&self, key: &Key) {
        self.all().remove(key);
    }
}

/// Starts to send the claimed event. When the task ends, it enqueues the Execution.
pub fn send(
    controller: &Arc<ExecutionController>,
    (actor, decision): (Actor, DecisionStatus),
    status: &ExecutionStatus,
    effect: &ExecutionEffect,
) {
    let (ExecutionEffect::Send { id, webhook }, Some(seq)) = (effect.clone(), claimed(status)) else { return };
    let key = actor.loop_key.clone();
    // Keeps the lock until the entry exists, since the task updates the entry when it ends.
    let mut all = controller.webhooks.all();
    let (sender, whose) = (Arc::clone(controller), key.clone());
    let task = tokio::spawn(async move {
        let result = webhook::act(&sender, (&actor, &decision), &id, &webhook).await;
        let mut all = sender.webhooks.all();
        if let Some(sending) = all.get_mut(&whose).filter(|sending| sending.seq == seq) {
            sending.result = Some(result);
        }
        drop(all);
        sender.ctx.store.queue::<Execution>().add([whose]);
    });
    all.insert(key, Sending { seq, effect: effect.clone(), result: None, _task: task });
}
