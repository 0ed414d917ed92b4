//! Positions of times and values on the axes of a plot.

use jiff::{SignedDuration, Timestamp};

use super::model::{SeriesPoint, ShownLevel};
use super::width::fit;

/// Steps between two marks of a time axis, in seconds.
const STEPS: [i64; 19] =
    [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400, 604_800, 2_592_000];

/// Time from which labels have a date.
const A_DAY: SignedDuration = SignedDuration::from_hours(20);

/// The time axis.
#[derive(Clone, Copy, Debug)]
pub struct TimeScale {
    pub start: Timestamp,
    pub end: Timestamp,
}

impl TimeScale {
    /// Position of a time, from 0 to 1.
    pub fn part(self, at: Timestamp) -> f64 {
        let whole = self.end.duration_since(self.start).as_secs_f64();
        if whole <= 0.0 { 1.0 } else { (at.duration_since(self.start).as_secs_f64() / whole).clamp(0.0, 1.0) }
    }

    /// Label of a time, as short as the axis permits.
    pub fn label(self, at: Timestamp) -> String {
        let form = if self.end.duration_since(self.start) > A_DAY { "%m-%d %H:%M" } else { "%H:%M:%S" };
        at.strftime(form).to_string()
    }

    /// At most `most` round times on the axis.
    pub fn marks(self, most: i64) -> Vec<Timestamp> {
        let whole = self.end.duration_since(self.start).as_secs();
        let fits = |step: &&i64| whole / **step < most;
        let step = STEPS.iter().find(fits).copied().unwrap_or((whole / most.max(1)).max(1));
        let first = (self.start.as_second() + step - 1).div_euclid(step) * step;
        let seconds = (0..=most).map(|index| first + index * step);
        seconds.filter_map(|second| Timestamp::from_second(second).ok()).filter(|at| *at <= self.end).collect()
    }
}

/// Columns of the labels of a value axis.
const LABEL: usize = 9;

/// The axis of values. Its ends are recorded values, as they were recorded.
#[derive(Clone, Debug)]
pub struct ValueScale {
    low: f64,
    high: f64,
    low_text: String,
    high_text: String,
}

impl ValueScale {
    /// The smallest axis that shows all points and levels.
    pub fn of(points: &[SeriesPoint], levels: &[&ShownLevel]) -> Self {
        let points = points.iter().map(|point| (point.value, point.text.as_str()));
        let mut all: Vec<(f64, &str)> =
            points.chain(levels.iter().map(|level| (level.value, level.text.as_str()))).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (Some((low, low_text)), Some((high, high_text))) = (all.first(), all.last()) else {
            return Self { low: 0.0, high: 1.0, low_text: String::new(), high_text: String::new() };
        };
        let (low_text, high_text) = (fit(low_text, LABEL), fit(high_text, LABEL));
        if (high - low).abs() <= f64::EPSILON * high.abs() {
            // The only value stands at the lower end.
            return Self { low: *low, high: high.abs().mul_add(0.1, high + 1.0), low_text, high_text: String::new() };
        }
        Self { low: *low, high: *high, low_text, high_text }
    }

    /// Position of a value, from 0 at the low end to 1.
    pub fn part(&self, value: f64) -> f64 {
        let part = (value - self.low) / (self.high - self.low);
        if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 }
    }

    pub fn low_text(&self) -> &str {
        &self.low_text
    }

    pub fn high_text(&self) -> &str {
        &self.high_text
    }
}
