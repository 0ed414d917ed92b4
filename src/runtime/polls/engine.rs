//! Schedules the polls. Runs in one task.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout};
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue;
use tracing::error;

use super::places::{Places, Ticket, Turn, TurnClass};
use super::{BrokenOff, Order, PollLimits, PollOutcome, PollTarget, Poller};

/// Maximum delay before the first poll of a key, if a place is free.
const SOON: Duration = Duration::from_secs(2);

/// Maximum pause after failures, unless the interval is longer.
const LONGEST: Duration = Duration::from_secs(300);

/// Minimum and maximum delay of a poll that returned [`PollOutcome::WaitUntil`].
const SHORTEST: Duration = Duration::from_millis(100);
const FARTHEST: Duration = Duration::from_secs(3600);

/// Jitter of a poll: at most this fraction of its interval (1/50), and at most this duration.
const JITTER_PART: u32 = 50;
const JITTER: Duration = Duration::from_millis(200);

/// See the module.
pub struct Engine<P: Poller> {
    poller: Arc<P>,
    entries: HashMap<P::Key, PollEntry>,
    /// Keys that wait for their due time.
    pub wheel: DelayQueue<P::Key>,
    pub tasks: JoinSet<Result<PollOutcome, BrokenOff>>,
    /// Key and ticket of each running task.
    running: HashMap<Id, (P::Key, Ticket)>,
    /// Key of each ticket whose poll has not started.
    turns: HashMap<Ticket, P::Key>,
    places: Places,
    next_ticket: Ticket,
}

struct PollEntry {
    target: PollTarget,
    /// Time of the last or next poll, without jitter.
    base: Instant,
    /// Consecutive failures; None before the first poll.
    failures: Option<u32>,
    /// Latest time of the next poll, requested by a wake during a running poll.
    wake: Option<Instant>,
    state: PollState,
}

enum PollState {
    Waits(delay_queue::Key),
    LinedUp(Ticket),
    Runs(AbortHandle),
    /// The poll is being cancelled; then the key is inserted again with this target, if there is one.
    Ends(Option<PollTarget>),
}

impl PollEntry {
    fn standing(&self) -> TurnClass {
        match self.failures {
            None => TurnClass::New,
            Some(0) => TurnClass::Proven,
            Some(_) => TurnClass::Failing,
        }
    }

    /// Time of the next poll after one with this outcome.
    fn next(&mut self, outcome: PollOutcome, now: Instant) -> Instant {
        let interval = self.target.interval.max(Duration::from_millis(1));
        let pause = match outcome {
            // Spreads keys that were added together, or whose servers recovered together, over the interval.
            PollOutcome::Ok => match self.failures.replace(0) {
                Some(0) => interval,
                _ => interval.mul_f64(fastrand::f64()),
            },
            PollOutcome::Failed => {
                let before = self.failures.unwrap_or(0);
                self.failures = Some(before.saturating_add(1));
                interval.saturating_mul(2_u32.saturating_pow(before.min(16))).min(LONGEST.max(interval))
            }
            PollOutcome::WaitUntil(at) => {
                self.failures.get_or_insert(1);
                self.base = at.clamp(now + SHORTEST, now + FARTHEST);
                return self.base;
            }
        };
        self.base += pause;
        if self.base <= now {
            // The poll took longer than the interval: skip the missed times and stay in phase.
            let missed = now.duration_since(self.base).as_nanos() / interval.as_nanos() + 1;
            self.base += interval.saturating_mul(u32::try_from(missed).unwrap_or(u32::MAX));
        }
        self.base + JITTER.min(interval / JITTER_PART).mul_f64(fastrand::f64())
    }
}

impl<P: Poller> Engine<P> {
    pub fn new(poller: Arc<P>, limits: PollLimits) -> Self {
        Self {
            poller,
            entries: HashMap::new(),
            wheel: DelayQueue::new(),
            tasks: JoinSet::new(),
            running: HashMap::new(),
            turns: HashMap::new(),
            places: Places::new(limits.polls),
            next_ticket: 0,
        }
    }

    /// Applies the requested changes.
    pub fn take_in(&mut self, orders: HashMap<P::Key, Order>) {
        for (key, Order { remove, put, wake }) in orders {
            if remove {
                self.remove(&key);
            }
            if let Some(target) = put {
                self.put(key.clone(), target);
            }
            if let Some(at) = wake {
                self.wake(&key, at);
            }
        }
    }

    fn put(&mut self, key: P::Key, target: PollTarget) {
        let known = self.entries.get(&key);
        if known.is_some_and(|entry| entry.target == target && !matches!(entry.state, PollState::Ends(_))) {
            return;
        }
        self.remove(&key);
        match self.entries.get_mut(&key) {
            Some(PollEntry { state: PollState::Ends(then), .. }) => *then = Some(target),
            _ => self.insert(key, target),
        }
    }

    /// Inserts a new key.
    fn insert(&mut self, key: P::Key, target: PollTarget) {
        let base = Instant::now() + SOON.min(target.interval).mul_f64(fastrand::f64());
        let state = PollState::Waits(self.wheel.insert_at(key.clone(), base));
        self.entries.insert(key, PollEntry { target, base, failures: None, wake: None, state });
    }

    fn remove(&mut self, key: &P::Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        match &mut entry.state {
            PollState::Waits(at) => {
                self.wheel.remove(at);
            }
            PollState::LinedUp(ticket) => {
                self.turns.remove(ticket);
                self.places.leave(*ticket);
            }
            // The task keeps its places, and the key is not polled again, until the task has ended.
            PollState::Runs(task) => {
                task.abort();
                entry.state = PollState::Ends(None);
                return;
            }
            PollState::Ends(then) => {
                *then = None;
                return;
            }
        }
        self.entries.remove(key);
    }

    fn wake(&mut self, key: &P::Key, at: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        match &entry.state {
            PollState::Waits(place) => {
                if self.wheel.deadline(place) > at {
                    self.wheel.reset_at(place, at);
                    entry.base = at;
                }
            }
            PollState::LinedUp(_) | PollState::Ends(_) => {}
            // The running poll may have started before the change.
            PollState::Runs(_) => entry.wake = Some(entry.wake.map_or(at, |known| known.min(at))),
        }
    }

    /// Queues the key, whose poll is due.
    pub fn due(&mut self, key: &P::Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        entry.state = PollState::LinedUp(ticket);
        let PollTarget { host, at_once, tenant, .. } = entry.target.clone();
        self.turns.insert(ticket, key.clone());
        self.places.line_up(ticket, Turn { host, at_once, tenant, standing: entry.standing() });
    }

    /// Handles all polls that have ended and all keys that have become due.
    pub fn catch_up(&mut self) {
        while let Some(done) = self.tasks.try_join_next_with_id() {
            self.end(done);
        }
        while let Some(Some(due)) = poll_fn(|context| self.wheel.poll_expired(context)).now_or_never() {
            self.due(&due.into_inner());
        }
    }

    /// Starts the polls that have a place.
    pub fn begin(&mut self) {
        while let Some(ticket) = self.places.next() {
            let found = self.turns.remove(&ticket);
            let Some((key, entry)) = found.and_then(|key| Some((key.clone(), self.entries.get_mut(&key)?))) else {
                self.places.leave(ticket);
                continue;
            };
            let poll = timeout(entry.target.timeout, Arc::clone(&self.poller).poll(key.clone()));
            let task = self.tasks.spawn(async move { poll.await.map_err(|_| BrokenOff::Timeout) });
            self.running.insert(task.id(), (key, ticket));
            entry.state = PollState::Runs(task);
        }
    }

    /// Handles a poll that has ended.
    pub fn end(&mut self, ended: Result<(Id, Result<PollOutcome, BrokenOff>), JoinError>) {
        let (id, result) = match ended {
            Ok((id, result)) => (id, result),
            Err(failure) => (failure.id(), Err(BrokenOff::Panic)),
        };
        let Some((key, ticket)) = self.running.remove(&id) else { return };
        self.places.leave(ticket);
        let Some(entry) = self.entries.get_mut(&key) else { return };
        if let PollState::Ends(then) = &mut entry.state {
            let then = then.take();
            self.entries.remove(&key);
            if let Some(target) = then {
                self.insert(key, target);
            }
            return;
        }
        let outcome = result.unwrap_or_else(|how| {
            if how == BrokenOff::Panic {
                error!(key = ?key, "poll panicked");
            }
            self.poller.broken_off(&key, how);
            PollOutcome::Failed
        });
        let mut at = entry.next(outcome, Instant::now());
        if let Some(wake) = entry.wake.take().filter(|wake| *wake < at) {
            (at, entry.base) = (wake, wake);
        }
        entry.state = PollState::Waits(self.wheel.insert_at(key, at));
    }

    /// Whether no state of any key is left.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let none = self.entries.is_empty() && self.running.is_empty() && self.turns.is_empty();
        none && self.wheel.is_empty() && self.tasks.is_empty() && self.places.is_empty()
    }
}
