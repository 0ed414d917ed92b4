//! Polls of many machines and servers, each at its own interval, from one task with one timer wheel.
//!
//! Owns when a poll begins, and how many run at the same time; what a poll does is up to its [`Poller`].
//!
//! - The first poll of a key is at a random moment within two seconds. After its first success, and the first one after a
//!   failure, the next poll is at a random moment within the interval, so that polls that began together do not stay together.
//!   Then one each interval, without drift and with a small jitter.
//! - A key is never polled twice at the same time. A due time that passed during its poll is skipped.
//! - A host has at most as many polls as its keys allow, in the order in which they became due; see [`PollTarget::at_once`].
//! - At most [`PollLimits::polls`] run at the same time. Keys that had no poll yet, and after them those whose last poll did not
//!   succeed, share half of them, so that hanging machines do not delay healthy ones. One tenant has at most three quarters, and
//!   tenants take turns.
//! - After a failure the pause is the interval, then twice, four times and so on, up to five minutes or the interval if that is
//!   longer. A poll that panics, or takes too long, failed.
//! - A key that is removed, or put with another target, has its poll cancelled.
//!
//! | file | what |
//! |---|---|
//! | `engine` | which poll begins when: the wheel, and the entries |
//! | `places` | the places of hosts and tenants, and those who wait for one |

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

/// Where and how often a key is polled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollTarget {
    /// The host and port, or any other name of what must not be asked too often at the same time.
    pub host: Arc<str>,
    /// How many polls of this host may run at the same time, this one included; at least 1.
    pub at_once: usize,
    /// Who shares the places of a poll with others, such as a namespace.
    pub tenant: Arc<str>,
    pub interval: Duration,
    /// Longest time of one poll. Each request of a poll has a shorter one of its own, whose message is better.
    pub timeout: Duration,
}

/// The limits on all polls together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollLimits {
    /// Polls at the same time.
    pub polls: usize,
}

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// The server answered.
    Ok,
    /// The server did not answer, or not as it should.
    Failed,
    /// Nobody was asked: the next poll is at this time, or when the key is woken.
    WaitUntil(Instant),
}

/// How a poll ended that has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenOff {
    /// It took longer than [`PollTarget::timeout`].
    Timeout,
    /// A fault of this program.
    Panic,
}

/// What a poll does.
pub trait Poller: Send + Sync + 'static {
    /// The name of a poll.
    type Key: Clone + Debug + Eq + Hash + Send + Sync + 'static;
    /// For how long polls that end or become due are gathered after one did: hundreds a second would wake the engine for each.
    const GATHER: Duration = Duration::from_millis(20);
    /// Polls once. Dropped where the key is removed.
    fn poll(self: Arc<Self>, key: Self::Key) -> impl Future<Output = PollOutcome> + Send;
    /// A poll of this key ended without a result.
    fn broken_off(&self, key: &Self::Key, how: BrokenOff);
}

/// What is polled. Changes take effect at once if [`run`] runs.
#[derive(Debug)]
pub struct PollSet<K> {
    /// What is to be changed, by key, so that the number of keys bounds it.
    orders: Mutex<HashMap<K, Order>>,
    changed: Notify,
}

/// What is to be changed about one key, in the order of the fields.
#[derive(Debug, Default)]
struct Order {
    remove: bool,
    put: Option<PollTarget>,
    /// The next poll is to be no later than this.
    wake: Option<Instant>,
}

impl<K> Default for PollSet<K> {
    fn default() -> Self {
        Self { orders: Mutex::default(), changed: Notify::new() }
    }
}

impl<K: Clone + Eq + Hash> PollSet<K> {
    /// Polls this key from now on. Does nothing if it is polled with this target already.
    pub fn put(&self, key: K, target: PollTarget) {
        self.order(key, |order| order.put = Some(target));
    }

    /// Polls this key no more, and cancels its poll.
    pub fn remove(&self, key: K) {
        self.order(key, |order| *order = Order { remove: true, ..Order::default() });
    }

    /// Polls this key within this time, whatever it waits for: something has changed that its result depends on. Waking it again
    /// in the meantime does not postpone it.
    pub fn wake(&self, key: K, within: Duration) {
        let at = Instant::now() + within;
        self.order(key, |order| order.wake = Some(order.wake.map_or(at, |known| known.min(at))));
    }

    fn order(&self, key: K, change: impl FnOnce(&mut Order)) {
        change(self.orders.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default());
        self.changed.notify_one();
    }

    fn take(&self) -> HashMap<K, Order> {
        std::mem::take(&mut *self.orders.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Polls until `until`; then polls under way are cancelled.
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
            () = polls.changed.notified() => engine.take_in(polls.take()),
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
