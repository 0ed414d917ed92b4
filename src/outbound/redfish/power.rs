//! Measured power of a machine: polls the known reading, or searches for it.
//!
//! The power of a machine is that of its own chassis, and only if nothing else draws it: the chassis must not contain
//! other machines, and must not be a component. A reading that cannot be attributed to the machine for certain is only
//! named in the error, so that the user can choose it. Nothing is taken from the chassis around a machine: unlike its
//! air, its power is not that of the machine.

use super::document::{BmcDocument, BmcObject, SensorPath};
use super::names::{is_component, is_number, last, words};
use super::topology::Topology;
use super::walk::{Chassis, ChassisKind, RedfishSearch};
use super::{Error, Fetch, SensorPaths};
use crate::value::{MOST_NODE_WATTS, is_plain_name};

/// Maximum number of power supplies of a machine.
const SUPPLIES: usize = 16;

/// Maximum ratio of two readings of the same power that are taken one after the other.
const MOST_RATIO: f64 = 2.0;

/// Words in the name of a reading that is the power of a component.
const COMPONENTS: [&str; 47] = [
    "accelerator",
    "asic",
    "backplane",
    "bmc",
    "card",
    "cooling",
    "core",
    "cpu",
    "cpus",
    "dimm",
    "disk",
    "dpu",
    "dram",
    "drive",
    "fan",
    "fans",
    "fpga",
    "gpu",
    "gpus",
    "hdd",
    "hgx",
    "mem",
    "memory",
    "module",
    "nic",
    "nvme",
    "nvswitch",
    "ocp",
    "package",
    "pci",
    "pcie",
    "pkg",
    "proc",
    "processor",
    "ps",
    "psu",
    "psus",
    "pump",
    "riser",
    "slot",
    "soc",
    "ssd",
    "storage",
    "sub",
    "subsystem",
    "supply",
    "switch",
];

/// Maximum ratio of the power of a machine and the sum of what its supplies draw.
const MOST_LOSS: f64 = 1.25;

/// Context of the power that all supplies draw, or one of them.
const SUPPLY: &str = "powersupply";

/// Words in the name of a reading that is the power of a machine.
const MACHINE: [&str; 5] = ["chassis", "node", "server", "sys", "system"];

/// Contexts of a reading that is the power of the whole chassis.
const WHOLE: [&str; 5] = ["acinput", "chassis", "powersubsystem", "system", "systemboard"];

/// Power, and where it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct MachinePower {
    pub watts: f64,
    pub sensor: SensorPath,
}

/// Reads the power that the machine draws. `known`: the place from an earlier result; as long as it exists, it is read
/// without a search. `wanted`: path of the reading, if the user names one.
pub async fn power<F: Fetch>(
    fetch: &F,
    known: Option<&SensorPath>,
    wanted: Option<&str>,
) -> Result<MachinePower, Error> {
    let mut walk = RedfishSearch::new(fetch);
    if let Some(wanted) = wanted {
        let path = wanted.parse().map_err(|_| Error::SensorNotFound)?;
        return poll(&mut walk, &path).await?.ok_or(Error::SensorNotFound)?.power();
    }
    if let Some(known) = known
        && let Some(reading) = poll(&mut walk, known).await?
    {
        return reading.power();
    }
    let topology = Topology::read(&mut walk).await?;
    PowerSearch { walk, topology, likely: Vec::new() }.run().await
}

/// State of a reading.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PowerState {
    Watts(f64),
    /// No number, or zero: a machine that runs draws power.
    Silent,
    OutOfRange,
    /// Another quantity or unit.
    NoPower,
}

/// Reading of power.
#[derive(Clone, Debug, PartialEq)]
struct PowerReading {
    path: SensorPath,
    state: PowerState,
}

impl PowerReading {
    fn new(path: SensorPath, watts: Option<f64>) -> Self {
        let state = match watts {
            Some(watts) if watts > MOST_NODE_WATTS => PowerState::OutOfRange,
            Some(watts) if watts > 0.0 => PowerState::Watts(watts),
            _ => PowerState::Silent,
        };
        Self { path, state }
    }

    fn watts(&self) -> Option<f64> {
        match self.state {
            PowerState::Watts(watts) => Some(watts),
            PowerState::Silent | PowerState::OutOfRange | PowerState::NoPower => None,
        }
    }

    fn power(self) -> Result<MachinePower, Error> {
        match self.state {
            PowerState::Watts(watts) => Ok(MachinePower { watts, sensor: self.path }),
            PowerState::Silent => Err(Error::NoReading(self.path)),
            PowerState::OutOfRange => Err(Error::Watts(self.path)),
            PowerState::NoPower => Err(Error::NoPowerReading(self.path)),
        }
    }

    /// Reading in a resource EnvironmentMetrics. None if the resource has none.
    fn environment(document: &BmcDocument, resource: &str) -> Option<Self> {
        let object = document.object();
        let reading = || object.object("PowerWatts")?.number("Reading");
        object.has("PowerWatts").then(|| Self::new(SensorPath::resource(resource), reading()))
    }

    /// Reading of a sensor that the user names.
    fn sensor(object: BmcObject<'_>, path: SensorPath) -> Self {
        let is = |name: &str, wanted: &str| object.text(name).is_none_or(|text| text.eq_ignore_ascii_case(wanted));
        if !is("ReadingType", "Power") || !is("ReadingBasis", "Zero") {
            return Self { path, state: PowerState::NoPower };
        }
        // Units of UCUM distinguish mW from MW.
        let factor = match object.text("ReadingUnits").as_deref().map(str::trim) {
            Some("W" | "Watts" | "watts" | "Watt") => 1.0,
            Some("kW") => 1e3,
            Some("mW") => 1e-3,
            None if object.text("ReadingType").is_some() => 1.0,
            _ => return Self { path, state: PowerState::NoPower },
        };
        Self::new(path, object.number("Reading").map(|reading| reading * factor))
    }
}

/// Power that the supplies in a resource Power draw.
struct SupplyInput {
    watts: f64,
    /// Every supply has a reading.
    is_whole: bool,
}

impl SupplyInput {
    fn new(document: &BmcDocument) -> Self {
        let all = document.object().objects("PowerSupplies");
        let all: Vec<Option<f64>> = all
            .into_iter()
            .filter(|supply| !is_absent(*supply))
            .map(|supply| supply.number("PowerInputWatts").filter(|watts| *watts >= 0.0))
            .collect();
        Self { watts: all.iter().flatten().sum(), is_whole: all.iter().all(Option::is_some) }
    }

    /// Whether the supplies draw about this power.
    fn confirms(&self, watts: f64) -> bool {
        self.watts.max(watts) <= MOST_LOSS * self.watts.min(watts)
    }
}

/// Entry of the list PowerControl in a resource Power.
struct PowerControl {
    reading: PowerReading,
    /// Whether its name, its context or its related items say that it is the power of something else.
    is_other: bool,
    /// Whether its related items name the chassis or its system.
    is_own: bool,
}

impl PowerControl {
    /// Parses the entries. `own`: paths of the chassis and its systems. Each entry gets a path by which it is found
    /// again. An entry may refer to parts of the system, or have the context of a supply, although it is the whole: it
    /// is, if the supplies draw as much.
    fn list(document: &BmcDocument, resource: &str, own: &[String]) -> Vec<Self> {
        let all = document.object().objects("PowerControl");
        let name = |object: BmcObject<'_>| object.word("Name").filter(|name| is_plain_name(name));
        let input = SupplyInput::new(document);
        let is_part = |path: &String| {
            own.iter().any(|own| path.strip_prefix(own.as_str()).is_some_and(|rest| rest.starts_with('/')))
        };
        let parse = |(nth, object): (usize, BmcObject<'_>)| {
            let same = |other: &&BmcObject<'_>| name(**other) == name(object);
            let unique = name(object).filter(|_| all.iter().filter(same).count() == 1);
            let member = unique.unwrap_or_else(|| format!("/PowerControl/{nth}"));
            let context = object.text("PhysicalContext").map(|context| context.to_ascii_lowercase());
            let related: Vec<String> = object.objects("RelatedItem").into_iter().filter_map(BmcObject::id).collect();
            let is_own = related.iter().any(|path| own.contains(path));
            let reading = PowerReading::new(SensorPath::member(resource, member), object.number("PowerConsumedWatts"));
            let is_confirmed = reading.watts().is_some_and(|watts| input.confirms(watts));
            let is_elsewhere = context.is_some_and(|context| {
                let is_supply = context == SUPPLY && is_confirmed && input.is_whole;
                !is_supply && !WHOLE.contains(&context.as_str())
            });
            let title = object.text("Name").unwrap_or_default();
            let is_by_parts = is_confirmed && is_of_machine(&title) && related.iter().all(is_part);
            let is_foreign = !related.is_empty() && !is_own && !is_by_parts;
            let is_component = is_of_component(&title);
            Self { reading, is_other: is_component || is_elsewhere || is_foreign || is_absent(object), is_own }
        };
        all.iter().copied().enumerate().map(parse).collect()
    }

    /// Entry with this name, id or JSON pointer.
    fn named(document: &BmcDocument, path: &SensorPath) -> Option<PowerReading> {
        let member = path.of_member()?;
        let object = document.object();
        let found = if member.starts_with('/') {
            object.pointer(member)?
        } else {
            let is =
                |one: &BmcObject<'_>| ["Name", "MemberId"].iter().any(|id| one.word(id).as_deref() == Some(member));
            let all = object.objects("PowerControl");
            let mut same = all.into_iter().filter(is);
            same.next().filter(|_| same.next().is_none())?
        };
        (!is_absent(found)).then(|| PowerReading::new(path.clone(), found.number("PowerConsumedWatts")))
    }
}

fn is_absent(object: BmcObject<'_>) -> bool {
    let state = object.object("Status").and_then(|status| status.text("State"));
    state.is_some_and(|state| ["Absent", "Disabled"].iter().any(|off| state.eq_ignore_ascii_case(off)))
}

fn is_of_component(name: &str) -> bool {
    // `CPU1` and `PSU 2` are words and numbers.
    words(name).iter().any(|word| !is_number(word) && COMPONENTS.contains(&word.as_str()))
}

/// Whether a name says that it is the power of a machine.
fn is_of_machine(name: &str) -> bool {
    words(name).iter().any(|word| MACHINE.contains(&word.as_str()))
}

/// Whether the last segment of a path suggests a sensor with the power of the whole machine.
fn is_hint(path: &str) -> bool {
    let words = words(last(path));
    words.iter().any(|word| ["power", "pwr", "watts"].contains(&word.as_str())) && !is_of_component(last(path))
}

/// Reads what is at this path. None if it does not exist.
async fn poll<F: Fetch>(walk: &mut RedfishSearch<'_, F>, path: &SensorPath) -> Result<Option<PowerReading>, Error> {
    let Some(document) = walk.known(path.of_resource()).await? else { return Ok(None) };
    let object = document.object();
    if object.has("PowerControl") {
        return Ok(PowerControl::named(&document, path));
    }
    if path.of_member().is_some() {
        return Ok(None);
    }
    if object.has("PowerWatts") {
        return Ok(PowerReading::environment(&document, path.of_resource()));
    }
    if object.has("Members") {
        let is_whole = !object.has("Members@odata.nextLink");
        let members = object.objects("Members").into_iter().filter_map(BmcObject::id).collect();
        drop(document);
        return if is_whole { supplies(walk, path, members).await } else { Ok(None) };
    }
    let is_sensor = ["Reading", "ReadingType"].iter().any(|name| object.has(name));
    Ok((is_sensor && !is_absent(object)).then(|| PowerReading::sensor(object, path.clone())))
}

/// Sum of the input power of all supplies of a collection. None if it has none. Silent if one of them has no reading,
/// since the rest would be less than the power of the machine.
async fn supplies<F: Fetch>(
    walk: &mut RedfishSearch<'_, F>,
    collection: &SensorPath,
    members: Vec<String>,
) -> Result<Option<PowerReading>, Error> {
    if members.len() > SUPPLIES {
        return Ok(Some(PowerReading::new(collection.clone(), None)));
    }
    let (mut sum, mut count, mut is_silent) = (0.0, 0, false);
    for member in members {
        let Some(supply) = walk.linked(&member).await? else {
            is_silent = true;
            continue;
        };
        if is_absent(supply.object()) {
            continue;
        }
        count += 1;
        let metrics = match supply.object().link("Metrics") {
            Some(metrics) => walk.linked(&metrics).await?,
            None => None,
        };
        let input = metrics.and_then(|metrics| metrics.object().object("InputPowerWatts")?.number("Reading"));
        // A supply on standby draws nothing.
        match input.filter(|watts| *watts >= 0.0) {
            Some(watts) => sum += watts,
            None => is_silent = true,
        }
    }
    let sum = Some(sum).filter(|_| !is_silent);
    Ok((count > 0 || is_silent).then(|| PowerReading::new(collection.clone(), sum)))
}

/// Search for the power of the machine.
struct PowerSearch<'a, F> {
    walk: RedfishSearch<'a, F>,
    topology: Topology,
    /// Readings that the user may mean.
    likely: Vec<SensorPath>,
}

impl<F: Fetch> PowerSearch<'_, F> {
    async fn run(mut self) -> Result<MachinePower, Error> {
        let (own, is_attributed) = self.own().await?;
        if self.topology.is_unsure || self.walk.unread.is_some() {
            self.look_around().await?;
            return Err(self.question());
        }
        let mut found = Vec::new();
        for chassis in &own {
            found.extend(self.of_chassis(chassis).await?);
        }
        // The part that could not be read may contradict the others.
        let is_read = self.walk.unread.is_none() || own.len() == 1;
        if !is_attributed || !is_read || !own.iter().all(|chassis| self.is_alone(chassis)) {
            self.likely.extend(found.into_iter().map(|reading| reading.path));
            return Err(self.question());
        }
        let is_with_reading = found.iter().any(|reading| reading.watts().is_some());
        found.retain(|reading| reading.watts().is_some() || !is_with_reading);
        match found.len() {
            0 => {
                self.hint(&own).await?;
                if self.likely.is_empty() {
                    self.look_around().await?;
                }
                Err(self.question())
            }
            1 => found.remove(0).power(),
            _ => Err(Error::Ambiguous(SensorPaths(found.into_iter().map(|reading| reading.path).collect()))),
        }
    }

    /// Chassis of the machine, without components, and whether they are its own for certain. If the service has several
    /// machines, the chassis of all of them.
    async fn own(&mut self) -> Result<(Vec<Chassis>, bool), Error> {
        let mut own = self.topology.own(&mut self.walk).await?;
        let mut is_attributed = !self.topology.is_shared();
        if self.topology.is_shared() {
            own.extend(self.topology.siblings(&mut self.walk).await?);
        } else if !self.topology.is_linked() {
            let all = self.topology.others(&mut self.walk).await?;
            own = all.iter().filter(|one| self.topology.is_related(one)).cloned().collect();
            if own.is_empty() {
                own = all.into_iter().filter(|one| one.kind == ChassisKind::Machine).collect();
                is_attributed = own.len() == 1;
            }
        }
        own.retain(|chassis| chassis.kind != ChassisKind::Part);
        if own.is_empty() && !self.topology.is_shared() {
            // The system refers to its components only.
            self.topology.others(&mut self.walk).await?;
            own = self.topology.known().iter().filter(|one| self.topology.is_related(one)).cloned().collect();
        }
        Ok((own, is_attributed))
    }

    /// Whether the chassis contains no other machine.
    fn is_alone(&self, chassis: &Chassis) -> bool {
        let others = chassis.systems.iter().filter(|path| !is_component(path) && !self.topology.has_system(path));
        others.count() == 0 && !chassis.is_container
    }

    /// Readings of the power of one chassis. Several cannot be told apart.
    async fn of_chassis(&mut self, chassis: &Chassis) -> Result<Vec<PowerReading>, Error> {
        let environment = self.environment(chassis).await?;
        let controls = match &chassis.power {
            Some(path) => {
                let own: Vec<String> = self.topology.system_paths().chain([chassis.path.clone()]).collect();
                let document = self.walk.linked(path).await?;
                document.map(|document| PowerControl::list(&document, path, &own)).unwrap_or_default()
            }
            None => Vec::new(),
        };
        self.likely
            .extend(environment.iter().chain(controls.iter().map(|one| &one.reading)).map(|one| one.path.clone()));
        let controls = whole(controls);
        if let (Some(environment), [control]) = (&environment, controls.as_slice())
            && let (Some(one), Some(other)) = (environment.watts(), control.watts())
        {
            let agree = one.max(other) <= MOST_RATIO * one.min(other);
            return Ok(if agree { vec![environment.clone()] } else { vec![environment.clone(), control.clone()] });
        }
        if let Some(environment) = environment.clone().filter(|reading| reading.watts().is_some()) {
            return Ok(vec![environment]);
        }
        if controls.iter().any(|reading| reading.watts().is_some()) {
            return Ok(controls);
        }
        let supplies = self.supplies(chassis).await?;
        let supplies = supplies.filter(|supplies| supplies.watts().is_some());
        Ok(supplies.or(environment).map_or(controls, |reading| vec![reading]))
    }

    /// Reading in the EnvironmentMetrics of a chassis, unless its source is the sensor of a component.
    async fn environment(&mut self, chassis: &Chassis) -> Result<Option<PowerReading>, Error> {
        let Some(path) = &chassis.environment else { return Ok(None) };
        let Some(document) = self.walk.linked(path).await? else { return Ok(None) };
        let reading = PowerReading::environment(&document, path);
        let source = document.object().object("PowerWatts").and_then(|watts| watts.text("DataSourceUri"));
        if source.is_some_and(|source| is_of_component(last(&source))) {
            self.likely.extend(reading.map(|reading| reading.path));
            return Ok(None);
        }
        Ok(reading)
    }

    /// Input power of the supplies of a chassis. Supplies of a blade or sled are outside of it.
    async fn supplies(&mut self, chassis: &Chassis) -> Result<Option<PowerReading>, Error> {
        let Some(path) = chassis.power_subsystem.as_ref().filter(|_| chassis.kind == ChassisKind::Machine) else {
            return Ok(None);
        };
        let subsystem = self.walk.linked(path).await?;
        let Some(collection) = subsystem.and_then(|subsystem| subsystem.object().link("PowerSupplies")) else {
            return Ok(None);
        };
        let members = self.walk.members(&collection).await?;
        let reading = supplies(&mut self.walk, &SensorPath::resource(&collection), members).await?;
        self.likely.extend(reading.iter().map(|reading| reading.path.clone()));
        Ok(reading)
    }

    /// Adds readings of chassis that are not those of the machine for certain.
    async fn look_around(&mut self) -> Result<(), Error> {
        if self.walk.unread.is_none() {
            self.topology.others(&mut self.walk).await?;
        }
        let all: Vec<Chassis> = self.topology.known().to_vec();
        for chassis in all.iter().filter(|chassis| chassis.kind != ChassisKind::Part) {
            // The answer is then what could not be read.
            if self.walk.unread.is_some() {
                break;
            }
            self.of_chassis(chassis).await?;
        }
        Ok(())
    }

    /// Adds sensors whose names suggest the power of the machine.
    async fn hint(&mut self, own: &[Chassis]) -> Result<(), Error> {
        for path in own.iter().filter_map(|chassis| chassis.sensors.as_ref()) {
            let members = self.walk.members(path).await?;
            self.likely.extend(members.iter().filter(|path| is_hint(path)).map(|path| SensorPath::resource(path)));
        }
        Ok(())
    }

    /// Why no reading is chosen.
    fn question(&mut self) -> Error {
        self.walk.undecided(std::mem::take(&mut self.likely), Error::NoPower)
    }
}

/// Entries that may be the power of the whole chassis. If one of them names the chassis or its system, the others are
/// parts of it.
fn whole(controls: Vec<PowerControl>) -> Vec<PowerReading> {
    let mut whole: Vec<PowerControl> = controls.into_iter().filter(|one| !one.is_other).collect();
    if whole.len() > 1 && whole.iter().any(|one| one.is_own) {
        whole.retain(|one| one.is_own);
    }
    whole.into_iter().map(|one| one.reading).collect()
}
