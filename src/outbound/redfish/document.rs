//! JSON documents of BMCs, parsed leniently, and paths of resources and sensors. A path is requested only if it stays
//! within the service, and shown only if it is plain.
//!
//! A document stays the text that the BMC sent: a tree of it could take fifty times its memory. Each property is looked
//! up in the text.

use std::fmt;
use std::str::FromStr;

use serde_json::Number;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::value::{is_plain, is_plain_name};
use ganglion_core::document::{find, parsed, parsed_without_nan};
use ganglion_core::items::Items;

/// Maximum number of items of a list that are read.
const ITEMS: usize = 1024;

/// Byte order mark, which some services put before a document.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Document: a JSON object.
#[derive(Clone, Debug)]
pub struct BmcDocument {
    text: Box<RawValue>,
    /// Scheme, host and port of the service, such as `https://10.0.0.1:8443`. Links may begin with it.
    origin: String,
}

impl BmcDocument {
    /// Parses a document. The error does not quote it.
    pub fn parse(bytes: &[u8]) -> Result<Self, crate::Error> {
        let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        if bytes.trim_ascii_start().starts_with(b"<") {
            return Err(crate::Error::Answer("the answer is HTML or XML, not JSON".to_owned()));
        }
        let text: Box<RawValue> = parsed_without_nan(bytes).map_err(crate::Error::Answer)?;
        if !text.get().starts_with('{') {
            return Err(crate::Error::Answer("the answer is not a JSON object".to_owned()));
        }
        Ok(Self { text, origin: String::new() })
    }

    /// The document of a service at this origin.
    #[must_use]
    pub fn at_origin(self, origin: String) -> Self {
        Self { origin, ..self }
    }

    /// The document as an [`BmcObject`].
    pub(super) fn object(&self) -> BmcObject<'_> {
        BmcObject { json: self.text.get(), origin: &self.origin }
    }
}

/// Text of an object in a document.
#[derive(Clone, Copy, Debug)]
pub(super) struct BmcObject<'a> {
    json: &'a str,
    origin: &'a str,
}

impl<'a> BmcObject<'a> {
    /// Another object of the same document.
    fn parse(self, json: &'a str) -> Option<Self> {
        json.starts_with('{').then_some(Self { json, ..self })
    }

    /// JSON text of a property, unless it is null.
    pub(super) fn value(self, name: &str) -> Option<&'a str> {
        find(self.json.as_bytes(), &[name]).filter(|json| *json != "null")
    }

    /// Whether the property exists, null or not.
    pub(super) fn has(self, name: &str) -> bool {
        find(self.json.as_bytes(), &[name]).is_some()
    }

    pub(super) fn object(self, name: &str) -> Option<BmcObject<'a>> {
        self.value(name).and_then(|json| self.parse(json))
    }

    pub(super) fn text(self, name: &str) -> Option<String> {
        parsed(self.value(name)?.as_bytes()).ok()
    }

    /// Whether the property is true.
    pub(super) fn is_true(self, name: &str) -> bool {
        self.value(name) == Some("true")
    }

    /// Text, or a number as text.
    pub(super) fn word(self, name: &str) -> Option<String> {
        let json = self.value(name)?.as_bytes();
        parsed(json).or_else(|_| parsed::<Number>(json).map(|number| number.to_string())).ok()
    }

    /// Finite number, which may be encoded as text.
    pub(super) fn number(self, name: &str) -> Option<f64> {
        let json = self.value(name)?.as_bytes();
        let number = parsed(json).ok().or_else(|| parsed::<String>(json).ok()?.trim().parse().ok());
        number.filter(|number: &f64| number.is_finite())
    }

    /// Objects among the first [`ITEMS`] items of a list; a single object counts as a list of one.
    pub(super) fn objects(self, name: &str) -> Vec<BmcObject<'a>> {
        let Some(json) = self.value(name) else { return Vec::new() };
        if let Some(single) = self.parse(json) {
            return vec![single];
        }
        let items: Items<&RawValue, ITEMS> = parsed(json.as_bytes()).unwrap_or_default();
        items.kept.into_iter().filter_map(|item| self.parse(item.get())).collect()
    }

    /// Whether the property lists at most [`ITEMS`] objects, and nothing else.
    pub(super) fn has_objects(self, name: &str) -> bool {
        let Some(json) = self.value(name) else { return false };
        let items = parsed::<Items<&RawValue, ITEMS>>(json.as_bytes());
        let is_listed = items.is_ok_and(|items| {
            items.count == items.kept.len() && items.kept.iter().all(|item| self.parse(item.get()).is_some())
        });
        is_listed || self.parse(json).is_some()
    }

    /// Path of the resource that this object is or refers to.
    pub(super) fn id(self) -> Option<String> {
        let id = self.text("@odata.id")?;
        let id = id.strip_prefix(self.origin).unwrap_or(&id);
        is_resource(id).then(|| without_slash(id).to_owned())
    }

    /// Path of the resource that a property refers to.
    pub(super) fn link(self, name: &str) -> Option<String> {
        self.object(name)?.id()
    }

    /// Object at a JSON pointer such as `/Temperatures/0`.
    pub(super) fn pointer(self, pointer: &str) -> Option<BmcObject<'a>> {
        let steps: Vec<&str> = pointer.trim_start_matches('/').split('/').collect();
        find(self.json.as_bytes(), &steps).and_then(|json| self.parse(json))
    }
}

/// Prefix of every path.
const SERVICE: &str = "/redfish/";

/// Maximum length of the path of a resource, and of the name of a member in it.
const LENGTH: usize = 256;
const MEMBER: usize = 64;

/// Path of a sensor: the path of its resource. If the resource contains several sensors, `#` and the Name, MemberId or
/// JSON pointer of the sensor follow. Examples: `/redfish/v1/Chassis/1/Sensors/Inlet`,
/// `/redfish/v1/Chassis/1/Thermal#Inlet Temp`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SensorPath {
    resource: String,
    member: Option<String>,
}

/// The text is not the path of a sensor.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("it is not the path of a sensor: write a path such as /redfish/v1/Chassis/1/Sensors/Inlet")]
pub struct NoSensorPath;

impl SensorPath {
    /// Sensor that is a resource of its own.
    pub(super) fn resource(path: &str) -> Self {
        Self { resource: path.to_owned(), member: None }
    }

    /// Sensor within a resource.
    pub(super) fn member(path: &str, member: String) -> Self {
        Self { resource: path.to_owned(), member: Some(member) }
    }

    /// Path of the resource.
    pub(super) fn of_resource(&self) -> &str {
        &self.resource
    }

    /// Member within the resource.
    pub(super) fn of_member(&self) -> Option<&str> {
        self.member.as_deref()
    }

    /// Whether the path may be shown.
    fn is_plain(&self) -> bool {
        self.resource.chars().all(is_plain) && self.member.as_deref().is_none_or(is_plain_name)
    }
}

impl FromStr for SensorPath {
    type Err = NoSensorPath;

    fn from_str(text: &str) -> Result<Self, NoSensorPath> {
        let (resource, member) = match text.split_once('#') {
            Some((resource, member)) => (resource, Some(member)),
            None => (text, None),
        };
        let is_member = |member: &str| {
            (1..=MEMBER).contains(&member.len()) && member.chars().all(|c| c == ' ' || c.is_ascii_graphic())
        };
        if !is_resource(resource) || !member.is_none_or(is_member) {
            return Err(NoSensorPath);
        }
        Ok(Self { resource: without_slash(resource).to_owned(), member: member.map(str::to_owned) })
    }
}

impl fmt::Display for SensorPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.member {
            _ if !self.is_plain() => f.write_str("a sensor whose path is not plain"),
            Some(member) => write!(f, "{}#{member}", self.resource),
            None => f.write_str(&self.resource),
        }
    }
}

/// Whether a path may be requested: it stays within the service under any URL parser.
pub(super) fn is_resource(path: &str) -> bool {
    let is_dots = |part: &str| matches!(&*part.to_ascii_lowercase().replace("%2e", "."), "." | "..");
    path.starts_with(SERVICE)
        && path.len() <= LENGTH
        && path.chars().all(|c| c == ' ' || c.is_ascii_graphic() && !matches!(c, '?' | '#' | '\\'))
        && !path.split('/').any(is_dots)
}

/// Whether the path of a collection page may be requested. Unlike a resource it may have a query.
pub(super) fn is_page(path: &str) -> bool {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    is_resource(path) && query.len() <= LENGTH && query.chars().all(|c| c.is_ascii_graphic() && c != '#')
}

/// Removes a trailing slash: BMCs use both forms for the same resource.
pub(super) fn without_slash(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}
