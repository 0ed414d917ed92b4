//! Chassis of the machine: those that its system refers to, those that refer to its system, and those around it.
//!
//! A service may have several systems. Accelerators are parts of the machine. If there are several machines, a chassis
//! belongs to the machine in question only if it belongs to all of them, since nothing says which one is meant.

use std::collections::BTreeSet;

use super::document::BmcObject;
use super::names::is_component;
use super::walk::{Chassis, ChassisKind, RedfishSearch};
use super::{Error, Fetch};

/// Maximum number of systems of a service, and of chassis of a search.
const SYSTEMS: usize = 8;
const CHASSIS: usize = 64;

/// Maximum number of nested chassis.
const DEPTH: usize = 4;

/// System of a service.
struct ComputerSystem {
    path: String,
    /// Paths of its chassis.
    chassis: Vec<String>,
}

/// Chassis of a service, read as far as they are needed.
#[derive(Default)]
pub(super) struct Topology {
    systems: Vec<ComputerSystem>,
    /// Collection of all chassis.
    all: Option<String>,
    /// The service has a collection of systems that contains none.
    pub is_empty: bool,
    /// A system could not be read, so it is not known whose chassis the others are.
    pub is_unsure: bool,
    read: Vec<Chassis>,
    /// Paths of the chassis of the machine.
    own: Vec<String>,
    visited: BTreeSet<String>,
}

impl Topology {
    /// Reads the systems of a service.
    pub(super) async fn read<F: Fetch>(walk: &mut RedfishSearch<'_, F>) -> Result<Self, Error> {
        let root = walk.root().await?.ok_or(Error::NoService)?;
        let link = |name| root.object().link(name);
        let (systems, all) = (link("Systems"), link("Chassis"));
        drop(root);
        let mut topology = Self { all, ..Self::default() };
        let Some(systems) = systems else { return Ok(topology) };
        let mut members = walk.members(&systems).await?;
        topology.is_empty = members.is_empty();
        topology.is_unsure = walk.unread.is_some() || walk.is_missing;
        if members.iter().any(|path| !is_component(path)) {
            members.retain(|path| !is_component(path));
        }
        walk.is_cut |= members.len() > SYSTEMS;
        members.truncate(SYSTEMS);
        let is_alone = members.len() == 1;
        for path in members {
            let Some(system) = walk.linked(&path).await? else {
                topology.is_unsure = true;
                continue;
            };
            let is_type = |type_: &str| system.object().text("SystemType").is_some_and(|text| text == type_);
            if !is_alone && ["DPU", "Virtual", "OS", "Composed"].into_iter().any(is_type) {
                continue;
            }
            let links = system.object().object("Links");
            let chassis = links.into_iter().flat_map(|links| links.objects("Chassis"));
            let chassis = chassis.filter_map(BmcObject::id).collect();
            topology.systems.push(ComputerSystem { path, chassis });
        }
        Ok(topology)
    }

    /// Whether the service has several machines.
    pub(super) fn is_shared(&self) -> bool {
        self.systems.len() > 1
    }

    /// Whether a system refers to its chassis.
    pub(super) fn is_linked(&self) -> bool {
        self.systems.iter().any(|system| !system.chassis.is_empty())
    }

    /// Reads the chassis that every system refers to. Components are left out unless there is nothing else.
    pub(super) async fn own<F: Fetch>(&mut self, walk: &mut RedfishSearch<'_, F>) -> Result<Vec<Chassis>, Error> {
        let (first, others) = self.systems.split_first().map_or((None, &[][..]), |(first, rest)| (Some(first), rest));
        let is_common = |path: &&String| others.iter().all(|system| system.chassis.contains(path));
        let paths = first.map(|first| first.chassis.iter().filter(is_common).cloned().collect()).unwrap_or_default();
        let all = self.chassis(walk, paths).await?;
        let machines: Vec<Chassis> = all.iter().filter(|one| one.kind != ChassisKind::Part).cloned().collect();
        let own = if machines.is_empty() { all } else { machines };
        self.own = own.iter().map(|one| one.path.clone()).collect();
        Ok(own)
    }

    /// Reads the chassis that only some of the systems refer to, and the components.
    pub(super) async fn siblings<F: Fetch>(&mut self, walk: &mut RedfishSearch<'_, F>) -> Result<Vec<Chassis>, Error> {
        let paths = self.systems.iter().flat_map(|system| system.chassis.iter().cloned()).collect();
        self.chassis(walk, paths).await?;
        Ok(self.read.iter().filter(|one| !self.own.contains(&one.path)).cloned().collect())
    }

    /// Reads the chassis around those of every system, nearest first.
    pub(super) async fn around<F: Fetch>(&mut self, walk: &mut RedfishSearch<'_, F>) -> Result<Vec<Chassis>, Error> {
        let mut around: Vec<Chassis> = Vec::new();
        let mut inner: Vec<Vec<String>> = self.systems.iter().map(|system| system.chassis.clone()).collect();
        for _ in 0..DEPTH {
            inner = inner.iter().map(|paths| self.containers(paths)).collect();
            let all: Vec<String> = inner.iter().flatten().cloned().collect();
            self.chassis(walk, all).await?;
            let (first, others) = inner.split_first().map_or((&[][..], &[][..]), |(first, rest)| (&first[..], rest));
            let is_common = |path: &&String| others.iter().all(|paths| paths.contains(path));
            let common: Vec<&String> = first.iter().filter(is_common).collect();
            let is_new = |one: &&Chassis| common.contains(&&one.path) && !around.iter().any(|old| old.path == one.path);
            let new: Vec<Chassis> = self.read.iter().filter(is_new).cloned().collect();
            around.extend(new.into_iter().filter(|one| one.kind != ChassisKind::Part && !self.own.contains(&one.path)));
        }
        Ok(around)
    }

    /// Reads all other chassis.
    pub(super) async fn others<F: Fetch>(&mut self, walk: &mut RedfishSearch<'_, F>) -> Result<Vec<Chassis>, Error> {
        let Some(all) = self.all.clone() else { return Ok(Vec::new()) };
        let paths = walk.members(&all).await?;
        self.chassis(walk, paths).await
    }

    /// Whether the chassis is or contains a part of the only machine, although its system does not refer to it.
    pub(super) fn is_related(&self, chassis: &Chassis) -> bool {
        let is_in = |system: &ComputerSystem| chassis.systems.contains(&system.path);
        chassis.kind != ChassisKind::Part && !self.is_shared() && self.systems.iter().any(is_in)
    }

    /// All chassis that were read.
    pub(super) fn known(&self) -> &[Chassis] {
        &self.read
    }

    /// Whether this is the path of one of the systems.
    pub(super) fn has_system(&self, path: &str) -> bool {
        self.systems.iter().any(|system| system.path == path)
    }

    /// Paths of the systems.
    pub(super) fn system_paths(&self) -> impl Iterator<Item = String> + '_ {
        self.systems.iter().map(|system| system.path.clone())
    }

    fn containers(&self, paths: &[String]) -> Vec<String> {
        let inner = self.read.iter().filter(|chassis| paths.contains(&chassis.path));
        inner.flat_map(|chassis| chassis.contained_by.iter().cloned()).collect()
    }

    /// Reads the chassis at these paths that were not read before, those of components last.
    async fn chassis<F: Fetch>(
        &mut self,
        walk: &mut RedfishSearch<'_, F>,
        mut paths: Vec<String>,
    ) -> Result<Vec<Chassis>, Error> {
        paths.sort_by_key(|path| is_component(path));
        let mut read = Vec::new();
        for path in paths {
            if self.visited.contains(&path) {
                continue;
            }
            if self.visited.len() == CHASSIS {
                walk.is_cut = true;
                break;
            }
            self.visited.insert(path.clone());
            let Some(document) = walk.linked(&path).await? else { continue };
            read.push(Chassis::parse(document.object(), path));
        }
        self.read.extend(read.iter().cloned());
        Ok(read)
    }
}
