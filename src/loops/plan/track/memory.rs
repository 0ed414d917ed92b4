//! Memory of tracking, and its form in a status.
//!
//! In the process, the memory is exact. The stored form keeps few numbers, and errs on the side of the window and of
//! the rate: after a restart, a change may come later than without it, and never earlier. The newest proposal has no
//! time in it (it is repeated until another one takes its place), so that a steady state is not written again.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use super::changes::{OwnChange, OwnChanges, merge};
use super::proposals::{Proposals, RawProposal};
use super::rules::{MAX_PERIOD, TrackRules};
use super::zero::ZeroMemory;

/// Version of the stored form.
const VERSION: &str = "1";

/// Names of the states of [`ZeroMemory`] in the stored form.
const INACTIVE: &str = "inactive";
const OWN: &str = "own";

/// Maximum number of entries of each of the four lists in the stored form.
const MAX_ENTRIES: usize = 16;

/// Maximum length of the stored form, in bytes.
const MAX_TEXT: usize = 4096;

/// Share of a window by which the stored form may hold a change longer than the memory: 1/10, at least this.
const MIN_SLACK: SignedDuration = SignedDuration::from_secs(15);

/// Memory of one loop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrackMemory {
    pub proposals: Proposals,
    pub changes: OwnChanges,
    pub zero: ZeroMemory,
}

/// Reason why a stored memory cannot be read. The loop then starts with an empty memory, and windows start again.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TrackMemoryError {
    #[error("the memory has an unknown version")]
    Version,
    #[error("the memory is longer than {MAX_TEXT} bytes")]
    TooLong,
    #[error("the memory is not a list of numbers and times")]
    Malformed,
}

impl TrackMemory {
    /// Prepares the memory for a pass. An empty one starts with the current number, so that a window begins.
    pub(super) fn begin(&mut self, rules: &TrackRules, replicas: i32, now: Timestamp) {
        self.proposals.correct(now);
        self.changes.correct(now);
        if self.proposals.is_empty() {
            self.record_proposal(replicas, now);
        }
        let windows = rules.pace.windows();
        self.proposals.forget(windows.up, windows.down, now);
        self.changes.forget(now);
        self.zero.begin(replicas, now);
    }

    pub(super) fn record_proposal(&mut self, replicas: i32, now: Timestamp) {
        self.proposals.record(RawProposal { replicas, at: now });
    }

    /// Records that the operator has changed the number of replicas.
    pub fn record_change(&mut self, before: i32, after: i32, now: Timestamp) {
        self.changes.record(before, after, now);
        self.zero.record_change(before, after, now);
    }

    /// Whether the operator scaled the target to 0.
    pub fn is_own_zero(&self) -> bool {
        matches!(self.zero, ZeroMemory::Own(_))
    }

    /// The stored form: `1;TIME;peaks;troughs;raises;lowerings`, and `;zero` if the memory knows something about zero
    /// replicas. TIME is in seconds since 1970, and all others are in seconds relative to it. At most some hundred
    /// bytes, see [`MAX_ENTRIES`].
    pub fn text(&self, rules: &TrackRules, now: Timestamp) -> String {
        let windows = rules.pace.windows();
        let base = now.as_second();
        let peaks = stored(self.proposals.peaks.iter().copied(), slack(windows.down), now, i32::max);
        let troughs = stored(self.proposals.troughs.iter().copied(), slack(windows.up), now, i32::min);
        let proposals = |entries: Vec<RawProposal>| {
            let entries = entries.iter().map(|entry| {
                if entry.at < now {
                    format!("{}@{}", entry.replicas, ceil(entry.at) - base)
                } else {
                    entry.replicas.to_string()
                }
            });
            entries.collect::<Vec<_>>().join(",")
        };
        let period = rules.pace.longest_period();
        let changes = |entries: &VecDeque<OwnChange>| {
            let mut entries = entries.clone();
            entries.retain(|change| now.duration_since(change.last) < period);
            merge(&mut entries, MAX_ENTRIES);
            let entries = entries.iter().map(|change| {
                let (first, last) = (change.first.as_second() - base, ceil(change.last) - base);
                if first == last {
                    format!("{}@{first}", change.replicas)
                } else {
                    format!("{}@{first}~{last}", change.replicas)
                }
            });
            entries.collect::<Vec<_>>().join(",")
        };
        let lists =
            [proposals(peaks), proposals(troughs), changes(&self.changes.raises), changes(&self.changes.lowerings)];
        let zero = match self.zero {
            ZeroMemory::Nothing => String::new(),
            ZeroMemory::Inactive(since) => format!(";{INACTIVE}@{}", ceil(since) - base),
            ZeroMemory::Own(at) => format!(";{OWN}@{}", ceil(at) - base),
        };
        format!("{VERSION};{base};{}{zero}", lists.join(";"))
    }

    /// Reads a stored form. Entries of the future count as of now.
    pub fn parse(text: &str, now: Timestamp) -> Result<Self, TrackMemoryError> {
        if text.len() > MAX_TEXT {
            return Err(TrackMemoryError::TooLong);
        }
        let mut fields = text.split(';');
        if fields.next() != Some(VERSION) {
            return Err(TrackMemoryError::Version);
        }
        let fields: Vec<&str> = fields.collect();
        let [base, peaks, troughs, raises, lowerings, ref zero @ ..] = fields[..] else {
            return Err(TrackMemoryError::Malformed);
        };
        let base: i64 = base.parse().map_err(|_| TrackMemoryError::Malformed)?;
        let (peaks, troughs) = (read_proposals(peaks, base, now)?, read_proposals(troughs, base, now)?);
        let proposals = Proposals { peaks: peaks.into(), troughs: troughs.into() };
        let is_ordered = |entries: &VecDeque<RawProposal>, falls: bool| {
            let pairs = entries.iter().zip(entries.iter().skip(1));
            let mut ordered = pairs.map(|(one, next)| {
                one.at <= next.at && (one.replicas > next.replicas) == falls && one.replicas != next.replicas
            });
            ordered.all(|is_ordered| is_ordered)
        };
        let are_both = proposals.peaks.is_empty() == proposals.troughs.is_empty();
        if !are_both || !is_ordered(&proposals.peaks, true) || !is_ordered(&proposals.troughs, false) {
            return Err(TrackMemoryError::Malformed);
        }
        let changes = OwnChanges {
            raises: read_changes(raises, base, now)?.into(),
            lowerings: read_changes(lowerings, base, now)?.into(),
        };
        Ok(Self { proposals, changes, zero: read_zero(zero, base, now)? })
    }

    /// Whether a stored form should be written again: a restart with it would release a change too early, or hold it
    /// for much longer than this memory. `replicas`: the current number.
    pub fn needs_write(&self, stored: Option<&str>, rules: &TrackRules, replicas: i32, now: Timestamp) -> bool {
        let mut restored = stored.and_then(|text| Self::parse(text, now).ok()).unwrap_or_default();
        restored.begin(rules, replicas, now);
        let windows = rules.pace.windows();
        let down = WindowSide { window: windows.down, slack: slack(windows.down), now };
        let up = WindowSide { window: windows.up, slack: slack(windows.up), now };
        // A number beyond the current one holds no more than the current one.
        let peaks = |memory: &Self| -> Vec<(i64, Timestamp)> {
            memory.proposals.peaks.iter().map(|peak| (i64::from(peak.replicas.min(replicas)), peak.at)).collect()
        };
        // With the sign turned, a trough is a peak.
        let troughs = |memory: &Self| -> Vec<(i64, Timestamp)> {
            let turned = |trough: &RawProposal| (-i64::from(trough.replicas.max(replicas)), trough.at);
            memory.proposals.troughs.iter().map(turned).collect()
        };
        let period = rules.pace.longest_period();
        !down.is_close(&peaks(self), &peaks(&restored))
            || !up.is_close(&troughs(self), &troughs(&restored))
            || !same_changes(&self.changes, &restored.changes, period, now)
            || !same_zero(self.zero, restored.zero)
    }
}

/// How close a stored window must be to that of the memory.
struct WindowSide {
    window: SignedDuration,
    slack: SignedDuration,
    now: Timestamp,
}

impl WindowSide {
    /// Whether each stored hold ends at most `slack` later, and none earlier.
    fn is_close(&self, exact: &[(i64, Timestamp)], stored: &[(i64, Timestamp)]) -> bool {
        if self.window.is_zero() {
            return true;
        }
        let is_in = |at: Timestamp| self.now.duration_since(at) <= self.window;
        let covered = |number: i64, at: Timestamp, by: &[(i64, Timestamp)], slack: SignedDuration| {
            by.iter().any(|(other, then)| *other >= number && at.duration_since(*then) <= slack)
        };
        let is_sound = exact
            .iter()
            .filter(|(_, at)| is_in(*at))
            .all(|(number, at)| covered(*number, *at, stored, SignedDuration::ZERO));
        let is_precise =
            stored.iter().filter(|(_, at)| is_in(*at)).all(|(number, at)| covered(*number, *at, exact, self.slack));
        is_sound && is_precise
    }
}

fn same_changes(exact: &OwnChanges, stored: &OwnChanges, period: SignedDuration, now: Timestamp) -> bool {
    let kept = |changes: &VecDeque<OwnChange>, merged: bool| {
        let mut changes = changes.clone();
        changes.retain(|change| now.duration_since(change.last) < period);
        if merged {
            merge(&mut changes, MAX_ENTRIES);
        }
        let rounded = changes.iter().map(|change| (change.replicas, change.first.as_second(), ceil(change.last)));
        rounded.collect::<Vec<_>>()
    };
    kept(&exact.raises, true) == kept(&stored.raises, false)
        && kept(&exact.lowerings, true) == kept(&stored.lowerings, false)
}

fn same_zero(exact: ZeroMemory, stored: ZeroMemory) -> bool {
    match (exact, stored) {
        (ZeroMemory::Nothing, ZeroMemory::Nothing) => true,
        (ZeroMemory::Inactive(one), ZeroMemory::Inactive(other)) | (ZeroMemory::Own(one), ZeroMemory::Own(other)) => {
            ceil(one) == ceil(other)
        }
        (ZeroMemory::Nothing | ZeroMemory::Inactive(_) | ZeroMemory::Own(_), _) => false,
    }
}

/// Time by which a stored window may be longer.
fn slack(window: SignedDuration) -> SignedDuration {
    (window / 10).max(MIN_SLACK)
}

/// Second at or after this time.
fn ceil(at: Timestamp) -> i64 {
    at.as_second() + i64::from(at.subsec_nanosecond() > 0)
}

/// Few proposals that hold at least what these hold. Proposals of the last seconds count as of now, with their extreme.
fn stored(
    proposals: impl Iterator<Item = RawProposal>,
    slack: SignedDuration,
    now: Timestamp,
    extreme: fn(i32, i32) -> i32,
) -> Vec<RawProposal> {
    let mut kept: Vec<RawProposal> = Vec::new();
    for mut proposal in proposals {
        if now.duration_since(proposal.at) < slack {
            proposal.at = now;
        }
        match kept.last() {
            // The first one at a time is the extreme one.
            Some(last) if ceil(last.at) == ceil(proposal.at) => {}
            _ => kept.push(proposal),
        }
    }
    while kept.len() > MAX_ENTRIES {
        let gap = |at: usize| Some(kept.get(at + 1)?.at.duration_since(kept.get(at)?.at));
        let Some(at) = (0..kept.len() - 1).min_by_key(|at| gap(*at)) else { break };
        let earlier = kept.remove(at);
        if let Some(later) = kept.get_mut(at) {
            later.replicas = extreme(earlier.replicas, later.replicas);
        }
    }
    kept
}

fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(|entry| !entry.is_empty())
}

fn read_proposals(list: &str, base: i64, now: Timestamp) -> Result<Vec<RawProposal>, TrackMemoryError> {
    let read = |entry: &str| {
        let (number, at) = match entry.split_once('@') {
            Some((number, offset)) => (number, time(offset, base, now)?),
            None => (entry, now),
        };
        let replicas: i32 = number.parse().ok().filter(|number| *number >= 0).ok_or(TrackMemoryError::Malformed)?;
        Ok(RawProposal { replicas, at })
    };
    entries(list).map(read).collect()
}

fn read_changes(list: &str, base: i64, now: Timestamp) -> Result<Vec<OwnChange>, TrackMemoryError> {
    let read = |entry: &str| {
        let (number, times) = entry.split_once('@').ok_or(TrackMemoryError::Malformed)?;
        let (first, last) = times.split_once('~').unwrap_or((times, times));
        let replicas: u32 = number.parse().ok().filter(|number| *number > 0).ok_or(TrackMemoryError::Malformed)?;
        let (first, last) = (time(first, base, now)?, time(last, base, now)?);
        let is_valid = first <= last && now.duration_since(first) <= MAX_PERIOD * 1000;
        if is_valid { Ok(OwnChange { replicas, first, last }) } else { Err(TrackMemoryError::Malformed) }
    };
    entries(list).map(read).collect()
}

fn read_zero(field: &[&str], base: i64, now: Timestamp) -> Result<ZeroMemory, TrackMemoryError> {
    let &[text] = field else {
        return if field.is_empty() { Ok(ZeroMemory::Nothing) } else { Err(TrackMemoryError::Malformed) };
    };
    match text.split_once('@') {
        Some((INACTIVE, offset)) => Ok(ZeroMemory::Inactive(time(offset, base, now)?)),
        Some((OWN, offset)) => Ok(ZeroMemory::Own(time(offset, base, now)?)),
        Some(_) | None => Err(TrackMemoryError::Malformed),
    }
}

/// Time of an offset, at most now.
fn time(offset: &str, base: i64, now: Timestamp) -> Result<Timestamp, TrackMemoryError> {
    let offset: i64 = offset.parse().map_err(|_| TrackMemoryError::Malformed)?;
    let second = base.checked_add(offset).ok_or(TrackMemoryError::Malformed)?;
    let at = Timestamp::from_second(second).map_err(|_| TrackMemoryError::Malformed)?;
    Ok(at.min(now))
}
