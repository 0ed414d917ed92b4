//! Chassis: its links and its sensors. Each list of sensors is read once.

use super::document::Object;
use super::path::SensorPath;
use super::sensor::Sensor;
use super::walk::Walk;
use super::{Error, Fetch};

/// Chassis types that are components of a machine: their intake is not the machine's.
const PARTS: [&str; 7] = ["Card", "Cartridge", "Component", "Expansion", "IPBasedDrive", "Module", "StorageEnclosure"];

pub(super) struct Chassis {
    /// The chassis is a component of a machine, neither a machine nor an enclosure.
    pub is_part: bool,
    /// Enclosing chassis.
    pub contained_by: Option<String>,
    thermal_subsystem: Option<String>,
    sensors: List,
    thermal: List,
}

/// List of sensors that is read on first use.
enum List {
    Unread(Option<String>),
    Read(Vec<Sensor>),
}

impl Chassis {
    /// Parses a chassis.
    pub(super) fn of(object: Object<'_>) -> Self {
        let kind = object.text("ChassisType").unwrap_or_default();
        let link = |name| object.link(name).map(str::to_owned);
        let enclosing = object.object("Links").and_then(|links| links.link("ContainedBy"));
        Self {
            is_part: PARTS.iter().any(|part| kind.eq_ignore_ascii_case(part)),
            contained_by: enclosing.map(str::to_owned),
            thermal_subsystem: link("ThermalSubsystem"),
            sensors: List::Unread(link("Sensors")),
            thermal: List::Unread(link("Thermal")),
        }
    }

    /// Intake sensor according to ThermalMetrics: the sensor that the summary refers to, otherwise the summary itself.
    pub(super) async fn summary<F: Fetch>(&self, walk: &mut Walk<'_, F>) -> Result<Option<Sensor>, Error> {
        let Some(subsystem) = &self.thermal_subsystem else { return Ok(None) };
        let subsystem = walk.get(subsystem).await?;
        let metrics = subsystem.as_ref().and_then(|subsystem| subsystem.object().link("ThermalMetrics"));
        let Some(path) = metrics else { return Ok(None) };
        let Some(metrics) = walk.get(path).await? else { return Ok(None) };
        let Some((summary, source)) = Sensor::summary(&metrics, path) else { return Ok(None) };
        drop(metrics);
        let source = match source {
            Some(source) => sensor(walk, &source).await?,
            None => None,
        };
        Ok(source.filter(|source| source.is_present && source.is_temperature()).or(Some(summary)))
    }

    /// Reads the sensors in the collection Sensors.
    pub(super) async fn sensors<F: Fetch>(
        &mut self,
        walk: &mut Walk<'_, F>,
        wanted: Option<&str>,
    ) -> Result<&[Sensor], Error> {
        if let List::Unread(path) = &self.sensors {
            let sensors = match path {
                Some(path) => walk.sensors(path, wanted).await?,
                None => Vec::new(),
            };
            self.sensors = List::Read(sensors);
        }
        Ok(self.sensors.read())
    }

    /// Reads the temperatures in the resource Thermal, which older services have instead of Sensors.
    pub(super) async fn temperatures<F: Fetch>(&mut self, walk: &mut Walk<'_, F>) -> Result<&[Sensor], Error> {
        if let List::Unread(path) = &self.thermal {
            let sensors = match path {
                Some(path) => walk.get(path).await?.map(|thermal| Sensor::temperatures(&thermal, path)),
                None => None,
            };
            self.thermal = List::Read(sensors.unwrap_or_default());
        }
        Ok(self.thermal.read())
    }
}

impl List {
    fn read(&self) -> &[Sensor] {
        match self {
            Self::Unread(_) => &[],
            Self::Read(sensors) => sensors,
        }
    }
}

/// Reads the sensor at this path. None if it does not exist.
pub(super) async fn sensor<F: Fetch>(walk: &mut Walk<'_, F>, path: &SensorPath) -> Result<Option<Sensor>, Error> {
    Ok(walk.get(path.of_resource()).await?.and_then(|document| Sensor::at(&document, path)))
}
