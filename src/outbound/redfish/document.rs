//! JSON documents of BMCs, parsed leniently.

use serde_json::{Map, Value};

use super::path::{is_resource, without_slash};
use crate::Error;

/// Document: a JSON object.
#[derive(Clone, Debug, Default)]
pub struct Document(Map<String, Value>);

impl Document {
    /// Parses a document. The error does not quote it.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        match serde_json::from_slice(bytes) {
            Ok(object) => Ok(Self(object)),
            Err(error) if error.is_data() => Err(Error::Answer("the answer is not a JSON object".to_owned())),
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                Err(Error::Answer(format!("the answer is no JSON document: error at line {line}, column {column}")))
            }
        }
    }

    /// The document as an [`Object`].
    pub(super) fn object(&self) -> Object<'_> {
        Object(&self.0)
    }
}

/// Object in a document.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object<'a>(&'a Map<String, Value>);

impl<'a> Object<'a> {
    /// Value of a property, unless it is null.
    pub(super) fn value(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Whether the property exists, null or not.
    pub(super) fn has(self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn object(self, name: &str) -> Option<Object<'a>> {
        self.value(name).and_then(Value::as_object).map(Object)
    }

    pub(super) fn text(self, name: &str) -> Option<&'a str> {
        self.value(name).and_then(Value::as_str)
    }

    /// Text, or a number as text.
    pub(super) fn word(self, name: &str) -> Option<String> {
        match self.value(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// Finite number, which may be encoded as text.
    pub(super) fn number(self, name: &str) -> Option<f64> {
        let number = match self.value(name)? {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.filter(|number| number.is_finite())
    }

    /// Objects in a list; a single object counts as a list of one.
    pub(super) fn objects(self, name: &str) -> impl Iterator<Item = Object<'a>> {
        let value = self.value(name);
        let list = value.and_then(Value::as_array).map_or(&[] as &[Value], Vec::as_slice);
        let single = value.filter(|value| value.is_object());
        list.iter().chain(single).filter_map(Value::as_object).map(Object)
    }

    /// Path of the resource that this object is or refers to.
    pub(super) fn id(self) -> Option<&'a str> {
        self.text("@odata.id").filter(|id| is_resource(id)).map(without_slash)
    }

    /// Path of the resource that a property refers to.
    pub(super) fn link(self, name: &str) -> Option<&'a str> {
        self.object(name)?.id()
    }

    /// Object at a JSON pointer such as `/Temperatures/0`.
    pub(super) fn pointer(self, pointer: &str) -> Option<Object<'a>> {
        let mut steps = pointer.trim_start_matches('/').split('/');
        let first = self.value(steps.next()?)?;
        let found = steps.try_fold(first, |at, step| match at {
            Value::Object(object) => object.get(step),
            Value::Array(list) => list.get(step.parse::<usize>().ok()?),
            _ => None,
        });
        found.and_then(Value::as_object).map(Object)
    }
}
