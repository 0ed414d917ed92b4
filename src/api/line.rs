//! Lists in a status whose items are one line of text each.
//!
//! The API server decodes, validates and encodes each field of an object several times for each write. A line costs a
//! fraction of an object with the same content, and each decision rewrites all items (measured by `hack/bench loops`).

use std::borrow::Cow;
use std::fmt::{Formatter, Result as FmtResult};
use std::str::FromStr;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::de::value::{Error as WordError, StrDeserializer};
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::Value;

/// Error: a text cannot be parsed as a line of its kind.
#[derive(Debug, thiserror::Error)]
#[error("\"{0}\" cannot be parsed: {1}")]
pub struct NotALine(String, &'static str);

impl NotALine {
    pub fn new(line: &str, what: &'static str) -> Self {
        Self(line.to_owned(), what)
    }
}

/// Serializes a type as one line in a status: the text of its `Display`, parsed by its `FromStr`.
macro_rules! line_in_status {
    ($kind:ident) => {
        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let line = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                line.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $kind {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($kind).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string"})
            }
        }
    };
}
pub(crate) use line_in_status;

/// Deserializes a list of lines. Skips each item that is not a line of its kind: another version of the operator may
/// have written it, and it must not make the whole object unreadable.
pub fn readable<'de, T: FromStr, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let items = Vec::<Value>::deserialize(deserializer)?;
    Ok(items.iter().filter_map(|item| item.as_str()?.parse().ok()).collect())
}

/// Replaces whitespace, `|` and commas, which separate words and parts, so that every written line can be parsed.
pub fn word(text: &str) -> Cow<'_, str> {
    if text.is_empty() {
        return "_".into();
    }
    if text.contains(is_no_word) { text.replace(is_no_word, "_").into() } else { text.into() }
}

fn is_no_word(character: char) -> bool {
    character.is_whitespace() || matches!(character, '|' | ',')
}

/// Replaces `|`, which separates parts.
pub fn part(text: &str) -> Cow<'_, str> {
    if text.contains('|') { text.replace('|', "/").into() } else { text.into() }
}

pub fn time(text: &str) -> Option<MicroTime> {
    text.parse::<Timestamp>().ok().map(MicroTime)
}

/// Separator between the parts of a line that may be absent.
const LIST: &str = ", ";

/// Writes parts of a line that may be absent: a name, and its value if it has one.
pub fn write_parts(f: &mut Formatter<'_>, parts: &[(&str, Option<String>)]) -> FmtResult {
    parts.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))).try_for_each(|(name, value)| {
        f.write_str(LIST)?;
        f.write_str(name)?;
        if value.is_empty() { Ok(()) } else { write!(f, " {value}") }
    })
}

/// Splits a line into its first part, as words, and the parts that may be absent, each with its value.
pub fn read_parts(line: &str) -> (Vec<&str>, impl Iterator<Item = (&str, &str)>) {
    let mut parts = line.split(LIST);
    let head = parts.next().unwrap_or_default().split(' ').collect();
    (head, parts.map(|part| part.split_once(' ').unwrap_or((part, ""))))
}

/// Value of a part without one, if the part is present.
pub fn flag(is_present: bool) -> Option<String> {
    is_present.then(String::new)
}

/// Parses the variant of an enum with this name.
pub fn variant<T: DeserializeOwned>(word: &str) -> Option<T> {
    T::deserialize(StrDeserializer::<WordError>::new(word)).ok()
}
