//! Why a server has no usable value of a node. Shared by the clients that read such values.

use super::Error;

/// Longest name from an answer that is shown, in characters.
const MAX_NAME: usize = 64;

/// Why there is no usable value of a node. The texts are shown in the status of an object: they contain nothing that the server
/// answered, except its HTTP status, numbers of items and names that [`is_plain_name`] lets pass.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ValueError {
    /// There is no usable answer.
    #[error(transparent)]
    Client(#[from] Error),
    /// The request was not sent: it cannot be made of its parameters.
    #[error("{0}")]
    Unfit(String),
    /// The server knows no such sensor, series or model.
    #[error("{0}")]
    NotFound(String),
    /// The server has several values, and nothing says which is meant.
    #[error("{0}")]
    Ambiguous(String),
    /// The server knows what is meant, and has no value of it at the moment.
    #[error("{0}")]
    NoReading(String),
    /// The value is not one that the quantity can have, or the answer is not as expected.
    #[error("{0}")]
    Invalid(String),
}

/// Whether a name from an answer may be shown: it consists of at most 64 letters, digits, blanks and `._-/`.
#[must_use]
pub fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(is_plain)
}

/// Whether a character of a name or path from an answer may be shown.
#[must_use]
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
