//! The limits of a policy: dwell, budgets, and the reaction to oscillation.
//!
//! They depend only on the list of past actions. The list is written with each decision, so it is kept as short as the
//! limits allow.

use jiff::{SignedDuration, Timestamp};

use crate::common::{FieldError, duration, elapsed, later, micro_time, time_text};
use crate::schedule::{self, Calendar};
use ganglion_api::closed_loop::policy::{self, Calm, Oscillation, Policy};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::when::When;
use ganglion_api::decision::{Act, Direction, LimitState, Rejected};

/// Number of actions that are stored regardless of their age: the last one, and the one before it in case the last one
/// has no effect.
const LAST_FEW: usize = 2;

/// The parsed limits of a policy.
#[derive(Clone, Debug, Default)]
pub struct PolicyLimits {
    all: Vec<ActionLimit>,
    oscillation: Option<OscillationLimit>,
}

/// A dwell and a budget, and the windows in which they apply.
#[derive(Clone, Debug)]
struct ActionLimit {
    /// Empty for the limit of the policy itself.
    name: String,
    windows: Vec<Calendar>,
    dwell: SignedDuration,
    budget: Option<ActionBudget>,
}

#[derive(Clone, Copy, Debug)]
struct ActionBudget {
    max: usize,
    per: SignedDuration,
}

#[derive(Clone, Copy, Debug)]
struct OscillationLimit {
    reversals: usize,
    per: SignedDuration,
    then: Calm,
}

/// Reason why an alarm is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlarmRejection {
    pub reason: LoopReason,
    pub message: String,
    /// The rejection counts as limited.
    pub limit: bool,
    /// Time at which the rejection expires, if it is time-based and the time is known.
    pub until: Option<Timestamp>,
}

impl AlarmRejection {
    /// A rejection that lasts until the next sample, or until something else changes.
    pub fn new(reason: LoopReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), limit: false, until: None }
    }

    /// A rejection by a limit.
    pub fn limited(reason: LoopReason, message: String, until: Option<Timestamp>) -> Self {
        Self { reason, message, limit: true, until }
    }

    /// Converts the rejection for the status.
    pub fn reported(self, when: When) -> Rejected {
        Rejected { when, reason: self.reason, message: self.message }
    }
}

impl PolicyLimits {
    /// Parses the policy.
    pub fn parse(policy: &Policy) -> Result<Self, FieldError> {
        let mut all = vec![ActionLimit {
            name: String::new(),
            windows: Vec::new(),
            dwell: duration("policy.dwell", policy.dwell.as_ref())?,
            budget: policy.budget.as_ref().map(|budget| ActionBudget::parse("policy.budget", budget)).transpose()?,
        }];
        for limit in policy.limits.iter().flatten() {
            let field = format!("policy.limits[{}]", limit.name);
            all.push(ActionLimit {
                windows: schedule::parse(&format!("{field}.during"), Some(&limit.during))?,
                dwell: duration(&format!("{field}.dwell"), limit.dwell.as_ref())?,
                budget: limit
                    .budget
                    .as_ref()
                    .map(|budget| ActionBudget::parse(&format!("{field}.budget"), budget))
                    .transpose()?,
                name: limit.name.clone(),
            });
        }
        Ok(Self { all, oscillation: policy.oscillation.as_ref().map(OscillationLimit::parse).transpose()? })
    }

    /// Returns the limit that blocks an action of this direction; None if the action is allowed.
    pub fn rejection(&self, acts: &[Act], direction: Direction, now: Timestamp) -> Option<AlarmRejection> {
        let oscillates = self.oscillation.and_then(|oscillation| oscillation.rejection(acts, direction, now));
        oscillates.or_else(|| self.at(now).find_map(|(limit, ends)| limit.rejection(acts, now, ends)))
    }

    /// The state of the limits for the status.
    pub fn state(&self, acts: &[Act], now: Timestamp) -> Option<LimitState> {
        let limits: Vec<&ActionLimit> = self.at(now).map(|(limit, _)| limit).collect();
        let dwell = limits.iter().filter_map(|limit| limit.dwell_until(acts, now)).max();
        let left = limits.iter().filter_map(|limit| limit.budget).map(|budget| budget.left(acts, now)).min();
        let calm = self.oscillation.and_then(|oscillation| Some((oscillation.then, oscillation.until(acts, now)?)));
        let until = |kind| calm.filter(|(then, _)| *then == kind).map(|(_, until)| micro_time(until));
        let state = LimitState {
            dwell_until: dwell.map(micro_time),
            budget_left: left.map(|left| i32::try_from(left).unwrap_or(i32::MAX)),
            damped_until: until(Calm::Damp),
            frozen_until: until(Calm::Freeze),
        };
        (state != LimitState::default()).then_some(state)
    }

    /// Removes the actions that no limit needs: all that are older than the longest period. The last action of each
    /// dimension stays, since the next one may be its reversal. If a changed policy needs more actions, `history` takes
    /// them from the history of decisions.
    pub fn forget(&self, acts: &mut Vec<Act>, now: Timestamp) {
        let durations = self.all.iter().flat_map(|limit| [Some(limit.dwell), limit.budget.map(|budget| budget.per)]);
        let longest = durations.chain([self.oscillation.map(|oscillation| oscillation.per)]).flatten().max();
        let is_old = |act: &Act| elapsed(&act.at, now) >= longest.unwrap_or_default();
        let turns = |act: &Act| act.direction != Direction::Neither;
        let mut kept: Vec<Act> = Vec::new();
        for (age, act) in acts.drain(..).rev().enumerate() {
            let same_turns = |other: &Act| is_old(other) && turns(other) && other.dimension == act.dimension;
            let is_last = || !kept.iter().any(same_turns);
            if age < LAST_FEW || !is_old(&act) || (turns(&act) && is_last()) {
                kept.push(act);
            }
        }
        kept.reverse();
        *acts = kept;
    }

    /// The limits that apply now, each with the time when its window closes.
    fn at(&self, now: Timestamp) -> impl Iterator<Item = (&ActionLimit, Timestamp)> {
        let phases = self.all.iter().map(move |limit| (limit, schedule::phase(&limit.windows, now)));
        phases.filter(|(_, phase)| phase.open).map(|(limit, phase)| (limit, phase.end))
    }
}

impl ActionLimit {
    /// Returns why no action is allowed now, if so. `ends` is when the limit ceases to apply.
    fn rejection(&self, acts: &[Act], now: Timestamp, ends: Timestamp) -> Option<AlarmRejection> {
        let whose = if self.name.is_empty() { String::new() } else { format!(" (limit {})", self.name) };
        if let Some(until) = self.dwell_until(acts, now).map(|until| until.min(ends)) {
            let message = format!("dwell: no action before {}{whose}", time_text(until));
            return Some(AlarmRejection::limited(LoopReason::Dwell, message, Some(until)));
        }
        let budget = self.budget.filter(|budget| budget.left(acts, now) == 0)?;
        let until = budget.until(acts, now).into_iter().chain((ends < Timestamp::MAX).then_some(ends)).min();
        let when = until.map(|until| format!(" until {}", time_text(until))).unwrap_or_default();
        let message = format!("all {} actions of the budget are used{when}{whose}", budget.max);
        Some(AlarmRejection::limited(LoopReason::Budget, message, until))
    }

    fn dwell_until(&self, acts: &[Act], now: Timestamp) -> Option<Timestamp> {
        let last = acts.iter().map(|act| act.at.0).max()?;
        let until = later(last, self.dwell);
        (!self.dwell.is_zero() && until > now).then_some(until)
    }
}

impl ActionBudget {
    fn parse(field: &str, budget: &policy::Budget) -> Result<Self, FieldError> {
        let per = duration(&format!("{field}.per"), Some(&budget.per))?;
        Ok(Self { max: usize::try_from(budget.max).unwrap_or(0), per })
    }

    fn left(self, acts: &[Act], now: Timestamp) -> usize {
        self.max.saturating_sub(self.recent(acts, now).count())
    }

    /// Returns when the oldest action leaves the period, so that the budget allows another one.
    fn until(self, acts: &[Act], now: Timestamp) -> Option<Timestamp> {
        let mut recent: Vec<Timestamp> = self.recent(acts, now).collect();
        recent.sort_unstable();
        let first = recent.len().checked_sub(self.max)?;
        recent.get(first).map(|at| later(*at, self.per))
    }

    fn recent(self, acts: &[Act], now: Timestamp) -> impl Iterator<Item = Timestamp> {
        acts.iter().filter(move |act| elapsed(&act.at, now) < self.per).map(|act| act.at.0)
    }
}

impl OscillationLimit {
    fn parse(oscillation: &Oscillation) -> Result<Self, FieldError> {
        Ok(Self {
            reversals: usize::try_from(oscillation.reversals).unwrap_or(1).max(1),
            per: duration("policy.oscillation.per", Some(&oscillation.per))?,
            then: oscillation.then.unwrap_or_default(),
        })
    }

    fn rejection(self, acts: &[Act], direction: Direction, now: Timestamp) -> Option<AlarmRejection> {
        let until = self.until(acts, now)?;
        let (reason, what) = match (self.then, direction) {
            (Calm::Freeze, Direction::Raise | Direction::Lower | Direction::Neither) => {
                (LoopReason::Frozen, "no action")
            }
            (Calm::Damp, Direction::Lower) => (LoopReason::Damped, "capacity is not lowered"),
            (Calm::Damp, Direction::Raise | Direction::Neither) => return None,
        };
        let message = format!(
            "oscillation: its actions reversed {} times or more; {what} until {}",
            self.reversals,
            time_text(until)
        );
        Some(AlarmRejection::limited(reason, message, Some(until)))
    }

    /// Returns when the number of reversals in the period falls below the limit; None if it is below.
    fn until(self, acts: &[Act], now: Timestamp) -> Option<Timestamp> {
        let mut recent: Vec<Timestamp> =
            reversals(acts).into_iter().filter(|at| now.duration_since(*at) < self.per).collect();
        recent.sort_unstable();
        let last = recent.len().checked_sub(self.reversals)?;
        recent.get(last).map(|at| later(*at, self.per))
    }
}

/// Returns the times of actions whose direction is opposite to the previous action on the same dimension.
pub fn reversals(acts: &[Act]) -> Vec<Timestamp> {
    let mut found = Vec::new();
    for (index, act) in acts.iter().enumerate() {
        if act.direction == Direction::Neither {
            continue;
        }
        let before = acts
            .iter()
            .take(index)
            .rev()
            .find(|other| other.dimension == act.dimension && other.direction != Direction::Neither);
        if before.is_some_and(|before| before.direction != act.direction) {
            found.push(act.at.0);
        }
    }
    found
}
