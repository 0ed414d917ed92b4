//! Intake temperature: polls the known sensor, or searches for the sensor.
//!
//! The search begins with the chassis of the machine itself. If nothing in them speaks for any sensor, and everything
//! was read, the chassis around them follow: a blade has its intake at the enclosure. Sensors of other machines and of
//! components are only named in the error.

use super::document::SensorPath;
use super::evidence::{Candidate, ChosenSensor, SensorVerdict, weigh};
use super::sensor::Sensor;
use super::topology::Topology;
use super::walk::{Chassis, ChassisKind, RedfishSearch};
use super::{Error, Fetch, SensorPaths};

/// Temperature, and the sensor from which it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Inlet {
    /// Degrees Celsius.
    pub celsius: f64,
    pub sensor: SensorPath,
    /// Why a search chose this sensor. None: the sensor was known, or the user named it.
    pub choice: Option<SensorSearch>,
}

/// Result of a search for the sensor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SensorSearch {
    /// Evidence for the sensor.
    pub evidence: String,
    /// The next best sensor, with the evidence for it.
    pub runner_up: Option<String>,
    /// Why another sensor may be found later, so that the search is repeated.
    pub provisional: Option<&'static str>,
}

/// Reads the temperature of the air that the machine takes in. `known`: the sensor from an earlier result for the same
/// `wanted`; as long as it exists, one request reads it. `wanted`: path, Name or Id of the sensor, if the user names
/// one.
pub async fn inlet<F: Fetch>(fetch: &F, known: Option<&SensorPath>, wanted: Option<&str>) -> Result<Inlet, Error> {
    if let Some(path) = wanted.filter(|wanted| wanted.starts_with('/')) {
        let path = path.parse().map_err(|_| Error::SensorNotFound)?;
        let sensor = poll(fetch, &path).await?.filter(|sensor| sensor.is_present);
        return sensor.ok_or(Error::SensorNotFound).and_then(|sensor| read(&sensor, None));
    }
    if let Some(known) = known {
        let sensor = poll(fetch, known).await?.filter(|sensor| sensor.is_present && sensor.is_temperature());
        if let Some(sensor) = sensor.filter(|sensor| wanted.is_none_or(|wanted| sensor.is(wanted))) {
            return read(&sensor, None);
        }
    }
    let mut walk = RedfishSearch::new(fetch);
    let topology = Topology::read(&mut walk).await?;
    match wanted {
        Some(wanted) => read(&named(walk, topology, wanted).await?, None),
        None => InletSearch { walk, topology, likely: Vec::new(), possible: Vec::new() }.run().await,
    }
}

/// Reads the sensor at this path. None if it does not exist.
async fn poll<F: Fetch>(fetch: &F, path: &SensorPath) -> Result<Option<Sensor>, Error> {
    let document = RedfishSearch::new(fetch).known(path.of_resource()).await?;
    Ok(document.and_then(|document| Sensor::at(&document, path)))
}

fn read(sensor: &Sensor, choice: Option<SensorSearch>) -> Result<Inlet, Error> {
    Ok(Inlet { celsius: sensor.celsius()?, sensor: sensor.path.clone(), choice })
}

/// Finds the sensor with this Name or Id: in the chassis of the machine, otherwise in any chassis.
async fn named<F: Fetch>(
    mut walk: RedfishSearch<'_, F>,
    mut topology: Topology,
    wanted: &str,
) -> Result<Sensor, Error> {
    for group in [ChassisGroup::Own, ChassisGroup::Siblings, ChassisGroup::Around, ChassisGroup::Others] {
        let mut found: Vec<Sensor> = Vec::new();
        for chassis in group.read(&mut topology, &mut walk).await? {
            found.extend(chassis.named(&mut walk, wanted).await?.into_iter().filter(|sensor| sensor.is_present));
        }
        found.dedup_by(|one, other| one.path == other.path);
        match found.pop() {
            Some(sensor) if found.is_empty() => return Ok(sensor),
            Some(sensor) => {
                let paths = found.into_iter().chain([sensor]).map(|sensor| sensor.path);
                return Err(Error::Ambiguous(SensorPaths(paths.collect())));
            }
            None => {}
        }
    }
    Err(walk.undecided(Vec::new(), |_| Error::SensorNotFound))
}

/// Chassis that are searched together.
#[derive(Clone, Copy)]
enum ChassisGroup {
    Own,
    Siblings,
    Around,
    Others,
}

impl ChassisGroup {
    async fn read<F: Fetch>(
        self,
        topology: &mut Topology,
        walk: &mut RedfishSearch<'_, F>,
    ) -> Result<Vec<Chassis>, Error> {
        match self {
            Self::Own => topology.own(walk).await,
            Self::Siblings => topology.siblings(walk).await,
            Self::Around => topology.around(walk).await,
            Self::Others => topology.others(walk).await,
        }
    }
}

/// Search for the sensor of the intake air.
struct InletSearch<'a, F> {
    walk: RedfishSearch<'a, F>,
    topology: Topology,
    /// Sensors that the user may mean.
    likely: Vec<SensorPath>,
    /// Sensors of the machine that the user may mean if there is no likely one.
    possible: Vec<SensorPath>,
}

impl<F: Fetch> InletSearch<'_, F> {
    async fn run(mut self) -> Result<Inlet, Error> {
        let own = self.topology.own(&mut self.walk).await?;
        if self.topology.is_unsure {
            self.ask(&own).await?;
            if self.walk.unread.is_none() {
                let others = self.topology.others(&mut self.walk).await?;
                self.ask(&others).await?;
            }
            return Err(self.question());
        }
        if let Some(inlet) = self.choose(&own, None).await? {
            return Ok(inlet);
        }
        // The machine itself, a sibling or a part of either may have the sensor.
        let siblings = self.topology.siblings(&mut self.walk).await?;
        if self.ask(&siblings).await? && self.topology.is_shared() {
            return Err(self.question());
        }
        let around = self.topology.around(&mut self.walk).await?;
        let others = self.topology.others(&mut self.walk).await?;
        let (related, others): (Vec<Chassis>, Vec<Chassis>) =
            others.into_iter().partition(|chassis| self.topology.is_related(chassis));
        let (outer, inner): (Vec<Chassis>, Vec<Chassis>) =
            related.iter().cloned().partition(|chassis| chassis.is_container);
        let why = "no chassis of the machine itself has an intake sensor";
        for (group, fallback) in [(inner, None), (outer, Some(why))] {
            // While a part of the machine cannot be read, its sensor may be there.
            if self.walk.is_complete()
                && let Some(inlet) = self.choose(&group, fallback).await?
            {
                return Ok(inlet);
            }
        }
        let fallback = match self.topology.is_linked() {
            true => around,
            false => others.iter().filter(|chassis| chassis.kind == ChassisKind::Machine).cloned().collect(),
        };
        let is_whole = !self.topology.is_empty || fallback.len() == 1;
        if self.walk.is_complete() && is_whole {
            for group in groups(&fallback, self.topology.is_linked()) {
                if let Some(inlet) = self.choose(group, Some(why)).await? {
                    return Ok(inlet);
                }
            }
        }
        if self.walk.unread.is_none() {
            for group in [&related, &fallback, &others] {
                self.ask(group).await?;
            }
        }
        Err(self.question())
    }

    /// Chooses the sensor among these chassis. `fallback`: why they are searched although they are not the machine's.
    /// None if nothing speaks for any of their sensors.
    async fn choose(&mut self, group: &[Chassis], fallback: Option<&'static str>) -> Result<Option<Inlet>, Error> {
        let mut all = Vec::new();
        for chassis in group {
            all.extend(chassis.read(&mut self.walk).await?);
        }
        self.likely.extend(all.iter().filter(|one| one.is_likely()).map(|one| one.sensor.path.clone()));
        if fallback.is_none() {
            self.possible.extend(all.iter().filter(|one| one.is_possible()).map(|one| one.sensor.path.clone()));
        }
        // An absent sensor may be that of the machine, if nothing says which chassis is the machine's.
        if !self.topology.is_linked() && all.iter().any(|one| one.is_claimed() && !one.sensor.is_present) {
            return Err(self.question());
        }
        match weigh(&all) {
            SensorVerdict::Nothing => Ok(None),
            SensorVerdict::Ambiguous(paths) => Err(Error::Ambiguous(paths)),
            SensorVerdict::Unusable => Err(self.question()),
            SensorVerdict::Chosen(chosen)
                if self.walk.is_complete() || fallback.is_none() && chosen.best.is_certain() =>
            {
                let provisional = match (&self.walk.unread, chosen.is_better_absent) {
                    (Some(_), _) => Some("a part of the machine could not be read"),
                    (None, true) => Some("a better sensor is absent"),
                    (None, false) => fallback,
                };
                let ChosenSensor { best, runner_up, .. } = *chosen;
                let describe = |candidate: &Candidate| format!("{}: {candidate}", candidate.sensor.path);
                let (evidence, runner_up) = (best.to_string(), runner_up.as_ref().map(describe));
                read(&best.sensor, Some(SensorSearch { evidence, runner_up, provisional })).map(Some)
            }
            SensorVerdict::Chosen(_) => Err(self.question()),
        }
    }

    /// Adds the sensors of these chassis that the user may mean. Returns whether there are any.
    async fn ask(&mut self, group: &[Chassis]) -> Result<bool, Error> {
        let before = self.likely.len();
        for chassis in group {
            let all = chassis.read(&mut self.walk).await?;
            self.likely.extend(all.iter().filter(|one| one.is_likely()).map(|one| one.sensor.path.clone()));
        }
        Ok(self.likely.len() > before)
    }

    /// Why no sensor is chosen.
    fn question(&mut self) -> Error {
        let (likely, possible) = (std::mem::take(&mut self.likely), std::mem::take(&mut self.possible));
        self.walk.undecided(if likely.is_empty() { possible } else { likely }, Error::NoIntake)
    }
}

/// Chassis around a machine are searched one by one, nearest first; others together.
fn groups(chassis: &[Chassis], is_ordered: bool) -> impl Iterator<Item = &[Chassis]> {
    chassis.chunks(if is_ordered { 1 } else { chassis.len().max(1) })
}
