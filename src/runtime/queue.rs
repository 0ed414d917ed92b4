//! The work queue of a controller: which objects to reconcile, now or later. In client-go's words: `add`, `add_after`, `get`,
//! `done`.
//!
//! Each key is in it at most once, so its size is bounded by the number of objects and no wake-up has to be refused. A key
//! that is being worked on is not handed out again until that is done; a wake-up in between is kept. Namespaces take turns:
//! one with thousands of objects delays an object of another namespace by at most one of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::logic::facts::Key;

/// See the module.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Wake-ups are kept only while the controller runs: a standby would only collect them.
    open: bool,
    ready: Turns,
    /// Being worked on now; true if it was woken in between.
    running: HashMap<Key, bool>,
    later: BTreeSet<(Instant, Key)>,
    due: HashMap<Key, Instant>,
}

/// Keys in the order of arrival; namespaces take turns.
#[derive(Default)]
struct Turns {
    waiting: BTreeMap<String, VecDeque<Key>>,
    /// The namespaces with waiting keys, the next one first.
    order: VecDeque<String>,
    all: HashSet<Key>,
}

impl Turns {
    fn push(&mut self, key: Key) {
        if !self.all.insert(key.clone()) {
            return;
        }
        match self.waiting.get_mut(&key.namespace) {
            Some(waiting) => waiting.push_back(key),
            None => {
                self.order.push_back(key.namespace.clone());
                self.waiting.insert(key.namespace.clone(), [key].into());
            }
        }
    }

    fn pop(&mut self) -> Option<Key> {
        let namespace = self.order.pop_front()?;
        let waiting = self.waiting.get_mut(&namespace)?;
        let key = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&namespace);
        } else {
            self.order.push_back(namespace);
        }
        self.all.remove(&key);
        Some(key)
    }
}

impl State {
    fn add(&mut self, key: Key) {
        if let Some(woken) = self.running.get_mut(&key) {
            *woken = true;
        } else if !self.ready.all.contains(&key) {
            self.forget_later(&key);
            self.ready.push(key);
        }
    }

    fn forget_later(&mut self, key: &Key) {
        if let Some(at) = self.due.remove(key) {
            self.later.remove(&(at, key.clone()));
        }
    }

    fn get(&mut self, now: Instant) -> Option<Key> {
        while let Some((at, key)) = self.later.pop_first() {
            if at > now {
                self.later.insert((at, key));
                break;
            }
            self.due.remove(&key);
            self.add(key);
        }
        let key = self.ready.pop()?;
        self.running.insert(key.clone(), false);
        Some(key)
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to keep wake-ups.
    pub fn open(&self) {
        self.state().open = true;
    }

    /// Adds keys to work on now.
    pub fn add(&self, keys: impl IntoIterator<Item = Key>) {
        let mut state = self.state();
        if !state.open {
            return;
        }
        for key in keys {
            state.add(key);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Returns the next key to work on; waits for one. Hand it back with [`Queue::done`]. For one consumer; cancel-safe.
    pub async fn get(&self) -> Key {
        loop {
            let wait = {
                let mut state = self.state();
                if let Some(key) = state.get(Instant::now()) {
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

    /// Ends the work on this key. It is handed out again at this time, if any, or at once if it was woken in between.
    pub fn done(&self, key: Key, again: Option<Instant>) {
        let mut state = self.state();
        if state.running.remove(&key) == Some(true) {
            state.add(key);
        } else if let Some(at) = again {
            state.due.insert(key.clone(), at);
            state.later.insert((at, key));
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Number of keys that wait to be worked on now.
    pub fn len(&self) -> usize {
        self.state().ready.all.len()
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
    async fn a_key_stands_in_the_queue_once() {
        let queue = open();
        queue.add([key("a"), key("b"), key("a")]);
        assert_eq!(queue.len(), 2);
        let names = [ready(&queue).await, ready(&queue).await, ready(&queue).await];
        assert_eq!(names, [Some("a".to_owned()), Some("b".to_owned()), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_worked_on_is_not_given_out_and_its_wake_up_is_kept() {
        let queue = open();
        queue.add([key("a")]);
        assert!(ready(&queue).await.is_some());
        queue.add([key("a")]);
        assert!(ready(&queue).await.is_none());
        queue.done(key("a"), Some(Instant::now() + Duration::from_secs(60)));
        assert!(ready(&queue).await.is_some());
        queue.done(key("a"), None);
        assert!(ready(&queue).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_comes_back_at_its_time_or_when_it_is_woken_before() {
        let queue = open();
        queue.add([key("a")]);
        assert!(ready(&queue).await.is_some());
        let begun = Instant::now();
        queue.done(key("a"), Some(begun + Duration::from_secs(60)));
        assert_eq!(queue.get().await, key("a"));
        assert_eq!(begun.elapsed().as_secs(), 60);
        queue.done(key("a"), Some(Instant::now() + Duration::from_secs(60)));
        queue.add([key("a")]);
        assert!(ready(&queue).await.is_some());
        queue.done(key("a"), None);
        tokio::time::advance(Duration::from_secs(120)).await;
        assert!(ready(&queue).await.is_none(), "the time it had before it was woken is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_queue_gathers_nothing() {
        let queue = Queue::default();
        queue.add([key("a")]);
        queue.open();
        assert!(ready(&queue).await.is_none());
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_up_reaches_a_consumer_that_already_waits() {
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
