//! Chains of loops that tune each other: their depth, circles, and the ratio of their time scales.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use crate::common::{FieldError, action_field, duration};
use ganglion_api::closed_loop::ClosedLoopSpec;
use ganglion_core::duration::show;

/// Maximum number of loops in a chain.
pub const MAX_DEPTH: usize = 3;

/// Minimum ratio of a slow loop's interval to the dwell plus settle of the fast one.
const SLOWER: i32 = 5;

/// Properties of a loop that matter in a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopLink {
    /// Name of the loop that it tunes.
    pub tunes: Option<String>,
    pub interval: SignedDuration,
    pub dwell: SignedDuration,
    /// Longest settle of its actions.
    pub settle: SignedDuration,
}

/// Reason why a chain is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainError {
    /// It tunes itself, directly or through others: the names of the circle.
    Circle(Vec<String>),
    /// The chain that begins with this loop has this many loops.
    TooDeep(usize),
}

impl std::fmt::Display for ChainError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Circle(names) => write!(f, "the loops tune each other in a circle: {}", names.join(" -> ")),
            Self::TooDeep(depth) => {
                write!(f, "the chain has {depth} loops; at most {MAX_DEPTH} are allowed: tune a loop further down")
            }
        }
    }
}

impl LoopLink {
    /// Returns the link of this loop.
    pub fn parse(spec: &ClosedLoopSpec) -> Result<Self, FieldError> {
        let mut settle = SignedDuration::ZERO;
        for action in spec.actions.iter().flatten() {
            let field = format!("{}.settle", action_field(&action.when));
            settle = settle.max(duration(&field, action.settle.as_ref())?);
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

/// Checks the chain that begins with this loop. `loops` are all loops of its namespace.
pub fn check(name: &str, loops: &BTreeMap<String, LoopLink>) -> Result<(), ChainError> {
    let mut way = vec![name.to_owned()];
    let mut at = name;
    while let Some(next) = loops.get(at).and_then(|link| link.tunes.as_deref()) {
        let met = way.iter().any(|passed| passed == next);
        way.push(next.to_owned());
        // A loop that tunes into a circle may not act either.
        if met {
            return Err(ChainError::Circle(way));
        }
        // The tuned loop does not exist.
        if !loops.contains_key(next) {
            way.pop();
            break;
        }
        at = next;
    }
    if way.len() > MAX_DEPTH { Err(ChainError::TooDeep(way.len())) } else { Ok(()) }
}

/// Returns why this loop is too fast for the loop that it tunes, if so.
pub fn overlap(name: &str, loops: &BTreeMap<String, LoopLink>) -> Option<String> {
    let slow = loops.get(name)?;
    let below = slow.tunes.as_deref()?;
    let fast = loops.get(below)?;
    let least = fast.dwell.saturating_add(fast.settle).saturating_mul(SLOWER);
    (slow.interval < least).then(|| {
        format!(
            "interval is {}; must be at least {} ({SLOWER} × (dwell + settle) of {below}): it would judge before effects \
             are visible",
            show(slow.interval),
            show(least)
        )
    })
}
