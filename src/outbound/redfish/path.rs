//! Paths of resources and sensors. A path is requested only if it stays within the service, and shown only if it is
//! plain.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::value::{is_plain, is_plain_name};

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
