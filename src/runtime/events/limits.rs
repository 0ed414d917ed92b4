//! Which events are sent: each once, and at most [`PER_MINUTE`] in any minute for one object.
//!
//! Owns the memory of recent events, and no clock. A restart loses the memory: what has happened twice is then
//! recognized by the name of its event, and an object may get another [`PER_MINUTE`] events in that minute.

use std::collections::{HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

use crate::fairness::TenantCounts;

/// Maximum number of events of one object within [`MINUTE`].
pub const PER_MINUTE: usize = 10;
/// The part of it that the objects of one namespace can cause on an object that several namespaces share, such as a
/// node.
pub const PER_MINUTE_EACH: usize = PER_MINUTE / 2;
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// Maximum time between two equal events that are one event with a count, as in client-go.
const SERIES: SignedDuration = SignedDuration::from_mins(6);

/// Smallest difference between the times of two events of one object. `eventTime` has this precision.
const TICK: SignedDuration = SignedDuration::from_micros(1);

/// Maximum number of objects whose events are remembered, and the part of it that one namespace can use.
const OBJECTS: usize = 4096;
const OBJECTS_EACH: usize = OBJECTS / 4;

/// An event that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct NewEvent<'a> {
    /// Identifies the object that the event is about.
    pub object: &'a str,
    /// Namespace that caused the event.
    pub tenant: &'a str,
    /// Whether objects of several namespaces cause events of the object.
    pub is_shared: bool,
    /// Identifies what happened, such as a resourceVersion; None if its time does.
    pub occurrence: Option<&'a str>,
    /// Hash of all that a reader of the event sees, except for the time.
    pub text: &'a str,
}

/// Decision about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventAdmission {
    /// A new event. `left_out`: events of the object that were not sent since its last event.
    New { at: Timestamp, occurrence: String, left_out: u32 },
    /// The last event of the object happened again: `count` times so far, at first in this occurrence.
    Repeated { at: Timestamp, first: String, count: i32 },
    /// The event was sent already.
    Known,
    /// The object, or the namespace, has too many events.
    LeftOut,
}

/// Memory of recent events.
#[derive(Debug, Default)]
pub struct EventLimits {
    objects: HashMap<String, RecentEvents>,
    /// Number of remembered objects of each namespace.
    counts: TenantCounts<String>,
}

/// Recent events of one object.
#[derive(Debug, Default)]
struct RecentEvents {
    /// Namespace that caused the first of them.
    tenant: String,
    /// Times of the events of the last minute, with the namespaces that caused them.
    times: VecDeque<(Timestamp, String)>,
    last: Option<LastEvent>,
    left_out: u32,
}

/// The last event of an object.
#[derive(Debug)]
struct LastEvent {
    text: String,
    /// Its first and its last occurrence.
    first: String,
    occurrence: String,
    at: Timestamp,
    count: i32,
}

impl EventLimits {
    /// Decides about an event that happens now.
    pub fn admit(&mut self, event: &NewEvent<'_>, now: Timestamp) -> EventAdmission {
        if !self.objects.contains_key(event.object) && !self.make_room(event, now) {
            return EventAdmission::LeftOut;
        }
        let recent = self.objects.entry(event.object.to_owned()).or_default();
        let is_known = |last: &LastEvent| last.text == event.text && Some(&*last.occurrence) == event.occurrence;
        if recent.last.as_ref().is_some_and(is_known) {
            return EventAdmission::Known;
        }
        let at = recent.next_time(now);
        recent.forget_before(at);
        if recent.is_full(event) {
            recent.left_out = recent.left_out.saturating_add(1);
            return EventAdmission::LeftOut;
        }
        recent.times.push_back((at, event.tenant.to_owned()));
        recent.record(event, at)
    }

    /// Reserves memory for an object. Returns false if there is none.
    fn make_room(&mut self, event: &NewEvent<'_>, now: Timestamp) -> bool {
        let is_full =
            |limits: &Self| limits.objects.len() >= OBJECTS || limits.counts.count(event.tenant) >= OBJECTS_EACH;
        for age in [SERIES, MINUTE] {
            if is_full(self) {
                self.forget_idle(age, now);
            }
        }
        if is_full(self) {
            return false;
        }
        self.counts.add(event.tenant.to_owned());
        let recent = RecentEvents { tenant: event.tenant.to_owned(), ..RecentEvents::default() };
        self.objects.insert(event.object.to_owned(), recent);
        true
    }

    /// Forgets the objects without an event in this time. Not shorter than a minute: the limit applies until then.
    fn forget_idle(&mut self, age: SignedDuration, now: Timestamp) {
        let Self { objects, counts } = self;
        objects.retain(|_, recent| {
            let is_idle = recent.last.as_ref().is_none_or(|last| !is_within(last.at, now, age));
            if is_idle {
                counts.remove(&recent.tenant);
            }
            !is_idle
        });
    }
}

impl RecentEvents {
    /// The time of an event: later than that of the event before, unless the clock was set back.
    fn next_time(&self, now: Timestamp) -> Timestamp {
        let Some(last) = &self.last else { return now };
        match last.at.checked_add(TICK) {
            Ok(next) if now < next && next.duration_since(now) < SignedDuration::from_secs(1) => next,
            Ok(_) | Err(_) => now,
        }
    }

    fn forget_before(&mut self, now: Timestamp) {
        self.times.retain(|(at, _)| is_within(*at, now, MINUTE));
    }

    fn is_full(&self, event: &NewEvent<'_>) -> bool {
        let by_tenant = || self.times.iter().filter(|(_, tenant)| tenant == event.tenant).count();
        self.times.len() >= PER_MINUTE || (event.is_shared && by_tenant() >= PER_MINUTE_EACH)
    }

    fn record(&mut self, event: &NewEvent<'_>, at: Timestamp) -> EventAdmission {
        let left_out = std::mem::take(&mut self.left_out);
        let occurrence = event.occurrence.map_or_else(|| at.to_string(), str::to_owned);
        // After a gap, a new event says how many were left out.
        if left_out == 0
            && let Some(last) = &mut self.last
            && last.text == event.text
            && is_within(last.at, at, SERIES)
        {
            (last.at, last.count, last.occurrence) = (at, last.count.saturating_add(1), occurrence);
            return EventAdmission::Repeated { at, first: last.first.clone(), count: last.count };
        }
        let (text, first) = (event.text.to_owned(), occurrence.clone());
        self.last = Some(LastEvent { text, first, occurrence: occurrence.clone(), at, count: 1 });
        EventAdmission::New { at, occurrence, left_out }
    }
}

/// Whether `at` is less than this time before `now`. Times after `now` are those of a clock that was set back.
fn is_within(at: Timestamp, now: Timestamp, age: SignedDuration) -> bool {
    at <= now && now.duration_since(at) < age
}

#[cfg(test)]
mod tests;
