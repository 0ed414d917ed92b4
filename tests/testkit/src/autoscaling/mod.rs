//! Simulated autoscaling: generated loads, and capacity that follows them with and without a forecast.

mod csv;
mod load;
mod provisioning;
mod simulation;

#[cfg(test)]
mod tests;

pub use load::{DemandSeries, LoadShape, STEP_SECONDS, STEPS_PER_DAY};
pub use provisioning::Provisioning;
pub use simulation::{ScalingRules, simulate};
