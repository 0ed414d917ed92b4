//! The metrics of a loop: their levels, and the value to assume when none arrives.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::source::Source;
use crate::scalars::{DurationText, Number};

/// A value that the loop watches.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.low) || has(self.high) || has(self.equal) || (has(self.missing) && has(self.missing.then) && self.missing.then == 'Alarm')").message("set at least one of low, high, equal, or missing with then: Alarm"),
    validation = Rule::new("!has(self.low) || !has(self.low.clear) || quantity(self.low.clear).compareTo(quantity(self.low.raise)) >= 0").message("low.clear must not be under low.raise: an alarm of a low value ends above the level at which it begins"),
    validation = Rule::new("!has(self.high) || !has(self.high.clear) || quantity(self.high.clear).compareTo(quantity(self.high.raise)) <= 0").message("high.clear must not be above high.raise: an alarm of a high value ends under the level at which it begins"),
    validation = Rule::new("!has(self.low) || !has(self.high) || quantity(self.low.raise).compareTo(quantity(self.high.raise)) < 0").message("low.raise must be under high.raise"),
)]
pub struct Metric {
    /// Name of the metric: a letter followed by letters, digits and `_`; at most 40 characters.
    #[schemars(length(min = 1, max = 40), regex(pattern = "^[a-zA-Z][a-zA-Z0-9_]*$"))]
    pub name: String,
    /// Source of its value.
    pub source: Source,
    /// Alarm `Low`: raised when the value is below `raise`, cleared when it is `clear` or more. Default: no such alarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<Level>,
    /// Alarm `High`: raised when the value is above `raise`, cleared when it is `clear` or less. Default: no such
    /// alarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<Level>,
    /// Alarm `Equal`: active while the value equals `to`. Default: no such alarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equal: Option<Equal>,
    /// Behavior when no value arrives. Default: Hold after three intervals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
}

/// A level with hysteresis.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Level {
    /// The alarm is raised when the value is below (low) or above (high) this. A number as a string, such as "5" or
    /// "512Mi".
    pub raise: Number,
    /// The alarm is cleared when the value returns to this. A number as a string. Default: the same as `raise`; there
    /// is no hysteresis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clear: Option<Number>,
    /// Minimum time that the value must be beyond `raise` before the alarm is raised, such as `30s`. Default: 0s.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub for_: Option<DurationText>,
}

/// A value to compare the metric with.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Equal {
    /// The alarm is active while the metric equals this value. A number as a string.
    pub to: Number,
    /// Largest difference from `to` that counts as equal. A number as a string. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Number>,
    /// Minimum time that the value must be equal before the alarm is raised, such as `30s`. Default: 0s.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub for_: Option<DurationText>,
}

/// Behavior when the last value is older than `after`. Until then, and with Hold, the alarm keeps its state and
/// triggers no action. An unknown value never leads to lower capacity.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.value) == (has(self.then) && self.then == 'Assume')").message("value goes with then: Assume, and Assume needs a value"),
)]
pub struct Missing {
    /// Maximum age of the last value, such as `45s`. Default: three intervals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<DurationText>,
    /// Hold: the alarm keeps its state and triggers no action. Assume: `value` is used instead. Alarm: the alarm
    /// `Missing` is raised; an action can be declared for it. Default: Hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<MissingThen>,
    /// With Assume, the value to use. A number as a string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Number>,
}

/// See [`Missing::then`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingThen {
    #[default]
    Hold,
    Assume,
    Alarm,
}

/// The level that a metric violates.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    #[default]
    Low,
    High,
    Equal,
    Missing,
}

impl Side {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "Low",
            Self::High => "High",
            Self::Equal => "Equal",
            Self::Missing => "Missing",
        }
    }
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
