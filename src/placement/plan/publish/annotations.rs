//! What is written on a node about its usage, and when.
//!
//! Owns the form of the numbers and the rules of writing. The names of the statistics are those of `safe::statistics`, which reads
//! them back. Writes nothing: the caller applies the set by server-side apply, always with the same field manager.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{MOST, NodeSize, NodeUsage, ResourceUsage};
use crate::safe::PerResource;
use crate::safe::statistics::{CPU, MEMORY, StatisticKeys};
use crate::sample::{is_expired, number};
/// When the usage was measured: RFC 3339, whole seconds.
pub use ganglion_core::facts::USAGE_SAMPLED_AT as SAMPLED_AT;
/// The number of samples.
pub use ganglion_core::facts::USAGE_SAMPLES as SAMPLES;

/// By which part of the published number a new one must differ to be written.
const NEWS: f64 = 0.01;

/// By which part of what is allocatable a new number must differ at least. Everybody who reads these relates them to the size of
/// the node, and a deviation near 0 changes by more than [`NEWS`] with every sample.
const LEAST_NEWS: f64 = 0.001;

/// How old samples may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleAges {
    /// What is not renewed is taken away once it is older.
    pub most: SignedDuration,
    /// The policy that is the first to forget a sample does so at this age: one is renewed after half of it.
    pub shortest: SignedDuration,
}

impl From<SignedDuration> for SampleAges {
    /// The same age for everybody.
    fn from(age: SignedDuration) -> Self {
        Self { most: age, shortest: age }
    }
}

/// How the numbers of one resource are written.
struct Form {
    keys: StatisticKeys,
    /// Digits after the point, at most.
    digits: usize,
    /// Whether the forecast of what is free is written. Its original writes none of CPU.
    has_free_forecast: bool,
}

const CPU_FORM: Form = Form { keys: CPU, digits: 1, has_free_forecast: false };
const MEMORY_FORM: Form = Form { keys: MEMORY, digits: 0, has_free_forecast: true };

/// A number of the set, with the size that it relates to.
struct Amount {
    key: &'static str,
    text: String,
    allocatable: Option<f64>,
}

/// The complete set of annotations to apply to a node now; None if what it has is good. An empty set takes all away.
///
/// `published` gives the annotations that the node has. Server-side apply removes what is left out of a set, so a set is always
/// complete. It is written if
/// - a number is not there, or differs from the published one by more than 1 % of it and by more than 0.1 % of what is allocatable;
/// - the published sample is older than half of the shortest age, and this one is another.
///
/// It is not written if the published sample is newer. A number that is there and not in the set, such as a forecast that ended,
/// is no reason to write: it may be another's, whom we cannot remove. If it is ours, it goes with the next set.
///
/// Without a usage the annotations are taken away once they are older than the longest age: tools of the original know no age,
/// and would believe them for ever.
#[must_use]
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
        // The time is always ours; the statistics may be of others.
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

/// Whether a time is farther away than this. One in the future counts, too: it would keep the numbers in force until then.
fn is_away(at: Timestamp, now: Timestamp, most: SignedDuration) -> bool {
    now.duration_since(at).abs() > most
}

/// Whether a number must be written in place of the published one.
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
    /// The numbers of one resource.
    ///
    /// What is free is what is allocatable minus what is used. The original publishes what is free of the whole machine, but its
    /// readers subtract that from what is allocatable, and so find too little used: by all that is reserved for the system. From
    /// ours they find what is used, up to what is allocatable.
    ///
    /// Without a capacity there is no forecast, for it has no bound then; without allocatable, nothing is known to be free.
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
            // What is free deviates as much as what is used.
            (keys.deviation_free, usage.deviation.filter(|_| allocatable.is_some())),
            (free_forecast, forecast.and_then(free).filter(|_| self.has_free_forecast)),
        ];
        let amount = |(key, value)| Some(Amount { key, text: decimal(value?, self.digits), allocatable });
        numbers.into_iter().filter_map(amount).collect()
    }
}

/// A decimal number without an exponent, with at most this many digits after the point.
fn decimal(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let text = if digits == 0 { &text } else { text.trim_end_matches('0').trim_end_matches('.') };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests;
