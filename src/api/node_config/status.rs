//! Status of a NodeConfig: the values of a node.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Status of a NodeConfig. It is written when a value changed by more than its deadband (setting
/// `nodeConfigs.deadband`), when a problem begins or ends, and every few minutes (setting
/// `nodeConfigs.heartbeatSeconds`); the metrics contain the newest values.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeConfigStatus {
    /// Generation of the spec that this status describes; -1 before any controller has observed the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: the spec is valid, and its sources are polled: tools that wait for a correct manifest do not wait for a
    /// machine. DataAvailable: True if every value that the spec requests is known and fresh, Unknown before the
    /// first ones, False with the reason otherwise. Stalled: the operator sends no requests until somebody changes
    /// something. Inaccurate: while it is True, predicted power is farther from the measured one than a straight line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// When the newest value was measured or predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_at: Option<Time>,
    /// Time until which the values may be used without a newer status: until then they are within their deadbands,
    /// unless they are marked stale. After this time, no operator keeps this status up to date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<Time>,
    /// Temperature of the air at the node's inlet, in degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inlet_temperature: Option<NodeReading>,
    /// Why the operator reads the sensor of `inletTemperature`. Unset: `sensor` in the spec names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inlet_sensor: Option<SensorChoice>,
    /// Differential pressure between the front and the back of the node, in pascals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differential_pressure: Option<NodeReading>,
    /// CPU usage of the node, in percent of all CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<NodeReading>,
    /// Memory usage of the node, in percent of its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<NodeReading>,
    /// Predicted power consumption of the node, in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<NodeReading>,
    /// Measured power of the node, in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_power: Option<NodeReading>,
    /// How far predicted power is from the measured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_accuracy: Option<PowerAccuracy>,
    /// Predicted power consumption at other CPU usages. Placement policies use it to calculate how much power a pod
    /// would add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_curve: Option<PowerCurve>,
}

/// Predicted power consumption of a node as a function of its CPU usage. It is predicted every half hour and when inlet
/// temperature or differential pressure change. It is written when it differs noticeably, or together with another
/// change.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PowerCurve {
    /// Watts of the idle node, and for each additional 5 % of CPU usage up to 100 %: 21 decimal numbers. Unset: the
    /// model has not returned a valid prediction yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 21), inner(length(max = 32)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub watts: Vec<String>,
    /// Inlet temperature that the prediction is based on, in degrees Celsius. Unset: the prediction depends on the
    /// usage alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inlet_temperature: Option<String>,
    /// Differential pressure that the prediction is based on, in pascals. Unset: the prediction depends on the usage
    /// alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differential_pressure: Option<String>,
    /// When the curve was predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_at: Option<Time>,
    /// Why there is no newer curve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// How far the predicted power of a node is from the measured one, over the time range `window` of
/// `metricsCollector.power`. It is written together with another change, at least with each heartbeat.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PowerAccuracy {
    /// Mean absolute difference of predicted and measured power, in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_absolute_error: Option<String>,
    /// Number of comparisons, at most 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<i64>,
    /// When the newest comparison was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_at: Option<Time>,
    /// The straight line that fits the measured power best. Unset: the CPU usage has not varied enough yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<FittedLine>,
    /// true: the prediction is worse than the line, and placement policies use the line instead of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worse_than_line: Option<bool>,
}

/// Straight line over the CPU usage of a node that fits its measured power.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FittedLine {
    /// Watts of the idle node.
    pub idle_watts: String,
    /// Watts of the fully used node.
    pub full_watts: String,
    /// Mean absolute difference of the line and the measured power, in watts, over the same comparisons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_absolute_error: Option<String>,
}

/// A value of a node and its source.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeReading {
    /// The last known value, a decimal number. Unset: no value has been received yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Standard deviation over the time range of the mean, if the source provides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<String>,
    /// When the value was measured or predicted. A value that does not change is measured more often than this is
    /// written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_at: Option<Time>,
    /// Sensor, server or model that provided the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// true: the value is older than three intervals of its source, and must not be treated as fresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<bool>,
    /// Why there is no newer value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Why the operator reads a sensor.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SensorChoice {
    /// Evidence for the sensor: its mark, its name, its threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// The next best sensor, and the evidence for it. To read it instead, set `sensor` to its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_up: Option<String>,
    /// Why the operator keeps searching for a better sensor. Unset: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisional: Option<String>,
}

/// The values of a node, by their names in the status.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub enum NodeValue {
    #[default]
    InletTemperature,
    DifferentialPressure,
    Cpu,
    Memory,
    Power,
    MeasuredPower,
}

impl NodeValue {
    /// All values, in the order of the status.
    pub const ALL: [Self; 6] =
        [Self::InletTemperature, Self::DifferentialPressure, Self::Cpu, Self::Memory, Self::Power, Self::MeasuredPower];

    /// Name in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InletTemperature => "inletTemperature",
            Self::DifferentialPressure => "differentialPressure",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Power => "power",
            Self::MeasuredPower => "measuredPower",
        }
    }

    /// Unit that follows the number.
    pub fn unit(self) -> &'static str {
        match self {
            Self::InletTemperature => "°C",
            Self::DifferentialPressure => "Pa",
            Self::Cpu | Self::Memory => "%",
            Self::Power | Self::MeasuredPower => "W",
        }
    }
}

impl NodeConfigStatus {
    /// The reading of this value in the status.
    pub fn reading(&self, value: NodeValue) -> Option<&NodeReading> {
        match value {
            NodeValue::InletTemperature => self.inlet_temperature.as_ref(),
            NodeValue::DifferentialPressure => self.differential_pressure.as_ref(),
            NodeValue::Cpu => self.cpu.as_ref(),
            NodeValue::Memory => self.memory.as_ref(),
            NodeValue::Power => self.power.as_ref(),
            NodeValue::MeasuredPower => self.measured_power.as_ref(),
        }
    }

    /// Mutable access to the reading of this value.
    pub fn reading_mut(&mut self, value: NodeValue) -> &mut Option<NodeReading> {
        match value {
            NodeValue::InletTemperature => &mut self.inlet_temperature,
            NodeValue::DifferentialPressure => &mut self.differential_pressure,
            NodeValue::Cpu => &mut self.cpu,
            NodeValue::Memory => &mut self.memory,
            NodeValue::Power => &mut self.power,
            NodeValue::MeasuredPower => &mut self.measured_power,
        }
    }
}
