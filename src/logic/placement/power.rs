//! The agent `power`: scores nodes by the watts that the pod adds to them.
//!
//! Predictions come from outside, so that they can be asked for many nodes at once: first [`PowerUsage`] for each node, then the watts
//! for the inputs of all of them, then [`scores`].

pub mod cache;
pub mod curve;

use std::borrow::Cow;

use jiff::Timestamp;

use super::record::NodeRecord;
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

/// In what the predictor takes the usage of CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageScale {
    #[default]
    Cores,
    /// 100 is the whole node.
    Percent,
}

/// The usage of a node before and after the pod, in cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerUsage {
    pub before: f64,
    pub after: f64,
}

/// Predictions that were fetched before.
pub trait Predictions: Sync {
    /// The watts of a node at this usage of CPU.
    ///
    /// # Errors
    /// There is no prediction; the text says why.
    fn watts(
        &self,
        record: &NodeRecord,
        usage: f64,
        scale: UsageScale,
        now: Timestamp,
    ) -> Result<f64, Cow<'static, str>>;
}

/// Predictions are not fetched yet.
#[derive(Clone, Copy, Debug)]
pub struct NoPredictions;

impl Predictions for NoPredictions {
    fn watts(&self, _: &NodeRecord, _: f64, _: UsageScale, _: Timestamp) -> Result<f64, Cow<'static, str>> {
        Err(NOT_FETCHED.into())
    }
}

/// Why there is none.
pub const NOT_FETCHED: &str = "this version does not fetch predictions yet";

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

    /// The predictor's inputs before and after the pod, or the increment where it takes no prediction.
    ///
    /// # Errors
    /// The increment, if it takes no prediction.
    pub fn inputs(&self, cores: f64, assumption: f64, scale: UsageScale) -> Result<PowerUsage, Increment> {
        let usage = self.usage(cores, assumption).filter(|_| cores > 0.0 && self.capacity > 0.0);
        let PowerUsage { before, after } = usage.ok_or(Increment::Unknown)?;
        let scaled = |cores: f64| match scale {
            UsageScale::Cores => cores,
            UsageScale::Percent => 100.0 * cores / self.capacity,
        };
        if after > self.capacity {
            Err(Increment::Overcommit)
        } else {
            Ok(PowerUsage { before: scaled(before), after: scaled(after) })
        }
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
