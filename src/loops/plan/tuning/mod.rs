//! Tuning of a fast loop by a slow one.
//!
//! | file | content |
//! |---|---|
//! | `last_served` | the rule by which a slow loop finds the metric to prefer |
//! | `effective_policy` | the policy of the fast loop, its spec merged with the tunings that are allowed |

pub mod effective_policy;
pub mod last_served;

#[cfg(test)]
mod tests;
