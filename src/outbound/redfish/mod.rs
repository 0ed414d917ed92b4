//! Redfish client: intake temperature, power and power model of a machine, from its BMC.
//!
//! Owns where these are found, and never guesses between sensors. Documents are parsed leniently, since few BMCs
//! conform to the schema. A search makes a bounded number of requests. Error texts contain the paths of sensors if they
//! are plain, and nothing else that the BMC answered.
//!
//! | file | content |
//! |---|---|
//! | `document`, `sensor` | parsing of documents, paths and sensors |
//! | `names`, `evidence` | what a name means; the choice of the intake sensor by all evidence |
//! | `walk`, `topology` | bounded requests: members of collections, sensors of one chassis; chassis of the machine |
//! | `inlet` | search for the intake sensor, and its polls |
//! | `power` | power that the machine draws |
//! | `model` | model that predicts the power |

mod document;
mod evidence;
mod inlet;
mod model;
mod names;
mod power;
mod sensor;
mod topology;
mod walk;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::StatusCode;
use thiserror::Error;

use crate::value::MOST_NODE_WATTS;
use crate::web::{Call, Web, parse};
pub use document::{BmcDocument, SensorPath};
pub use inlet::{Inlet, SensorSearch, inlet};
pub use model::{ModelEndpoint, model};
pub use power::{MachinePower, power};

/// Maximum number of sensors listed in an error.
const NAMED: usize = 8;

/// Source of documents.
pub trait Fetch: Sync {
    /// Returns the document at this path, which begins with `/redfish/` and may have a query. If it does not exist, the
    /// error is [`crate::Error::Status`] with 404.
    fn get(&self, path: &str) -> impl Future<Output = Result<BmcDocument, super::Error>> + Send;
}

/// BMC over HTTP. Redirects on the same server are followed.
pub struct Bmc<'a> {
    web: &'a Web,
    call: Call,
    /// The BMC refused the login and does not offer Basic authentication.
    refuses_basic: AtomicBool,
}

impl<'a> Bmc<'a> {
    /// BMC at the host of this request; the path of its URL is ignored.
    pub fn new(web: &'a Web, call: Call) -> Self {
        Self { web, call: Call { redirects: true, ..call }, refuses_basic: AtomicBool::new(false) }
    }

    /// Whether the BMC refused the login and does not offer Basic authentication, so that a session may help.
    pub fn refuses_basic(&self) -> bool {
        self.refuses_basic.load(Ordering::Relaxed)
    }
}

impl Fetch for Bmc<'_> {
    async fn get(&self, path: &str) -> Result<BmcDocument, super::Error> {
        let mut url = parse(&self.call.url)?;
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        // A path cannot change the host this way.
        url.set_path(path);
        url.set_query(query);
        url.set_fragment(None);
        let origin = url.origin().ascii_serialization();
        let answer = self.web.get(&Call { url: url.into(), ..self.call.clone() }).await?;
        if answer.status == StatusCode::UNAUTHORIZED && !answer.offers_basic {
            self.refuses_basic.store(true, Ordering::Relaxed);
        }
        Ok(BmcDocument::parse(answer.good()?)?.at_origin(origin))
    }
}

/// Sensors between which the user chooses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// A request has no usable answer.
    #[error("{0}")]
    Request(#[from] super::Error),
    /// The server has no Redfish service.
    #[error("the server has no Redfish service at /redfish/v1/")]
    NoService,
    /// The bounds of a search left out a part of the machine. Contains sensors that may be the right one.
    #[error(
        "the machine has more parts than a search reads, {} documents and {} sensors: name the path of the sensor{}",
        walk::REQUESTS, walk::SENSORS, likely(.0)
    )]
    TooManyRequests(SensorPaths),
    /// The sensor named by the user does not exist.
    #[error("the machine has no temperature or power sensor with the path, Name or Id in sensor")]
    SensorNotFound,
    /// No sensor is the intake sensor for certain. Contains sensors that may be the right one.
    #[error("no intake temperature sensor was found for certain: name one in sensor{}", likely(.0))]
    NoIntake(SensorPaths),
    /// No reading is the power of the machine for certain. Contains readings that may be the right one.
    #[error("the power of the machine was not found for certain: name the path of its reading in sensor{}", likely(.0))]
    NoPower(SensorPaths),
    /// Several sensors are equally good.
    #[error("several sensors cannot be told apart, name the path of one in sensor: {0}")]
    Ambiguous(SensorPaths),
    /// The sensor has no reading, for example while the machine is off.
    #[error("{0} has no reading")]
    NoReading(SensorPath),
    /// The reading is in another unit.
    #[error("the reading of {0} is not in degrees Celsius")]
    Unit(SensorPath),
    /// The reading is outside the range of air temperatures.
    #[error("the reading of {0} is not between {min} and {max} °C", min = sensor::COLDEST, max = sensor::HOTTEST)]
    OutOfRange(SensorPath),
    /// The reading is outside the range that the sensor can measure.
    #[error("the reading of {0} is outside the range of the sensor")]
    OutsideRange(SensorPath),
    /// The sensor named by the user measures something else, such as a distance to a limit.
    #[error("{0} is not a temperature sensor")]
    NoTemperature(SensorPath),
    /// The reading is too high for the power of a machine.
    #[error("the reading of {0} is more than {MOST_NODE_WATTS} W")]
    Watts(SensorPath),
    /// The reading named by the user is not power.
    #[error("{0} is not a reading of power in watts")]
    NoPowerReading(SensorPath),
    /// No system has a power model.
    #[error("the machine has no PowerConsumptionModel in Systems/ID/MachineLearningModel")]
    NoModel,
    /// A property of the model is missing or invalid.
    #[error("{0} of the PowerConsumptionModel is missing or cannot be used")]
    Model(&'static str),
}

impl Error {
    /// Whether the BMC refused the credentials.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Request(error) if error.is_refusal())
    }

    /// Whether another search would fail in the same way, or would find a worse sensor: the whole service is at fault,
    /// or the sensor has no reading at the moment.
    pub fn is_of_the_service(&self) -> bool {
        match self {
            Self::Request(error) => !walk::is_unreadable(error),
            Self::NoReading(_) => true,
            _ => false,
        }
    }

    /// Name of the error in metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Request(error) => error.reason(),
            Self::NoService => "NoService",
            Self::TooManyRequests(_) => "TooManyRequests",
            Self::SensorNotFound => "SensorNotFound",
            Self::NoIntake(_) => "NoIntake",
            Self::Ambiguous(_) => "Ambiguous",
            Self::NoReading(_) => "NoReading",
            Self::Unit(_) => "Unit",
            Self::OutOfRange(_) => "OutOfRange",
            Self::OutsideRange(_) => "OutsideRange",
            Self::NoTemperature(_) => "NoTemperature",
            Self::NoPower(_) => "NoPower",
            Self::Watts(_) => "Watts",
            Self::NoPowerReading(_) => "NoPowerReading",
            Self::NoModel => "NoModel",
            Self::Model(_) => "Model",
        }
    }
}

/// Ends a question with the sensors that may be meant.
fn likely(paths: &SensorPaths) -> String {
    if paths.0.is_empty() { String::new() } else { format!(", such as {paths}") }
}
