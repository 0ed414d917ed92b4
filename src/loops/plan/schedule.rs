//! Time windows: cron fields in a time zone define when a window begins; a duration, or other cron fields, define when
//! it ends. Does not read the clock.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::common::{FieldError, duration, later};
pub use cron_number::CronNumber;
use cron_times::{CronTimes, zone_named};
use ganglion_api::closed_loop::policy::Window;
use ganglion_core::words::quoted;

mod cron_number;
mod cron_times;

/// A parsed window.
#[derive(Clone, Debug)]
pub struct Calendar {
    begins: CronTimes,
    ends: WindowEnd,
    /// Last computed phase. A search in the calendar costs far more than the rest of a reconcile.
    last: Arc<Mutex<Option<Phase>>>,
}

/// When a window that has begun ends.
#[derive(Clone, Debug)]
enum WindowEnd {
    After(SignedDuration),
    At(Box<CronTimes>),
}

/// Period during which the window stays open, or stays closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    pub open: bool,
    pub begin: Timestamp,
    /// Exclusive end.
    pub end: Timestamp,
}

impl Calendar {
    /// Parses a window. Fails if the window does not open or close within five years, or closes whenever it opens.
    pub fn parse(field: &str, window: &Window) -> Result<Self, FieldError> {
        let zone = zone_named(&format!("{field}.timeZone"), window.time_zone.as_deref())?;
        let (begins, ends) = match (&window.start, &window.until, &window.cron, &window.duration) {
            (Some(start), Some(until), None, None) => {
                let begins = CronTimes::parse(&format!("{field}.start"), start, zone)?;
                let ends = CronTimes::parse(&format!("{field}.until"), until, zone)?;
                if begins.has_times_of(&ends) {
                    let problem = format!("{} is always the time of start: such a window never opens", quoted(until));
                    return Err(FieldError::new(format!("{field}.until"), problem));
                }
                (begins, WindowEnd::At(Box::new(ends)))
            }
            (None, None, Some(cron), Some(length)) => {
                let begins = CronTimes::parse(&format!("{field}.cron"), cron, zone)?;
                let length = duration(&format!("{field}.duration"), Some(length))?;
                if length.is_zero() {
                    let problem = "the duration of a window must be above 0";
                    return Err(FieldError::new(format!("{field}.duration"), problem));
                }
                (begins, WindowEnd::After(length))
            }
            _ => return Err(FieldError::new(field, "set either start and until, or cron and duration")),
        };
        Ok(Self { begins, ends, last: Arc::default() })
    }

    /// The phase at this time.
    pub fn phase(&self, now: Timestamp) -> Phase {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some(phase) if phase.begin <= now && now < phase.end => phase,
            Some(_) | None => *last.insert(self.find_phase(now)),
        }
    }

    /// Returns the first period within `horizon` in which the window differs from one that is open whenever its next
    /// end comes before its next start, with the state of this window. Both are alike if starts and ends alternate.
    /// None for a window of fixed length.
    pub fn first_period_unlike_next_end(&self, now: Timestamp, horizon: SignedDuration) -> Option<Phase> {
        let WindowEnd::At(ends) = &self.ends else { return None };
        let until = later(now, horizon);
        let mut time = self.begins.last(now).unwrap_or(now);
        let mut found: Option<Phase> = None;
        for _ in 0..MOMENTS {
            let (begin, end) = (self.begins.next(time)?, ends.next(time)?);
            let next = begin.min(end);
            let open = is_open(&self.begins, ends, time);
            let differs = begin != end && open != (end < begin);
            match found {
                Some(period) if !differs || period.open != open => return Some(period),
                Some(period) => found = Some(Phase { end: next, ..period }),
                None if differs => found = Some(Phase { open, begin: time, end: next }),
                None => {}
            }
            if next > until {
                break;
            }
            time = next;
        }
        found
    }

    fn find_phase(&self, now: Timestamp) -> Phase {
        let begin = self.begins.last(now);
        // Occurrences all have the same duration: if an earlier one is open, so is the last one.
        let end = match &self.ends {
            WindowEnd::After(length) => begin.map(|begin| later(begin, *length)),
            WindowEnd::At(ends) if is_open(&self.begins, ends, now) => ends.next(now),
            WindowEnd::At(ends) => ends.last(now),
        };
        match (begin, end) {
            (Some(begin), Some(end)) if now < end => Phase { open: true, begin, end },
            (_, end) => {
                Phase { open: false, begin: end.unwrap_or(now), end: self.begins.next(now).unwrap_or(Timestamp::MAX) }
            }
        }
    }
}

/// Maximum number of starts and ends that are compared.
const MOMENTS: usize = 2_000;

/// Maximum number of moments in a row at which a window both begins and ends.
const TIES: usize = 400;

/// Whether a window that opens and closes at these times is open. If both come at one moment, it stays as it was: one
/// that was open ends and begins again, and one that was closed begins and ends, such as one from 2:15 to 2:45 when the
/// clocks go from 2 to 3.
fn is_open(begins: &CronTimes, ends: &CronTimes, now: Timestamp) -> bool {
    let (mut begin, mut end) = (begins.last(now), ends.last(now));
    for _ in 0..TIES {
        match (begin, end) {
            (Some(same), Some(other)) if same == other => (begin, end) = (begins.before(same), ends.before(same)),
            _ => break,
        }
    }
    begin > end
}

/// Parses several windows.
pub fn parse(field: &str, windows: Option<&Vec<Window>>) -> Result<Vec<Calendar>, FieldError> {
    let windows = windows.into_iter().flatten().enumerate();
    windows.map(|(index, window)| Calendar::parse(&format!("{field}[{index}]"), window)).collect()
}

/// Returns the phase of several windows together, which are open while at least one of them is. Without windows, the
/// phase is always open.
pub fn phase(windows: &[Calendar], now: Timestamp) -> Phase {
    let always = Phase { open: true, begin: Timestamp::MIN, end: Timestamp::MAX };
    let phases = || windows.iter().map(|window| window.phase(now));
    let open = phases().filter(|phase| phase.open).max_by_key(|phase| phase.end);
    open.or_else(|| phases().min_by_key(|phase| phase.end)).unwrap_or(always)
}

#[cfg(test)]
mod tests;
