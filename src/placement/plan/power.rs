//! The agent `power`: scores nodes by the watts that the pod adds to them.
//!
//! First [`PowerUsage`] of each node, then the watts at these usages, which NodeConfigs have predicted, then [`scores`].

use super::wire::{TOP, extremes, span};

/// Scores in percent, as WAO has them.
pub const PERCENT: PowerScale = PowerScale { top: 100.0, base: 20.0 };

/// The CPU of a node, in cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerNode {
    /// The capacity, not what is allocatable.
    pub capacity: f64,
    /// Measured usage; None if unknown.
    pub usage: Option<f64>,
    /// The requests of the pods that are bound to the node but do not run yet.
    pub pending: f64,
}

/// The CPU of a pod in cores, from the request and the limit of each container: the limit counts where nothing is requested.
#[must_use]
pub fn pod_cores(containers: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    containers.into_iter().map(|(request, limit)| if request > 0.0 { request } else { limit }).sum()
}

/// The usage of a node before and after the pod, in cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerUsage {
    pub before: f64,
    pub after: f64,
}

/// What the pod adds to a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Increment {
    /// Watts, 0 or more.
    Watts(f64),
    /// The node has too little CPU.
    Overcommit,
    /// Unknown: something that the calculation needs is missing.
    Unknown,
}

impl PowerNode {
    /// The usage before and after a pod that requests `cores`. Of pods that do not run yet, the part `assumption` of their
    /// requests counts as used. None without a measurement.
    #[must_use]
    pub fn usage(&self, cores: f64, assumption: f64) -> Option<PowerUsage> {
        let before = self.usage? + assumption * self.pending;
        Some(PowerUsage { before, after: before + cores })
    }

    /// The same where a prediction is of use, else the increment without one.
    ///
    /// # Errors
    /// The increment, if it takes no prediction.
    pub fn predicted(&self, cores: f64, assumption: f64) -> Result<PowerUsage, Increment> {
        let usage = self.usage(cores, assumption).filter(|_| cores > 0.0 && self.capacity > 0.0);
        let usage = usage.ok_or(Increment::Unknown)?;
        if usage.after > self.capacity { Err(Increment::Overcommit) } else { Ok(usage) }
    }
}

impl Increment {
    /// From the predicted watts. A prediction that falls with usage is an error of the model, and counts as no increase.
    #[must_use]
    pub fn between(before: f64, after: f64) -> Self {
        let difference = after - before;
        if difference.is_finite() { Self::Watts(difference.max(0.0)) } else { Self::Unknown }
    }
}

/// How increments become scores: the least increment scores `top`, the greatest `base`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerScale {
    pub top: f64,
    /// More than the score of an overcommitted node, 1.
    pub base: f64,
}

impl PowerScale {
    /// Scores of 0 to 10 from a base in percent. The base is rounded, so that it remains apart from the scores of nodes without
    /// an increment; a division of scores in percent would merge those.
    #[must_use]
    pub fn of_extender(base_percent: f64) -> Self {
        Self { top: TOP, base: (base_percent / 10.0 + 0.5).floor() }
    }
}

/// The scores of nodes, in their order: unknown 0, overcommitted 1, all others from base to top. If no increment differs from
/// the others, all get the base.
#[must_use]
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
