//! Reads the jobs of a pool from its spec and from source ConfigMaps. A ConfigMap is read again only if it changed.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;

use super::memory::Memory;
use super::{Stop, SwarmPoolController, namespace};
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::swarm_pool::jobs::{InlineJob, JobQos};
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_core::facts::{ConfigMapFact, Key, Selector};
use ganglion_pools_plan::Job;
use ganglion_pools_plan::jobs::{self, JobTable};
use ganglion_pools_plan::state::PoolProblem;
use ganglion_runtime::error::Error;

/// Maximum number of source ConfigMaps per pool.
const MAX_SOURCES: usize = 1000;

/// Maximum number of jobs per pool.
const MAX_JOBS: usize = 1_000_000;

/// A parsed source ConfigMap.
pub struct SourceCache {
    /// The resourceVersion of the ConfigMap.
    version: String,
    jobs: Result<Arc<[Job]>, String>,
}

/// Cache key of the job table: the generation of the pool, the ConfigMaps with their versions, and, if a source cannot
/// be read, the version of the published lists, whose jobs are kept.
pub type TableKey = (Option<i64>, Vec<(String, String)>, Option<i64>);

/// Current state of the sources.
pub struct JobSources {
    pub key: TableKey,
    pub problems: Vec<PoolProblem>,
}

impl SwarmPoolController {
    /// Reads the source ConfigMaps that changed.
    pub(super) async fn read_sources(&self, pool: &SwarmPool, memory: &mut Memory) -> Result<JobSources, Stop> {
        let (names, mut problems) = self.source_names(pool)?;
        memory.sources.retain(|name, _| names.contains(name));
        let mut versions = Vec::new();
        for name in &names {
            let key = Key::new(namespace(pool), name.clone());
            let fact = self.ctx.store.read(|world| world.get::<ConfigMapFact>(&key).map(|map| map.id.version.clone()));
            let Some(version) = fact else {
                memory.sources.remove(name);
                let message = format!("ConfigMap {name} does not exist; assigned jobs stay with their workers");
                problems.push(PoolProblem::new(PoolReason::SourceNotFound, message));
                continue;
            };
            if memory.sources.get(name).is_none_or(|known| known.version != version) {
                match self.ctx.writer.get::<ConfigMap>(&key).await? {
                    Some(map) => drop(memory.sources.insert(name.clone(), read(&map))),
                    // The watch will deliver the deletion.
                    None => return Err(Error::Conflict(format!("ConfigMap {name} is gone")).into()),
                }
            }
            let Some(known) = memory.sources.get(name) else { continue };
            versions.push((name.clone(), known.version.clone()));
            if let Err(message) = &known.jobs {
                let message = format!("ConfigMap {name}, {message}; assigned jobs stay with their workers");
                problems.push(PoolProblem::new(PoolReason::SourceInvalid, message));
            }
        }
        Ok(JobSources { key: (pool.metadata.generation, versions, None), problems })
    }

    /// Names of the source ConfigMaps.
    fn source_names(&self, pool: &SwarmPool) -> Result<(BTreeSet<String>, Vec<PoolProblem>), Stop> {
        let Some(maps) = &pool.spec.jobs.config_maps else { return Ok(Default::default()) };
        let mut names: BTreeSet<String> = maps.names.iter().flatten().cloned().collect();
        if let Some(selector) = &maps.selector {
            let selector = Selector::from(selector);
            let namespace = namespace(pool);
            self.ctx.store.read(|world| {
                let found = world.within::<ConfigMapFact>(&namespace).filter(|map| {
                    // Output of this or another pool is never a source.
                    let is_output = map.controller.as_ref().is_some_and(|owner| owner.kind == "SwarmPool");
                    selector.matches(&map.labels) && !is_output
                });
                names.extend(found.map(|map| map.id.key.name.clone()));
            });
        }
        if names.len() > MAX_SOURCES {
            let message = format!("jobs.configMaps selects {} ConfigMaps; at most {MAX_SOURCES} are read", names.len());
            return Err(PoolProblem::new(PoolReason::SourceInvalid, message).into());
        }
        Ok((names, Vec::new()))
    }

    /// Merges the jobs of all sources. If a source cannot be read, jobs that workers have are kept: they may come from
    /// it.
    pub(super) fn table(
        pool: &SwarmPool,
        memory: &mut Memory,
        mut sources: JobSources,
    ) -> (Arc<JobTable>, Vec<PoolProblem>) {
        let published = (!sources.problems.is_empty()).then(|| super::output::published(memory));
        sources.key.2 = published.as_ref().map(|published| published.version);
        if let Some((key, table)) = &memory.table
            && *key == sources.key
        {
            return (Arc::clone(table), sources.problems);
        }
        let read = memory.sources.iter().filter_map(|(name, source)| Some((name.clone(), source.jobs.as_ref().ok()?)));
        let read = read.map(|(name, jobs)| (format!("ConfigMap {name}"), jobs.to_vec()));
        let inline = pool.spec.jobs.inline.iter().flatten().map(job).collect();
        let mut table = jobs::merge(read.chain([("jobs.inline".to_owned(), inline)]));
        if let Some(published) = published {
            let known: HashSet<&str> = table.jobs.iter().map(|job| &*job.name).collect();
            let before = memory.table.as_ref().map(|(_, table)| Arc::clone(table));
            let listed = published.holdings.values().flat_map(|holding| &holding.jobs);
            let kept: Vec<Job> = listed
                .filter(|job| !known.contains(&*job.name))
                .map(|job| {
                    before.as_deref().and_then(|table| find(table, &job.name)).unwrap_or_else(|| plain(&job.name))
                })
                .collect();
            drop(known);
            let others = std::mem::take(&mut table.jobs);
            table.jobs = jobs::merge([(String::new(), others), (String::new(), kept)]).jobs;
        }
        if table.jobs.len() > MAX_JOBS {
            let message = format!("there are {} jobs; the first {MAX_JOBS} by name are assigned", table.jobs.len());
            sources.problems.push(PoolProblem::new(PoolReason::SourceInvalid, message));
            table.jobs.truncate(MAX_JOBS);
        }
        let table = Arc::new(table);
        memory.table = Some((sources.key, Arc::clone(&table)));
        (table, sources.problems)
    }
}

fn read(map: &ConfigMap) -> SourceCache {
    let texts = map.data.iter().flatten();
    let jobs: Result<Vec<Vec<Job>>, String> =
        texts.map(|(key, text)| jobs::parse(text).map_err(|problem| format!("key {key}: {problem}"))).collect();
    SourceCache {
        version: map.resource_version().unwrap_or_default(),
        jobs: jobs.map(|jobs| jobs.into_iter().flatten().collect()),
    }
}

fn job(inline: &InlineJob) -> Job {
    Job {
        name: Arc::from(inline.name.as_str()),
        weight: inline.weight.and_then(|weight| u32::try_from(weight).ok()).unwrap_or(1).max(1),
        dedicated: inline.qos == Some(JobQos::Dedicated),
    }
}

fn plain(name: &Arc<str>) -> Job {
    Job { name: Arc::clone(name), weight: 1, dedicated: false }
}

fn find(table: &JobTable, name: &str) -> Option<Job> {
    let at = table.jobs.binary_search_by(|job| (*job.name).cmp(name)).ok()?;
    table.jobs.get(at).cloned()
}
