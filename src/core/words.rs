//! Parts of messages that several kinds share.

use std::fmt::Display;

/// Renders a count with its noun, such as `1 job` and `3 jobs`.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, thing: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

/// Truncates the text to this number of bytes, at a character boundary.
pub fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

/// Describes a text of other writers by its length only: the text may be a secret.
pub fn kind_of_text(text: &str) -> String {
    match text.chars().count() {
        1 => "a text of 1 character".to_owned(),
        count => format!("a text of {count} characters"),
    }
}
