//! Tests of the first stage.

mod age;
mod formula;
mod observe;
mod sources;
mod window;
