//! Loops that stand on one another: how deep, in no circle, and how much slower each is than the one below.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use crate::api::closed_loop::ClosedLoopSpec;
use crate::logic::closed_loop::common::{FieldError, duration};

/// How many loops may stand on one another.
pub const MAX_DEPTH: usize = 3;

/// How much longer a slow loop's interval must be than what the fast one takes between two actions.
const SLOWER: i32 = 5;

/// What matters of a loop here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopLink {
    /// Name of the loop that it tunes.
    pub tunes: Option<String>,
    pub interval: SignedDuration,
    pub dwell: SignedDuration,
    /// The longest settle of its actions.
    pub settle: SignedDuration,
}

/// Why a loop may not act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainError {
    /// It tunes, by way of others, itself: the names on the way.
    Circle(Vec<String>),
    /// So many loops stand on one another, from it downwards.
    TooDeep(usize),
}

impl std::fmt::Display for ChainError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Circle(names) => write!(f, "the loops tune one another in a circle: {}", names.join(" -> ")),
            Self::TooDeep(depth) => {
                write!(f, "{depth} loops stand on one another; at most {MAX_DEPTH} may: let it tune one further down")
            }
        }
    }
}

impl LoopLink {
    /// What matters of this loop.
    ///
    /// # Errors
    ///
    /// A duration cannot be read.
    pub fn of(spec: &ClosedLoopSpec) -> Result<Self, FieldError> {
        let mut settle = SignedDuration::ZERO;
        for action in spec.actions.iter().flatten() {
            settle = settle.max(duration("actions.settle", action.settle.as_ref())?);
        }
        let dwell = spec.policy.as_ref().and_then(|policy| policy.dwell.as_ref());
        Ok(Self {
            tunes: (spec.target.kind == "ClosedLoop").then(|| spec.target.name.clone()),
            interval: duration("interval", Some(&spec.interval))?,
            dwell: duration("policy.dwell", dwell)?,
            settle,
        })
    }
}

/// Whether this loop of its namespace may act, given all of them.
///
/// # Errors
///
/// It stands in a circle, or too high.
pub fn check(name: &str, loops: &BTreeMap<String, LoopLink>) -> Result<(), ChainError> {
    let mut way = vec![name.to_owned()];
    let mut at = name;
    while let Some(next) = loops.get(at).and_then(|link| link.tunes.as_deref()) {
        let met = way.iter().any(|passed| passed == next);
        way.push(next.to_owned());
        // A circle further down is for those in it; this loop merely stands on it, and may not act either.
        if met {
            return Err(ChainError::Circle(way));
        }
        // A loop that is not there tunes nothing.
        if !loops.contains_key(next) {
            way.pop();
            break;
        }
        at = next;
    }
    if way.len() > MAX_DEPTH { Err(ChainError::TooDeep(way.len())) } else { Ok(()) }
}

/// In what way this loop is too fast for the one that it tunes, in words.
#[must_use]
pub fn overlap(name: &str, loops: &BTreeMap<String, LoopLink>) -> Option<String> {
    let slow = loops.get(name)?;
    let below = slow.tunes.as_deref()?;
    let fast = loops.get(below)?;
    let least = fast.dwell.saturating_add(fast.settle).saturating_mul(SLOWER);
    (slow.interval < least).then(|| {
        format!(
            "interval {}s is under {SLOWER} times the dwell and settle of {below}, {}s: it judges before effects show",
            slow.interval.as_secs(),
            least.as_secs()
        )
    })
}
