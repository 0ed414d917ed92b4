//! Parsing of a sensor.

use std::collections::HashMap;

use super::Error;
use super::document::{BmcDocument, BmcObject, SensorPath};
use super::names::{NameMeaning, is_hint, words};
use crate::value::is_plain_name;

/// Range of air temperatures in degrees Celsius.
pub(super) const COLDEST: f64 = -40.0;
pub(super) const HOTTEST: f64 = 125.0;

/// Maximum length of a stored name.
const NAME: usize = 256;

/// Properties that list temperatures: of the resource Thermal, and of ThermalMetrics.
const TEMPERATURES: &str = "Temperatures";
const READINGS: &str = "TemperatureReadingsCelsius";

/// Properties with the reading; the last one is that of HPE iLO 4.
const READING: [&str; 3] = ["Reading", "ReadingCelsius", "CurrentReading"];

/// Contexts of components, and of places that the intake air does not reach first. Vendors use the others for any
/// place of a machine.
const COMPONENT_CONTEXTS: [&str; 33] = [
    "accelerator",
    "asic",
    "back",
    "battery",
    "computebay",
    "coolingsubsystem",
    "cpu",
    "cpusubsystem",
    "exhaust",
    "expansionbay",
    "expansionsubsystem",
    "fan",
    "fpga",
    "gpu",
    "gpusubsystem",
    "liquidinlet",
    "liquidoutlet",
    "memory",
    "memorysubsystem",
    "networkbay",
    "networkingdevice",
    "poweroutlet",
    "powersubsystem",
    "powersupply",
    "powersupplybay",
    "pump",
    "rectifier",
    "storagebay",
    "storagedevice",
    "storagesubsystem",
    "switch",
    "transformer",
    "voltageregulator",
];

#[derive(Clone, Debug)]
pub(super) struct Sensor {
    pub path: SensorPath,
    name: String,
    /// Id, MemberId and SensorNumber, if present.
    ids: Vec<String>,
    pub mark: Mark,
    pub context: SensorContext,
    /// Upper critical threshold in degrees Celsius, otherwise the upper fatal one.
    pub critical: Option<f64>,
    /// The sensor is not absent, disabled or offline.
    pub is_present: bool,
    measure: SensorReading,
}

/// Mark of the standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    None,
    /// Its `PhysicalContext` is `Intake`.
    Intake,
    /// ThermalMetrics names it as the intake sensor of the chassis.
    Summary,
}

/// Meaning of `PhysicalContext` beside the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SensorContext {
    Component,
    Other,
}

/// Measured quantity and reading of a sensor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SensorReading {
    Celsius(f64),
    /// Temperature without a reading.
    Silent,
    /// Temperature in an unknown unit.
    OtherUnit,
    /// Outside the range that the sensor can measure.
    Outside,
    /// Another quantity.
    NoTemperature,
}

impl Sensor {
    /// Parses a sensor.
    fn parse(object: BmcObject<'_>, path: SensorPath) -> Self {
        let name = object.text("Name").or_else(|| object.text("DeviceName")).unwrap_or_default();
        let ids = ["Id", "MemberId", "SensorNumber"].into_iter().filter_map(|id| object.word(id));
        let state = object.object("Status").and_then(|status| status.text("State")).unwrap_or_default();
        let is_off = ["Absent", "Disabled", "UnavailableOffline"].iter().any(|off| state.eq_ignore_ascii_case(off));
        let context = object.text("PhysicalContext").unwrap_or_default().to_ascii_lowercase();
        let is_component = COMPONENT_CONTEXTS.contains(&context.as_str());
        Self {
            path,
            name: name.chars().take(NAME).collect(),
            ids: ids.filter(|id| id.len() <= NAME).collect(),
            mark: if context == "intake" { Mark::Intake } else { Mark::None },
            context: if is_component { SensorContext::Component } else { SensorContext::Other },
            critical: unit(object).and_then(|celsius| critical(object, celsius)),
            is_present: !is_off && object.value("Enabled") != Some("false"),
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
        Self::list(thermal, resource, TEMPERATURES)
    }

    /// Parses the temperatures in a list of a resource.
    fn list(document: &BmcDocument, resource: &str, property: &str) -> Vec<Self> {
        let all = document.object().objects(property);
        let names = |object: BmcObject<'_>| {
            let names = ["Name", "DeviceName", "MemberId"].map(|property| (property, object.word(property)));
            names.into_iter().filter_map(|(property, name)| Some((property, name.filter(|name| is_plain_name(name))?)))
        };
        let mut counts: HashMap<(&str, String), usize> = HashMap::new();
        for name in all.iter().copied().flat_map(names) {
            *counts.entry(name).or_default() += 1;
        }
        let of = |(nth, object): (usize, BmcObject<'_>)| {
            let unique = names(object).find(|name| counts.get(name) == Some(&1));
            let member = unique.map_or_else(|| format!("/{property}/{nth}"), |(_, name)| name);
            Self::parse(object, SensorPath::member(resource, member))
        };
        all.into_iter().enumerate().map(of).collect()
    }

    /// Finds the sensor of this path in its resource.
    pub(super) fn at(document: &BmcDocument, path: &SensorPath) -> Option<Self> {
        let Some(member) = path.of_member() else { return Self::alone(document.object(), path.clone()) };
        // The index of a temperature changes if another one is removed; its name does not.
        for property in [TEMPERATURES, READINGS] {
            let mut all = Self::list(document, path.of_resource(), property);
            let rest = member.strip_prefix('/').unwrap_or(member).strip_prefix(property);
            if let Some(nth) = rest.and_then(|rest| rest.strip_prefix('/')) {
                let nth = nth.parse().ok().filter(|nth| *nth < all.len())?;
                return Some(all.swap_remove(nth));
            }
            let mut same = all.into_iter().filter(|one| one.path == *path || one.is(member));
            if let (Some(sensor), None) = (same.next(), same.next()) {
                return Some(sensor);
            }
        }
        let object = document.object().pointer(member).filter(|_| member.starts_with('/'))?;
        Some(Self::parse(object, path.clone()))
    }

    /// Parses the sensors in a resource ThermalMetrics, each with the path of the sensor that it repeats.
    pub(super) fn metrics(metrics: &BmcDocument, resource: &str) -> Vec<(Self, Option<SensorPath>)> {
        let source = |object: BmcObject<'_>| object.text("DataSourceUri").and_then(|source| source.parse().ok());
        let member = "/TemperatureSummaryCelsius/Intake";
        let summary = metrics.object().pointer(member).map(|excerpt| {
            let sensor = Self::parse(excerpt, SensorPath::member(resource, member.to_owned()));
            (Self { mark: Mark::Summary, ..sensor }, source(excerpt))
        });
        let sources = metrics.object().objects(READINGS).into_iter().map(source);
        let readings = Self::list(metrics, resource, READINGS).into_iter().zip(sources);
        summary.into_iter().chain(readings).collect()
    }

    /// Whether `wanted` is its Name, one of its ids, or the last segment of its path.
    pub(super) fn is(&self, wanted: &str) -> bool {
        let last = self.path.of_resource().rsplit('/').next().filter(|_| self.path.of_member().is_none());
        let mut own = self.ids.iter().map(String::as_str).chain([self.name.as_str()]).chain(last);
        own.any(|own| same(own, wanted))
    }

    /// Meaning of its name and its ids. A component in one of them outweighs the others.
    pub(super) fn meaning(&self) -> NameMeaning {
        let ids = || self.ids.iter().map(|id| NameMeaning::new(id));
        match NameMeaning::new(&self.name) {
            _ if ids().any(|id| id == NameMeaning::Component) => NameMeaning::Component,
            NameMeaning::Nothing => ids().max().unwrap_or(NameMeaning::Nothing),
            name => name,
        }
    }

    /// Whether its name has a word for the intake air beside unknown ones.
    pub(super) fn names_a_place(&self) -> bool {
        is_hint(&self.name)
    }

    /// Whether both are the same sensor in different lists of a chassis.
    pub(super) fn repeats(&self, other: &Self) -> bool {
        let own = words(&self.name);
        self.path == other.path || !own.is_empty() && own == words(&other.name)
    }

    /// Adds what another list of the chassis says about this sensor.
    pub(super) fn add(&mut self, other: &Self) {
        self.mark = self.mark.max(other.mark);
        self.critical = self.critical.or(other.critical);
        if other.context == SensorContext::Component {
            self.context = SensorContext::Component;
        }
    }

    pub(super) fn is_temperature(&self) -> bool {
        self.measure != SensorReading::NoTemperature
    }

    pub(super) fn is_silent(&self) -> bool {
        self.measure == SensorReading::Silent
    }

    /// Temperature of the sensor in degrees Celsius.
    pub(super) fn celsius(&self) -> Result<f64, Error> {
        let path = || self.path.clone();
        match self.measure {
            SensorReading::Celsius(celsius) if (COLDEST..=HOTTEST).contains(&celsius) => Ok(celsius),
            SensorReading::Celsius(_) => Err(Error::OutOfRange(path())),
            SensorReading::Outside => Err(Error::OutsideRange(path())),
            SensorReading::Silent => Err(Error::NoReading(path())),
            SensorReading::OtherUnit => Err(Error::Unit(path())),
            SensorReading::NoTemperature => Err(Error::NoTemperature(path())),
        }
    }
}

/// Compares two names, ignoring case and spaces.
fn same(one: &str, other: &str) -> bool {
    let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
    let one = letters(one);
    !one.is_empty() && one == letters(other)
}

/// Upper critical threshold, otherwise the upper fatal one. Zero means that there is none.
fn critical(object: BmcObject<'_>, celsius: fn(f64) -> f64) -> Option<f64> {
    let thresholds = object.object("Thresholds");
    let threshold = |level: &str| {
        let listed = thresholds.and_then(|thresholds| thresholds.object(&format!("Upper{level}"))?.number("Reading"));
        let listed = listed.or_else(|| object.number(&format!("UpperThreshold{level}")));
        listed.filter(|threshold| *threshold > 0.0).map(celsius)
    };
    threshold("Critical").or_else(|| threshold("Fatal"))
}

/// Whether a reading is outside the range that the sensor can measure. Many BMCs have 0 for both limits.
fn is_outside(object: BmcObject<'_>, reading: f64) -> bool {
    let limit = |names: [&str; 2]| names.into_iter().find_map(|name| object.number(name));
    let lowest = limit(["ReadingRangeMin", "MinReadingRangeTemp"]).unwrap_or(f64::NEG_INFINITY);
    let highest = limit(["ReadingRangeMax", "MaxReadingRangeTemp"]).unwrap_or(f64::INFINITY);
    lowest < highest && !(lowest..=highest).contains(&reading)
}

fn measure(object: BmcObject<'_>) -> SensorReading {
    let differs = |name: &str, from: &str| object.text(name).is_some_and(|text| !text.eq_ignore_ascii_case(from));
    // Another basis than zero is a distance to a limit or a difference.
    if differs("ReadingType", "Temperature") || differs("ReadingBasis", "Zero") {
        return SensorReading::NoTemperature;
    }
    let reading = READING.into_iter().find(|name| object.value(name).is_some()).and_then(|name| object.number(name));
    // Many BMCs report 0 for a sensor that is absent or off, whatever its state says.
    let Some(reading) = reading.filter(|reading| *reading != 0.0) else { return SensorReading::Silent };
    if is_outside(object, reading) {
        return SensorReading::Outside;
    }
    match unit(object) {
        Some(celsius) => SensorReading::Celsius(celsius(reading)),
        None if object.text("ReadingType").is_some() => SensorReading::OtherUnit,
        None => SensorReading::NoTemperature,
    }
}

/// Conversion of the unit of a sensor to degrees Celsius. None if the unit is unknown.
fn unit(object: BmcObject<'_>) -> Option<fn(f64) -> f64> {
    // An entry of Thermal has no unit, except with older firmware of HPE.
    let property = if object.value("Reading").is_some() { "ReadingUnits" } else { "Units" };
    match object.text(property).map(|unit| unit.trim().to_ascii_lowercase()).as_deref() {
        None | Some("cel" | "celsius" | "c" | "degc" | "\u{b0}c") => Some(|celsius| celsius),
        Some("[degf]") => Some(|fahrenheit| (fahrenheit - 32.0) / 1.8),
        Some("k") => Some(|kelvin| kelvin - 273.15),
        Some(_) => None,
    }
}
