//! Loads in few words.

use jiff::{SignedDuration, Timestamp};

use crate::forecast::{ForecastMemory, ForecastOutcome, ForecastRules, ForecastTrust};

pub const MINUTE: i64 = 60;
pub const HOUR: i64 = 60 * MINUTE;
pub const DAY: i64 = 24 * HOUR;

/// Rules of 288 buckets of 5 minutes.
pub const DAILY: ForecastRules = rules(10 * MINUTE, DAY);

/// Rules of 12 buckets of a minute.
pub const SHORT: ForecastRules = rules(MINUTE, 12 * MINUTE);

pub const fn rules(ahead: i64, season: i64) -> ForecastRules {
    ForecastRules { ahead: SignedDuration::from_secs(ahead), season: SignedDuration::from_secs(season) }
}

/// A second of the tests. Second 0 is at midnight.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_057_600 + second).unwrap()
}

/// Number from −1 to 1 that looks random.
pub fn noise(second: i64) -> f64 {
    let mut bits = second.cast_unsigned().wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((bits ^ bits >> 32) >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

/// Load of office hours: 10 at night, 40 from 9:00 to 17:00, with ramps of an hour and some noise.
pub fn office(second: i64) -> f64 {
    let hour = second.rem_euclid(DAY) as f64 / HOUR as f64;
    let share = (hour - 8.0).clamp(0.0, 1.0) - (hour - 17.0).clamp(0.0, 1.0);
    (10.0 + 30.0 * share) * (1.0 + 0.03 * noise(second))
}

/// Memory that follows a load.
pub struct FollowedLoad {
    pub memory: ForecastMemory,
    /// Current second.
    pub second: i64,
}

impl FollowedLoad {
    pub fn new(rules: &ForecastRules) -> Self {
        Self { memory: ForecastMemory::new(rules, at(0)).unwrap(), second: 0 }
    }

    /// Records a value each minute until this second.
    pub fn follow(&mut self, until: i64, load: impl Fn(i64) -> Option<f64>) -> &mut Self {
        while self.second < until {
            self.memory.record(load(self.second), at(self.second));
            self.second += MINUTE;
        }
        self
    }

    /// Forecast of the last recorded second.
    pub fn forecast(&self) -> ForecastOutcome {
        self.memory.forecast(at(self.second - MINUTE))
    }

    pub fn trust(&self) -> ForecastTrust {
        self.forecast().trust
    }

    pub fn is_trusted(&self) -> bool {
        matches!(self.trust(), ForecastTrust::Trusted(_))
    }
}

/// Memory that has followed office hours for this many days.
pub fn offices(days: i64) -> FollowedLoad {
    let mut this = FollowedLoad::new(&DAILY);
    this.follow(days * DAY, |second| Some(office(second)));
    this
}
