//! Rules of a forecast, and the buckets that follow from them.

use ganglion_core::duration::show;
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

/// Maximum number of buckets of a season.
pub const MAX_BUCKETS: i64 = 288;

/// Shortest `ahead`: a replica that starts faster needs no forecast.
pub const MIN_AHEAD: SignedDuration = SignedDuration::from_mins(1);

/// Longest `ahead`: capacity of an hour ahead costs more than most loads are worth.
pub const MAX_AHEAD: SignedDuration = SignedDuration::from_hours(1);

/// Least number of horizons in a season. With fewer, a forecast says little more than the mean of the season.
const MIN_HORIZONS: i64 = 12;

/// Shortest bucket, in seconds: a few samples of a loop with the usual interval.
const MIN_WIDTH: i64 = 60;

/// Rules of a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForecastRules {
    /// Time by which capacity is raised early: at least the time that a new replica takes until it serves.
    pub ahead: SignedDuration,
    /// Time after which the load repeats itself: a multiple of `ahead`.
    pub season: SignedDuration,
}

/// Reason why rules cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ForecastRuleError {
    #[error("ahead is {}: use whole seconds from {} to {}", show(*ahead), show(MIN_AHEAD), show(MAX_AHEAD))]
    Ahead { ahead: SignedDuration },
    #[error(
        "season is {}, with ahead {}: use a season of {} to {}",
        show(*season), show(*ahead), show(*ahead * MIN_HORIZONS as i32), show(*ahead * MAX_BUCKETS as i32)
    )]
    Season { ahead: SignedDuration, season: SignedDuration },
    #[error(
        "season is {}, no multiple of ahead: instead of ahead {}, use {}",
        show(*season), show(*ahead), nearest(*ahead, *season)
    )]
    NoMultiple { ahead: SignedDuration, season: SignedDuration },
}

/// Time from `ahead` on, in whole minutes, of which the season is a multiple.
fn nearest(ahead: SignedDuration, season: SignedDuration) -> String {
    let fits =
        |candidate: &SignedDuration| *candidate >= ahead && ForecastRules { ahead: *candidate, season }.grid().is_ok();
    let candidate = (1..=MAX_AHEAD.as_mins()).map(SignedDuration::from_mins).find(fits);
    candidate.map_or_else(|| "a time of which the season is a multiple".to_owned(), show)
}

impl ForecastRules {
    /// Checks the rules; the first problem.
    pub fn check(&self) -> Result<(), ForecastRuleError> {
        self.grid().map(drop)
    }

    /// Length of a bucket. With fewer than one sample in each, there is no forecast.
    pub fn bucket(&self) -> Result<SignedDuration, ForecastRuleError> {
        self.grid().map(|grid| SignedDuration::from_secs(grid.width))
    }

    /// The buckets: as many to a season as possible, so that `ahead` is a multiple of a bucket.
    pub(super) fn grid(&self) -> Result<ForecastGrid, ForecastRuleError> {
        let Self { ahead, season } = *self;
        if ahead < MIN_AHEAD || ahead > MAX_AHEAD || ahead.subsec_nanos() != 0 {
            return Err(ForecastRuleError::Ahead { ahead });
        }
        let (seconds, total) = (ahead.as_secs(), season.as_secs());
        if total < seconds * MIN_HORIZONS || total > seconds * MAX_BUCKETS {
            return Err(ForecastRuleError::Season { ahead, season });
        }
        if total % seconds != 0 || season.subsec_nanos() != 0 {
            return Err(ForecastRuleError::NoMultiple { ahead, season });
        }
        let most = (MAX_BUCKETS * seconds / total).min(seconds / MIN_WIDTH);
        // One bucket for each horizon always fits.
        let horizon = (1..=most).rev().find(|buckets| seconds % buckets == 0).unwrap_or(1);
        let width = seconds / horizon;
        Ok(ForecastGrid { width, count: total / width, horizon })
    }
}

/// Buckets of a season. A bucket has an index: its start, in seconds since 1970, by its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ForecastGrid {
    /// Length of a bucket, in seconds.
    pub width: i64,
    /// Number of buckets of a season.
    pub count: i64,
    /// Number of buckets of `ahead`.
    pub horizon: i64,
}

impl ForecastGrid {
    /// Index of the bucket at this time.
    pub fn index(&self, at: Timestamp) -> i64 {
        at.as_second().div_euclid(self.width)
    }

    /// Number of buckets from the last one that is over to the one at the end of `ahead`. Forecasts are judged at this
    /// distance.
    pub fn distance(&self) -> i64 {
        self.horizon + 1
    }

    /// Number of empty buckets in a row after which trust has to be earned again: a quarter of a season.
    pub fn longest_gap(&self) -> i64 {
        self.count / 4
    }
}
