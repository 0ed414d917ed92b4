//! The second stage: reads alarms; returns at most one decision, and a reason for each rejected alarm.
//!
//! | file | content |
//! |---|---|
//! | `rules` | the parsed spec of a Decision; types that the other files share |
//! | `alarm_action` | the parsed action for an alarm or a combination of alarms |
//! | `candidate` | the actions that the active alarms trigger |
//! | `order` | the order of alarms |
//! | `ladder` | the next rung of a ladder |
//! | `limits` | whether a dwell, a budget or oscillation blocks an action; why an alarm is not served |
//! | `evaluate` | the rung for an alarm, or why the alarm is rejected and until when |
//! | `settlement` | the outcome of the last decision |
//! | `decide` | the next status |

mod alarm_action;
mod candidate;
pub mod decide;
mod evaluate;
pub mod ladder;
pub mod limits;
pub mod order;
pub mod rules;
pub mod settlement;

#[cfg(test)]
mod tests;

pub use candidate::{is_met, met_since};
pub use decide::Decided;
pub use rules::{DecisionInput, DecisionRules, Executor};
