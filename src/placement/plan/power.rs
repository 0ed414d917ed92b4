//! The agent `power`: scores nodes by the watts that the pod adds to them.
//!
//! The steps are: the [`PowerUsage`] of each node, the watts at these usages as predicted by the NodeConfigs, and
//! [`scores`].

use super::wire::{TOP, extremes, span};

/// Scores in percent, like those of WAO.
pub const PERCENT: PowerScale = PowerScale { top: 100.0, base: 20.0 };

/// CPU of a node, in cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerNode {
    /// `status.capacity`, not allocatable.
    pub capacity: f64,
    /// Measured usage; None if it is unknown.
    pub usage: Option<f64>,
    /// Requests of pods that are bound to the node but do not run yet.
    pub pending: f64,
}

/// CPU of a pod in cores, from the request and the limit of each container. The limit counts if the container requests
/// no CPU.
pub fn pod_cores(containers: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    containers.into_iter().map(|(request, limit)| if request > 0.0 { request } else { limit }).sum()
}

/// CPU usage of a node before and after the pod is placed, in cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerUsage {
    pub before: f64,
    pub after: f64,
}

/// Increase of a node's power by the pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Increment {
    /// Watts, 0 or more.
    Watts(f64),
    /// The node has too little CPU.
    Overcommit,
    /// Data for the calculation is missing.
    Unknown,
}

impl PowerNode {
    /// Usage before and after a pod that requests `cores`. The fraction `assumption` of the requests of pods that do
    /// not run yet counts as used. None without a measurement.
    pub fn usage(&self, cores: f64, assumption: f64) -> Option<PowerUsage> {
        let before = self.usage? + assumption * self.pending;
        Some(PowerUsage { before, after: before + cores })
    }

    /// Usage for which power must be predicted. Returns the increment as an error if it follows without a prediction.
    pub fn predicted(&self, cores: f64, assumption: f64) -> Result<PowerUsage, Increment> {
        let usage = self.usage(cores, assumption).filter(|_| cores > 0.0 && self.capacity > 0.0);
        let usage = usage.ok_or(Increment::Unknown)?;
        if usage.after > self.capacity { Err(Increment::Overcommit) } else { Ok(usage) }
    }
}

impl Increment {
    /// Increment between two predictions. A prediction that falls with rising usage is an error of the model and counts
    /// as no increase.
    pub fn between(before: f64, after: f64) -> Self {
        let difference = after - before;
        if difference.is_finite() { Self::Watts(difference.max(0.0)) } else { Self::Unknown }
    }
}

/// Mapping of increments to scores: the least increment scores `top`, the greatest scores `base`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerScale {
    pub top: f64,
    /// Must be more than 1, the score of an overcommitted node.
    pub base: f64,
}

impl PowerScale {
    /// Scale of 0 to 10 from a base in percent. The base is rounded so that it stays distinct from the scores of nodes
    /// without an increment. Dividing scores in percent by 10 would merge them.
    pub fn of_extender(base_percent: f64) -> Self {
        Self { top: TOP, base: (base_percent / 10.0 + 0.5).floor() }
    }
}

/// Scores of the nodes, in the order of the increments: unknown 0, overcommitted 1, all others from base to top. If all
/// increments are equal, each of them scores the base.
pub fn scores(increments: &[Increment], scale: PowerScale) -> Vec<f64> {
    let watts = increments.iter().filter_map(|increment| match increment {
        Increment::Watts(watts) => Some(*watts),
        Increment::Overcommit | Increment::Unknown => None,
    });
    let range = extremes(watts).and_then(|(low, high)| Some((low, span(low, high)?)));
    let score = |increment: &Increment| match increment {
        Increment::Unknown => 0.0,
        Increment::Overcommit => 1.0,
        Increment::Watts(watts) => range.map_or(scale.base, |(low, span)| {
            scale.top - (scale.top - scale.base) * ((watts - low) / span).clamp(0.0, 1.0)
        }),
    };
    increments.iter().map(score).collect()
}
