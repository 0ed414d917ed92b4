//! Parsing of a sensor, and vendors' names of the intake sensor, for machines that do not mark it.

use std::collections::HashMap;

use super::document::{BmcDocument, BmcObject, SensorPath};
use super::{Error, Inlet};
use crate::value::is_plain_name;

/// Range of air temperatures in degrees Celsius.
pub(super) const COLDEST: f64 = -40.0;
pub(super) const HOTTEST: f64 = 125.0;

/// Maximum length of a stored name.
const NAME: usize = 256;

/// Property of the resource Thermal that lists temperatures.
const TEMPERATURES: &str = "Temperatures";

#[derive(Clone, Debug)]
pub(super) struct Sensor {
    pub path: SensorPath,
    name: String,
    /// Id, MemberId and SensorNumber, if present.
    ids: Vec<String>,
    /// The sensor is marked as the intake sensor.
    pub is_intake: bool,
    /// The sensor is not absent, disabled or offline.
    pub is_present: bool,
    measure: SensorReading,
}

/// Measured quantity and reading of a sensor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SensorReading {
    Celsius(f64),
    /// Temperature without a reading.
    Silent,
    /// Temperature in an unknown unit.
    OtherUnit,
    /// Another quantity.
    NoTemperature,
}

impl Sensor {
    /// Parses a sensor.
    fn parse(object: BmcObject<'_>, path: SensorPath) -> Self {
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

    /// Parses a sensor resource. None if it is not a sensor or if its path must not be requested.
    pub(super) fn resource(object: BmcObject<'_>) -> Option<Self> {
        Self::alone(object, SensorPath::resource(&object.id()?))
    }

    fn alone(object: BmcObject<'_>, path: SensorPath) -> Option<Self> {
        let is_sensor = ["Reading", "ReadingCelsius", "ReadingType"].iter().any(|name| object.has(name));
        is_sensor.then(|| Self::parse(object, path))
    }

    /// Parses the temperatures in a resource Thermal. Each gets a path by which it is found again.
    pub(super) fn temperatures(thermal: &BmcDocument, resource: &str) -> Vec<Self> {
        let all = thermal.object().objects(TEMPERATURES);
        let names = |object: BmcObject<'_>| {
            let names = ["Name", "MemberId"].map(|property| (property, object.word(property)));
            names.into_iter().filter_map(|(property, name)| Some((property, name.filter(|name| is_plain_name(name))?)))
        };
        let mut counts: HashMap<(&str, String), usize> = HashMap::new();
        for name in all.iter().copied().flat_map(names) {
            *counts.entry(name).or_default() += 1;
        }
        let of = |(nth, object): (usize, BmcObject<'_>)| {
            let unique = names(object).find(|name| counts.get(name) == Some(&1));
            let member = unique.map_or_else(|| format!("/{TEMPERATURES}/{nth}"), |(_, name)| name);
            Self::parse(object, SensorPath::member(resource, member))
        };
        all.into_iter().enumerate().map(of).collect()
    }

    /// Finds the sensor of this path in its resource.
    pub(super) fn at(document: &BmcDocument, path: &SensorPath) -> Option<Self> {
        let Some(member) = path.of_member() else { return Self::alone(document.object(), path.clone()) };
        // The index of a temperature changes if another one is removed; its name does not.
        let mut all = Self::temperatures(document, path.of_resource());
        let pointer = member.trim_start_matches('/');
        if let Some(nth) = pointer.strip_prefix(TEMPERATURES).and_then(|rest| rest.strip_prefix('/')) {
            let nth = nth.parse().ok().filter(|nth| *nth < all.len())?;
            return Some(all.swap_remove(nth));
        }
        if member.starts_with('/') {
            return document.object().pointer(member).map(|object| Self::parse(object, path.clone()));
        }
        let mut same = all.into_iter().filter(|one| one.path == *path || one.is(member));
        same.next().filter(|_| same.next().is_none())
    }

    /// Parses the intake summary in a resource ThermalMetrics, and the path of the sensor that it refers to.
    pub(super) fn summary(metrics: &BmcDocument, resource: &str) -> Option<(Self, Option<SensorPath>)> {
        let member = "/TemperatureSummaryCelsius/Intake";
        let excerpt = metrics.object().pointer(member)?;
        let source = excerpt.text("DataSourceUri").and_then(|source| source.parse().ok());
        Some((Self::parse(excerpt, SensorPath::member(resource, member.to_owned())), source))
    }

    /// Whether `wanted` is its Name, one of its ids, or the last segment of its path.
    pub(super) fn is(&self, wanted: &str) -> bool {
        let last = self.path.of_resource().rsplit('/').next().filter(|_| self.path.of_member().is_none());
        let mut own = self.ids.iter().map(String::as_str).chain([self.name.as_str()]).chain(last);
        own.any(|own| same(own, wanted))
    }

    /// See [`rank`].
    pub(super) fn rank(&self) -> Option<usize> {
        rank(&self.name).or_else(|| self.ids.iter().find_map(|id| rank(id)))
    }

    pub(super) fn is_temperature(&self) -> bool {
        self.measure != SensorReading::NoTemperature
    }

    pub(super) fn is_silent(&self) -> bool {
        self.measure == SensorReading::Silent
    }

    /// Temperature of the sensor.
    pub(super) fn inlet(self) -> Result<Inlet, Error> {
        match self.measure {
            SensorReading::Celsius(celsius) if (COLDEST..=HOTTEST).contains(&celsius) => {
                Ok(Inlet { celsius, sensor: self.path })
            }
            SensorReading::Celsius(_) => Err(Error::OutOfRange(self.path)),
            SensorReading::Silent => Err(Error::NoReading(self.path)),
            SensorReading::OtherUnit => Err(Error::Unit(self.path)),
            SensorReading::NoTemperature => Err(Error::NoTemperature(self.path)),
        }
    }
}

/// Compares two names, ignoring case and spaces.
fn same(one: &str, other: &str) -> bool {
    let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
    let one = letters(one);
    !one.is_empty() && one == letters(other)
}

fn measure(object: BmcObject<'_>) -> SensorReading {
    if object.text("ReadingType").is_some_and(|kind| !kind.eq_ignore_ascii_case("Temperature")) {
        return SensorReading::NoTemperature;
    }
    let Some(name) = ["Reading", "ReadingCelsius"].into_iter().find(|name| object.value(name).is_some()) else {
        return SensorReading::Silent;
    };
    let unit = object.text("ReadingUnits").filter(|_| name == "Reading");
    let Some(reading) = object.number(name) else { return SensorReading::Silent };
    match unit.map(|unit| unit.trim().to_ascii_lowercase()).as_deref() {
        None | Some("cel" | "celsius" | "c" | "degc" | "\u{b0}c") => SensorReading::Celsius(reading),
        Some("[degf]") => SensorReading::Celsius((reading - 32.0) / 1.8),
        Some("k") => SensorReading::Celsius(reading - 273.15),
        Some(_) if object.text("ReadingType").is_some() => SensorReading::OtherUnit,
        Some(_) => SensorReading::NoTemperature,
    }
}

/// Names by rank: explicit names of the inlet, names of the ambient air in front of the machine, and a name that means
/// the board on some machines (Supermicro). Comparison uses only letters and digits, in lower case, without leading and
/// trailing digits.
const INTAKE_NAMES: [&[&str]; 3] = [
    &[
        "inlet",
        "inlettemp",
        "inlettemperature",
        "temperatureinlet",
        "tempinlet",
        "airinlettemp",
        "inletairtemp",
        "inletairtemperature",
        "inletambient",
        "inletambienttemp",
        "ambientinlettemp",
        "systemboardinlettemp",
        "systeminlettemp",
        "sysinlettemp",
        "chassisinlettemp",
        "serverinlettemp",
        "frontinlettemp",
        "fpinlettemp",
        "intake",
        "intaketemp",
        "intaketemperature",
        "temperatureintake",
        "airintaketemp",
        "intakeairtemp",
        "chassisintaketemp",
        "frontintake",
        "frontintaketemp",
    ],
    &[
        "ambient",
        "ambienttemp",
        "ambienttemperature",
        "temperatureambient",
        "systemambienttemp",
        "systemboardambienttemp",
        "chassisambienttemp",
        "frontambient",
        "frontambienttemp",
        "frontpanelambient",
        "frontpanelambienttemp",
        "frontpaneltemp",
        "lfrontpaneltemp",
        "fronttemp",
        "fptempsensor",
    ],
    &["systemtemp"],
];

/// Rank of a name, 0 is best. None if it is not a name of the intake sensor.
fn rank(name: &str) -> Option<usize> {
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let letters = letters.trim_matches(|c: char| c.is_ascii_digit()).to_ascii_lowercase();
    INTAKE_NAMES.iter().position(|names| names.contains(&letters.as_str()))
}

/// Whether the last segment of a path suggests an intake sensor. Used if a machine has too many sensors to read them
/// all.
pub(super) fn is_hint(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    ["inlet", "intake", "ambient", "front"].iter().any(|hint| last.contains(hint))
}
