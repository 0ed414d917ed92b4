//! Settings of the NodeConfig controllers.

use serde::Deserialize;

/// The controllers of NodeConfigs and their templates.
#[derive(Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeConfigs {
    /// How many NodeConfigs of one template are written, and how many templates are reconciled, at the same time, 1 to 1000; a
    /// quarter as many NodeConfigs are reconciled. Default: 32.
    pub concurrency: usize,
    /// How many machines and servers are asked at the same time, 1 to 10000; those that did not answer the last time get at
    /// most half of it. Default: 512.
    pub polls: usize,
    /// Seconds after which the status of a NodeConfig is written though no value left its deadband, 30 to 86400. Default: 300.
    pub heartbeat_seconds: u64,
    /// How many nodes have series of their own in the metrics, 0 to 100000: the first by name. 0 switches them off. Default:
    /// 10000.
    pub series: usize,
    /// By how much a value must differ from the one in the status to be written before the heartbeat.
    pub deadband: Deadband,
}

/// See [`NodeConfigs::deadband`]. Each from 0 (every change is written) to 1000000.
#[derive(Deserialize, Clone, Copy, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Deadband {
    /// Inlet temperature, in degrees Celsius. Default: 0.5.
    pub celsius: f64,
    /// Differential pressure, in pascals. Default: 0.1.
    pub pascals: f64,
    /// Usage, in percent of the whole. Default: 2.
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
    /// The name of a value that is no number from 0 to 1000000, if there is one.
    pub(super) fn wrong(&self) -> Option<&'static str> {
        let Self { celsius, pascals, percent, watts } = *self;
        let all = [("celsius", celsius), ("pascals", pascals), ("percent", percent), ("watts", watts)];
        all.into_iter().find(|(_, value)| !(0.0..=1e6).contains(value)).map(|(name, _)| name)
    }
}
