//! The jobs of a pool: from its spec and from source ConfigMaps, which are parsed once per version.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;

use super::file::{JobKind, Published};
use super::jobs::{self, JobTable};
use super::room::{self, JobRoom};
use super::{Job, PoolProblem};
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_api::swarm_pool::{InlineJob, JobQos, SwarmPool};
use ganglion_core::facts::Identity;

/// Maximum number of source ConfigMaps per pool.
const MAX_SOURCES: usize = 1000;

/// Maximum number of jobs per pool.
const MAX_JOBS: usize = 1_000_000;

/// Source ConfigMaps in the cache, by name; None if a ConfigMap of the spec does not exist, or if it is unknown whether
/// the selector of the spec matches, because the labels are not kept.
pub type ObservedSources = BTreeMap<String, Option<Identity>>;

/// A parsed source ConfigMap.
pub struct ParsedSource {
    id: Identity,
    jobs: Result<Arc<[Job]>, SourceFault>,
    /// Estimate of the memory that the jobs occupy, in bytes.
    bytes: usize,
}

/// Reason why the jobs of a source are unknown.
enum SourceFault {
    /// The ConfigMap has no key. A list without jobs is a key with an empty text.
    NoKey,
    Text(String),
    /// A key is in `binaryData`: kubectl and others put a file there that is not UTF-8.
    Binary {
        key: String,
        encoding: String,
    },
    /// The jobs need this many bytes, more than the namespace has left.
    NoRoom {
        wanted: usize,
        most: usize,
    },
}

impl fmt::Display for SourceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey => f.write_str("it has no key: add one, with an empty text if there are no jobs"),
            Self::Text(text) => f.write_str(text),
            Self::Binary { key, encoding } => {
                write!(f, "key {key}: it is in binaryData, {encoding}; save the jobs as UTF-8 text under data")
            }
            Self::NoRoom { wanted, most } => write!(
                f,
                "its jobs need {} KiB of memory, but the pools of a namespace may use {} KiB in all: remove jobs, or \
                 have a cluster administrator raise swarmPools.maxBytesPerNamespace in the operator's settings",
                wanted.div_ceil(1 << 10),
                most >> 10
            ),
        }
    }
}

impl ParsedSource {
    /// Parses all keys of a ConfigMap, if there is room for its jobs.
    pub fn parse(map: &ConfigMap, room: JobRoom) -> Self {
        let jobs = Self::jobs(map, room);
        let bytes = jobs.as_ref().map_or(0, |jobs| room::bytes(jobs));
        Self { id: (&map.metadata).into(), jobs, bytes }
    }

    fn jobs(map: &ConfigMap, room: JobRoom) -> Result<Arc<[Job]>, SourceFault> {
        if let Some((key, bytes)) = map.binary_data.iter().flatten().next() {
            return Err(SourceFault::Binary { key: key.clone(), encoding: encoding_of(&bytes.0) });
        }
        if map.data.as_ref().is_none_or(BTreeMap::is_empty) {
            return Err(SourceFault::NoKey);
        }
        let mut all = Vec::new();
        for (key, text) in map.data.iter().flatten() {
            let jobs = jobs::parse(text).map_err(|problem| SourceFault::Text(format!("key {key}: {problem}")))?;
            all.extend(jobs);
            let wanted = room::bytes(&all);
            if wanted > room.free {
                return Err(SourceFault::NoRoom { wanted, most: room.per_namespace });
            }
        }
        Ok(all.into())
    }

    /// Estimate of the memory that the jobs occupy, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The source without its jobs: another pool has occupied the memory meanwhile.
    #[must_use]
    pub fn without_room(self, room: JobRoom) -> Self {
        let jobs = Err(SourceFault::NoRoom { wanted: self.bytes, most: room.per_namespace });
        Self { jobs, bytes: 0, ..self }
    }

    /// Version of the jobs. A source may be read again in the same version.
    fn version(&self) -> (String, bool) {
        (self.id.version.clone(), self.jobs.is_ok())
    }

    /// Whether the source was not read for want of memory that is free now.
    fn has_room_now(&self, free: usize) -> bool {
        match &self.jobs {
            Err(SourceFault::NoRoom { wanted, .. }) => *wanted <= free,
            Err(SourceFault::NoKey | SourceFault::Text(_) | SourceFault::Binary { .. }) | Ok(_) => false,
        }
    }
}

/// First bytes of files in other encodings, the longest first.
const MAGIC: [(&[u8], &str); 7] = [
    (&[0xff, 0xfe, 0, 0], "as UTF-32"),
    (&[0, 0, 0xfe, 0xff], "as UTF-32"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "compressed with zstd"),
    (&[0xfd, b'7', b'z', b'X'], "compressed with xz"),
    (&[0xff, 0xfe], "as UTF-16"),
    (&[0xfe, 0xff], "as UTF-16"),
    (&[0x1f, 0x8b], "compressed with gzip"),
];

/// Describes the encoding of bytes in `binaryData`.
fn encoding_of(bytes: &[u8]) -> String {
    let known = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, name)| (*name).to_owned());
    known.unwrap_or_else(|| match std::str::from_utf8(bytes) {
        Ok(_) => "which is not read".to_owned(),
        Err(error) => format!("and is not UTF-8 at byte {}", error.valid_up_to()),
    })
}

/// Returns true if the object as read is this version or a newer one.
pub fn is_current(read: &Identity, cached: &Identity) -> bool {
    read.uid == cached.uid && (read.version == cached.version || read.order() > cached.order())
}

/// Inputs of the job table: the generation of the pool, the ConfigMaps with their versions and whether they were read,
/// and, if a source cannot be read, the version of the published lists, whose jobs are kept.
type TableKey = (Option<i64>, Vec<(String, (String, bool))>, Option<i64>);

/// Sources and their jobs, as last read.
#[derive(Default)]
pub struct SourceMemory {
    /// Parsed source ConfigMaps, by name.
    parsed: HashMap<String, ParsedSource>,
    /// All jobs of the pool, with the inputs that they were merged from.
    table: Option<(TableKey, Arc<JobTable>)>,
}

impl SourceMemory {
    /// Returns the problem of a pool with too many sources.
    pub fn check_count(observed: &ObservedSources) -> Result<(), PoolProblem> {
        if observed.len() <= MAX_SOURCES {
            return Ok(());
        }
        let message = format!("jobs.configMaps selects {} ConfigMaps; at most {MAX_SOURCES} are read", observed.len());
        Err(PoolProblem::new(PoolReason::SourceInvalid, message))
    }

    /// Drops ConfigMaps that no longer exist, and returns those that have to be read.
    pub fn unread(&mut self, observed: &ObservedSources, room: JobRoom) -> Vec<Identity> {
        let before = self.bytes();
        self.parsed.retain(|name, _| observed.get(name).is_some_and(Option::is_some));
        let free = room.free.saturating_add(before.saturating_sub(self.bytes()));
        let existing = observed.iter().filter_map(|(name, id)| Some((name, id.as_ref()?)));
        let is_read = |source: &ParsedSource, id: &Identity| is_current(&source.id, id) && !source.has_room_now(free);
        existing
            .filter(|(name, id)| self.parsed.get(*name).is_none_or(|source| !is_read(source, id)))
            .map(|(_, id)| id.clone())
            .collect()
    }

    /// Estimate of the memory that the jobs of all ConfigMaps occupy, in bytes.
    pub fn bytes(&self) -> usize {
        self.parsed.values().map(ParsedSource::bytes).fold(0, usize::saturating_add)
    }

    /// Whether a source was not read for want of memory.
    pub fn lacks_room(&self) -> bool {
        self.parsed.values().any(|source| matches!(source.jobs, Err(SourceFault::NoRoom { .. })))
    }

    /// Forgets a ConfigMap that is read again, so that its jobs do not occupy memory twice.
    pub fn remove(&mut self, name: &str) {
        self.parsed.remove(name);
    }

    /// Stores a ConfigMap that was read.
    pub fn insert(&mut self, source: ParsedSource) {
        self.parsed.insert(source.id.key.name.clone(), source);
    }

    /// Number of jobs in all ConfigMaps.
    pub fn job_count(&self) -> usize {
        self.parsed.values().filter_map(|source| source.jobs.as_ref().ok()).map(|jobs| jobs.len()).sum()
    }

    /// Problems of sources that do not exist or do not parse.
    fn problems(&self, observed: &ObservedSources) -> Vec<PoolProblem> {
        let mut problems = Vec::new();
        for name in observed.keys() {
            let Some(source) = self.parsed.get(name) else {
                let message = format!(
                    "ConfigMap {name} does not exist, or its labels are too long to compare them with the selector; \
                     assigned jobs stay with their workers"
                );
                problems.push(PoolProblem::new(PoolReason::SourceNotFound, message));
                continue;
            };
            if let Err(fault) = &source.jobs {
                let message = format!("ConfigMap {name}, {fault}; assigned jobs stay with their workers");
                let reason = match fault {
                    SourceFault::NoKey | SourceFault::Text(_) | SourceFault::Binary { .. } => PoolReason::SourceInvalid,
                    SourceFault::NoRoom { .. } => PoolReason::JobsTooMany,
                };
                problems.push(PoolProblem::new(reason, message));
            }
        }
        problems
    }

    /// Merges the jobs of all sources. If a source cannot be read, jobs that workers have are kept: they may come from
    /// it.
    pub fn merge(
        &mut self,
        pool: &SwarmPool,
        observed: &ObservedSources,
        published: &Published,
    ) -> (Arc<JobTable>, Vec<PoolProblem>) {
        let mut problems = self.problems(observed);
        let keeps_published = !problems.is_empty();
        let versions = observed.keys().filter_map(|name| Some((name.clone(), self.parsed.get(name)?.version())));
        let key = (pool.metadata.generation, versions.collect(), keeps_published.then_some(published.version));
        if let Some((last_key, table)) = &self.table
            && *last_key == key
        {
            return (Arc::clone(table), problems);
        }
        let inline = pool.spec.jobs.inline.iter().flatten().map(inline_job).collect();
        let mut sources = vec![("jobs.inline".to_owned(), inline)];
        for (name, source) in &self.parsed {
            if let Ok(jobs) = &source.jobs {
                sources.push((format!("ConfigMap {name}"), jobs.to_vec()));
            }
        }
        let mut table = jobs::merge(sources);
        if keeps_published {
            self.keep_published(&mut table, published);
        }
        if table.jobs.len() > MAX_JOBS {
            let message = format!("there are {} jobs; the first {MAX_JOBS} by name are assigned", table.jobs.len());
            problems.push(PoolProblem::new(PoolReason::SourceInvalid, message));
            table.jobs.truncate(MAX_JOBS);
        }
        let shared = Arc::new(table);
        self.table = Some((key, Arc::clone(&shared)));
        (shared, problems)
    }

    /// Adds the published jobs that are in no source, also those on their way to another worker. Their weights and
    /// kinds are those of the previous table or, after a restart, of the record.
    fn keep_published(&self, table: &mut JobTable, published: &Published) {
        let listed: HashSet<&str> = table.jobs.iter().map(|job| &*job.name).collect();
        let previous = self.table.as_ref().map(|(_, table)| &**table);
        let mut kept = Vec::new();
        for list in published.lists.values() {
            // Jobs to release that have no kind were removed from their source.
            let moving = list.releasing.keys().filter(|job| list.kinds.contains_key(*job));
            for job in list.jobs.iter().map(|job| &job.name).chain(moving).filter(|job| !listed.contains(&***job)) {
                let before = previous.and_then(|table| table.get(job)).cloned();
                let JobKind { weight, dedicated } = list.kinds.get(job).copied().unwrap_or(JobKind::ORDINARY);
                kept.push(before.unwrap_or_else(|| Job { name: Arc::clone(job), weight, dedicated }));
            }
        }
        let others = std::mem::take(&mut table.jobs);
        table.jobs = jobs::merge([(String::new(), others), (String::new(), kept)]).jobs;
    }
}

fn inline_job(inline: &InlineJob) -> Job {
    Job {
        name: Arc::from(inline.name.as_str()),
        weight: inline.weight.and_then(|weight| u32::try_from(weight).ok()).unwrap_or(1).max(1),
        dedicated: inline.qos == Some(JobQos::Dedicated),
    }
}
