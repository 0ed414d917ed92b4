//! What a BMC knows of its machine, by Redfish: the temperature of the air that the machine takes in, and its power model.
//!
//! Owns where these are found: by what the standard marks, by names of vendors last, and never by a guess between sensors that
//! cannot be told apart. Documents are read leniently, since few BMCs keep to the schema. A search makes a bounded number of
//! requests. Texts of errors have paths of sensors only where they are plain, and nothing else that the BMC answered.
//!
//! | file | what |
//! |---|---|
//! | `bmc` | requests to a BMC |
//! | `document`, `path`, `sensor` | what is read off its documents |
//! | `names` | names that vendors give the sensor |
//! | `walk` | bounded requests, members of collections |
//! | `chassis` | the sensors of one chassis |
//! | `inlet` | finding the sensor, and polling it |
//! | `model` | the power model |

mod bmc;
mod chassis;
mod document;
mod inlet;
mod model;
mod names;
mod path;
mod sensor;
mod walk;

#[cfg(test)]
mod tests;

use std::fmt;

use thiserror::Error;

pub use bmc::Bmc;
pub use document::Document;
pub use inlet::{Inlet, inlet};
pub use model::{ModelEndpoint, model};
pub use path::SensorPath;

/// Maximum number of sensors that an error names.
const NAMED: usize = 8;

/// Answers requests for documents.
pub trait Fetch: Sync {
    /// The document at this path, which begins with `/redfish/` and may have a query.
    ///
    /// # Errors
    /// There is no document. One that does not exist is [`crate::Error::Status`] with 404.
    fn get(&self, path: &str) -> impl Future<Output = Result<Document, super::Error>> + Send;
}

/// Sensors that cannot be told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SensorPaths(pub Vec<SensorPath>);

impl fmt::Display for SensorPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, path) in self.0.iter().take(NAMED).enumerate() {
            write!(f, "{}{path}", if nth == 0 { "" } else { ", " })?;
        }
        match self.0.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Why there is no temperature or no model.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// A request got no usable answer.
    #[error("{0}")]
    Request(#[from] super::Error),
    /// The server has no Redfish service.
    #[error("the server has no Redfish service at /redfish/v1/")]
    NoService,
    /// A search would take more requests than allowed.
    #[error("the search took {} requests, the maximum: name the path of the sensor", walk::REQUESTS)]
    TooManyRequests,
    /// The sensor that is named does not exist.
    #[error("the machine has no temperature sensor of the path, Name or Id that sensor names")]
    SensorNotFound,
    /// No sensor is marked or named as the one at the intake.
    #[error("no temperature sensor at the intake was found: name one in sensor")]
    NoIntake,
    /// Several sensors may be the one.
    #[error("several sensors cannot be told apart, name the path of one in sensor: {0}")]
    Ambiguous(SensorPaths),
    /// The sensor has no value, for example while the machine is off.
    #[error("{0} has no reading")]
    NoReading(SensorPath),
    /// The value is in another unit.
    #[error("the reading of {0} is not in degrees Celsius")]
    Unit(SensorPath),
    /// The value cannot be that of air.
    #[error("the reading of {0} is not between {min} and {max} °C", min = sensor::COLDEST, max = sensor::HOTTEST)]
    OutOfRange(SensorPath),
    /// The sensor that is named measures something else.
    #[error("{0} is not a temperature sensor")]
    NoTemperature(SensorPath),
    /// No system has a power model.
    #[error("the machine has no PowerConsumptionModel in Systems/ID/MachineLearningModel")]
    NoModel,
    /// A property of the model is missing or wrong.
    #[error("{0} of the PowerConsumptionModel is missing or cannot be used")]
    Model(&'static str),
}

impl Error {
    /// Whether the BMC refused the credentials.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Request(error) if error.is_refusal())
    }

    /// The name of the error in metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Request(error) => error.reason(),
            Self::NoService => "NoService",
            Self::TooManyRequests => "TooManyRequests",
            Self::SensorNotFound => "SensorNotFound",
            Self::NoIntake => "NoIntake",
            Self::Ambiguous(_) => "Ambiguous",
            Self::NoReading(_) => "NoReading",
            Self::Unit(_) => "Unit",
            Self::OutOfRange(_) => "OutOfRange",
            Self::NoTemperature(_) => "NoTemperature",
            Self::NoModel => "NoModel",
            Self::Model(_) => "Model",
        }
    }
}
