//! Samples of a period of time, as one number: the mean, the largest, the 95th percentile, or the rate of a counter.
//!
//! A sample stands for the time since the one before it. The window of a value ends with its newest sample. It is
//! covered if samples reach back to its start, without a pause that is longer than a value may be old; before, there is
//! no value. Samples are in memory only, so that a window is not covered after a restart.
//!
//! At most [`MAX_SAMPLES`] are kept: if more come in a window, it has that many parts, and the samples of one part are
//! merged into one: into their mean (`mean`), the largest (`max`), or the last one (`p95`, `rate`; resets of a counter
//! within the part count). Means, maxima and rates differ by that only in where the window begins, by at most one part.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use super::level::RangedValue;
use crate::common::{FieldError, decimal, duration, later};
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::metric::{Metric, Source, WindowFunction};
use ganglion_core::duration::show;

/// Maximum number of samples of a metric, besides the one at the start of the window.
pub const MAX_SAMPLES: usize = 360;

/// Maximum length of a window.
const MAX_LENGTH: SignedDuration = SignedDuration::from_hours(24);

/// Length and function of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowRule {
    length: SignedDuration,
    function: WindowFunction,
    /// Maximum time between two samples: the values between two that are farther apart are not known.
    max_gap: SignedDuration,
}

/// Metric with a window. Samples of another source, or of another target, are of no use.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowedMetric {
    pub metric: String,
    pub rule: WindowRule,
    pub source: Source,
    pub target: Option<TargetRef>,
}

/// Sample of a metric. Times are in microseconds, so that a sample is small.
#[derive(Clone, Debug)]
struct WindowSample {
    /// Time from which its age counts.
    at: i64,
    measured: i64,
    /// Value of the metric; for a counter, the number without its resets.
    value: f64,
    /// None: the value is exact.
    range: Option<Box<SampleRange>>,
}

/// Range of a sample if some pods are not measured.
#[derive(Clone, Copy, Debug)]
struct SampleRange {
    least: f64,
    most: f64,
    missing_request: f64,
}

/// Value of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowValue {
    pub value: RangedValue,
    /// Time of the newest sample, from which the age of the value counts.
    pub at: Timestamp,
    /// Measurement by which an action must have taken effect, so that the value shows its effect: the oldest one that
    /// the value was computed from, or of `max` the one with the largest value.
    pub measured: Timestamp,
}

/// State of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WindowState {
    /// There is no sample.
    Empty,
    /// It is not covered. `least`: the value is at least this number whatever the values are that are not known.
    Uncovered {
        since: Timestamp,
        until: Timestamp,
        least: Option<WindowValue>,
    },
    Covered(WindowValue),
}

/// Samples of one metric.
#[derive(Debug)]
pub struct SampleWindow {
    rule: WindowRule,
    samples: VecDeque<WindowSample>,
    /// First sample after the last pause.
    covered_from: i64,
    /// Last number of the counter, and the sum of its numbers before its resets.
    counter: Option<(f64, f64)>,
}

impl WindowRule {
    /// Parses the window of a metric. `max_gap`: maximum age of its values.
    pub fn parse(metric: &Metric, max_gap: SignedDuration) -> Result<Option<Self>, FieldError> {
        let Some(over) = &metric.over else { return Ok(None) };
        let field = format!("metrics[{}].over", metric.name);
        if metric.source.formula.is_some() {
            return Err(FieldError::new(
                field,
                "a formula has no samples of its own: set it on the metrics that it uses",
            ));
        }
        let length = duration(&format!("{field}.window"), Some(&over.window))?;
        if length < SignedDuration::from_secs(1) || length > MAX_LENGTH {
            return Err(FieldError::new(format!("{field}.window"), "it must be from 1s to 24h"));
        }
        Ok(Some(Self { length, function: over.function, max_gap }))
    }

    /// Description, such as `mean over 5m`.
    pub fn described(&self) -> String {
        format!("{} over {}", self.function.as_str(), show(self.length))
    }

    /// Whether the function can use this value. The rate of a counter needs the value of each pod.
    pub fn takes(&self, value: RangedValue) -> bool {
        self.function != WindowFunction::Rate || RangedValue::from(value.value) == value
    }

    /// Length of a part of the window, of which one sample is kept.
    fn part(&self) -> i64 {
        let parts = i128::try_from(MAX_SAMPLES).unwrap_or(1);
        i64::try_from(self.length.as_micros() / parts).unwrap_or(i64::MAX).max(1)
    }
}

impl WindowedMetric {
    /// Parses the window of a metric; None if it uses single values. `max_age`: maximum age of its values.
    pub fn parse(
        metric: &Metric,
        target: Option<&TargetRef>,
        max_age: SignedDuration,
    ) -> Result<Option<Self>, FieldError> {
        let (name, source) = (metric.name.clone(), metric.source.clone());
        let rule = WindowRule::parse(metric, max_age)?;
        Ok(rule.map(|rule| Self { metric: name, rule, source, target: target.cloned() }))
    }
}

impl SampleWindow {
    pub fn new(rule: WindowRule) -> Self {
        Self { rule, samples: VecDeque::new(), covered_from: i64::MAX, counter: None }
    }

    /// Adds a sample, unless it is not newer than the last one.
    pub fn add(&mut self, value: RangedValue, at: Timestamp, measured: Timestamp, now: Timestamp) {
        let (at, now) = (at.as_microsecond(), now.as_microsecond());
        // The clock was set back.
        if self.samples.back().is_some_and(|last| last.at > now) {
            self.samples.clear();
        }
        let last = self.samples.back().map(|last| last.at);
        if last.is_some_and(|last| at <= last) {
            return;
        }
        let max_gap = i64::try_from(self.rule.max_gap.as_micros()).unwrap_or(i64::MAX);
        if last.is_none_or(|last| at.saturating_sub(last) > max_gap) {
            self.begin(at);
        }
        let sample = WindowSample {
            at,
            measured: measured.as_microsecond().min(at),
            value: self.counted(value.value),
            range: SampleRange::of(value).map(Box::new),
        };
        self.store(sample);
        self.drop_old(at);
    }

    /// Begins to cover the window at this time. Samples of before a pause are of no use, except that a maximum is at
    /// least as large.
    fn begin(&mut self, at: i64) {
        self.covered_from = at;
        self.counter = None;
        if self.rule.function != WindowFunction::Max {
            self.samples.clear();
        }
    }

    /// Returns the number without resets of a counter, which counts from 0 after each. Other numbers are returned as
    /// they are.
    fn counted(&mut self, number: f64) -> f64 {
        if self.rule.function != WindowFunction::Rate {
            return number;
        }
        let (last, mut before) = self.counter.unwrap_or((number, 0.0));
        if number < last {
            before += last;
        }
        self.counter = Some((number, before));
        number + before
    }

    /// Stores the sample, merged with the last one if both are in the same part of the window.
    fn store(&mut self, mut sample: WindowSample) {
        let part = self.rule.part();
        let length = self.samples.len();
        // The first sample since a pause marks the start.
        let last = self.samples.back().filter(|last| last.at > self.covered_from && length > 1);
        if let Some(last) = last.filter(|last| last.at.div_euclid(part) == sample.at.div_euclid(part)) {
            let start = self.samples[length - 2].at;
            sample = merged(self.rule.function, start, last, sample);
            self.samples.pop_back();
        }
        if self.samples.len() == self.samples.capacity() {
            self.samples.reserve_exact((self.samples.len() / 2).clamp(4, 64));
        }
        self.samples.push_back(sample);
    }

    /// Drops samples before the window, except for the last one of them, at which it begins.
    fn drop_old(&mut self, newest: i64) {
        let start = self.start(newest);
        while self.samples.get(1).is_some_and(|second| second.at <= start) {
            self.samples.pop_front();
        }
    }

    fn start(&self, newest: i64) -> i64 {
        newest.saturating_sub(i64::try_from(self.rule.length.as_micros()).unwrap_or(i64::MAX))
    }

    /// Returns the value of the window that ends with the newest sample.
    pub fn state(&self) -> WindowState {
        let Some(newest) = self.samples.back() else { return WindowState::Empty };
        let start = self.start(newest.at);
        if self.covered_from <= start {
            return WindowState::Covered(self.value(start, newest.at));
        }
        let since = time(self.covered_from);
        let is_max = self.rule.function == WindowFunction::Max;
        let least = is_max.then(|| {
            let found = self.value(start, newest.at);
            WindowValue { value: RangedValue { most: f64::INFINITY, ..found.value }, ..found }
        });
        WindowState::Uncovered { since, until: later(since, self.rule.length), least }
    }

    fn value(&self, start: i64, newest: i64) -> WindowValue {
        // The newest sample is always in the window, since it is longer than nothing.
        let first = self.samples.iter().position(|sample| sample.at > start).unwrap_or(0);
        let before = first.checked_sub(1);
        let used = self.samples.range(first..);
        let measured = match self.rule.function {
            WindowFunction::Mean | WindowFunction::P95 => used.map(|sample| sample.measured).min(),
            WindowFunction::Rate => self.samples.get(before.unwrap_or(first)).map(|sample| sample.measured),
            WindowFunction::Max => used.max_by(|a, b| a.value.total_cmp(&b.value)).map(|sample| sample.measured),
        };
        let of = |number: fn(&WindowSample) -> f64| self.number(start, first, number);
        let value = of(|sample| sample.value);
        let is_ranged = self.samples.range(first..).any(|sample| sample.range.is_some());
        let value = if is_ranged {
            let requests = self.samples.range(first..).map(|sample| sample.ranged().missing_request);
            RangedValue {
                value,
                least: of(|sample| sample.ranged().least),
                most: of(|sample| sample.ranged().most),
                missing_request: requests.fold(f64::INFINITY, f64::min),
            }
        } else {
            value.into()
        };
        WindowValue { value, at: time(newest), measured: measured.map_or(time(newest), time) }
    }

    /// Applies the function to one number of each sample. `first`: index of the first sample in the window.
    fn number(&self, start: i64, first: usize, number: fn(&WindowSample) -> f64) -> f64 {
        let used = || self.samples.range(first..);
        let numbers = || used().map(number);
        let (least, most) = (numbers().fold(f64::INFINITY, f64::min), numbers().fold(f64::NEG_INFINITY, f64::max));
        match self.rule.function {
            WindowFunction::Max => most,
            WindowFunction::P95 => {
                let mut sorted: Vec<f64> = numbers().collect();
                sorted.sort_by(f64::total_cmp);
                // Nearest rank: the smallest number that at least 95 % of the samples do not exceed.
                let rank = (sorted.len() * 95).div_ceil(100).max(1);
                sorted.get(rank - 1).copied().unwrap_or(most)
            }
            WindowFunction::Mean => {
                let mut previous = start;
                let (mut sum, mut total) = (0.0, 0.0);
                for sample in used() {
                    let weight = sample.at.saturating_sub(previous) as f64;
                    (sum, total, previous) = (sum + number(sample) * weight, total + weight, sample.at);
                }
                decimal(sum / total).clamp(least, most)
            }
            WindowFunction::Rate => {
                let oldest = self.samples.get(first.saturating_sub(1));
                let Some((oldest, newest)) = oldest.zip(self.samples.back()) else { return 0.0 };
                let seconds = newest.at.saturating_sub(oldest.at) as f64 / 1e6;
                if seconds > 0.0 { decimal((number(newest) - number(oldest)) / seconds) } else { 0.0 }
            }
        }
    }

    /// Number of stored samples, and bytes that they occupy.
    pub fn size(&self) -> (usize, usize) {
        let ranges = self.samples.iter().filter(|sample| sample.range.is_some()).count();
        let bytes = self.samples.capacity() * size_of::<WindowSample>() + ranges * size_of::<SampleRange>();
        (self.samples.len(), bytes)
    }
}

impl WindowSample {
    fn ranged(&self) -> SampleRange {
        let exact = SampleRange { least: self.value, most: self.value, missing_request: f64::INFINITY };
        self.range.as_deref().copied().unwrap_or(exact)
    }
}

impl SampleRange {
    fn of(value: RangedValue) -> Option<Self> {
        let RangedValue { least, most, missing_request, .. } = value;
        let is_exact = RangedValue::from(value.value) == value;
        (!is_exact).then_some(Self { least, most, missing_request })
    }
}

/// Merges two adjacent samples. `start`: time of the sample before both.
fn merged(function: WindowFunction, start: i64, one: &WindowSample, other: WindowSample) -> WindowSample {
    let (weight, more) = (one.at.saturating_sub(start) as f64, other.at.saturating_sub(one.at) as f64);
    let mean = |a: f64, b: f64| ((a * weight + b * more) / (weight + more)).clamp(a.min(b), a.max(b));
    let (number, measured): (&dyn Fn(f64, f64) -> f64, i64) = match function {
        WindowFunction::Mean => (&mean, one.measured.min(other.measured)),
        WindowFunction::Max => (&f64::max, if one.value > other.value { one.measured } else { other.measured }),
        WindowFunction::P95 | WindowFunction::Rate => return other,
    };
    let (a, b) = (one.ranged(), other.ranged());
    let range = (one.range.is_some() || other.range.is_some()).then(|| SampleRange {
        least: number(a.least, b.least),
        most: if a.most.is_infinite() || b.most.is_infinite() { f64::INFINITY } else { number(a.most, b.most) },
        missing_request: a.missing_request.min(b.missing_request),
    });
    WindowSample { at: other.at, measured, value: number(one.value, other.value), range: range.map(Box::new) }
}

fn time(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH)
}
