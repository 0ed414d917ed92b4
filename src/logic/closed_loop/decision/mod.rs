//! The second hop: alarms in, one choice out, with all that was passed over and why.
//!
//! | file | what it decides |
//! |---|---|
//! | `rules` | how the loop decides, read from its spec; the types that the other files share |
//! | `order` | which alarm comes first |
//! | `ladder` | which rung of its ladder is next |
//! | `limits`, `schedule` | whether an action is held back: by the time between two, by a budget, by a calendar |
//! | `history` | which past actions the limits count |
//! | `evaluate` | why an alarm is passed over, and until when |
//! | `settlement` | what became of the last decision |
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
