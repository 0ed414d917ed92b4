//! Tests of tuning.

mod effective_policy;
mod last_served;
