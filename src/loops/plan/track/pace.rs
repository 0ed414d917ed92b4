//! From a raw proposal to the next number: windows hold it back, rates limit it.

use jiff::{SignedDuration, Timestamp};

use super::changes::{ChangeTime, OwnChanges, sum};
use super::memory::TrackMemory;
use super::proposals::{RawProposal, WindowStart};
use super::rules::{PolicySelect, RateChange, RatePolicy, ScalePace, ScaleRules};

/// Without `behavior`, at least this many replicas are reached in one pass.
const PER_PASS: i64 = 4;

/// Result of the windows and of the rates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Paced {
    pub replicas: i32,
    pub held: Option<HeldChange>,
    pub limited: Option<LimitedChange>,
}

/// Older proposal that holds back the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeldChange {
    /// Result of the windows.
    pub replicas: i32,
    pub by: RawProposal,
    pub until: Timestamp,
}

/// Change that a rate limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LimitedChange {
    pub replicas: i32,
    pub by: LimitCause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LimitCause {
    PerPass,
    Disabled,
    /// `until`: when the oldest change in the period no longer counts; None if none counts.
    Policy {
        policy: RatePolicy,
        until: Option<Timestamp>,
    },
}

/// Position from which a number is determined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub replicas: i32,
    pub raw: i32,
    pub now: Timestamp,
}

/// Applies windows and rates to a raw proposal.
pub(super) fn pace(pace: &ScalePace, memory: &TrackMemory, position: Position) -> Paced {
    let held = hold(pace, memory, position);
    let desired = held.as_ref().map_or(position.raw, |held| held.replicas);
    let limited = limit(pace, &memory.changes, position, desired);
    let replicas = limited.as_ref().map_or(desired, |limited| limited.replicas);
    Paced { replicas, held, limited }
}

/// The older proposal that holds back a change, if there is one. A window holds the number; it never changes it in the
/// other direction.
fn hold(pace: &ScalePace, memory: &TrackMemory, position: Position) -> Option<HeldChange> {
    let Position { replicas, raw, now } = position;
    let windows = pace.windows();
    let start = window_start(pace);
    if raw < replicas {
        let peak = memory.proposals.peak(windows.down, start, now).filter(|peak| peak.replicas > raw)?;
        Some(HeldChange { replicas: peak.replicas.min(replicas), by: *peak, until: end(peak.at, windows.down) })
    } else if windows.up.is_zero() {
        None
    } else {
        let trough = memory.proposals.trough(windows.up, start, now).filter(|trough| trough.replicas < raw)?;
        let held = trough.replicas.max(replicas);
        (held < raw).then(|| HeldChange { replicas: held, by: *trough, until: end(trough.at, windows.up) })
    }
}

/// Whether a proposal as old as the window counts. HorizontalPodAutoscaler counts it only without `behavior`.
fn window_start(pace: &ScalePace) -> WindowStart {
    match pace {
        ScalePace::PerPass { .. } => WindowStart::In,
        ScalePace::Rules { .. } => WindowStart::Out,
    }
}

pub(super) fn end(start: Timestamp, length: SignedDuration) -> Timestamp {
    start.checked_add(length).unwrap_or(Timestamp::MAX)
}

fn limit(pace: &ScalePace, changes: &OwnChanges, position: Position, desired: i32) -> Option<LimitedChange> {
    let replicas = position.replicas;
    match pace {
        ScalePace::PerPass { .. } => {
            let limit = clamp((2 * i64::from(replicas)).max(PER_PASS));
            (desired > limit).then_some(LimitedChange { replicas: limit, by: LimitCause::PerPass })
        }
        ScalePace::Rules { up, .. } if desired > replicas => {
            let limit = ScaleDirection::Up.limit(up, changes, position)?;
            (desired > limit.replicas).then_some(limit)
        }
        ScalePace::Rules { down, .. } if desired < replicas => {
            let limit = ScaleDirection::Down.limit(down, changes, position)?;
            (desired < limit.replicas).then_some(limit)
        }
        ScalePace::Rules { .. } => None,
    }
}

fn clamp(replicas: i64) -> i32 {
    // The clamp makes the conversion exact.
    replicas.clamp(0, i64::from(i32::MAX)) as i32
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ScaleDirection {
    Up,
    Down,
}

impl ScaleDirection {
    /// The farthest number that the policies allow.
    fn limit(self, rules: &ScaleRules, changes: &OwnChanges, position: Position) -> Option<LimitedChange> {
        if rules.select == PolicySelect::Disabled {
            return Some(LimitedChange { replicas: position.replicas, by: LimitCause::Disabled });
        }
        let allowed = |policy: &RatePolicy| self.allowed(policy, changes, position);
        let takes_highest = (rules.select == PolicySelect::Max) == (self == Self::Up);
        let policy = if takes_highest {
            rules.policies.iter().rev().max_by_key(|policy| allowed(policy))?
        } else {
            rules.policies.iter().min_by_key(|policy| allowed(policy))?
        };
        let current = i64::from(position.replicas);
        let allowed = match self {
            Self::Up => allowed(policy).max(current),
            Self::Down => allowed(policy).min(current),
        };
        let until = self.earliest(changes, policy.period, position.now);
        Some(LimitedChange { replicas: clamp(allowed), by: LimitCause::Policy { policy: policy.clone(), until } })
    }

    /// The farthest number that a policy allows. While a change may or may not be in the period, it is counted as the
    /// smaller number allows.
    fn allowed(self, policy: &RatePolicy, changes: &OwnChanges, position: Position) -> i64 {
        let (raised_at, lowered_at) = match self {
            Self::Up => (ChangeTime::Last, ChangeTime::First),
            Self::Down => (ChangeTime::First, ChangeTime::Last),
        };
        let raised = sum(&changes.raises, raised_at, policy.period, position.now);
        let lowered = sum(&changes.lowerings, lowered_at, policy.period, position.now);
        let start = i64::from(position.replicas) - raised + lowered;
        match (self, policy.change) {
            (Self::Up, RateChange::Pods(pods)) => start + i64::from(pods),
            (Self::Down, RateChange::Pods(pods)) => start - i64::from(pods),
            // A percentage of no replicas allows one.
            (Self::Up, RateChange::Percent(_)) if start == 0 => 1,
            (Self::Up, RateChange::Percent(percent)) => {
                let hundredths = i128::from(start) * (100 + i128::from(percent));
                -saturated((-hundredths).div_euclid(100))
            }
            (Self::Down, RateChange::Percent(percent)) => {
                saturated(i128::from(start) * (100 - i128::from(percent)) / 100)
            }
        }
    }

    /// When the oldest change in the period that counts against this direction ends to count.
    fn earliest(self, changes: &OwnChanges, period: SignedDuration, now: Timestamp) -> Option<Timestamp> {
        let changes = match self {
            Self::Up => &changes.raises,
            Self::Down => &changes.lowerings,
        };
        changes.iter().map(|change| end(change.last, period)).filter(|end| *end > now).min()
    }
}

fn saturated(number: i128) -> i64 {
    // The clamp makes the conversion exact.
    number.clamp(-i128::from(i64::MAX), i128::from(i64::MAX)) as i64
}

/// First time after now at which the result differs from the current number although the raw proposal stays the same.
pub(super) fn next_change(
    rules: &ScalePace,
    memory: &TrackMemory,
    position: Position,
    bounded: impl Fn(i32) -> i32,
) -> Option<Timestamp> {
    if bounded(pace(rules, memory, position).replicas) != position.replicas {
        // Without rules, the next pass raises again, whenever it is.
        return None;
    }
    let windows = rules.windows();
    let mut ends: Vec<Timestamp> = Vec::new();
    ends.extend(memory.proposals.peaks.iter().map(|peak| window_end(rules, peak.at, windows.down)));
    ends.extend(memory.proposals.troughs.iter().map(|trough| window_end(rules, trough.at, windows.up)));
    if let ScalePace::Rules { up, down } = rules {
        for change in memory.changes.raises.iter().chain(&memory.changes.lowerings) {
            for policy in up.policies.iter().chain(&down.policies) {
                ends.extend([change.first, change.last].map(|time| end(time, policy.period)));
            }
        }
    }
    ends.retain(|end| *end > position.now);
    ends.sort_unstable();
    ends.dedup();
    ends.into_iter().find(|end| {
        let then = Position { now: *end, ..position };
        bounded(pace(rules, memory, then).replicas) != position.replicas
    })
}

/// When a proposal of this time is no longer in the window.
fn window_end(pace: &ScalePace, at: Timestamp, window: SignedDuration) -> Timestamp {
    let margin = match window_start(pace) {
        WindowStart::In => SignedDuration::from_millis(1),
        WindowStart::Out => SignedDuration::ZERO,
    };
    end(end(at, window), margin)
}
