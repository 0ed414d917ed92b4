//! The first stage: turns measured values into alarms.
//!
//! | file | content |
//! |---|---|
//! | `value` | a value as its source delivered it |
//! | `tag` | which samples are accepted |
//! | `level` | which alarms a value raises |
//! | `rules` | the parsed spec of a Monitoring; types that the other files share |
//! | `formula` | metrics that are computed from other metrics |
//! | `stored_values` | values in the status, and the state of a metric |
//! | `computed` | evaluates the formulas on them |
//! | `tracking/` | the parsed actions on side Target, and the state of the target |
//! | `tracked_number` | one pass: metrics and target as `track` reads them, its result in the status |
//! | `source_rule` | the table of sources: which are polled, age of a value, and when it is new |
//! | `window` | samples of a period of time, as one number |
//! | `windows` | the windows of the metrics of a loop |
//! | `observe` | the next status, and whether it is worth a write |

mod computed;
pub mod formula;
pub mod level;
mod observe;
pub mod rules;
pub mod source_rule;
mod stored_values;
pub mod tag;
mod tracked_number;
pub mod tracking;
mod value;
pub mod window;
pub mod windows;

#[cfg(test)]
mod tests;

pub use rules::{Measurement, MonitoringRules, Observation, ObserveContext, ObserveTrigger};
pub use value::{NOT_YET, PodSamples, SourceResult, SourceValue, ValueRange};
