//! Tests of what holds of a loop as a whole.

mod assessment;
mod chain;
mod preflight;
