//! The first hop: what was measured in, alarms out.
//!
//! | file | what it decides |
//! |---|---|
//! | `tag` | which sample counts |
//! | `level` | which alarm a value raises |
//! | `watch` | what is watched, read from the spec; the types that the other files share |
//! | `observe` | the next status |
//! | `changes` | whether that is worth a write |
//! | `status_texts` | its message and conditions |

mod changes;
pub mod level;
mod observe;
mod status_texts;
pub mod tag;
pub mod watch;

#[cfg(test)]
mod tests;

pub use watch::{
    LastServedFound, Measurement, MonitoringRules, Observation, ObserveContext, ObserveTrigger, SourceResult,
    SourceValue,
};
