//! Forecast of the number of replicas that a loop needs, and whether the forecast has earned trust.
//!
//! The memory holds the demand (the number of replicas, not rounded, at which the metrics are at their targets) of one
//! season in buckets, and what is usual in each bucket of a season. From nothing else, two models forecast the demand:
//! the seasonal naive one and Holt-Winters. Both are judged at the horizon at which they are used, by their own errors
//! and that of the last value. A forecast is used only while it is clearly better than the last value. It may raise a
//! number early, and never lowers one: see [`with_forecast`].
//!
//! Times of a season are those of UTC. After a change to or from daylight saving time, loads that follow a local clock
//! come an hour earlier or later, and trust ends until the new times are usual.
//!
//! | file | content |
//! |---|---|
//! | `rules` | the rules, and the buckets that follow from them |
//! | `samples` | demand of the bucket that is not over |
//! | `season` | latest and usual demand of each bucket |
//! | `model` | the two models |
//! | `trust` | errors, and the rule for trust |
//! | `memory` | what is recorded and forecast; gaps, and steps of the clock |
//! | `text`, `number` | the stored form of the memory |
//! | `outcome` | the result, its explanation, and its use |

mod memory;
mod model;
mod number;
mod outcome;
mod rules;
mod samples;
mod season;
mod text;
mod trust;

#[cfg(test)]
mod tests;

pub use memory::ForecastMemory;
pub use model::ForecastModel;
pub use outcome::{ForecastOutcome, with_forecast};
pub use rules::{ForecastRuleError, ForecastRules, MAX_AHEAD, MAX_BUCKETS, MIN_AHEAD};
pub use text::ForecastMemoryError;
pub use trust::{ForecastErrors, ForecastTrust};
