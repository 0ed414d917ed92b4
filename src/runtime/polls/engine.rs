//! Which poll begins when. Everything here happens in one task.

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

/// Within which time a key has its first poll, if there is a place.
const SOON: Duration = Duration::from_secs(2);

/// Longest pause after failures, where the interval is not longer.
const LONGEST: Duration = Duration::from_secs(300);

/// Shortest and longest pause after a poll that asked nobody.
const SHORTEST: Duration = Duration::from_millis(100);
const FARTHEST: Duration = Duration::from_secs(3600);

/// The jitter of a poll: at most this part of its interval, and at most this time.
const JITTER_PART: u32 = 50;
const JITTER: Duration = Duration::from_millis(200);

/// See the module.
pub struct Engine<P: Poller> {
    poller: Arc<P>,
    entries: HashMap<P::Key, Entry>,
    /// The keys that wait for their time.
    pub wheel: DelayQueue<P::Key>,
    pub tasks: JoinSet<Result<PollOutcome, BrokenOff>>,
    /// Whose poll each task is.
    running: HashMap<Id, (P::Key, Ticket)>,
    /// Whose turn each ticket is, until its poll begins.
    turns: HashMap<Ticket, P::Key>,
    places: Places,
    next_ticket: Ticket,
}

struct Entry {
    target: PollTarget,
    /// The time of the last or next poll, without jitter.
    base: Instant,
    /// None before the first poll.
    failures: Option<u32>,
    /// To be polled again no later than this.
    wake: Option<Instant>,
    state: State,
}

enum State {
    Waits(delay_queue::Key),
    LinedUp(Ticket),
    Runs(AbortHandle),
    /// Its poll is being cancelled: what follows it then.
    Ends(Option<PollTarget>),
}

impl Entry {
    fn standing(&self) -> TurnClass {
        match self.failures {
            None => TurnClass::New,
            Some(0) => TurnClass::Proven,
            Some(_) => TurnClass::Failing,
        }
    }

    /// When the next poll is due after one with this outcome.
    fn next(&mut self, outcome: PollOutcome, now: Instant) -> Instant {
        let interval = self.target.interval.max(Duration::from_millis(1));
        let pause = match outcome {
            // Keys that came together, or whose servers came back together, are spread over the interval.
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
            // It took long: what was missed is skipped, the phase stays.
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

    /// Carries out what was ordered.
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
        if known.is_some_and(|entry| entry.target == target && !matches!(entry.state, State::Ends(_))) {
            return;
        }
        self.remove(&key);
        match self.entries.get_mut(&key) {
            Some(Entry { state: State::Ends(then), .. }) => *then = Some(target),
            _ => self.insert(key, target),
        }
    }

    /// A key without a poll.
    fn insert(&mut self, key: P::Key, target: PollTarget) {
        let base = Instant::now() + SOON.min(target.interval).mul_f64(fastrand::f64());
        let state = State::Waits(self.wheel.insert_at(key.clone(), base));
        self.entries.insert(key, Entry { target, base, failures: None, wake: None, state });
    }

    fn remove(&mut self, key: &P::Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        match &mut entry.state {
            State::Waits(at) => {
                self.wheel.remove(at);
            }
            State::LinedUp(ticket) => {
                self.turns.remove(ticket);
                self.places.leave(*ticket);
            }
            // It keeps its places, and its key is not polled again, until it has really ended.
            State::Runs(task) => {
                task.abort();
                entry.state = State::Ends(None);
                return;
            }
            State::Ends(then) => {
                *then = None;
                return;
            }
        }
        self.entries.remove(key);
    }

    fn wake(&mut self, key: &P::Key, at: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        match &entry.state {
            State::Waits(place) => {
                if self.wheel.deadline(place) > at {
                    self.wheel.reset_at(place, at);
                    entry.base = at;
                }
            }
            State::LinedUp(_) | State::Ends(_) => {}
            // The poll under way may have begun before the change.
            State::Runs(_) => entry.wake = Some(entry.wake.map_or(at, |known| known.min(at))),
        }
    }

    /// The time of this key has come.
    pub fn due(&mut self, key: &P::Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        entry.state = State::LinedUp(ticket);
        let PollTarget { host, at_once, tenant, .. } = entry.target.clone();
        self.turns.insert(ticket, key.clone());
        self.places.line_up(ticket, Turn { host, at_once, tenant, standing: entry.standing() });
    }

    /// Takes in the polls that have ended, and the keys whose time has come.
    pub fn catch_up(&mut self) {
        while let Some(done) = self.tasks.try_join_next_with_id() {
            self.end(done);
        }
        while let Some(Some(due)) = poll_fn(|context| self.wheel.poll_expired(context)).now_or_never() {
            self.due(&due.into_inner());
        }
    }

    /// Begins the polls that may begin.
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
            entry.state = State::Runs(task);
        }
    }

    /// A poll has ended.
    pub fn end(&mut self, ended: Result<(Id, Result<PollOutcome, BrokenOff>), JoinError>) {
        let (id, result) = match ended {
            Ok((id, result)) => (id, result),
            Err(failure) => (failure.id(), Err(BrokenOff::Panic)),
        };
        let Some((key, ticket)) = self.running.remove(&id) else { return };
        self.places.leave(ticket);
        let Some(entry) = self.entries.get_mut(&key) else { return };
        if let State::Ends(then) = &mut entry.state {
            let then = then.take();
            self.entries.remove(&key);
            if let Some(target) = then {
                self.insert(key, target);
            }
            return;
        }
        let outcome = result.unwrap_or_else(|how| {
            if how == BrokenOff::Panic {
                error!(key = ?key, "a poll ended by a fault of this program");
            }
            self.poller.broken_off(&key, how);
            PollOutcome::Failed
        });
        let mut at = entry.next(outcome, Instant::now());
        if let Some(wake) = entry.wake.take().filter(|wake| *wake < at) {
            (at, entry.base) = (wake, wake);
        }
        entry.state = State::Waits(self.wheel.insert_at(key, at));
    }

    /// Whether nothing is kept of any key.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let none = self.entries.is_empty() && self.running.is_empty() && self.turns.is_empty();
        none && self.wheel.is_empty() && self.tasks.is_empty() && self.places.is_empty()
    }
}
