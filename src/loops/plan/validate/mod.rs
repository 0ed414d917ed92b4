//! Whether a loop as a whole may act.
//!
//! | file | content |
//! |---|---|
//! | `chain` | chains of loops that tune each other |
//! | `conflict` | other loops and autoscalers on the same target |
//! | `feedback` | metrics in percent of requests that the loop changes |
//! | `preflight` | whether the target and the permissions of the account allow the loop's actions |
//! | `assessment` | all of these together; the effective policy, the children, and the loop's status |

pub mod assessment;
pub mod chain;
pub mod conflict;
pub mod feedback;
pub mod preflight;

#[cfg(test)]
mod tests;
