//! Errors of the clients that read values of nodes, and names that may be shown.

use super::Error;

/// Maximum measured power of a node, in watts.
pub const MOST_NODE_WATTS: f64 = 100_000.0;

/// Maximum length of a name from an answer that may be shown, in characters.
const MAX_NAME: usize = 64;

/// Why there is no usable value of a node. The texts appear in the status of an object: they contain nothing that the
/// server answered, except its HTTP status, numbers of items, and names that [`is_plain_name`] accepts.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ValueError {
    /// There is no usable answer.
    #[error(transparent)]
    Client(#[from] Error),
    /// The request was not sent: its parameters are invalid.
    #[error("{0}")]
    Unfit(String),
    /// The server has no such sensor, series or model.
    #[error("{0}")]
    NotFound(String),
    /// The server has several sensors and the request does not select one of them.
    #[error("{0}")]
    AmbiguousSensor(String),
    /// The server has several series or outputs and the request does not select one of them.
    #[error("{0}")]
    Ambiguous(String),
    /// The server has no value at the moment.
    #[error("{0}")]
    NoReading(String),
    /// The server or its model refuses the rows of a request.
    #[error("{0}")]
    Rejected(String),
    /// The value is out of range, or the answer is invalid.
    #[error("{0}")]
    Invalid(String),
}

/// Whether a name from an answer may be shown: at most 64 letters, digits, blanks and `._-/`.
pub fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(is_plain)
}

/// Whether a character of a name or path from an answer may be shown.
pub fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, ' ' | '.' | '_' | '-' | '/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("101037B", true)]
    #[case("Inlet Temp", true)]
    #[case("a/b_c-d.e", true)]
    #[case("", false)]
    #[case("a\nb", false)]
    #[case("<b>", false)]
    #[case("é", false)]
    #[case(&"a".repeat(64), true)]
    #[case(&"a".repeat(65), false)]
    fn only_plain_names_are_shown(#[case] name: &str, #[case] shown: bool) {
        assert_eq!(is_plain_name(name), shown);
    }
}
