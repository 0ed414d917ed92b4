//! The second hop: alarms in, at most one decision out, and the reason for each alarm that is rejected.
//!
//! | file | content |
//! |---|---|
//! | `rules` | the parsed spec of a Decision; types that the other files share |
//! | `order` | which alarm is first |
//! | `ladder` | which rung of a ladder is next |
//! | `limits` | whether a dwell, a budget or oscillation blocks an action |
//! | `schedule` | the time windows of actions and limits |
//! | `history` | which past actions the limits count |
//! | `evaluate` | which rung an alarm gets, or why it is rejected and until when |
//! | `settlement` | the outcome of the last decision |
//! | `decide` | the next status |

pub mod decide;
mod evaluate;
mod history;
pub mod ladder;
pub mod limits;
pub mod order;
pub mod rules;
pub mod schedule;
pub mod settlement;

#[cfg(test)]
mod tests;

pub use decide::Decided;
pub use rules::{DecisionInput, DecisionRules, Executor};
