//! Zero replicas: which metrics are active, since when none is, and who scaled the target to 0.

use jiff::{SignedDuration, Timestamp};

use super::metric::{TrackInput, TrackedMetric};

/// Time after an own change to 0 in which the number that was read may still be the one before.
const READ_DELAY: SignedDuration = SignedDuration::from_secs(30);

/// Activity of all metrics together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// Names an active metric.
    Active(String),
    /// A metric is unknown, and could be active: an outage does not count as 0. Names it.
    Unknown(String),
    /// All metrics that have a value without pods are inactive.
    Inactive,
    /// All metrics are of pods, and say nothing without them.
    OfPods,
}

impl Activity {
    pub fn of(metrics: &[TrackedMetric]) -> Self {
        let mut result = Self::OfPods;
        for metric in metrics {
            result = match (&metric.input, result) {
                (TrackInput::Total { value, .. }, _) if *value > metric.activation => {
                    return Self::Active(metric.name.clone());
                }
                (TrackInput::Unknown(_), _) => Self::Unknown(metric.name.clone()),
                (TrackInput::Total { .. } | TrackInput::Idle(_), Self::OfPods) => Self::Inactive,
                (TrackInput::Total { .. } | TrackInput::Idle(_) | TrackInput::Pods { .. }, before) => before,
            };
        }
        result
    }
}

/// Memory of a loop about zero replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroMemory {
    #[default]
    Nothing,
    /// No metric has been active since this time.
    Inactive(Timestamp),
    /// The operator scaled the target to 0 at this time, and nobody has raised it since.
    Own(Timestamp),
}

/// Whether the last replica may be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sleep {
    /// It stays, while a metric is active or unknown.
    Awake(Activity),
    /// It stays until this time.
    Cooldown(Timestamp),
    /// It may be removed: no metric is active, and the cooldown is over.
    Due,
}

impl ZeroMemory {
    /// Forgets that the operator scaled to 0, if somebody has raised the number since.
    pub(super) fn begin(&mut self, replicas: i32, now: Timestamp) {
        match *self {
            Self::Own(at) if replicas > 0 && now.duration_since(at) > READ_DELAY => *self = Self::Nothing,
            // The clock was set back.
            Self::Own(at) => *self = Self::Own(at.min(now)),
            Self::Inactive(since) => *self = Self::Inactive(since.min(now)),
            Self::Nothing => {}
        }
    }

    /// Records a change of the number of replicas by the operator.
    pub(super) fn record_change(&mut self, before: i32, after: i32, now: Timestamp) {
        if before != after {
            *self = if after == 0 { Self::Own(now) } else { Self::Nothing };
        }
    }

    /// Records the activity of a pass with replicas.
    pub(super) fn record_activity(&mut self, activity: Activity, cooldown: SignedDuration, now: Timestamp) -> Sleep {
        if activity != Activity::Inactive {
            if matches!(self, Self::Inactive(_)) {
                *self = Self::Nothing;
            }
            return Sleep::Awake(activity);
        }
        let since = match *self {
            Self::Inactive(since) => since,
            Self::Nothing | Self::Own(_) => now,
        };
        if *self == Self::Nothing {
            *self = Self::Inactive(since);
        }
        let until = since.checked_add(cooldown).unwrap_or(Timestamp::MAX);
        if until <= now { Sleep::Due } else { Sleep::Cooldown(until) }
    }
}
