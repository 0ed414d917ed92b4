//! One sensor: what a BMC says of it.

use super::document::{Document, Object};
use super::path::SensorPath;
use super::{Error, Inlet, names};
use crate::value::is_plain_name;

/// The temperatures that air may have, in degrees Celsius.
pub(super) const COLDEST: f64 = -40.0;
pub(super) const HOTTEST: f64 = 125.0;

/// Maximum number of bytes of a name that is kept.
const NAME: usize = 256;

/// The list of temperatures in a resource Thermal.
const TEMPERATURES: &str = "Temperatures";

/// A sensor.
#[derive(Clone, Debug)]
pub(super) struct Sensor {
    pub path: SensorPath,
    name: String,
    /// Id, MemberId and SensorNumber, as far as there are.
    ids: Vec<String>,
    /// It is marked as the one at the intake.
    pub is_intake: bool,
    /// It is not absent, disabled or offline.
    pub is_present: bool,
    measure: Measure,
}

/// What a sensor measures, and its reading.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Measure {
    Celsius(f64),
    /// A temperature without a reading.
    Silent,
    /// A temperature in a unit that is not known.
    OtherUnit,
    /// Something else.
    NoTemperature,
}

impl Sensor {
    /// The sensor that this object describes.
    fn of(object: Object<'_>, path: SensorPath) -> Self {
        let name = object.text("Name").or_else(|| object.text("DeviceName")).unwrap_or_default();
        let ids = ["Id", "MemberId", "SensorNumber"].into_iter().filter_map(|id| object.word(id));
        let state = object.object("Status").and_then(|status| status.text("State")).unwrap_or_default();
        Self {
            path,
            name: name.chars().take(NAME).collect(),
            ids: ids.filter(|id| id.len() <= NAME).collect(),
            is_intake: object.text("PhysicalContext").is_some_and(|context| context.eq_ignore_ascii_case("Intake")),
            is_present: !["Absent", "Disabled", "UnavailableOffline"].iter().any(|not| state.eq_ignore_ascii_case(not)),
            measure: measure(object),
        }
    }

    /// The sensor that a resource is. None: it is no sensor, or its path is none that may be asked for.
    pub(super) fn resource(object: Object<'_>) -> Option<Self> {
        Self::alone(object, SensorPath::resource(object.id()?))
    }

    fn alone(object: Object<'_>, path: SensorPath) -> Option<Self> {
        let is_sensor = ["Reading", "ReadingCelsius", "ReadingType"].iter().any(|name| object.has(name));
        is_sensor.then(|| Self::of(object, path))
    }

    /// The temperatures in a resource Thermal. Each has the name that finds it again.
    pub(super) fn temperatures(thermal: &Document, resource: &str) -> Vec<Self> {
        let all: Vec<Object<'_>> = thermal.object().objects(TEMPERATURES).collect();
        let count = |property: &str, word: &str| {
            all.iter().filter(|one| one.word(property).is_some_and(|other| other == word)).count()
        };
        let of = |(nth, object): (usize, &Object<'_>)| {
            let found = ["Name", "MemberId"].into_iter().find_map(|property| {
                object.word(property).filter(|word| is_plain_name(word) && count(property, word) == 1)
            });
            let member = found.unwrap_or_else(|| format!("/{TEMPERATURES}/{nth}"));
            Self::of(*object, SensorPath::member(resource, member))
        };
        all.iter().enumerate().map(of).collect()
    }

    /// The sensor of this path in its resource.
    pub(super) fn at(document: &Document, path: &SensorPath) -> Option<Self> {
        let Some(member) = path.of_member() else { return Self::alone(document.object(), path.clone()) };
        // A pointer to one of the temperatures moves when another one goes; its name does not.
        let mut all = Self::temperatures(document, path.of_resource());
        let pointer = member.trim_start_matches('/');
        if let Some(nth) = pointer.strip_prefix(TEMPERATURES).and_then(|rest| rest.strip_prefix('/')) {
            let nth = nth.parse().ok().filter(|nth| *nth < all.len())?;
            return Some(all.swap_remove(nth));
        }
        if member.starts_with('/') {
            return document.object().pointer(member).map(|object| Self::of(object, path.clone()));
        }
        let mut same = all.into_iter().filter(|one| one.path == *path || one.is(member));
        same.next().filter(|_| same.next().is_none())
    }

    /// The summary of the intake in a resource ThermalMetrics, and the sensor that it was read from.
    pub(super) fn summary(metrics: &Document, resource: &str) -> Option<(Self, Option<SensorPath>)> {
        let member = "/TemperatureSummaryCelsius/Intake";
        let excerpt = metrics.object().pointer(member)?;
        let source = excerpt.text("DataSourceUri").and_then(|source| source.parse().ok());
        Some((Self::of(excerpt, SensorPath::member(resource, member.to_owned())), source))
    }

    /// Whether this is its Name or one of its ids, or the last part of its path.
    pub(super) fn is(&self, wanted: &str) -> bool {
        let last = self.path.of_resource().rsplit('/').next().filter(|_| self.path.of_member().is_none());
        let mut own = self.ids.iter().map(String::as_str).chain([self.name.as_str()]).chain(last);
        own.any(|own| same(own, wanted))
    }

    /// See [`names::rank`].
    pub(super) fn rank(&self) -> Option<usize> {
        names::rank(&self.name).or_else(|| self.ids.iter().find_map(|id| names::rank(id)))
    }

    pub(super) fn is_temperature(&self) -> bool {
        self.measure != Measure::NoTemperature
    }

    pub(super) fn is_silent(&self) -> bool {
        self.measure == Measure::Silent
    }

    /// Its temperature.
    pub(super) fn inlet(self) -> Result<Inlet, Error> {
        match self.measure {
            Measure::Celsius(celsius) if (COLDEST..=HOTTEST).contains(&celsius) => {
                Ok(Inlet { celsius, sensor: self.path })
            }
            Measure::Celsius(_) => Err(Error::OutOfRange(self.path)),
            Measure::Silent => Err(Error::NoReading(self.path)),
            Measure::OtherUnit => Err(Error::Unit(self.path)),
            Measure::NoTemperature => Err(Error::NoTemperature(self.path)),
        }
    }
}

/// Whether two names are the same but for case and spacing.
fn same(one: &str, other: &str) -> bool {
    let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
    let one = letters(one);
    !one.is_empty() && one == letters(other)
}

fn measure(object: Object<'_>) -> Measure {
    if object.text("ReadingType").is_some_and(|kind| !kind.eq_ignore_ascii_case("Temperature")) {
        return Measure::NoTemperature;
    }
    let Some(name) = ["Reading", "ReadingCelsius"].into_iter().find(|name| object.value(name).is_some()) else {
        return Measure::Silent;
    };
    let unit = object.text("ReadingUnits").map(str::trim).filter(|_| name == "Reading");
    let Some(reading) = object.number(name) else { return Measure::Silent };
    match unit.map(str::to_ascii_lowercase).as_deref() {
        None | Some("cel" | "celsius" | "c" | "degc" | "\u{b0}c") => Measure::Celsius(reading),
        Some("[degf]") => Measure::Celsius((reading - 32.0) / 1.8),
        Some("k") => Measure::Celsius(reading - 273.15),
        Some(_) if object.text("ReadingType").is_some() => Measure::OtherUnit,
        Some(_) => Measure::NoTemperature,
    }
}
