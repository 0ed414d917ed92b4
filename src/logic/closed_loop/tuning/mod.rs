//! Slow loops that tune fast ones: what they find to change, and how much of it holds.

pub mod effective_policy;
pub mod last_served;

#[cfg(test)]
mod tests;
