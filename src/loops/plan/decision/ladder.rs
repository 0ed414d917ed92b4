//! The position on a ladder: which rung is next.
//!
//! The next rung is tried when the current one is exhausted or had no effect. A cleared alarm starts again at the first
//! rung.

use jiff::{SignedDuration, Timestamp};

use crate::common::{later, micro_time};
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::closed_loop::when::When;
use ganglion_api::decision::LadderState;
use ganglion_api::scalars::Number;
use ganglion_core::quantity;

/// Pause of a ladder whose last rung reached its bounds. Other loops or users may make room meanwhile.
pub const LIMITED_PAUSE: SignedDuration = SignedDuration::from_mins(5);

/// Pause of a ladder whose last rung failed, or found no replica to move. Somebody may grant a missing right, or create
/// replicas, meanwhile.
pub const FAILED_PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// The next step on a ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LadderStep {
    /// Take this rung, counted from 0.
    Climb(usize),
    /// Wait: the effect of the last action cannot be judged before this time.
    Settling(Timestamp),
    /// No rung is left until this time.
    Exhausted(Timestamp),
}

/// The properties of a ladder that its steps depend on.
#[derive(Clone, Copy, Debug)]
pub struct Ladder<'a> {
    /// Number of rungs.
    pub rungs: usize,
    /// The time after which an effect can be judged.
    pub settle: SignedDuration,
    /// The alarm or the combination of alarms.
    pub when: &'a When,
    /// Digest of the ladder in the spec.
    pub digest: &'a str,
}

impl Ladder<'_> {
    /// The next step.
    pub fn next_step(&self, state: Option<&LadderState>, value: Option<f64>, now: Timestamp) -> LadderStep {
        let Some(state) = state else { return LadderStep::Climb(0) };
        if let Some(until) = &state.exhausted_until {
            return if until.0 > now { LadderStep::Exhausted(until.0) } else { LadderStep::Climb(0) };
        }
        // If the policy was changed and the rung is gone, the ladder starts again.
        let rung = usize::try_from(state.rung).ok().filter(|rung| *rung < self.rungs).unwrap_or(0);
        match &state.judge_at {
            Some(at) if at.0 > now => LadderStep::Settling(at.0),
            Some(_) if !self.helped(state, value) && rung.saturating_add(1) < self.rungs => {
                LadderStep::Climb(rung.saturating_add(1))
            }
            Some(_) | None => LadderStep::Climb(rung),
        }
    }

    /// Whether the value improved since the last action. An unknown value counts as improved: no stronger action is
    /// taken blindly.
    fn helped(&self, state: &LadderState, value: Option<f64>) -> bool {
        // A combination has no value, and it is still met; otherwise the ladder would not be evaluated.
        let Some(alarm) = self.when.one() else { return false };
        let before = state.value.as_ref().and_then(|value| quantity::number(value.as_str()).ok());
        match (before, value, alarm.side) {
            (Some(before), Some(value), Side::Low) => value > before,
            (Some(before), Some(value), Side::High) => value < before,
            // The alarm is still raised; otherwise the ladder would not be evaluated.
            (Some(_), Some(_), Side::Equal | Side::Missing) => false,
            // There is one rung.
            (Some(_), Some(_), Side::Target) => true,
            (None, _, _) | (_, None, _) => true,
        }
    }

    /// The state after an action of this rung that was carried out at this time, because of this value.
    pub fn acted(&self, rung: usize, value: Option<Number>, at: Timestamp) -> LadderState {
        LadderState {
            when: self.when.clone(),
            rung: i32::try_from(rung).unwrap_or(0),
            judge_at: (!self.settle.is_zero()).then(|| micro_time(later(at, self.settle))),
            value,
            exhausted_until: None,
            digest: Some(self.digest.to_owned()),
            dry_run: false,
        }
    }

    /// The state after an action of this rung failed: the next rung, or a pause until this time.
    pub fn failed(&self, rung: usize, until: Timestamp) -> LadderState {
        let next = rung.saturating_add(1);
        let left = next < self.rungs;
        LadderState {
            when: self.when.clone(),
            rung: if left { i32::try_from(next).unwrap_or(0) } else { 0 },
            judge_at: None,
            value: None,
            exhausted_until: (!left).then(|| micro_time(until)),
            digest: Some(self.digest.to_owned()),
            dry_run: false,
        }
    }

    /// The state in this ladder. A ladder that was changed in the spec starts again at its first rung, so that a
    /// correction takes effect at once and not after the pause of the faulty ladder. The effect of the last action is
    /// still awaited, at most for the new settle time. None: there is no state.
    pub fn renewed(&self, state: LadderState, now: Timestamp) -> Option<LadderState> {
        if state.digest.as_deref().is_none_or(|digest| digest == self.digest) {
            return Some(state);
        }
        let judge_at = state.judge_at?.0.min(later(now, self.settle));
        let digest = Some(self.digest.to_owned());
        Some(LadderState { rung: 0, judge_at: Some(micro_time(judge_at)), value: None, digest, ..state })
    }
}
