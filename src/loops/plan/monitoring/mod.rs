//! The first stage: turns measured values into alarms.
//!
//! | file | content |
//! |---|---|
//! | `tag` | which samples are accepted |
//! | `level` | which alarms a value raises |
//! | `rules` | the parsed spec of a Monitoring; types that the other files share |
//! | `source_rule` | the table of sources: age of a value, and when it is new |
//! | `observe` | the next status, and whether it is worth a write |

pub mod level;
mod observe;
pub mod rules;
pub mod source_rule;
pub mod tag;

#[cfg(test)]
mod tests;

pub use rules::{
    Measurement, MonitoringRules, NOT_YET, Observation, ObserveContext, ObserveTrigger, SourceResult, SourceValue,
    ValueRange,
};
