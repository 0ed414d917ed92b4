//! Tests of the first stage.

mod observe;
mod sources;
