//! Tuning of a fast loop by a slow one.
//!
//! | file | content |
//! |---|---|
//! | `last_served` | the rule of a slow loop that finds the metric to prefer |
//! | `effective_policy` | the policy of the fast loop: its spec merged with the allowed tunings |

pub mod effective_policy;
pub mod last_served;

#[cfg(test)]
mod tests;
