//! Whether a loop as a whole may act.
//!
//! | file | what it decides |
//! |---|---|
//! | `support` | what this version of the operator cannot do yet |
//! | `names` | which names of users may become part of a request |
//! | `chain` | how loops stand on one another |
//! | `conflict` | who else acts on the target |
//! | `assessment` | all of it: the policy that holds, the children, and the loop's own status |

pub mod assessment;
pub mod chain;
pub mod conflict;
pub mod names;
pub mod support;

#[cfg(test)]
mod tests;
