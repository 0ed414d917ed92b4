//! Which rung's turn it is: the next one when one is exhausted or had no effect, the first again once the alarm is over.

use jiff::{SignedDuration, Timestamp};

use crate::api::closed_loop::metric::Side;
use crate::api::decision::LadderState;
use crate::logic::closed_loop::common::{later, micro_time, number_text};
use crate::logic::quantity;

/// How long a ladder that has come to its bounds is left alone: others may make room meanwhile.
pub const LIMITED_PAUSE: SignedDuration = SignedDuration::from_mins(5);

/// How long a ladder whose last rung failed is left alone: somebody may grant the right that it lacked.
pub const FAILED_PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LadderStep {
    /// This rung, from 0.
    Climb(usize),
    /// The last action's effect cannot be judged before then.
    Settling(Timestamp),
    /// No rung is left until then.
    Exhausted(Timestamp),
}

/// One ladder, as far as its turns depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Ladder {
    /// How many rungs it has.
    pub rungs: usize,
    /// When an effect can be judged.
    pub settle: SignedDuration,
    /// On which side of its level the metric is.
    pub side: Side,
}

impl Ladder {
    /// Whose turn it is.
    #[must_use]
    pub fn next_step(&self, state: Option<&LadderState>, value: Option<f64>, now: Timestamp) -> LadderStep {
        let Some(state) = state else { return LadderStep::Climb(0) };
        if let Some(until) = &state.exhausted_until {
            return if until.0 > now { LadderStep::Exhausted(until.0) } else { LadderStep::Climb(0) };
        }
        // A policy that has fewer rungs now begins anew where the old rung is gone.
        let rung = usize::try_from(state.rung).ok().filter(|rung| *rung < self.rungs).unwrap_or(0);
        match &state.judge_at {
            Some(at) if at.0 > now => LadderStep::Settling(at.0),
            Some(_) if !self.helped(state, value) && rung.saturating_add(1) < self.rungs => {
                LadderStep::Climb(rung.saturating_add(1))
            }
            Some(_) | None => LadderStep::Climb(rung),
        }
    }

    /// Whether the value went the right way since. What is not known counts as helped: nothing stronger is done blindly.
    fn helped(&self, state: &LadderState, value: Option<f64>) -> bool {
        let before = state.value.as_ref().and_then(|value| quantity::number(value.as_str()).ok());
        match (before, value, self.side) {
            (Some(before), Some(value), Side::Low) => value > before,
            (Some(before), Some(value), Side::High) => value < before,
            // The alarm still stands, or it would not be asked.
            (Some(_), Some(_), Side::Equal | Side::Missing) => false,
            (None, _, _) | (_, None, _) => true,
        }
    }

    /// The state after this rung's action.
    #[must_use]
    pub fn acted(&self, metric: &str, rung: usize, value: Option<f64>, now: Timestamp) -> LadderState {
        LadderState {
            metric: metric.to_owned(),
            side: self.side,
            rung: i32::try_from(rung).unwrap_or(0),
            judge_at: (!self.settle.is_zero()).then(|| micro_time(later(now, self.settle))),
            value: value.map(number_text),
            exhausted_until: None,
        }
    }

    /// The state after this rung's action turned out to be impossible: the next rung, or none until then.
    #[must_use]
    pub fn failed(&self, metric: &str, rung: usize, until: Timestamp) -> LadderState {
        let next = rung.saturating_add(1);
        let left = next < self.rungs;
        LadderState {
            metric: metric.to_owned(),
            side: self.side,
            rung: if left { i32::try_from(next).unwrap_or(0) } else { 0 },
            judge_at: None,
            value: None,
            exhausted_until: (!left).then(|| micro_time(until)),
        }
    }
}
