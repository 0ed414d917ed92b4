//! Polls many machines and servers, each at its own interval, from one task with one timer wheel.
//!
//! Owns the start times and the concurrency of polls. A [`Poller`] implements the poll itself.
//!
//! - The first poll of a key starts at a random time within two seconds. After the first success, and after the first
//!   success that follows a failure, the next poll starts at a random time within the interval, so that polls that
//!   started together do not stay together. Then one poll starts per interval, without drift and with a small jitter.
//! - A key never has two polls at the same time. A due time that passes during a poll is skipped.
//! - The polls of a host are limited by its keys, and run in the order in which they became due; see
//!   [`PollTarget::at_once`].
//! - At most [`PollLimits::polls`] run at the same time. Keys without a poll so far, and after them keys whose last
//!   poll failed, share half of these places, so that hanging machines do not delay healthy ones. One tenant gets at
//!   most three quarters, and tenants take turns.
//! - After a failure, the pause is the interval, then twice, four times and so on, up to five minutes or the interval
//!   if that is longer. A poll that panics or times out counts as failed.
//! - Removing a key, restarting it, or putting it with another target, cancels its poll.
//!
//! # Examples
//!
//! ```
//! # use std::sync::Arc;
//! # use std::sync::atomic::{AtomicUsize, Ordering};
//! # use std::time::Duration;
//! use ganglion_runtime::polls::{BrokenOff, PollLimits, PollOutcome, PollSet, PollTarget, Poller, run};
//!
//! /// Counts its polls.
//! struct Meter(AtomicUsize);
//!
//! impl Poller for Meter {
//!     type Key = &'static str;
//!
//!     async fn poll(self: Arc<Self>, _: &'static str) -> PollOutcome {
//!         self.0.fetch_add(1, Ordering::Relaxed);
//!         PollOutcome::Ok
//!     }
//!
//!     fn broken_off(&self, _: &&'static str, _: BrokenOff) {}
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let (meter, polls) = (Arc::new(Meter(AtomicUsize::new(0))), Arc::new(PollSet::default()));
//! let target = PollTarget {
//!     host: "meter-1:443".into(),
//!     at_once: 1,
//!     tenant: "lab".into(),
//!     interval: Duration::from_secs(10),
//!     timeout: Duration::from_secs(5),
//! };
//! polls.put("rack-1", target);
//! let minute = tokio::time::sleep(Duration::from_secs(60));
//! run(Arc::clone(&meter), polls, PollLimits { polls: 100 }, minute).await;
//! assert!((5..=8).contains(&meter.0.load(Ordering::Relaxed)));
//! # }
//! ```
//!
//! | file | content |
//! |---|---|
//! | `engine` | start times: the wheel and the entries |
//! | `places` | concurrency limits of hosts and tenants, and the queue for free places |

mod engine;
mod places;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use engine::Engine;

/// Server and interval of the polls of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollTarget {
    /// Host and port, or another name of the server whose concurrent polls are limited.
    pub host: Arc<str>,
    /// Maximum number of concurrent polls of this host, including this one; at least 1.
    pub at_once: usize,
    /// Tenant that the poll counts for, such as a namespace.
    pub tenant: Arc<str>,
    pub interval: Duration,
    /// Timeout of a poll. Each request of a poll has its own shorter timeout, whose message is more specific.
    pub timeout: Duration,
}

/// Limits for all polls together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollLimits {
    /// Maximum number of concurrent polls.
    pub polls: usize,
}

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// The server answered.
    Ok,
    /// The server did not answer, or its answer was invalid.
    Failed,
    /// No request was sent. The next poll is at this time, or when the key is woken.
    WaitUntil(Instant),
}

/// How a poll without a result ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenOff {
    /// It exceeded [`PollTarget::timeout`].
    Timeout,
    /// It panicked, which is a bug in this program.
    Panic,
}

/// Implementation of a poll.
pub trait Poller: Send + Sync + 'static {
    /// Identifies a poll.
    type Key: Clone + Debug + Eq + Hash + Send + Sync + 'static;
    /// Time for which further polls that end or become due are collected: without it, hundreds of polls per second
    /// would each wake the engine.
    const GATHER: Duration = Duration::from_millis(20);
    /// Polls once. The future is dropped if the key is removed.
    fn poll(self: Arc<Self>, key: Self::Key) -> impl Future<Output = PollOutcome> + Send;
    /// Called after a poll of this key that ended without a result.
    fn broken_off(&self, key: &Self::Key, how: BrokenOff);
}

/// The set of polled keys. Changes take effect at once while [`run`] runs.
#[derive(Debug)]
pub struct PollSet<K> {
    /// Pending changes by key, so that the number of keys bounds them.
    orders: Mutex<HashMap<K, Order>>,
    changed: Notify,
}

/// Pending changes of one key, applied in the order of the fields.
#[derive(Debug, Default)]
struct Order {
    remove: bool,
    put: Option<PollTarget>,
    /// Latest time of the next poll.
    wake: Option<Instant>,
}

impl<K> Default for PollSet<K> {
    fn default() -> Self {
        Self { orders: Mutex::default(), changed: Notify::new() }
    }
}

impl<K: Clone + Eq + Hash> PollSet<K> {
    /// Polls this key from now on. Does nothing if the key is already polled with this target.
    pub fn put(&self, key: K, target: PollTarget) {
        self.order(key, |order| order.put = Some(target));
    }

    /// Starts the poll of this key again, without the pause after failures, since its source has changed.
    pub fn restart(&self, key: K, target: PollTarget) {
        self.order(key, |order| *order = Order { remove: true, put: Some(target), wake: None });
    }

    /// Stops polling this key and cancels its poll.
    pub fn remove(&self, key: K) {
        self.order(key, |order| *order = Order { remove: true, ..Order::default() });
    }

    /// Polls this key within this time because something changed that the result depends on. Waking it again before
    /// then does not postpone the poll.
    pub fn wake(&self, key: K, within: Duration) {
        let at = Instant::now() + within;
        self.order(key, |order| order.wake = Some(order.wake.map_or(at, |known| known.min(at))));
    }

    fn order(&self, key: K, change: impl FnOnce(&mut Order)) {
        change(self.orders.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default());
        self.changed.notify_one();
    }

    fn take_orders(&self) -> HashMap<K, Order> {
        std::mem::take(&mut *self.orders.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Polls until `until` completes; then cancels running polls.
pub async fn run<P: Poller>(
    poller: Arc<P>,
    polls: Arc<PollSet<P::Key>>,
    limits: PollLimits,
    until: impl Future<Output = ()>,
) {
    let mut engine = Engine::<P>::new(poller, limits);
    let mut until = pin!(until);
    loop {
        tokio::select! {
            biased;
            () = &mut until => return,
            () = polls.changed.notified() => engine.take_in(polls.take_orders()),
            Some(done) = engine.tasks.join_next_with_id(), if !engine.tasks.is_empty() => engine.end(done),
            Some(due) = poll_fn(|context| engine.wheel.poll_expired(context)), if !engine.wheel.is_empty() => {
                engine.due(&due.into_inner());
            }
        }
        engine.catch_up();
        engine.begin();
        tokio::select! {
            biased;
            () = &mut until => return,
            () = sleep(P::GATHER) => {}
        }
    }
}
