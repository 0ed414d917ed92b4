//! The queue of a controller: which objects are to be looked at, now or later.
//!
//! Each key stands in it at most once, so it is bounded by the number of objects and never has to refuse a wake-up: that
//! is why it is ours and not a channel in front of `kube::runtime::applier`, which would also need a second store of
//! every object. A key that is being worked on is not given out again; a wake-up that comes meanwhile is kept.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// See the module.
pub struct Queue<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

struct State<K> {
    /// Wake-ups count only while somebody works: a standby would only gather them.
    open: bool,
    ready: VecDeque<K>,
    in_ready: HashSet<K>,
    /// Worked on now; true where it was woken meanwhile.
    running: HashMap<K, bool>,
    later: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        let state = State {
            open: false,
            ready: VecDeque::new(),
            in_ready: HashSet::new(),
            running: HashMap::new(),
            later: BTreeSet::new(),
            due: HashMap::new(),
        };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }
}

impl<K: Clone + Eq + Hash + Ord> State<K> {
    fn push(&mut self, key: K) {
        if let Some(woken) = self.running.get_mut(&key) {
            *woken = true;
        } else if self.in_ready.insert(key.clone()) {
            self.forget_later(&key);
            self.ready.push_back(key);
        }
    }

    fn forget_later(&mut self, key: &K) {
        if let Some(at) = self.due.remove(key) {
            self.later.remove(&(at, key.clone()));
        }
    }

    fn take(&mut self, now: Instant) -> Option<K> {
        while let Some((at, key)) = self.later.pop_first() {
            if at > now {
                self.later.insert((at, key));
                break;
            }
            self.due.remove(&key);
            self.push(key);
        }
        let key = self.ready.pop_front()?;
        self.in_ready.remove(&key);
        self.running.insert(key.clone(), false);
        Some(key)
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on wake-ups count.
    pub fn open(&self) {
        self.state().open = true;
    }

    /// These are to be looked at now.
    pub fn wake(&self, keys: impl IntoIterator<Item = K>) {
        let mut state = self.state();
        if !state.open {
            return;
        }
        for key in keys {
            state.push(key);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// The next key to work on; waits for one. Give it back with [`Queue::finish`]. For one consumer; may be dropped.
    pub async fn next(&self) -> K {
        loop {
            let wait = {
                let mut state = self.state();
                if let Some(key) = state.take(Instant::now()) {
                    return key;
                }
                state.later.first().map(|(at, _)| *at)
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

    /// The work on this key is over; it is to be looked at again at this time, if any, or at once if it was woken meanwhile.
    pub fn finish(&self, key: K, again: Option<Instant>) {
        let mut state = self.state();
        if state.running.remove(&key) == Some(true) {
            state.push(key);
        } else if let Some(at) = again {
            state.due.insert(key.clone(), at);
            state.later.insert((at, key));
        }
        drop(state);
        self.changed.notify_one();
    }

    /// How many keys wait to be worked on now.
    pub fn len(&self) -> usize {
        self.state().ready.len()
    }

    /// No key waits to be worked on now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn open() -> Queue<&'static str> {
        let queue = Queue::default();
        queue.open();
        queue
    }

    async fn ready(queue: &Queue<&'static str>) -> Option<&'static str> {
        tokio::time::timeout(Duration::from_millis(1), queue.next()).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_stands_in_the_queue_once() {
        let queue = open();
        queue.wake(["a", "b", "a"]);
        assert_eq!(queue.len(), 2);
        assert_eq!((ready(&queue).await, ready(&queue).await, ready(&queue).await), (Some("a"), Some("b"), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_worked_on_is_not_given_out_and_its_wake_up_is_kept() {
        let queue = open();
        queue.wake(["a"]);
        assert_eq!(ready(&queue).await, Some("a"));
        queue.wake(["a"]);
        assert_eq!(ready(&queue).await, None);
        queue.finish("a", Some(Instant::now() + Duration::from_secs(60)));
        assert_eq!(ready(&queue).await, Some("a"));
        queue.finish("a", None);
        assert_eq!(ready(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_comes_back_at_its_time_or_when_it_is_woken_before() {
        let queue = open();
        queue.wake(["a"]);
        assert_eq!(ready(&queue).await, Some("a"));
        let begun = Instant::now();
        queue.finish("a", Some(begun + Duration::from_secs(60)));
        assert_eq!(queue.next().await, "a");
        assert_eq!(begun.elapsed().as_secs(), 60);
        queue.finish("a", Some(Instant::now() + Duration::from_secs(60)));
        queue.wake(["a"]);
        assert_eq!(ready(&queue).await, Some("a"));
        queue.finish("a", None);
        tokio::time::advance(Duration::from_secs(120)).await;
        assert_eq!(ready(&queue).await, None, "the time it had before it was woken is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_queue_gathers_nothing() {
        let queue = Queue::default();
        queue.wake(["a"]);
        queue.open();
        assert_eq!(ready(&queue).await, None);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_up_reaches_a_consumer_that_already_waits() {
        let queue = std::sync::Arc::new(open());
        let waiting = tokio::spawn({
            let queue = std::sync::Arc::clone(&queue);
            async move { queue.next().await }
        });
        tokio::task::yield_now().await;
        queue.wake(["a"]);
        assert_eq!(waiting.await.unwrap(), "a");
    }
}
