//! Lists of a status whose items are one line of text each.
//!
//! The API server decodes, validates and encodes each field of an object several times for each write. A line costs it a
//! fraction of an object with the same content, and each decision writes all items anew (`hack/bench loops` measures it).

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::de::DeserializeOwned;
use serde::de::value::{Error as WordError, StrDeserializer};

/// A text that is not a line of its kind.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not readable: {1}")]
pub struct NotALine(String, &'static str);

impl NotALine {
    pub fn new(line: &str, what: &'static str) -> Self {
        Self(line.to_owned(), what)
    }
}

/// The form of a type in a status: the line that it displays, and is parsed from.
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
pub(super) use line_in_status;

/// A text without what separates words, so that each line that is written can be read.
pub fn word(text: &str) -> Cow<'_, str> {
    if text.is_empty() {
        return "_".into();
    }
    if text.contains(is_no_word) { text.replace(is_no_word, "_").into() } else { text.into() }
}

fn is_no_word(character: char) -> bool {
    character.is_whitespace() || character == '|'
}

/// A text without what separates parts.
pub fn part(text: &str) -> Cow<'_, str> {
    if text.contains('|') { text.replace('|', "/").into() } else { text.into() }
}

pub fn time(text: &str) -> Option<MicroTime> {
    text.parse::<Timestamp>().ok().map(MicroTime)
}

/// The variant of an enum that is written as this word.
pub fn variant<T: DeserializeOwned>(word: &str) -> Option<T> {
    T::deserialize(StrDeserializer::<WordError>::new(word)).ok()
}
