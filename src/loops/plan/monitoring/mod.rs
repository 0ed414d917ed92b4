//! The first stage: turns measured values into alarms.
//!
//! | file | content |
//! |---|---|
//! | `tag` | which samples are accepted |
//! | `level` | which alarms a value raises |
//! | `rules` | the parsed spec of a Monitoring; types that the other files share |
//! | `observe` | the next status, and whether it is worth a write |

pub mod level;
mod observe;
pub mod rules;
pub mod tag;

#[cfg(test)]
mod tests;

pub use rules::{Measurement, MonitoringRules, Observation, ObserveContext, ObserveTrigger, SourceResult, SourceValue};
