//! Error of predicted power: predicted and measured watts over a window, compared with a straight line over the usage.
//!
//! A predictor that is worse than a straight line misleads placement: the line then takes its place. The line is fitted
//! to the measured watts while the usage varies, and stays when it does not, for example at night.
//!
//! Comparisons are kept in memory. After a restart, the result of the earlier process stays until there are enough new
//! ones, so that one comparison does not change where pods run.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use ganglion_api::node_config::status::{FittedLine, PowerAccuracy};
use ganglion_core::power_curve::PowerLine;

/// Maximum number of comparisons in a window.
pub const MOST: usize = 60;

/// Number of comparisons that suffices for a verdict.
pub const ENOUGH: usize = 12;

/// Standard deviation of the CPU usage, in percentage points, from which a line is fitted: a single outlier among the
/// comparisons must not determine its slope.
const LEAST_DEVIATION: f64 = 5.0;

/// The predictor is worse if its error exceeds that of the line by this factor and by this part of the measured power.
/// A fitted line is always slightly better than the noise.
const WORSE: f64 = 1.25;
const WORSE_PART: f64 = 0.01;

/// Maximum of a number that is compared, so that sums stay finite.
const MOST_PLAUSIBLE: f64 = 1e9;

/// Predicted and measured power at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerComparison {
    pub at: Timestamp,
    /// CPU usage in percent.
    pub cpu: f64,
    /// Watts.
    pub predicted: f64,
    pub measured: f64,
}

/// Comparisons of one node, and what follows from them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownAccuracy {
    /// Oldest first, at most [`MOST`].
    all: VecDeque<PowerComparison>,
    line: Option<PowerLine>,
    is_worse: bool,
    /// Result of an earlier process.
    restored: Option<PowerAccuracy>,
}

impl KnownAccuracy {
    /// Restores the result that an earlier process wrote.
    pub fn restored(status: &PowerAccuracy) -> Self {
        let number = |text: &str| text.parse().ok().filter(|watts: &f64| watts.is_finite());
        let line = status.line.as_ref().and_then(|line| {
            let (idle, full) = (number(&line.idle_watts)?, number(&line.full_watts)?);
            Some(PowerLine { idle, full })
        });
        let is_worse = status.worse_than_line == Some(true) && line.is_some();
        Self { all: VecDeque::new(), line, is_worse, restored: Some(status.clone()) }
    }

    /// Records a comparison, unless the last one is too recent for a window with [`MOST`] of them.
    pub fn record(&mut self, new: PowerComparison, window: SignedDuration) {
        let numbers = [new.cpu, new.predicted, new.measured];
        if !numbers.iter().all(|number| number.abs() <= MOST_PLAUSIBLE) {
            return;
        }
        // Nine tenths of the distance of [`MOST`] comparisons: polls are not exactly on time.
        let step = window * 3 / 200;
        if self.all.back().is_some_and(|last| new.at.duration_since(last.at) < step) {
            return;
        }
        self.all.retain(|one| is_within(one.at, window, new.at));
        if self.all.len() == MOST {
            self.all.pop_front();
        }
        self.all.push_back(new);
        if self.all.len() < ENOUGH {
            return;
        }
        self.restored = None;
        self.line = fit(&self.all).or(self.line);
        self.is_worse = self.line.is_some_and(|line| {
            let (own, of_line) = (self.error(), mean(&self.all, |one| off_line(&line, one)));
            // Once worse, it must become as good as the line.
            let allowed = if self.is_worse {
                of_line
            } else {
                (of_line * WORSE).max(of_line + WORSE_PART * mean(&self.all, |one| one.measured.abs()))
            };
            own > allowed
        });
    }

    /// Mean absolute error in watts; 0 without comparisons.
    fn error(&self) -> f64 {
        mean(&self.all, |one| (one.predicted - one.measured).abs())
    }

    /// Mean absolute error in watts. None without comparisons by this process.
    pub fn mean_absolute_error(&self) -> Option<f64> {
        (!self.all.is_empty()).then(|| self.error())
    }

    /// Result for the status. None without a comparison in the window.
    pub fn shown(&self, window: SignedDuration, now: Timestamp) -> Option<PowerAccuracy> {
        if let Some(restored) = &self.restored
            && let Some(at) = &restored.sampled_at
            && is_within(at.0, window, now)
        {
            return Some(restored.clone());
        }
        let last = self.all.back().filter(|last| is_within(last.at, window, now))?;
        let line = self.line.map(|line| FittedLine {
            idle_watts: decimal(line.idle),
            full_watts: decimal(line.full),
            mean_absolute_error: Some(decimal(mean(&self.all, |one| off_line(&line, one)))),
        });
        Some(PowerAccuracy {
            mean_absolute_error: Some(decimal(self.error())),
            samples: i64::try_from(self.all.len()).ok(),
            sampled_at: Timestamp::from_second(last.at.as_second()).ok().map(Time),
            line,
            worse_than_line: self.is_worse.then_some(true),
        })
    }
}

fn is_within(at: Timestamp, window: SignedDuration, now: Timestamp) -> bool {
    now.duration_since(at) <= window
}

fn off_line(line: &PowerLine, one: &PowerComparison) -> f64 {
    (line.watts(one.cpu / 100.0) - one.measured).abs()
}

fn mean(all: &VecDeque<PowerComparison>, of: impl Fn(&PowerComparison) -> f64) -> f64 {
    if all.is_empty() { 0.0 } else { all.iter().map(of).sum::<f64>() / all.len() as f64 }
}

/// Fits a straight line to the measured power by least squares. None if the usage hardly varies, or if the line falls
/// or is below zero, which no machine does.
fn fit(all: &VecDeque<PowerComparison>) -> Option<PowerLine> {
    let (cpu, watts) = (mean(all, |one| one.cpu), mean(all, |one| one.measured));
    let variance = mean(all, |one| (one.cpu - cpu).powi(2));
    if variance.sqrt() < LEAST_DEVIATION {
        return None;
    }
    let slope = mean(all, |one| (one.cpu - cpu) * (one.measured - watts)) / variance;
    let line = PowerLine { idle: watts - slope * cpu, full: watts + slope * (100.0 - cpu) };
    (slope >= 0.0 && line.idle >= 0.0 && line.full.is_finite()).then_some(line)
}

/// Formats watts for the status, with two decimals.
fn decimal(watts: f64) -> String {
    // Adding zero turns -0 into 0.
    ((watts * 100.0).round() / 100.0 + 0.0).to_string()
}
