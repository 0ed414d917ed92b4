//! The first hop: what was measured in, alarms out.
//!
//! | file | what it decides |
//! |---|---|
//! | `tag` | which sample counts |
//! | `level` | which alarm a value raises |
//! | `rules` | what is watched, read from the spec; the types that the other files share |
//! | `observe` | the next status |
//! | `changes` | whether that is worth a write |
//! | `status_texts` | its message and conditions |

mod changes;
pub mod level;
mod observe;
pub mod rules;
mod status_texts;
pub mod tag;

#[cfg(test)]
mod tests;

pub use rules::{Measurement, MonitoringRules, Observation, ObserveContext, ObserveTrigger, SourceResult, SourceValue};
