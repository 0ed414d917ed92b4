//! Windows of the metrics of a loop: replaces each value of a measurement by that of its window.
//!
//! The samples are in the memory of the controller. A metric whose window is not covered has no value, with a message
//! that names the time at which it will have one.

use std::collections::BTreeMap;

use super::level::RangedValue;
use super::rules::{Measurement, MonitoringRules, ObserveContext, ObserveTrigger};
use super::tag;
use super::value::{SourceResult, SourceValue, ValueRange};
use super::window::{SampleWindow, WindowState, WindowValue, WindowedMetric};
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::monitoring::MonitoringStatus;
use ganglion_core::quantity;

/// Samples of the metrics of one loop.
#[derive(Debug, Default)]
pub struct MetricWindows {
    windows: BTreeMap<String, (WindowedMetric, SampleWindow)>,
    /// Time of the last pushed sample. A sample that is handled once more is not added again.
    pushed: Option<String>,
}

impl MetricWindows {
    /// Returns the window of the metric, a new one if the metric has changed.
    fn of(&mut self, metric: &WindowedMetric) -> &mut SampleWindow {
        let stored = self.windows.remove(&metric.metric).filter(|(stored, _)| stored == metric);
        let window = stored.unwrap_or_else(|| (metric.clone(), SampleWindow::new(metric.rule)));
        &mut self.windows.entry(metric.metric.clone()).or_insert(window).1
    }
}

impl MonitoringRules {
    /// Adds the values of a measurement to the windows of their metrics, and replaces them by the values of these
    /// windows. A pushed sample that is refused is not added.
    pub fn windowed(
        &self,
        windows: &mut MetricWindows,
        before: &MonitoringStatus,
        mut measurement: Measurement,
        context: ObserveContext,
    ) -> Measurement {
        windows.windows.retain(|metric, _| !self.paused && self.windows.iter().any(|one| one.metric == *metric));
        if self.paused || self.windows.is_empty() {
            return measurement;
        }
        let last = tag::latest([before.tag.as_ref(), context.last]);
        if self.tag_sample(ObserveTrigger::Measured(&measurement), last, before, context.now).is_err() {
            return measurement;
        }
        let is_new = measurement.pushed.is_none() || measurement.pushed != windows.pushed;
        if measurement.pushed.is_some() {
            windows.pushed.clone_from(&measurement.pushed);
        }
        for metric in &self.windows {
            let Some(Ok(value)) = measurement.values.get(&metric.metric) else { continue };
            let result = self.value_over(windows.of(metric), metric, value, is_new, context);
            measurement.values.insert(metric.metric.clone(), result);
        }
        measurement
    }

    fn value_over(
        &self,
        window: &mut SampleWindow,
        metric: &WindowedMetric,
        value: &SourceValue,
        is_new: bool,
        context: ObserveContext,
    ) -> SourceResult {
        // The stage refuses it without its text.
        let Some(ranged) = ranged(value) else { return Ok(value.clone()) };
        if !metric.rule.takes(ranged) {
            return Err(format!(
                "the {} needs the values of all pods, and some are not measured",
                metric.rule.described()
            ));
        }
        if is_new {
            let at = value.at.unwrap_or(context.now).min(context.now);
            window.add(ranged, at, value.measured.unwrap_or(at), context.now);
        }
        match window.state() {
            WindowState::Covered(found) => Ok(source_value(found)),
            WindowState::Uncovered { least: Some(least), .. } if self.is_surely_high(metric, least) => {
                Ok(source_value(least))
            }
            WindowState::Uncovered { since, until, .. } => Err(format!(
                "the {} will be known at {until:.0}: values are known since {since:.0}",
                metric.rule.described()
            )),
            WindowState::Empty => Err(format!("the {} has no values", metric.rule.described())),
        }
    }

    /// Whether the value is above the level High, whatever the values are that are not known.
    fn is_surely_high(&self, metric: &WindowedMetric, least: WindowValue) -> bool {
        let found = self.metrics.iter().find(|(name, _)| *name == metric.metric);
        found.is_some_and(|(_, levels)| levels.is_beyond(Side::High, least.value))
    }
}

/// Numbers of a value; None if one of them is no number.
fn ranged(value: &SourceValue) -> Option<RangedValue> {
    let number = |text: &str| quantity::number(text).ok();
    let exact = RangedValue::from(number(&value.value)?);
    let Some(range) = &value.range else { return Some(exact) };
    let limit = |text: &Option<String>| text.as_deref().map_or(Some(f64::INFINITY), number);
    Some(RangedValue {
        least: number(&range.least)?,
        most: limit(&range.most)?,
        missing_request: limit(&range.missing_request)?,
        ..exact
    })
}

fn source_value(found: WindowValue) -> SourceValue {
    let WindowValue { value: RangedValue { value, least, most, missing_request }, at, measured } = found;
    let limit = |number: f64| number.is_finite().then(|| number.to_string());
    let is_exact = RangedValue::from(value) == found.value;
    let range = ValueRange { least: least.to_string(), most: limit(most), missing_request: limit(missing_request) };
    SourceValue {
        at: Some(at),
        measured: Some(measured),
        range: (!is_exact).then_some(range),
        ..SourceValue::from(value.to_string())
    }
}
