//! Parts of messages that several kinds share.

use std::fmt::Display;

/// So many things, as in `1 job` and `3 jobs`.
#[must_use]
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, thing: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {thing}{plural}")
}
