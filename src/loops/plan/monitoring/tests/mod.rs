//! Tests of the first stage.

mod age;
mod observe;
mod sources;
