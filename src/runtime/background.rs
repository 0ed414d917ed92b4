//! Work beside the reconciles: requests to servers that may be slow. Each object has at most one task, and a later
//! reconcile reads its answers, so that a slow server delays no other object.
//!
//! - A task belongs to a question. If the question changes, the task is cancelled, and its answers are lost.
//! - An answer stays until a reconcile has handled it, and enqueues the object. So does a task that ends without an
//!   answer, which is a bug in this program.
//! - All tasks end with the leader term. Everything may be lost in a crash.
//!
//! Owns neither the limits of requests nor the question whether to ask: a task takes its permits from a limit that is
//! fair by namespace. Polls of many servers at their own intervals are in [`crate::polls`].

use std::collections::HashMap;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

use crate::context::Context;
use crate::queue::Queue;
use ganglion_core::facts::Key;
use ganglion_core::world::Fact;

/// Tasks of the objects of kind `K`, with questions `Q` and answers `A`. Cheap to clone.
pub struct BackgroundWork<K, Q, A> {
    tasks: Arc<Mutex<HashMap<Key, BackgroundTask<Q, A>>>>,
    kind: PhantomData<fn() -> K>,
}

struct BackgroundTask<Q, A> {
    question: Arc<Q>,
    /// None until the task is spawned.
    abort: Option<AbortHandle>,
    state: TaskState<A>,
}

/// State of a task.
#[derive(Debug)]
pub struct TaskState<A> {
    /// The task has ended.
    pub has_ended: bool,
    /// The task has answered at least once.
    pub has_answered: bool,
    /// Last answer, until it is acknowledged.
    pub answer: Option<Arc<A>>,
}

impl<K, Q, A> Default for BackgroundWork<K, Q, A> {
    fn default() -> Self {
        Self { tasks: Arc::default(), kind: PhantomData }
    }
}

impl<K, Q, A> Clone for BackgroundWork<K, Q, A> {
    fn clone(&self) -> Self {
        Self { tasks: Arc::clone(&self.tasks), kind: PhantomData }
    }
}

impl<A> Clone for TaskState<A> {
    fn clone(&self) -> Self {
        Self { answer: self.answer.clone(), ..*self }
    }
}

impl<Q, A> Drop for BackgroundTask<Q, A> {
    fn drop(&mut self) {
        if let Some(abort) = &self.abort {
            abort.abort();
        }
    }
}

impl<K, Q, A> BackgroundWork<K, Q, A>
where
    K: Fact + 'static,
    Q: Send + Sync + 'static,
    A: Send + Sync + 'static,
{
    /// Starts the task of an object, in place of an earlier one. `work` gets the place for its answers: it publishes
    /// one answer, or one after another.
    pub fn start<F>(&self, ctx: &Context, key: Key, question: Arc<Q>, work: impl FnOnce(Answers<K, Q, A>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let answers = Answers {
            work: self.clone(),
            key: key.clone(),
            question: Arc::clone(&question),
            queue: ctx.store.queue::<K>(),
        };
        let state = TaskState { has_ended: false, has_answered: false, answer: None };
        // The entry exists before the task, which updates it.
        let task = BackgroundTask { question: Arc::clone(&question), abort: None, state };
        let replaced = self.lock().insert(key.clone(), task);
        drop(replaced);
        let end = TaskEnd(answers.clone());
        let (writer, stop) = (ctx.writer.clone(), ctx.stop.clone());
        let work = work(answers);
        let spawned = tokio::spawn(async move {
            let _end = end;
            tokio::select! {
                biased;
                () = writer.fenced() => {}
                () = stop.cancelled() => {}
                () = work => {}
            }
        });
        if let Some(task) = self.lock().get_mut(&key).filter(|task| Arc::ptr_eq(&task.question, &question)) {
            task.abort = Some(spawned.abort_handle());
        }
    }

    /// Returns the state of an object's task. Cancels the task if its question is not current any more.
    pub fn state(&self, key: &Key, is_current: impl FnOnce(&Q) -> bool) -> Option<TaskState<A>> {
        let mut tasks = self.lock();
        let task = tasks.get(key)?;
        if !is_current(&task.question) {
            tasks.remove(key);
            return None;
        }
        Some(task.state.clone())
    }

    /// Drops an answer that was handled, unless a newer one has arrived.
    pub fn acknowledge(&self, key: &Key, handled: &Arc<A>) {
        if let Some(task) = self.lock().get_mut(key)
            && task.state.answer.as_ref().is_some_and(|answer| Arc::ptr_eq(answer, handled))
        {
            task.state.answer = None;
        }
    }

    /// Cancels the task of an object.
    pub fn cancel(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, BackgroundTask<Q, A>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Place for the answers of one task.
pub struct Answers<K, Q, A> {
    work: BackgroundWork<K, Q, A>,
    key: Key,
    question: Arc<Q>,
    queue: Arc<Queue>,
}

impl<K, Q, A> Clone for Answers<K, Q, A> {
    fn clone(&self) -> Self {
        Self {
            work: self.work.clone(),
            key: self.key.clone(),
            question: Arc::clone(&self.question),
            queue: Arc::clone(&self.queue),
        }
    }
}

impl<K, Q, A> Answers<K, Q, A>
where
    K: Fact + 'static,
    Q: Send + Sync + 'static,
    A: Send + Sync + 'static,
{
    /// Replaces the last answer, and enqueues the object.
    pub fn publish(&self, answer: A) {
        self.update(|state| {
            (state.has_answered, state.answer) = (true, Some(Arc::new(answer)));
            true
        });
    }

    /// Changes the state if the task was not replaced. `change` returns whether to enqueue the object.
    fn update(&self, change: impl FnOnce(&mut TaskState<A>) -> bool) {
        let mut tasks = self.work.lock();
        let task = tasks.get_mut(&self.key).filter(|task| Arc::ptr_eq(&task.question, &self.question));
        let wakes = task.is_some_and(|task| change(&mut task.state));
        drop(tasks);
        if wakes {
            self.queue.add([self.key.clone()]);
        }
    }
}

/// Notes the end of a task when dropped, also after a panic.
struct TaskEnd<K: Fact + 'static, Q: Send + Sync + 'static, A: Send + Sync + 'static>(Answers<K, Q, A>);

impl<K, Q, A> Drop for TaskEnd<K, Q, A>
where
    K: Fact + 'static,
    Q: Send + Sync + 'static,
    A: Send + Sync + 'static,
{
    fn drop(&mut self) {
        self.0.update(|state| {
            state.has_ended = true;
            !state.has_answered
        });
    }
}

#[cfg(test)]
mod tests;
