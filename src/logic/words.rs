//! Parts of messages that several kinds share.

use std::fmt::Display;

/// Renders a count with its noun, such as `1 job` and `3 jobs`.
#[must_use]
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, thing: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {thing}{plural}")
}
