//! Intake temperature: polls the known sensor, or searches for the sensor.
//!
//! The search begins with the chassis of the machine itself. The enclosing chassis follow (a blade has its intake at
//! the enclosure), then all others. Among chassis of one group, a mark of the standard takes precedence over a vendor's
//! name.

use std::collections::BTreeSet;

use super::document::{BmcObject, SensorPath};
use super::sensor::Sensor;
use super::walk::{Chassis, RedfishSearch, is_missing};
use super::{Error, Fetch, SensorPaths};

/// Maximum number of systems of a service, and of chassis in a group.
const SYSTEMS: usize = 8;
const GROUP: usize = 32;

/// Maximum number of nested chassis.
const DEPTH: usize = 4;

/// Temperature, and the sensor from which it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Inlet {
    /// Degrees Celsius.
    pub celsius: f64,
    pub sensor: SensorPath,
}

/// Reads the temperature of the air that the machine takes in. `known`: the sensor from an earlier result for the same
/// `wanted`; as long as it exists, one request reads it. `wanted`: path, Name or Id of the sensor, if the user names
/// one.
pub async fn inlet<F: Fetch>(fetch: &F, known: Option<&SensorPath>, wanted: Option<&str>) -> Result<Inlet, Error> {
    if let Some(path) = wanted.filter(|wanted| wanted.starts_with('/')) {
        let path = path.parse().map_err(|_| Error::SensorNotFound)?;
        let sensor = poll(fetch, &path).await?.filter(|sensor| sensor.is_present);
        return sensor.ok_or(Error::SensorNotFound)?.inlet();
    }
    if let Some(known) = known {
        let sensor = poll(fetch, known).await?.filter(|sensor| sensor.is_present && sensor.is_temperature());
        if let Some(sensor) = sensor.filter(|sensor| wanted.is_none_or(|wanted| sensor.is(wanted))) {
            return sensor.inlet();
        }
    }
    Search { walk: RedfishSearch::new(fetch), wanted, silent: None }.run().await?.inlet()
}

/// Reads the sensor at this path. None if it does not exist.
async fn poll<F: Fetch>(fetch: &F, path: &SensorPath) -> Result<Option<Sensor>, Error> {
    match fetch.get(path.of_resource()).await {
        Ok(document) => Ok(Sensor::at(&document, path)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Search for the sensor.
struct Search<'a, F> {
    walk: RedfishSearch<'a, F>,
    /// Name or Id of the sensor, if the user names one.
    wanted: Option<&'a str>,
    /// Intake sensor without a reading.
    silent: Option<Sensor>,
}

/// Places where the intake sensor is searched, best first.
#[derive(Clone, Copy)]
enum Place {
    Summary,
    Sensors,
    Temperatures,
    Names,
}

impl<F: Fetch> Search<'_, F> {
    async fn run(mut self) -> Result<Sensor, Error> {
        let root = self.walk.root().await?.ok_or(Error::NoService)?;
        let link = |name| root.object().link(name);
        let (systems, all) = (link("Systems"), link("Chassis"));
        drop(root);
        let mut visited = BTreeSet::new();
        let mut group = match systems {
            Some(systems) => self.own_chassis(&systems).await?,
            None => Vec::new(),
        };
        for _ in 0..DEPTH {
            let (found, around) = self.group(group, &mut visited).await?;
            if let Some(sensor) = found {
                return Ok(sensor);
            }
            group = around;
        }
        if let Some(all) = all {
            let rest = self.walk.members(&all).await?;
            if let (Some(sensor), _) = self.group(rest, &mut visited).await? {
                return Ok(sensor);
            }
        }
        match (self.silent, self.walk.unread, self.wanted) {
            (Some(silent), ..) => Ok(silent),
            (None, Some(unread), _) => Err(unread.into()),
            (None, None, Some(_)) => Err(Error::SensorNotFound),
            (None, None, None) => Err(Error::NoIntake),
        }
    }

    /// Paths of the chassis of all systems.
    async fn own_chassis(&mut self, systems: &str) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        for system in self.walk.members(systems).await?.into_iter().take(SYSTEMS) {
            let Some(system) = self.walk.get(&system).await? else { continue };
            let links = system.object().object("Links");
            let chassis = links.into_iter().flat_map(|links| links.objects("Chassis"));
            found.extend(chassis.filter_map(BmcObject::id));
        }
        Ok(found)
    }

    /// Finds the sensor in a group of chassis. Returns the enclosing chassis, too. Components of machines come last.
    async fn group(
        &mut self,
        paths: Vec<String>,
        visited: &mut BTreeSet<String>,
    ) -> Result<(Option<Sensor>, Vec<String>), Error> {
        let (mut machines, mut parts, mut around) = (Vec::new(), Vec::new(), Vec::new());
        for path in paths {
            if machines.len() + parts.len() == GROUP || !visited.insert(path.clone()) {
                continue;
            }
            let Some(document) = self.walk.get(&path).await? else { continue };
            let chassis = Chassis::parse(document.object());
            around.extend(chassis.contained_by.clone());
            if chassis.is_part { parts.push(chassis) } else { machines.push(chassis) }
        }
        for mut chassis in [machines, parts] {
            if let Some(sensor) = self.search_group(&mut chassis).await? {
                return Ok((Some(sensor), around));
            }
        }
        Ok((None, around))
    }

    /// Finds the sensor in one of these chassis.
    async fn search_group(&mut self, all: &mut [Chassis]) -> Result<Option<Sensor>, Error> {
        if let Some(wanted) = self.wanted {
            let mut found = Vec::new();
            for chassis in all {
                found.extend(self.named(chassis, wanted).await?);
            }
            return self.only(found, |_| None);
        }
        for place in [Place::Summary, Place::Sensors, Place::Temperatures, Place::Names] {
            let mut found = Vec::new();
            for chassis in &mut *all {
                found.extend(self.at(place, chassis).await?);
            }
            if matches!(place, Place::Names) {
                let best = found.iter().filter(is_candidate).filter_map(Sensor::rank).min();
                found.retain(|sensor| sensor.rank() == best);
            }
            if let Some(sensor) = self.only(found, Sensor::rank)? {
                return Ok(Some(sensor));
            }
        }
        Ok(None)
    }

    /// Sensors of a chassis with this name. Thermal is used only if Sensors has none, since it repeats them.
    async fn named(&mut self, chassis: &mut Chassis, wanted: &str) -> Result<Vec<Sensor>, Error> {
        let is = |sensor: &&Sensor| sensor.is(wanted) && sensor.is_temperature();
        let found: Vec<Sensor> =
            chassis.sensors(&mut self.walk, Some(wanted)).await?.iter().filter(is).cloned().collect();
        if !found.is_empty() {
            return Ok(found);
        }
        Ok(chassis.temperatures(&mut self.walk).await?.iter().filter(is).cloned().collect())
    }

    /// Sensors of a chassis that qualify at this place.
    async fn at(&mut self, place: Place, chassis: &mut Chassis) -> Result<Vec<Sensor>, Error> {
        let walk = &mut self.walk;
        let intakes = |sensors: &[Sensor]| sensors.iter().filter(|sensor| sensor.is_intake).cloned().collect();
        Ok(match place {
            Place::Summary => chassis.summary(walk).await?.into_iter().collect(),
            Place::Sensors => intakes(chassis.sensors(walk, None).await?),
            Place::Temperatures => intakes(chassis.temperatures(walk).await?),
            Place::Names => {
                let best = |sensors: &[Sensor]| sensors.iter().filter(is_candidate).filter_map(Sensor::rank).min();
                let (sensors, thermal) =
                    (best(chassis.sensors(walk, None).await?), best(chassis.temperatures(walk).await?));
                // Thermal repeats the entries of Sensors.
                let repeats = sensors.is_some_and(|sensors| thermal.is_none_or(|thermal| sensors <= thermal));
                let all = if repeats { chassis.sensors(walk, None).await? } else { chassis.temperatures(walk).await? };
                all.iter().filter(|sensor| sensor.rank().is_some()).cloned().collect()
            }
        })
    }

    /// Selects the sensor with the best rank. Fails if several are equally good. None if there is no sensor or if it
    /// has no reading.
    fn only(
        &mut self,
        mut found: Vec<Sensor>,
        rank: impl Fn(&Sensor) -> Option<usize>,
    ) -> Result<Option<Sensor>, Error> {
        found.retain(|sensor| is_candidate(&sensor));
        let mut paths = BTreeSet::new();
        found.retain(|sensor| paths.insert(sensor.path.clone()));
        if found.len() > 1
            && let Some(best) = found.iter().filter_map(&rank).min()
        {
            let is_best = |sensor: &Sensor| rank(sensor) == Some(best);
            if found.iter().filter(|sensor| is_best(sensor)).count() == 1 {
                found.retain(is_best);
            }
        }
        let Some(sensor) = found.pop() else { return Ok(None) };
        if !found.is_empty() {
            found.push(sensor);
            return Err(Error::Ambiguous(SensorPaths(found.into_iter().map(|sensor| sensor.path).collect())));
        }
        if sensor.is_silent() {
            self.silent.get_or_insert(sensor);
            return Ok(None);
        }
        Ok(Some(sensor))
    }
}

/// Whether a sensor measures temperature and is present. A sensor without a reading qualifies: it may have one at the
/// next poll.
fn is_candidate(sensor: &&Sensor) -> bool {
    sensor.is_present && sensor.is_temperature()
}
