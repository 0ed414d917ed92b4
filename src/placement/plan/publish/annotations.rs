//! The usage annotations of a node, and whether they must be written.
//!
//! Owns the format of the numbers and the rules for writing them. The annotation keys are those of `safe`,
//! which reads them back. Writes nothing: the caller applies the set by server-side apply, always with the same field
//! manager.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{MOST, NodeSize, NodeUsage, ResourceUsage};
use crate::safe::{CPU, MEMORY, PerResource, StatisticKeys};
use crate::sample::{is_expired, number};
/// When the usage was measured: RFC 3339, whole seconds.
pub use ganglion_core::facts::USAGE_SAMPLED_AT as SAMPLED_AT;
/// The number of samples.
pub use ganglion_core::facts::USAGE_SAMPLES as SAMPLES;

/// Minimum relative change: a new number is written only if it differs from the published one by more than this
/// fraction of it.
const NEWS: f64 = 0.01;

/// Minimum change as a fraction of allocatable. Readers relate the numbers to the size of the node, and a deviation
/// near 0 changes by more than [`NEWS`] with every sample.
const LEAST_NEWS: f64 = 0.001;

/// Maximum ages of published samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleAges {
    /// Age at which annotations that are not renewed are removed.
    pub most: SignedDuration,
    /// Shortest `maxAge` of all policies. A sample is renewed after half of it.
    pub shortest: SignedDuration,
}

impl From<SignedDuration> for SampleAges {
    /// Uses the same age for both.
    fn from(age: SignedDuration) -> Self {
        Self { most: age, shortest: age }
    }
}

/// Format of the annotations of one resource.
struct Form {
    keys: StatisticKeys,
    /// Maximum number of digits after the point.
    digits: usize,
    /// Whether a forecast of the free amount is written. The original annotator writes none for CPU.
    has_free_forecast: bool,
}

const CPU_FORM: Form = Form { keys: CPU, digits: 1, has_free_forecast: false };
const MEMORY_FORM: Form = Form { keys: MEMORY, digits: 0, has_free_forecast: true };

/// One number of the set, with the allocatable amount of its resource.
struct Amount {
    key: &'static str,
    text: String,
    allocatable: Option<f64>,
}

/// Returns the complete set of annotations to apply to a node now; None if nothing must change. An empty set removes
/// all of them.
///
/// `published` reads the annotations of the node. Server-side apply removes our annotations that a set omits, so a set
/// is always complete. It is written if
/// - a number is missing, or differs from the published one by more than 1 % of it and by more than 0.1 % of
///   allocatable;
/// - the published sample is older than half of the shortest age, and this sample is a different one.
///
/// The set is not written if the published sample is newer. An annotation that is not in the set, such as a forecast
/// that has ended, is no reason to write: it may belong to another field manager, and then we cannot remove it. If it
/// is ours, the next set removes it.
///
/// Without a usage, the annotations are removed once they are older than `ages.most`. Tools written for the original
/// annotator ignore the age and would use the numbers forever.
pub fn changes<'a>(
    published: impl Fn(&str) -> Option<&'a str>,
    usage: Option<&NodeUsage>,
    size: &PerResource<NodeSize>,
    now: Timestamp,
    ages: SampleAges,
) -> Option<BTreeMap<&'static str, String>> {
    let text = published(SAMPLED_AT);
    let at = text.and_then(|text| text.trim().parse::<Timestamp>().ok());
    let Some(usage) = usage.filter(|usage| !is_expired(Some(usage.sampled_at), now, ages.most)) else {
        // The time annotation is always ours; other tools may have written the statistics.
        let is_over = text.is_some() && at.is_none_or(|at| is_away(at, now, ages.most));
        return is_over.then(BTreeMap::new);
    };
    let sampled_at = Timestamp::from_second(usage.sampled_at.as_second()).unwrap_or(usage.sampled_at);
    if at.is_some_and(|at| sampled_at < at && at <= now) {
        return None;
    }
    let is_due = at.is_none_or(|at| at != sampled_at && is_away(at, now, ages.shortest / 2));
    let amounts = amounts(usage, size);
    let is_news = |amount: &Amount| differs(published(amount.key).and_then(number), amount);
    let is_counted = published(SAMPLES).and_then(number).is_some();
    (is_due || !is_counted || amounts.iter().any(is_news)).then(|| {
        let mut set: BTreeMap<_, _> = amounts.into_iter().map(|amount| (amount.key, amount.text)).collect();
        set.insert(SAMPLED_AT, sampled_at.to_string());
        set.insert(SAMPLES, usage.samples.to_string());
        set
    })
}

/// Whether a time is farther away from now than `most`. A time in the future counts, too, since it would keep the
/// numbers valid until then.
fn is_away(at: Timestamp, now: Timestamp, most: SignedDuration) -> bool {
    now.duration_since(at).abs() > most
}

/// Whether a number differs enough from the published one to be written.
fn differs(published: Option<f64>, new: &Amount) -> bool {
    let (Some(published), Some(value)) = (published, number(&new.text)) else { return true };
    let least = LEAST_NEWS * new.allocatable.unwrap_or(0.0);
    (value - published).abs() > (NEWS * published.abs()).max(least)
}

fn amounts(usage: &NodeUsage, size: &PerResource<NodeSize>) -> Vec<Amount> {
    let PerResource { cpu, memory } = &usage.resources;
    let all = [(CPU_FORM, cpu, size.cpu), (MEMORY_FORM, memory, size.memory)];
    all.into_iter().filter_map(|(form, usage, size)| Some(form.amounts(usage.as_ref()?, size))).flatten().collect()
}

impl Form {
    /// Numbers of one resource to publish.
    ///
    /// The free amount is allocatable minus used. The original annotator publishes the free amount of the whole
    /// machine, but its readers subtract it from allocatable. The usage that they calculate is too low by the resources
    /// reserved for the system. From our numbers they calculate the actual usage, up to allocatable.
    ///
    /// Without a capacity no forecast is published, since it would be unbounded. Without allocatable no free amount is
    /// published.
    fn amounts(&self, usage: &ResourceUsage, size: NodeSize) -> Vec<Amount> {
        let valid = |size: f64| Some(size).filter(|size| *size > 0.0 && *size <= MOST);
        let (allocatable, capacity) = (valid(size.allocatable), valid(size.capacity));
        let free = |used: f64| allocatable.map(|allocatable| (allocatable - used).max(0.0));
        let forecast = usage.forecast.and_then(|forecast| capacity.map(|capacity| forecast.min(capacity)));
        let keys = &self.keys;
        let [free_forecast, _] = keys.forecast_free;
        let numbers = [
            (keys.mean_used, Some(usage.mean)),
            (keys.deviation_used, usage.deviation),
            (keys.forecast_used, forecast),
            (keys.mean_free, free(usage.mean)),
            // The free and the used amount have the same deviation.
            (keys.deviation_free, usage.deviation.filter(|_| allocatable.is_some())),
            (free_forecast, forecast.and_then(free).filter(|_| self.has_free_forecast)),
        ];
        let amount = |(key, value)| Some(Amount { key, text: decimal(value?, self.digits), allocatable });
        numbers.into_iter().filter_map(amount).collect()
    }
}

/// Formats a decimal number without an exponent and with at most `digits` digits after the point.
fn decimal(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let text = if digits == 0 { &text } else { text.trim_end_matches('0').trim_end_matches('.') };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests;
