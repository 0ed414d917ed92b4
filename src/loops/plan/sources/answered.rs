//! Values in the answers of adapters, as external.metrics.k8s.io and custom.metrics.k8s.io write them.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::pods::parsed;
use crate::track::Nanos;

/// A quantity, which is text in most answers and a number in some.
#[derive(Debug)]
pub(super) struct AnsweredQuantity(String);

impl<'de> Deserialize<'de> for AnsweredQuantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = AnsweredQuantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(AnsweredQuantity(text.to_owned()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(AnsweredQuantity(number.to_string()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(AnsweredQuantity(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(AnsweredQuantity(number.to_string()))
    }
}

/// Sizes of numbers that mean an overflow: prometheus-adapter writes NaN and infinity as the smallest or the largest
/// 64-bit integer, in thousandths.
const OVERFLOWS: [i128; 2] = [i64::MIN as i128 * 1_000_000, i64::MAX as i128 * 1_000_000];

impl AnsweredQuantity {
    /// Text of the quantity. An error if there is none, or if it is no number: the text itself is left out.
    pub fn text(quantity: Option<&Self>, what: impl Fn() -> String) -> Result<String, String> {
        let Some(Self(text)) = quantity else { return Err(format!("{} has no value", what())) };
        let number = parsed(text, &what)?;
        if OVERFLOWS.contains(&number.billionths()) {
            return Err(format!("{} is the result of an overflow, probably of NaN or infinity", what()));
        }
        Ok(text.clone())
    }

    /// The quantity, to a billionth.
    pub fn nanos(quantity: Option<&Self>, what: impl Fn() -> String + Copy) -> Result<Nanos, String> {
        parsed(&Self::text(quantity, what)?, what)
    }
}

/// Parses the time of a measurement. None if the adapter does not report it.
pub(super) fn time(text: Option<&str>, what: impl Fn() -> String) -> Result<Option<Timestamp>, String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    match text.parse() {
        Ok(at) => Ok(Some(at)),
        Err(_) => Err(format!("the time of {} is not in the format of RFC 3339", what())),
    }
}

/// Returns those labels of a value that `is_wanted` selects. The labels are a JSON object with texts; other values are
/// left out.
pub(super) fn labels(labels: Option<&RawValue>, is_wanted: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    let Some(raw) = labels else { return BTreeMap::new() };
    let mut parser = serde_json::Deserializer::from_str(raw.get());
    parser.deserialize_any(LabelsVisitor(is_wanted)).unwrap_or_default()
}

struct LabelsVisitor<F>(F);

impl<'de, F: Fn(&str) -> bool> Visitor<'de> for LabelsVisitor<F> {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut labels = BTreeMap::new();
        while let Some(key) = entries.next_key::<String>()? {
            if (self.0)(&key) {
                labels.insert(key, entries.next_value()?);
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Ok(labels)
    }
}
