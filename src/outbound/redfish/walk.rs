//! Bounded number of requests for one search: members of collections, and the links and sensors of a chassis. Records
//! what could not be read.

use std::collections::BTreeSet;

use super::document::{BmcDocument, BmcObject, SensorPath, is_page};
use super::evidence::Candidate;
use super::names::{NameMeaning, is_component, is_hint};
use super::sensor::{Mark, Sensor};
use super::{Error, Fetch, SensorPaths};
use crate as clients;

/// Maximum number of requests of one search.
pub(super) const REQUESTS: usize = 128;

/// Maximum number of members of a collection that are read one by one, unless the user names one of them.
const MEMBERS: usize = 64;

/// Maximum number of members of a collection, and of its pages.
const LISTED: usize = 1024;
const PAGES: usize = 8;

/// Maximum number of sensors that one search stores; the sensors of further chassis are not searched.
pub(super) const SENSORS: usize = 4096;

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
    /// A document that another one refers to does not exist.
    pub is_missing: bool,
    /// The bounds of a search left something out.
    pub is_cut: bool,
}

impl<'a, F: Fetch> RedfishSearch<'a, F> {
    pub(super) fn new(fetch: &'a F) -> Self {
        let (left, sensors_left) = (REQUESTS, SENSORS);
        Self { fetch, left, sensors_left, expansion: None, unread: None, is_missing: false, is_cut: false }
    }

    /// Whether everything was read that the search came across.
    pub(super) fn is_complete(&self) -> bool {
        self.unread.is_none() && !self.is_missing && !self.is_cut
    }

    /// Reads a document that another one refers to. None if it does not exist or is unreadable.
    pub(super) async fn linked(&mut self, path: &str) -> Result<Option<BmcDocument>, Error> {
        let document = self.get(path).await?;
        self.is_missing |= document.is_none();
        Ok(document)
    }

    /// Reads a document. None if it does not exist or is unreadable, or if no request is left.
    pub(super) async fn get(&mut self, path: &str) -> Result<Option<BmcDocument>, Error> {
        let Some(left) = self.left.checked_sub(1) else {
            self.is_cut = true;
            return Ok(None);
        };
        self.left = left;
        match self.fetch.get(path).await {
            Ok(document) => Ok(Some(document)),
            Err(error) if is_missing(&error) => Ok(None),
            // One broken resource must not hide the others. If the BMC refuses the login or is busy, the search ends.
            Err(error) if is_unreadable(&error) => {
                self.unread.get_or_insert(error);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the document of a known sensor. None if it does not exist.
    pub(super) async fn known(&mut self, path: &str) -> Result<Option<BmcDocument>, Error> {
        self.left = self.left.saturating_sub(1);
        match self.fetch.get(path).await {
            Ok(document) => Ok(Some(document)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Why a search chose no sensor: what could not be read, otherwise what its bounds left out, otherwise this
    /// question. `likely`: sensors that the user may mean.
    pub(super) fn undecided(&self, mut likely: Vec<SensorPath>, question: fn(SensorPaths) -> Error) -> Error {
        likely.sort();
        likely.dedup();
        match &self.unread {
            Some(unread) => unread.clone().into(),
            None if self.is_cut => Error::TooManyRequests(SensorPaths(likely)),
            None => question(SensorPaths(likely)),
        }
    }

    /// Reads the service root. None if it does not exist.
    pub(super) async fn root(&mut self) -> Result<Option<BmcDocument>, Error> {
        let root = self.get("/redfish/v1/").await?;
        if let (None, Some(unread)) = (&root, &self.unread) {
            return Err(unread.clone().into());
        }
        let features = root.as_ref().and_then(|root| root.object().object("ProtocolFeaturesSupported"));
        let expand = features.and_then(|features| features.object("ExpandQuery"));
        let can = |property| expand.is_some_and(|expand| expand.is_true(property));
        self.expansion = EXPANSIONS.into_iter().find(|(property, _)| can(property)).map(|(_, query)| query);
        Ok(root)
    }

    /// Reads the paths of the members of a collection. Services that ignore the query of a page repeat members.
    pub(super) async fn members(&mut self, collection: &str) -> Result<Vec<String>, Error> {
        let all = self.collect(collection.to_owned(), |member| Some(member.id())).await?;
        self.is_missing |= all.iter().any(Option::is_none);
        let mut known = BTreeSet::new();
        Ok(all.into_iter().flatten().filter(|path| known.insert(path.clone())).collect())
    }

    /// Reads the sensors of a collection. `wanted`: Name or Id of a single sensor to search.
    async fn sensors(&mut self, collection: &str, wanted: Option<&str>) -> Result<Vec<Sensor>, Error> {
        if let Some(query) = self.expansion {
            // Services that ignore the query return references, which do not parse as sensors, and some answer errors.
            let (unread, is_missing) = (self.unread.clone(), self.is_missing);
            let mut sensors = self.collect(format!("{collection}{query}"), Sensor::resource).await?;
            if !sensors.is_empty() {
                let mut known = BTreeSet::new();
                sensors.retain(|sensor| known.insert(sensor.path.clone()));
                return Ok(sensors);
            }
            (self.unread, self.is_missing) = (unread, is_missing);
        }
        let mut paths = self.members(collection).await?;
        let is_wanted = |path: &String| path.rsplit('/').next().is_some_and(|last| Some(last) == wanted);
        if paths.iter().any(is_wanted) {
            paths.retain(is_wanted);
        } else if wanted.is_none() && paths.len() > MEMBERS {
            self.is_cut = true;
            paths.retain(|path| is_hint(path));
            paths.truncate(MEMBERS);
        }
        let mut sensors = Vec::new();
        for path in paths {
            let document = self.linked(&path).await?;
            let path = SensorPath::resource(&path);
            sensors.extend(document.and_then(|document| Sensor::at(&document, &path)));
        }
        Ok(sensors)
    }

    /// Drops the sensors beyond those that one search may store.
    fn stored(&mut self, mut sensors: Vec<Sensor>) -> Vec<Sensor> {
        self.is_cut |= sensors.len() > self.sensors_left;
        sensors.truncate(self.sensors_left);
        self.sensors_left -= sensors.len();
        sensors
    }

    /// Applies `read` to the members on all pages of a collection. Only one page is in memory at a time.
    async fn collect<T>(&mut self, first: String, read: fn(BmcObject<'_>) -> Option<T>) -> Result<Vec<T>, Error> {
        let (mut found, mut next) = (Vec::new(), Some(first));
        for _ in 0..PAGES {
            let Some(path) = next.take() else { break };
            let Some(page) = self.linked(&path).await? else { break };
            // While a service starts, its collections may have no members yet.
            self.is_missing |= !page.object().has_objects("Members");
            found.extend(page.object().objects("Members").into_iter().filter_map(read));
            let named = page.object().text("Members@odata.nextLink");
            self.is_missing |= named.as_deref().is_some_and(|next| !is_page(next));
            next = named.filter(|next| is_page(next));
        }
        self.is_cut |= next.is_some() || found.len() > LISTED;
        found.truncate(LISTED);
        Ok(found)
    }
}

pub(super) fn is_missing(error: &clients::Error) -> bool {
    matches!(error, clients::Error::Status(status) if matches!(status.as_u16(), 404 | 410))
}

/// Whether a resource exists but cannot be read at the moment, or not at all.
pub(super) fn is_unreadable(error: &clients::Error) -> bool {
    match error {
        clients::Error::Answer(_) | clients::Error::Partial(_) | clients::Error::TooLong(_) => true,
        clients::Error::Status(status) => matches!(status.as_u16(), 400 | 405 | 500 | 501),
        _ => false,
    }
}

/// Chassis types that are components of a machine: their intake is not the machine's.
const PARTS: [&str; 7] = ["Card", "Cartridge", "Component", "Expansion", "IPBasedDrive", "Module", "StorageEnclosure"];

/// Chassis types of other machines, and of what contains machines.
const OTHERS: [&str; 11] =
    ["Blade", "Cell", "Drawer", "Facility", "Pod", "Rack", "RackGroup", "Row", "Shelf", "Sled", "Zone"];

/// Chassis types that may contain several machines.
const CONTAINERS: [&str; 9] = ["drawer", "enclosure", "facility", "pod", "rack", "rackgroup", "row", "shelf", "zone"];

/// Role of a chassis, as far as its type and its path say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChassisKind {
    Machine,
    /// Another machine if it is neither the machine's own chassis nor around it.
    Other,
    /// Component of a machine.
    Part,
}

/// Chassis, with the places of its sensors.
#[derive(Clone, Debug)]
pub(super) struct Chassis {
    pub path: String,
    pub kind: ChassisKind,
    /// Enclosing chassis.
    pub contained_by: Vec<String>,
    /// Systems in the chassis.
    pub systems: Vec<String>,
    /// Its type may contain several machines.
    pub is_container: bool,
    thermal_subsystem: Option<String>,
    pub sensors: Option<String>,
    thermal: Option<String>,
    pub environment: Option<String>,
    pub power: Option<String>,
    pub power_subsystem: Option<String>,
}

impl Chassis {
    /// Parses a chassis.
    pub(super) fn parse(object: BmcObject<'_>, path: String) -> Self {
        let type_ = object.text("ChassisType").unwrap_or_default();
        let is_type = |types: &[&str]| types.iter().any(|one| type_.eq_ignore_ascii_case(one));
        let links = |name| object.object("Links").map(|links| links.objects(name)).unwrap_or_default();
        let paths = |name| links(name).into_iter().filter_map(BmcObject::id).collect();
        let kind = match () {
            () if is_type(&PARTS) || is_component(&path) => ChassisKind::Part,
            () if is_type(&OTHERS) => ChassisKind::Other,
            () => ChassisKind::Machine,
        };
        Self {
            path,
            kind,
            contained_by: paths("ContainedBy"),
            systems: paths("ComputerSystems"),
            thermal_subsystem: object.link("ThermalSubsystem"),
            sensors: object.link("Sensors"),
            thermal: object.link("Thermal"),
            environment: object.link("EnvironmentMetrics"),
            power: object.link("Power"),
            power_subsystem: object.link("PowerSubsystem"),
            is_container: CONTAINERS.contains(&type_.to_ascii_lowercase().as_str()),
        }
    }

    /// Reads the temperature sensors in all lists of the chassis. The lists repeat each other.
    pub(super) async fn read<F: Fetch>(&self, walk: &mut RedfishSearch<'_, F>) -> Result<Vec<Candidate>, Error> {
        let metrics = self.metrics(walk).await?;
        let mut sensors = match &self.sensors {
            Some(path) => walk.sensors(path, None).await?,
            None => Vec::new(),
        };
        let mut silent_summary = None;
        for (excerpt, source) in metrics {
            match source {
                Some(source) => add_excerpt(walk, &mut sensors, excerpt, &source).await?,
                None if excerpt.mark == Mark::Summary && excerpt.is_silent() => silent_summary = Some(excerpt),
                None if excerpt.mark == Mark::Summary => sensors.push(excerpt),
                None => merge(&mut sensors, vec![excerpt]),
            }
        }
        merge(&mut sensors, self.temperatures(walk).await?);
        let candidates = Candidate::of_chassis(walk.stored(sensors));
        // A summary without a reading does not hide other sensors.
        if candidates.iter().any(Candidate::is_claimed) {
            return Ok(candidates);
        }
        Ok(candidates.into_iter().chain(Candidate::of_chassis(silent_summary.into_iter().collect())).collect())
    }

    /// Sensors with this Name or Id. Sensors is used only if Thermal has none, since it may have hundreds of members.
    pub(super) async fn named<F: Fetch>(
        &self,
        walk: &mut RedfishSearch<'_, F>,
        wanted: &str,
    ) -> Result<Vec<Sensor>, Error> {
        let is = |sensor: &Sensor| sensor.is(wanted) && sensor.is_temperature();
        let mut found = self.temperatures(walk).await?;
        found.retain(is);
        if let (true, Some(path)) = (found.is_empty(), &self.sensors) {
            found = walk.sensors(path, Some(wanted)).await?;
            found.retain(is);
        }
        if found.is_empty() {
            found = self.metrics(walk).await?.into_iter().map(|(sensor, _)| sensor).collect();
            found.retain(is);
        }
        Ok(walk.stored(found))
    }

    /// Reads the excerpts in ThermalMetrics, with the paths of the sensors that they repeat.
    async fn metrics<F: Fetch>(
        &self,
        walk: &mut RedfishSearch<'_, F>,
    ) -> Result<Vec<(Sensor, Option<SensorPath>)>, Error> {
        let Some(subsystem) = &self.thermal_subsystem else { return Ok(Vec::new()) };
        let subsystem = walk.linked(subsystem).await?;
        let metrics = subsystem.as_ref().and_then(|subsystem| subsystem.object().link("ThermalMetrics"));
        let Some(path) = metrics else { return Ok(Vec::new()) };
        Ok(walk.linked(&path).await?.map(|metrics| Sensor::metrics(&metrics, &path)).unwrap_or_default())
    }

    /// Reads the temperatures in the resource Thermal, which older services have instead of Sensors.
    async fn temperatures<F: Fetch>(&self, walk: &mut RedfishSearch<'_, F>) -> Result<Vec<Sensor>, Error> {
        let Some(path) = &self.thermal else { return Ok(Vec::new()) };
        Ok(walk.linked(path).await?.map(|thermal| Sensor::temperatures(&thermal, path)).unwrap_or_default())
    }
}

/// Adds the sensors of another list of the chassis. Two sensors of one list are never the same, whatever their names.
fn merge(sensors: &mut Vec<Sensor>, list: Vec<Sensor>) {
    let mut is_free = vec![true; sensors.len()];
    for sensor in list {
        match sensors.iter_mut().zip(&mut is_free).find(|(known, free)| **free && known.repeats(&sensor)) {
            Some((known, free)) => {
                known.add(&sensor);
                *free = false;
            }
            None => sensors.push(sensor),
        }
    }
}

/// Adds what an excerpt in ThermalMetrics says about its source. Reads the source if it may be the intake sensor.
async fn add_excerpt<F: Fetch>(
    walk: &mut RedfishSearch<'_, F>,
    sensors: &mut Vec<Sensor>,
    excerpt: Sensor,
    source: &SensorPath,
) -> Result<(), Error> {
    if let Some(known) = sensors.iter_mut().find(|sensor| sensor.path == *source) {
        known.add(&excerpt);
        return Ok(());
    }
    if excerpt.mark == Mark::None && excerpt.meaning() < NameMeaning::Front {
        return Ok(());
    }
    match walk.get(source.of_resource()).await? {
        Some(document) => {
            let sensor = Sensor::at(&document, source);
            sensors.extend(sensor.map(|mut sensor| {
                sensor.add(&excerpt);
                sensor
            }));
        }
        // A reference to nothing. A source that cannot be read may be absent.
        None if walk.unread.is_none() && !walk.is_cut => sensors.push(excerpt),
        None => {}
    }
    Ok(())
}
