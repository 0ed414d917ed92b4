//! Target tracking: the number of replicas that keeps a metric at a target, as HorizontalPodAutoscaler determines it.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::policy::Window;
use crate::scalars::{DurationText, Number};

/// Target of the action's metric.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("quantity(self.target).isGreaterThan(quantity('0'))").message("target must be above 0"),
    validation = Rule::new("self.type != 'Utilization' || self.target.matches('^[0-9]{1,9}$')").message("target of a Utilization is a whole number of percent, such as 60"),
)]
pub struct Track {
    /// Utilization: mean use of the pods, in percent of their requests; for the source `resource`. AverageValue: mean
    /// over the pods for the source `resource`; of any other source, the value divided by the number of replicas.
    /// Value: the value itself, whatever the number of replicas.
    #[serde(rename = "type")]
    pub type_: TrackType,
    /// The target, above 0. A number as a string, such as "60" or "500m".
    pub target: Number,
    /// Deviations from the target that change nothing. Default: 0.1 in both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<Tolerance>,
    /// The metric is active while its value is above this. At 0 replicas, an active metric wakes the target; with
    /// `min: 0`, the last replica is removed only when no metric is active. A number as a string. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<Number>,
    /// Value of the metric while the target has 0 replicas, for a metric that the pods of the target serve themselves.
    /// A number as a string. Default: the value of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_zero: Option<Number>,
}

/// See [`Track::type_`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackType {
    #[default]
    Utilization,
    AverageValue,
    Value,
}

impl TrackType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Utilization => "Utilization",
            Self::AverageValue => "AverageValue",
            Self::Value => "Value",
        }
    }
}

/// Deviations from the target that change nothing, relative to it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.up) || !quantity(self.up).isLessThan(quantity('0'))").message("up must be 0 or more"),
    validation = Rule::new("!has(self.down) || !quantity(self.down).isLessThan(quantity('0'))").message("down must be 0 or more"),
)]
pub struct Tolerance {
    /// Deviation above the target, such as "0.1" for 10 percent; 0 is allowed. A number as a string. Default: 0.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<Number>,
    /// Deviation below the target; with 1 or more, this metric never lowers. A number as a string. Default: 0.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<Number>,
}

/// How fast the number of replicas may change in one direction.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.window) || duration(self.window) <= duration('1h')").message("window must be at most 1h"),
)]
pub struct DirectionPace {
    /// Maximum changes, each in a period. 1 to 16. Default: 4 pods and 100 percent in 15s upwards, 100 percent in 15s
    /// downwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    pub policies: Option<Vec<PacePolicy>>,
    /// Policy that counts if there are several. Max: the one that allows the largest change. Min: the smallest.
    /// Disabled: the number does not change in this direction, except to return between min and max. Default: Max.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub select: Option<PaceSelect>,
    /// Stabilization window: the number follows the smallest proposal (up) or the largest one (down) of this time, at
    /// most 1h. Default: 0s upwards, 300s downwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<DurationText>,
}

/// Maximum change in a period.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.pods) != has(self.percent)").message("set exactly one of pods, percent"),
    validation = Rule::new("duration(self.per) >= duration('1s') && duration(self.per) <= duration('30m')").message("per must be 1s to 30m"),
)]
pub struct PacePolicy {
    /// Number of replicas, 1 to 100000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub pods: Option<i32>,
    /// Percent of the replicas at the start of the period, 1 to 100000; at least one replica is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub percent: Option<i32>,
    /// Length of the period, 1s to 30m, such as `15s`.
    pub per: DurationText,
}

/// See [`DirectionPace::select`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PaceSelect {
    #[default]
    Max,
    Min,
    Disabled,
}

/// Forecast of the number of replicas, from that of past seasons.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TrackForecast {
    /// Time by which capacity is raised early, such as `10m`: at least the time that a new replica takes until it
    /// serves. 1m to 1h, in whole seconds. A longer time costs more capacity.
    pub ahead: DurationText,
    /// Time after which the load repeats itself, such as `24h`: a multiple of `ahead`, 12 to 288 times as long. A week
    /// (`168h`) needs `ahead: 35m` or more. Times are those of UTC. The forecast is used after two seasons at the
    /// earliest: one is learned, and one is judged.
    pub season: DurationText,
}

/// Bounds that replace min and max at certain times. The first open entry of the list counts.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.to) != (has(self.min) || has(self.max))").message("set either to, or min, max or both"),
    validation = Rule::new("!has(self.min) || !has(self.max) || self.min <= self.max").message("min must not be above max"),
)]
pub struct ScheduledBounds {
    /// When the entry counts.
    pub during: Window,
    /// Minimum number of replicas, 0 to 100000. Default: that of the action, at most this max.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub min: Option<i32>,
    /// Maximum number of replicas, 0 to 100000. Default: that of the action, at least this min.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub max: Option<i32>,
    /// Exact number of replicas, 0 to 100000, whatever the metrics are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub to: Option<i32>,
}
