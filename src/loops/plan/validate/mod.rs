//! Whether a loop as a whole may act.
//!
//! | file | content |
//! |---|---|
//! | `names` | checks of names that become part of a URL of the API server |
//! | `chain` | chains of loops that tune each other |
//! | `conflict` | other loops and autoscalers on the same target |
//! | `preflight` | whether the target and the permissions of the account allow the loop's actions |
//! | `assessment` | all of these together; the effective policy, the children, and the loop's status |

pub mod assessment;
pub mod chain;
pub mod conflict;
pub mod preflight;

#[cfg(test)]
mod tests;
