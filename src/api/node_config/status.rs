//! What is known of a node.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Status of a NodeConfig. It is written when a value changed noticeably (setting `nodeConfigs.deadband`), when something goes
/// wrong or right again, and every few minutes (setting `nodeConfigs.heartbeatSeconds`); the metrics have the newest values.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeConfigStatus {
    /// The generation of the spec that this status describes; -1 before any controller has seen the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: every value that the spec asks for is known and fresh. Reconciling: some are not, and the operator tries again.
    /// Stalled: nothing is asked until somebody changes something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// When the newest of the values was measured or predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_at: Option<Time>,
    /// Until when the values may be used without a newer status: they are within their deadbands until then, unless they are
    /// marked stale. Once it has passed, no operator keeps this status up to date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<Time>,
    /// Temperature of the air that the node takes in, in degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inlet_temperature: Option<NodeReading>,
    /// Differential pressure before and behind the node, in pascals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differential_pressure: Option<NodeReading>,
    /// Usage of the node's processors, in percent of all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<NodeReading>,
    /// Usage of the node's memory, in percent of all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<NodeReading>,
    /// Predicted power of the node, in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<NodeReading>,
    /// Predicted power at other usages of the processors, by which placement policies know what a pod would add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_curve: Option<PowerCurve>,
}

/// The predicted power of a node over the usage of its processors. It is predicted every half hour, and when inlet temperature or
/// differential pressure change; and written when it differs noticeably, or with another change.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PowerCurve {
    /// Watts of the idle node, and with each 5 % more of its processors in use, up to all of them: 21 decimal numbers. Unset: the
    /// model gave no valid prediction yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 21), inner(length(max = 32)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub watts: Vec<String>,
    /// The inlet temperature that it was predicted for, in degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inlet_temperature: Option<String>,
    /// The differential pressure that it was predicted for, in pascals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differential_pressure: Option<String>,
    /// When it was predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_at: Option<Time>,
    /// Why there is no newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A value of a node, and where it is from.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeReading {
    /// The last known value, a decimal number. Unset: no value was known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Standard deviation over the time of which the value is the mean, where the source knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<String>,
    /// When it was measured or predicted. A value that does not change is measured more often than this is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_at: Option<Time>,
    /// The sensor, server or model that it is from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// true: the value is older than three intervals of its source, and must not be used as if it were fresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<bool>,
    /// Why there is no newer value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The values that are known of a node, by their names in the status.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub enum NodeValue {
    #[default]
    InletTemperature,
    DifferentialPressure,
    Cpu,
    Memory,
    Power,
}

impl NodeValue {
    /// All values, in the order of the status.
    pub const ALL: [Self; 5] =
        [Self::InletTemperature, Self::DifferentialPressure, Self::Cpu, Self::Memory, Self::Power];

    /// The name in the status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InletTemperature => "inletTemperature",
            Self::DifferentialPressure => "differentialPressure",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Power => "power",
        }
    }

    /// The unit, as it stands behind a number.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::InletTemperature => "°C",
            Self::DifferentialPressure => "Pa",
            Self::Cpu | Self::Memory => "%",
            Self::Power => "W",
        }
    }
}

impl NodeConfigStatus {
    /// What the status has of this value.
    #[must_use]
    pub fn reading(&self, value: NodeValue) -> Option<&NodeReading> {
        match value {
            NodeValue::InletTemperature => self.inlet_temperature.as_ref(),
            NodeValue::DifferentialPressure => self.differential_pressure.as_ref(),
            NodeValue::Cpu => self.cpu.as_ref(),
            NodeValue::Memory => self.memory.as_ref(),
            NodeValue::Power => self.power.as_ref(),
        }
    }

    /// The place of this value.
    pub fn reading_mut(&mut self, value: NodeValue) -> &mut Option<NodeReading> {
        match value {
            NodeValue::InletTemperature => &mut self.inlet_temperature,
            NodeValue::DifferentialPressure => &mut self.differential_pressure,
            NodeValue::Cpu => &mut self.cpu,
            NodeValue::Memory => &mut self.memory,
            NodeValue::Power => &mut self.power,
        }
    }
}
