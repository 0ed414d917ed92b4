//! Events that are being sent: each in a task beside the passes, so that a receiver that hangs delays no other loop.
//!
//! The next pass finds that one is under way here, or what came of it. A process that ends in between leaves a claim, of which
//! the next one cannot know whether it was sent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinHandle;

use super::ExecutionController;
use super::target::{Actor, webhook};
use crate::api::execution::{Execution, ExecutionStatus};
use crate::logic::closed_loop::execution::{EffectResult, ExecutionEffect};
use crate::logic::facts::Key;

/// The events that are being sent, by Execution.
#[derive(Default)]
pub struct Webhooks(Mutex<HashMap<Key, Sending>>);

/// One of them.
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

    /// The event that is claimed is being sent.
    pub fn is_under_way(&self, key: &Key, status: &ExecutionStatus) -> bool {
        let mut all = self.all();
        if all.get(key).is_some_and(|sending| Some(sending.seq) != claimed(status)) {
            // Its end is recorded.
            all.remove(key);
        }
        all.get(key).is_some_and(|sending| sending.result.is_none())
    }

    /// What came of the event that is claimed. It can be asked for until its end is recorded.
    pub fn answer(&self, key: &Key, status: &ExecutionStatus) -> Option<(ExecutionEffect, EffectResult)> {
        let all = self.all();
        let sending = all.get(key).filter(|sending| Some(sending.seq) == claimed(status))?;
        Some((sending.effect.clone(), sending.result.clone()?))
    }

    /// The Execution is gone. What is being sent goes on.
    pub fn forget(&self, key: &Key) {
        self.all().remove(key);
    }
}

/// Sends the event that is claimed; its end wakes the Execution.
pub fn send(
    controller: &Arc<ExecutionController>,
    key: &Key,
    actor: Actor,
    status: &ExecutionStatus,
    effect: ExecutionEffect,
) {
    let (ExecutionEffect::Send { id, webhook }, Some(seq)) = (effect.clone(), claimed(status)) else { return };
    // Held until the entry is there, which the task looks for at its end.
    let mut all = controller.memory.webhooks.all();
    let (sender, whose) = (Arc::clone(controller), key.clone());
    let task = tokio::spawn(async move {
        let result = webhook::act(&sender, &actor, &id, &webhook).await;
        let mut all = sender.memory.webhooks.all();
        if let Some(sending) = all.get_mut(&whose).filter(|sending| sending.seq == seq) {
            sending.result = Some(result);
        }
        drop(all);
        sender.ctx.store.queue::<Execution>().add([whose]);
    });
    all.insert(key.clone(), Sending { seq, effect, result: None, _task: task });
}
