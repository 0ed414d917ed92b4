//! Tests of the validation of a loop as a whole.

mod assessment;
mod chain;
mod feedback;
mod preflight;
