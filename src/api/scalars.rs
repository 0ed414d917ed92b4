//! Numbers and durations as users write them in a spec: strings, validated by a pattern in the schema.
//!
//! This module defines their schema. `ganglion_core` parses them once, where they enter.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Pattern of a time. The API server accepts any offset in a `date-time`, but the operator cannot parse `+99:99`.
pub const TIME_PATTERN: &str = "^[12][0-9]{3}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,9})?([Zz]|[+-](0[0-9]|1[0-4]):[0-5][0-9])$";

/// A number such as `5`, `1.25`, `-3` or `512Mi`, as a string: a plain decimal or a Kubernetes quantity.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(transparent)]
pub struct Number(pub String);

/// A duration in Go's format, such as `15s`, `500ms` or `1h30m`.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(transparent)]
pub struct DurationText(pub String);

/// A number from 0 to 1, such as `0.35`, as a string.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(transparent)]
pub struct Fraction(pub String);

/// A non-negative number as a string, such as `1.5`; a whole number may also be written as an integer.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(from = "IntOrString")]
pub struct Decimal(pub String);

impl Number {
    /// The text as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl DurationText {
    /// The text as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Number {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<IntOrString> for Decimal {
    fn from(number: IntOrString) -> Self {
        match number {
            IntOrString::Int(whole) => Self(whole.to_string()),
            IntOrString::String(text) => Self(text),
        }
    }
}

impl From<&str> for DurationText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl JsonSchema for Number {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 1,
            "maxLength": 40,
            "pattern": "^[-+]?[0-9]{1,18}(\\.[0-9]{1,18})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][-+]?[0-9]{1,2})?$",
        })
    }
}

impl JsonSchema for DurationText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "DurationText".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 2,
            "maxLength": 24,
            "pattern": "^([0-9]{1,6}(\\.[0-9]{1,3})?(ms|s|m|h)){1,4}$",
        })
    }
}

impl JsonSchema for Fraction {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Fraction".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string", "minLength": 1, "maxLength": 20, "pattern": "^(0(\\.[0-9]{1,18})?|1(\\.0{1,18})?)$",
        })
    }
}

impl JsonSchema for Decimal {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Decimal".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}],
            "minimum": 0, "maximum": 999_999_999, "minLength": 1, "maxLength": 20, "pattern": "^[0-9]{1,9}(\\.[0-9]{1,9})?$",
        })
    }
}
