//! The work queue of a controller: keys of objects to reconcile now or later. The methods are named as in client-go's
//! work queue: `add`, `add_after`, `get`, `done`.
//!
//! - A key is in the queue at most once. The number of objects bounds the queue, so `add` never refuses a key.
//! - A key that is being processed is not returned again before `done`. If it is added meanwhile, `done` queues it
//!   again.
//! - Namespaces take turns: a namespace with thousands of keys delays a key of another namespace by at most one of its
//!   own.
//!
//! `kube::runtime::applier` is slower: its scheduler rounds each key's time up to a millisecond, and the timer below it
//! rounds up once more. With 50 loops at one sample per second, a sample waits 0.1 ms in the queues of Monitoring and
//! Decision together (p95: 0.2 ms), and 2.4 ms with appliers (p95: 3.5 to 4.2 ms). The limit for adopting it is 1.4 ms,
//! a tenth of the latency to Decision. `hack/bench queue` measures this. Also, an applier does not order keys, never
//! reconciles a deleted object, and does not report the number of waiting keys.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::fairness::RoundRobin;
use ganglion_core::facts::Key;

/// See the module.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use ganglion_core::facts::Key;
/// use ganglion_runtime::queue::Queue;
///
/// let [a, b, c] = [("shop", "a"), ("shop", "b"), ("lab", "c")].map(|(namespace, name)| Key::new(namespace, name));
/// let queue = Queue::default();
/// queue.open();
/// queue.add([a.clone(), b.clone(), c.clone(), a.clone()]);
/// assert_eq!(queue.get().await, a);
/// // Namespaces take turns.
/// assert_eq!(queue.get().await, c);
/// // `a` is being processed, so it is not returned again before `done`.
/// queue.add([a.clone()]);
/// assert_eq!(queue.get().await, b);
/// queue.done(a.clone());
/// assert_eq!(queue.get().await, a);
/// # }
/// ```
#[derive(Default)]
pub struct Queue {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    /// False until the controller runs: a standby replica never calls `get`, so its queue would only grow.
    open: bool,
    /// Keys in order of arrival within their namespace; the namespaces take turns.
    ready: RoundRobin<String, (u64, Key)>,
    /// The keys in `ready`.
    waiting: HashSet<Key>,
    /// Number of keys that arrived before the next one.
    arrivals: u64,
    /// Keys between `get` and `done`; true if the key was added meanwhile.
    processing: HashMap<Key, bool>,
    /// Delayed keys, ordered by due time.
    delayed: BTreeSet<(Instant, Key)>,
    /// Due time of each delayed key.
    due: HashMap<Key, Instant>,
}

impl Inner {
    fn add(&mut self, key: Key) {
        if let Some(added) = self.processing.get_mut(&key) {
            *added = true;
        } else if !self.waiting.contains(&key) {
            self.cancel_delay(&key);
            self.arrivals += 1;
            self.ready.push(key.namespace.clone(), (self.arrivals, key.clone()));
            self.waiting.insert(key);
        }
    }

    fn add_at(&mut self, at: Instant, key: Key) {
        let comes_anyway = self.waiting.contains(&key) || self.processing.get(&key) == Some(&true);
        if comes_anyway || self.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        self.cancel_delay(&key);
        self.due.insert(key.clone(), at);
        self.delayed.insert((at, key));
    }

    fn cancel_delay(&mut self, key: &Key) {
        if let Some(at) = self.due.remove(key) {
            self.delayed.remove(&(at, key.clone()));
        }
    }

    fn get(&mut self, now: Instant) -> Option<Key> {
        while let Some((at, key)) = self.delayed.pop_first() {
            if at > now {
                self.delayed.insert((at, key));
                break;
            }
            self.due.remove(&key);
            self.add(key);
        }
        let (_, key) = self.ready.pop(|_| true)?;
        self.waiting.remove(&key);
        self.processing.insert(key.clone(), false);
        Some(key)
    }
}

impl Queue {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts accepting keys. Before that, `add` and `add_after` drop them.
    pub fn open(&self) {
        self.inner().open = true;
    }

    /// Adds keys to process now. Cancels their delays, if any.
    pub fn add(&self, keys: impl IntoIterator<Item = Key>) {
        let mut inner = self.inner();
        if !inner.open {
            return;
        }
        for key in keys {
            inner.add(key);
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// Adds a key to process after this delay. Does nothing if the key already waits to be processed now, or is due
    /// earlier.
    pub fn add_after(&self, key: Key, delay: Duration) {
        let mut inner = self.inner();
        if !inner.open {
            return;
        }
        inner.add_at(Instant::now() + delay, key);
        drop(inner);
        self.changed.notify_one();
    }

    /// Waits for the next key to process and returns it. The caller must call [`Queue::done`] with it afterwards.
    /// Single consumer; cancel-safe.
    pub async fn get(&self) -> Key {
        loop {
            let wait = {
                let mut inner = self.inner();
                if let Some(key) = inner.get(Instant::now()) {
                    return key;
                }
                inner.delayed.first().map(|(at, _)| *at)
            };
            match wait {
                None => self.changed.notified().await,
                Some(at) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = sleep_until(at) => {}
                },
            }
        }
    }

    /// Marks the key as processed. Queues it again if it was added meanwhile.
    pub fn done(&self, key: Key) {
        let mut inner = self.inner();
        if inner.processing.remove(&key) == Some(true) {
            inner.add(key);
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// Number of keys that wait to be processed now.
    pub fn len(&self) -> usize {
        self.inner().waiting.len()
    }

    /// Whether no key waits to be processed now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn open() -> Queue {
        let queue = Queue::default();
        queue.open();
        queue
    }

    fn key(name: &str) -> Key {
        Key::new("n", name)
    }

    async fn ready(queue: &Queue) -> Option<String> {
        tokio::time::timeout(Duration::from_millis(1), queue.get()).await.ok().map(|key| key.name)
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_in_the_queue_once() {
        let queue = open();
        queue.add([key("a"), key("b"), key("a")]);
        assert_eq!(queue.len(), 2);
        let names = [ready(&queue).await, ready(&queue).await, ready(&queue).await];
        assert_eq!(names, [Some("a".to_owned()), Some("b".to_owned()), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_while_it_is_processed_is_handed_out_after_done() {
        let queue = open();
        queue.add([key("a")]);
        assert!(ready(&queue).await.is_some());
        queue.add([key("a")]);
        assert!(ready(&queue).await.is_none());
        queue.done(key("a"));
        queue.add_after(key("a"), MINUTE);
        assert!(ready(&queue).await.is_some());
        queue.done(key("a"));
        assert!(ready(&queue).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_key_is_handed_out_when_it_is_due_or_when_it_is_added_before() {
        let queue = open();
        queue.add([key("a")]);
        assert!(ready(&queue).await.is_some());
        let begun = Instant::now();
        queue.done(key("a"));
        queue.add_after(key("a"), MINUTE);
        assert_eq!(queue.get().await, key("a"));
        assert_eq!(begun.elapsed().as_secs(), 60);
        queue.done(key("a"));
        queue.add_after(key("a"), MINUTE);
        queue.add([key("a")]);
        assert!(ready(&queue).await.is_some());
        queue.done(key("a"));
        tokio::time::advance(Duration::from_secs(120)).await;
        assert!(ready(&queue).await.is_none(), "adding it cancelled the delay");
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_delays_the_earlier_one_counts_and_a_key_that_waits_already_is_not_delayed() {
        let queue = open();
        let begun = Instant::now();
        queue.add_after(key("a"), MINUTE);
        queue.add_after(key("a"), MINUTE / 2);
        queue.add_after(key("a"), MINUTE * 2);
        assert_eq!(queue.get().await, key("a"));
        assert_eq!(begun.elapsed(), MINUTE / 2);
        queue.add([key("a")]);
        queue.add_after(key("a"), MINUTE);
        queue.done(key("a"));
        queue.add_after(key("a"), MINUTE);
        assert!(ready(&queue).await.is_some());
        queue.done(key("a"));
        tokio::time::advance(MINUTE * 5).await;
        assert!(ready(&queue).await.is_none(), "no delay is left over");
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_is_not_open_drops_keys() {
        let queue = Queue::default();
        queue.add([key("a")]);
        queue.add_after(key("b"), Duration::ZERO);
        queue.open();
        assert!(ready(&queue).await.is_none());
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn add_wakes_a_consumer_that_already_waits() {
        let queue = std::sync::Arc::new(open());
        let waiting = tokio::spawn({
            let queue = std::sync::Arc::clone(&queue);
            async move { queue.get().await }
        });
        tokio::task::yield_now().await;
        queue.add([key("a")]);
        assert_eq!(waiting.await.unwrap(), key("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_take_turns() {
        let queue = open();
        queue.add((0..4).map(|number| Key::new("large", number.to_string())));
        queue.add([Key::new("small", "a"), Key::new("small", "b")]);
        let mut order = Vec::new();
        while !queue.is_empty() {
            order.push(queue.get().await.namespace);
        }
        assert_eq!(order, ["large", "small", "large", "small", "large", "large"]);
    }
}
