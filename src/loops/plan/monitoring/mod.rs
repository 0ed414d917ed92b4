//! The first stage: turns measured values into alarms.
//!
//! | file | content |
//! |---|---|
//! | `tag` | which samples are accepted |
//! | `level` | which alarms a value raises |
//! | `rules` | the parsed spec of a Monitoring; types that the other files share |
//! | `observe` | the next status |
//! | `changes` | whether the next status is worth a write |
//! | `status_texts` | the message and the conditions of the status |

mod changes;
pub mod level;
mod observe;
pub mod rules;
mod status_texts;
pub mod tag;

#[cfg(test)]
mod tests;

pub use rules::{Measurement, MonitoringRules, Observation, ObserveContext, ObserveTrigger, SourceResult, SourceValue};
