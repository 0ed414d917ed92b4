//! Tests of the first hop.

mod observe;
mod sources;
