//! Parsed rules of target tracking: bounds, tolerances, windows and rates, with the defaults of `autoscaling/v2`.

use jiff::SignedDuration;
use thiserror::Error;

use super::nanos::Nanos;

/// Longest stabilization window.
pub const MAX_WINDOW: SignedDuration = SignedDuration::from_secs(3600);

/// Longest period of a policy.
pub const MAX_PERIOD: SignedDuration = SignedDuration::from_secs(1800);

/// Maximum number of policies of a direction.
pub const MAX_POLICIES: usize = 16;

/// Window for lowering if none is given: the default of `--horizontal-pod-autoscaler-downscale-stabilization`.
const DOWN_WINDOW: SignedDuration = SignedDuration::from_mins(5);

const DEFAULT_PERIOD: SignedDuration = SignedDuration::from_secs(15);

/// Rules by which proposals become replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackRules {
    pub min: i32,
    pub max: i32,
    pub pace: ScalePace,
    /// With min 0, time without an active metric after which the last replica is removed. None: 0 is a number as any
    /// other, which only the proposals decide on, as in HorizontalPodAutoscaler.
    pub cooldown: Option<SignedDuration>,
}

/// Deviations of a metric from its target that change nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tolerances {
    pub up: Nanos,
    /// At 1 and more, the metric never lowers.
    pub down: Nanos,
}

impl Tolerances {
    pub fn check(&self) -> Result<(), TrackRuleError> {
        match [self.up, self.down].into_iter().find(|tolerance| *tolerance < Nanos::ZERO) {
            Some(tolerance) => Err(TrackRuleError::Tolerance { tolerance }),
            None => Ok(()),
        }
    }
}

impl Default for Tolerances {
    fn default() -> Self {
        Self { up: Nanos::from_millis(100), down: Nanos::from_millis(100) }
    }
}

/// How fast the number may follow proposals. HorizontalPodAutoscaler has two algorithms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScalePace {
    /// Without `behavior`: at most twice as many replicas, or 4, in one pass. Lowering waits for this window.
    PerPass { window: SignedDuration },
    /// With `behavior`, also an empty one.
    Rules { up: ScaleRules, down: ScaleRules },
}

impl Default for ScalePace {
    fn default() -> Self {
        Self::PerPass { window: DOWN_WINDOW }
    }
}

impl ScalePace {
    /// Rules for both directions, with the defaults for what is not given.
    pub fn rules(up: Option<ScaleRules>, down: Option<ScaleRules>) -> Self {
        Self::Rules {
            up: up.unwrap_or_else(ScaleRules::default_up),
            down: down.unwrap_or_else(ScaleRules::default_down),
        }
    }

    /// Window of raising, and of lowering.
    pub(super) fn windows(&self) -> Windows {
        match self {
            Self::PerPass { window } => Windows { up: SignedDuration::ZERO, down: *window },
            Self::Rules { up, down } => Windows { up: up.window, down: down.window },
        }
    }

    /// Longest period of all policies.
    pub(super) fn longest_period(&self) -> SignedDuration {
        match self {
            Self::PerPass { .. } => SignedDuration::ZERO,
            Self::Rules { up, down } => {
                let policies = up.policies.iter().chain(&down.policies);
                policies.map(|policy| policy.period).max().unwrap_or_default()
            }
        }
    }
}

/// Stabilization windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    pub up: SignedDuration,
    pub down: SignedDuration,
}

/// Window and rate of one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleRules {
    pub window: SignedDuration,
    pub policies: Vec<RatePolicy>,
    pub select: PolicySelect,
}

impl ScaleRules {
    /// 4 pods or 100 % in 15 s, whichever is more; no window.
    pub fn default_up() -> Self {
        let policies = [RateChange::Pods(4), RateChange::Percent(100)];
        let policies = policies.map(|change| RatePolicy { change, period: DEFAULT_PERIOD });
        Self { window: SignedDuration::ZERO, policies: policies.into(), select: PolicySelect::Max }
    }

    /// 100 % in 15 s; a window of 5 minutes.
    pub fn default_down() -> Self {
        let policy = RatePolicy { change: RateChange::Percent(100), period: DEFAULT_PERIOD };
        Self { window: DOWN_WINDOW, policies: vec![policy], select: PolicySelect::Max }
    }
}

/// Maximum change in a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RatePolicy {
    pub change: RateChange,
    pub period: SignedDuration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateChange {
    Pods(u32),
    /// Percent of the replicas at the start of the period.
    Percent(u32),
}

/// Policy that counts if there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicySelect {
    /// Largest change.
    Max,
    /// Smallest change.
    Min,
    /// The direction is switched off.
    Disabled,
}

/// Reason why rules cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TrackRuleError {
    #[error("min is {min}: use 0 or more")]
    NegativeMin { min: i32 },
    #[error("max is {max}: use 1 or more")]
    MaxBelowOne { max: i32 },
    #[error("min is {min} and max is {max}: min must not be above max")]
    MinAboveMax { min: i32, max: i32 },
    #[error("the target is {target}: use a number above 0")]
    Target { target: Nanos },
    #[error("the target is {percent} %: use a whole number of percent from 1 to {}", i32::MAX)]
    Percent { percent: i64 },
    #[error("the tolerance is {tolerance}: use 0 or more")]
    Tolerance { tolerance: Nanos },
    #[error("the window is {} s: use 0 to {} s", window.as_secs(), MAX_WINDOW.as_secs())]
    Window { window: SignedDuration },
    #[error("the period of a policy is {} s: use 1 to {} s", period.as_secs(), MAX_PERIOD.as_secs())]
    Period { period: SignedDuration },
    #[error("a policy allows 0: use 1 or more, or select: Disabled")]
    NoChange,
    #[error("there are {count} policies: use 1 to {MAX_POLICIES}, or omit the list for the default")]
    Policies { count: usize },
}

impl TrackRules {
    /// The nearest number within the bounds.
    pub(super) fn bounded(&self, replicas: i32) -> i32 {
        replicas.min(self.max).max(self.min)
    }

    /// Checks the rules; the first problem.
    pub fn check(&self) -> Result<(), TrackRuleError> {
        let Self { min, max, .. } = *self;
        if min < 0 {
            return Err(TrackRuleError::NegativeMin { min });
        }
        if max < 1 {
            return Err(TrackRuleError::MaxBelowOne { max });
        }
        if min > max {
            return Err(TrackRuleError::MinAboveMax { min, max });
        }
        match &self.pace {
            ScalePace::PerPass { window } => check_window(*window),
            ScalePace::Rules { up, down } => up.check().and_then(|()| down.check()),
        }
    }
}

impl ScaleRules {
    fn check(&self) -> Result<(), TrackRuleError> {
        check_window(self.window)?;
        if !(1..=MAX_POLICIES).contains(&self.policies.len()) {
            return Err(TrackRuleError::Policies { count: self.policies.len() });
        }
        for policy in &self.policies {
            if policy.period < SignedDuration::from_secs(1) || policy.period > MAX_PERIOD {
                return Err(TrackRuleError::Period { period: policy.period });
            }
            if matches!(policy.change, RateChange::Pods(0) | RateChange::Percent(0)) {
                return Err(TrackRuleError::NoChange);
            }
        }
        Ok(())
    }
}

fn check_window(window: SignedDuration) -> Result<(), TrackRuleError> {
    let is_valid = !window.is_negative() && window <= MAX_WINDOW;
    if is_valid { Ok(()) } else { Err(TrackRuleError::Window { window }) }
}
