//! Bounded number of requests for one search: members of collections, and the links and sensors of a chassis. Each list
//! of sensors is read once.

use super::document::{BmcDocument, BmcObject, SensorPath, is_page};
use super::sensor::{Sensor, is_hint};
use super::{Error, Fetch};
use crate as clients;

/// Maximum number of requests of one search.
pub(super) const REQUESTS: usize = 128;

/// Maximum number of members of a collection that are read one by one, unless the user names one of them.
const MEMBERS: usize = 64;

/// Maximum number of members of a collection, and of its pages.
const LISTED: usize = 1024;
const PAGES: usize = 8;

/// Maximum number of sensors that one search stores; the sensors of further chassis are not searched.
const SENSORS: usize = 4096;

/// Query options that expand the members of a collection, best first: property of ExpandQuery, and the query.
const EXPANSIONS: [(&str, &str); 2] = [("NoLinks", "?$expand=.($levels=1)"), ("ExpandAll", "?$expand=*($levels=1)")];

/// Requests of one search.
pub(super) struct RedfishSearch<'a, F> {
    fetch: &'a F,
    left: usize,
    /// Number of sensors that may still be stored.
    sensors_left: usize,
    /// Query that expands members, if the service supports it.
    expansion: Option<&'static str>,
    /// First error of an unreadable document. Returned if nothing is found.
    pub unread: Option<clients::Error>,
}

impl<'a, F: Fetch> RedfishSearch<'a, F> {
    pub(super) fn new(fetch: &'a F) -> Self {
        Self { fetch, left: REQUESTS, sensors_left: SENSORS, expansion: None, unread: None }
    }

    /// Reads a document. None if it does not exist or is unreadable.
    pub(super) async fn get(&mut self, path: &str) -> Result<Option<BmcDocument>, Error> {
        self.left = self.left.checked_sub(1).ok_or(Error::TooManyRequests)?;
        match self.fetch.get(path).await {
            Ok(document) => Ok(Some(document)),
            Err(error) if is_missing(&error) => Ok(None),
            // One broken resource must not hide the others. If the BMC refuses the login or is busy, the search ends.
            Err(error @ (clients::Error::Answer(_) | clients::Error::TooLong(_))) => {
                self.unread.get_or_insert(error);
                Ok(None)
            }
            Err(clients::Error::Status(status)) if matches!(status.as_u16(), 400 | 405 | 500 | 501) => {
                self.unread.get_or_insert(clients::Error::Status(status));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the service root. None if it does not exist.
    pub(super) async fn root(&mut self) -> Result<Option<BmcDocument>, Error> {
        let root = self.get("/redfish/v1/").await?;
        let features = root.as_ref().and_then(|root| root.object().object("ProtocolFeaturesSupported"));
        let expand = features.and_then(|features| features.object("ExpandQuery"));
        let can = |property| expand.is_some_and(|expand| expand.is_true(property));
        self.expansion = EXPANSIONS.into_iter().find(|(property, _)| can(property)).map(|(_, query)| query);
        Ok(root)
    }

    /// Reads the paths of the members of a collection.
    pub(super) async fn members(&mut self, collection: &str) -> Result<Vec<String>, Error> {
        self.collect(collection.to_owned(), |member| member.id()).await
    }

    /// Reads the sensors of a collection. `wanted`: Name or Id of a single sensor to search.
    pub(super) async fn sensors(&mut self, collection: &str, wanted: Option<&str>) -> Result<Vec<Sensor>, Error> {
        if let Some(query) = self.expansion {
            // Services that ignore the query return references, which do not parse as sensors.
            let sensors = self.collect(format!("{collection}{query}"), Sensor::resource).await?;
            if !sensors.is_empty() {
                return Ok(sensors);
            }
        }
        let mut paths = self.members(collection).await?;
        let is_wanted = |path: &String| path.rsplit('/').next().is_some_and(|last| Some(last) == wanted);
        if paths.iter().any(is_wanted) {
            paths.retain(is_wanted);
        } else if wanted.is_none() && paths.len() > MEMBERS {
            paths.retain(|path| is_hint(path));
            paths.truncate(MEMBERS);
        }
        let mut sensors = Vec::new();
        for path in paths {
            let document = self.get(&path).await?;
            let path = super::SensorPath::resource(&path);
            sensors.extend(document.and_then(|document| Sensor::at(&document, &path)));
        }
        Ok(sensors)
    }

    /// Stores sensors, as many as are still allowed.
    fn stored(&mut self, mut sensors: Vec<Sensor>) -> SensorList {
        sensors.truncate(self.sensors_left);
        self.sensors_left -= sensors.len();
        SensorList::Read(sensors)
    }

    /// Applies `read` to the members on all pages of a collection. Only one page is in memory at a time.
    async fn collect<T>(&mut self, first: String, read: fn(BmcObject<'_>) -> Option<T>) -> Result<Vec<T>, Error> {
        let (mut found, mut next) = (Vec::new(), Some(first));
        for _ in 0..PAGES {
            let Some(path) = next else { break };
            let Some(page) = self.get(&path).await? else { break };
            found.extend(page.object().objects("Members").into_iter().filter_map(read));
            next = page.object().text("Members@odata.nextLink").filter(|next| is_page(next));
        }
        found.truncate(LISTED);
        Ok(found)
    }
}

pub(super) fn is_missing(error: &clients::Error) -> bool {
    matches!(error, clients::Error::Status(status) if matches!(status.as_u16(), 404 | 410))
}

/// Chassis types that are components of a machine: their intake is not the machine's.
const PARTS: [&str; 7] = ["Card", "Cartridge", "Component", "Expansion", "IPBasedDrive", "Module", "StorageEnclosure"];

pub(super) struct Chassis {
    /// The chassis is a component of a machine, neither a machine nor an enclosure.
    pub is_part: bool,
    /// Enclosing chassis.
    pub contained_by: Option<String>,
    thermal_subsystem: Option<String>,
    sensors: SensorList,
    thermal: SensorList,
}

/// List of sensors that is read on first use.
enum SensorList {
    Unread(Option<String>),
    Read(Vec<Sensor>),
}

impl Chassis {
    /// Parses a chassis.
    pub(super) fn parse(object: BmcObject<'_>) -> Self {
        let kind = object.text("ChassisType").unwrap_or_default();
        let link = |name| object.link(name);
        let enclosing = object.object("Links").and_then(|links| links.link("ContainedBy"));
        Self {
            is_part: PARTS.iter().any(|part| kind.eq_ignore_ascii_case(part)),
            contained_by: enclosing,
            thermal_subsystem: link("ThermalSubsystem"),
            sensors: SensorList::Unread(link("Sensors")),
            thermal: SensorList::Unread(link("Thermal")),
        }
    }

    /// Intake sensor according to ThermalMetrics: the sensor that the summary refers to, otherwise the summary itself.
    pub(super) async fn summary<F: Fetch>(&self, walk: &mut RedfishSearch<'_, F>) -> Result<Option<Sensor>, Error> {
        let Some(subsystem) = &self.thermal_subsystem else { return Ok(None) };
        let subsystem = walk.get(subsystem).await?;
        let metrics = subsystem.as_ref().and_then(|subsystem| subsystem.object().link("ThermalMetrics"));
        let Some(path) = metrics else { return Ok(None) };
        let Some(metrics) = walk.get(&path).await? else { return Ok(None) };
        let Some((summary, source)) = Sensor::summary(&metrics, &path) else { return Ok(None) };
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
        walk: &mut RedfishSearch<'_, F>,
        wanted: Option<&str>,
    ) -> Result<&[Sensor], Error> {
        if let SensorList::Unread(path) = &self.sensors {
            let sensors = match path {
                Some(path) => walk.sensors(path, wanted).await?,
                None => Vec::new(),
            };
            self.sensors = walk.stored(sensors);
        }
        Ok(self.sensors.read())
    }

    /// Reads the temperatures in the resource Thermal, which older services have instead of Sensors.
    pub(super) async fn temperatures<F: Fetch>(&mut self, walk: &mut RedfishSearch<'_, F>) -> Result<&[Sensor], Error> {
        if let SensorList::Unread(path) = &self.thermal {
            let sensors = match path {
                Some(path) => walk.get(path).await?.map(|thermal| Sensor::temperatures(&thermal, path)),
                None => None,
            };
            self.thermal = walk.stored(sensors.unwrap_or_default());
        }
        Ok(self.thermal.read())
    }
}

impl SensorList {
    fn read(&self) -> &[Sensor] {
        match self {
            Self::Unread(_) => &[],
            Self::Read(sensors) => sensors,
        }
    }
}

/// Reads the sensor at this path. None if it does not exist.
pub(super) async fn sensor<F: Fetch>(
    walk: &mut RedfishSearch<'_, F>,
    path: &SensorPath,
) -> Result<Option<Sensor>, Error> {
    Ok(walk.get(path.of_resource()).await?.and_then(|document| Sensor::at(&document, path)))
}
