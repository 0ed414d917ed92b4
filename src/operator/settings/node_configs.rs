//! Settings of the NodeConfig controllers.

use serde::Deserialize;

/// Settings of the controllers of NodeConfigs and their templates.
#[derive(Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeConfigs {
    /// Number of NodeConfigs of one template that are written at the same time, and number of templates that are
    /// reconciled at the same time, 1 to 1000. A quarter of this number of NodeConfigs is reconciled at the same time.
    /// Default: 32.
    pub concurrency: usize,
    /// Maximum number of concurrent requests to machines and servers, 1 to 10000. Servers that did not answer the last
    /// request get at most half of them. Default: 512.
    pub polls: usize,
    /// Seconds after which the status of a NodeConfig is written even if no value left its deadband, 30 to 86400.
    /// Default: 300.
    pub heartbeat_seconds: u64,
    /// Maximum number of nodes with their own series in the metrics, 0 to 100000; the first nodes by name have them. 0
    /// disables these series. Default: 10000.
    pub series: usize,
    /// Minimum difference from the value in the status at which a value is written before the heartbeat.
    pub deadband: Deadband,
}

/// See [`NodeConfigs::deadband`]. Each value is from 0 (every change is written) to 1000000.
#[derive(Deserialize, Clone, Copy, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Deadband {
    /// Inlet temperature, in degrees Celsius. Default: 0.5.
    pub celsius: f64,
    /// Differential pressure, in pascals. Default: 0.1.
    pub pascals: f64,
    /// CPU and memory usage, in percent of the capacity. Default: 2.
    pub percent: f64,
    /// Predicted power, in watts. Default: 1.
    pub watts: f64,
}

impl Default for NodeConfigs {
    fn default() -> Self {
        Self { concurrency: 32, polls: 512, heartbeat_seconds: 300, series: 10_000, deadband: Deadband::default() }
    }
}

impl Default for Deadband {
    fn default() -> Self {
        Self { celsius: 0.5, pascals: 0.1, percent: 2.0, watts: 1.0 }
    }
}

impl Deadband {
    /// Name of the first value that is not a number from 0 to 1000000.
    pub(super) fn wrong(&self) -> Option<&'static str> {
        let Self { celsius, pascals, percent, watts } = *self;
        let all = [("celsius", celsius), ("pascals", pascals), ("percent", percent), ("watts", watts)];
        all.into_iter().find(|(_, value)| !(0.0..=1e6).contains(value)).map(|(name, _)| name)
    }
}
