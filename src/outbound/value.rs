//! Errors of the clients that read values of nodes, and lists that store only their first items.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::Error;

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
    /// The server has several values and the request does not select one of them.
    #[error("{0}")]
    Ambiguous(String),
    /// The server has no value at the moment.
    #[error("{0}")]
    NoReading(String),
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

/// First `KEPT` items of a list, and its length. Null counts as an empty list: servers written in Go encode it so.
pub struct Items<T, const KEPT: usize> {
    pub kept: Vec<T>,
    pub count: usize,
}

impl<T, const KEPT: usize> Default for Items<T, KEPT> {
    fn default() -> Self {
        Self { kept: Vec::new(), count: 0 }
    }
}

impl<'de, T: Deserialize<'de>, const KEPT: usize> Deserialize<'de> for Items<T, KEPT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemsVisitor(PhantomData))
    }
}

struct ItemsVisitor<T, const KEPT: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const KEPT: usize> Visitor<'de> for ItemsVisitor<T, KEPT> {
    type Value = Items<T, KEPT>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Items::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < KEPT {
            let Some(item) = items.next_element()? else { break };
            kept.push(item);
        }
        let mut count = kept.len();
        while items.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(Items { kept, count })
    }
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

    #[rstest]
    #[case("null", &[], 0)]
    #[case("[]", &[], 0)]
    #[case("[1]", &[1], 1)]
    #[case("[1, 2]", &[1, 2], 2)]
    #[case(r#"[1, 2, "x", {"y": []}]"#, &[1, 2], 4)]
    fn the_first_items_are_kept_and_all_are_counted(#[case] text: &str, #[case] kept: &[u8], #[case] count: usize) {
        let found: Items<u8, 2> = serde_json::from_str(text).unwrap();
        assert_eq!((found.kept.as_slice(), found.count), (kept, count));
    }

    #[rstest]
    #[case("5")]
    #[case(r#"[1, "x"]"#)]
    #[case("[1, 2, 3")]
    fn another_form_is_an_error(#[case] text: &str) {
        assert!(serde_json::from_str::<Items<u8, 2>>(text).is_err());
    }
}
