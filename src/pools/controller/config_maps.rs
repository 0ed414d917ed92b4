//! Reads source and output ConfigMaps, and writes the output ConfigMaps.
//!
//! Each write tests the resourceVersion that the plan was made from, and leaves other fields of the object unchanged.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};

use super::observe::{is_own, not_owned};
use super::refusals::{cause_of, note};
use super::{SwarmPoolController, is_large, key_of, namespace, without_blocking};
use ganglion_api::marks;
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_api::swarm_pool::{OutputLayout, SwarmPool};
use ganglion_core::facts::{ConfigMapFact, Identity, Key};
use ganglion_core::json_patch::JsonPatch;
use ganglion_core::world::Origin;
use ganglion_pools_plan::PoolProblem;
use ganglion_pools_plan::file::{self, JobList, Published, RECORD_KEY};
use ganglion_pools_plan::output::{OutputMap, OutputMemory, output_files};
use ganglion_pools_plan::refusals::RefusalCause;
use ganglion_pools_plan::room::JobRoom;
use ganglion_pools_plan::sources::{ParsedSource, SourceMemory};
use ganglion_runtime::error::Error;

/// Number of ConfigMaps that are read or written at the same time.
const AT_ONCE: usize = 8;

/// Why the job lists were not written.
pub enum WriteFailure {
    /// A problem that stops the pool until somebody fixes it.
    Problem(PoolProblem),
    Request(Error),
}

impl From<Error> for WriteFailure {
    fn from(error: Error) -> Self {
        Self::Request(error)
    }
}

impl From<PoolProblem> for WriteFailure {
    fn from(problem: PoolProblem) -> Self {
        Self::Problem(problem)
    }
}

/// Job list to write into one ConfigMap.
struct OutputWrite {
    name: String,
    published: Published,
    text: String,
    record: String,
}

impl SwarmPoolController {
    /// Reads source ConfigMaps.
    pub(super) async fn read_sources(
        &self,
        pool: &Key,
        ids: &[Identity],
        memory: &mut SourceMemory,
    ) -> Result<(), Error> {
        for id in ids {
            // Each ConfigMap has up to a megabyte, and pools read many.
            let _turn = self.reads.acquire(&pool.namespace, 1).await;
            if let Some(map) = self.read_config_map(id).await? {
                memory.remove(&id.key.name);
                self.job_memory.hold(pool, memory.bytes());
                let room = self.job_room(&pool.namespace);
                let source = without_blocking(is_large(&map), || ParsedSource::parse(&map, room));
                let is_held = self.job_memory.hold(pool, memory.bytes().saturating_add(source.bytes()));
                memory.insert(if is_held { source } else { source.without_room(room) });
            }
        }
        Ok(())
    }

    /// Memory for the jobs of the pools of this namespace.
    pub(super) fn job_room(&self, namespace: &str) -> JobRoom {
        JobRoom { free: self.job_memory.free(namespace), per_namespace: self.job_memory.per_namespace() }
    }

    /// Reads output ConfigMaps.
    pub(super) async fn read_outputs(
        &self,
        pool: &SwarmPool,
        ids: &[Identity],
        memory: &mut OutputMemory,
    ) -> Result<(), Error> {
        let requests: Vec<_> = ids.iter().map(|id| self.read_output(pool, id)).collect();
        let mut reads = stream::iter(requests).buffer_unordered(AT_ONCE);
        while let Some(read) = reads.next().await {
            if let Some(map) = read? {
                memory.insert_read(map);
            }
        }
        memory.end_read(pool);
        Ok(())
    }

    async fn read_output(&self, pool: &SwarmPool, id: &Identity) -> Result<Option<OutputMap>, Error> {
        let _turn = self.reads.acquire(&id.key.namespace, 1).await;
        let map = self.read_config_map(id).await?;
        Ok(map.map(|map| without_blocking(is_large(&map), || OutputMap::parse(pool, &map))))
    }

    /// Reads a cached ConfigMap from the API server. Removes it from the cache if it does not exist, since the watch
    /// may lag.
    async fn read_config_map(&self, id: &Identity) -> Result<Option<ConfigMap>, Error> {
        let map = self.ctx.writer.get::<ConfigMap>(&id.key).await?;
        if map.is_none() {
            self.ctx.store.remove::<ConfigMapFact>(&Identity { version: String::new(), ..id.clone() });
        }
        Ok(map)
    }

    /// Writes the ConfigMaps that differ from `lists` or that somebody else edited, and deletes surplus ones. Returns
    /// true if anything was written.
    pub(super) async fn write_outputs(
        &self,
        pool: &SwarmPool,
        memory: &mut OutputMemory,
        lists: &Published,
        now: Timestamp,
    ) -> Result<bool, WriteFailure> {
        let desired = output_files(pool, lists);
        let surplus: Vec<String> = memory.maps.keys().filter(|name| !desired.contains_key(*name)).cloned().collect();
        let mut writes = Vec::new();
        for (name, published) in desired {
            let current = memory.maps.get(&name);
            if current.is_some_and(|map| !map.is_foreign_edit && map.published == published) {
                continue;
            }
            let (text, record) = file::render(&published);
            if !file::fits(&text, &record) {
                return Err(too_large(pool, text.len() + record.len()).into());
            }
            writes.push(self.write_output(pool, current, OutputWrite { name, published, text, record }));
        }
        let any = !writes.is_empty();
        // All writes end before the first failure is returned, so that the memory knows what was written.
        let results: Vec<_> = stream::iter(writes).buffer_unordered(AT_ONCE).collect().await;
        let mut failure = None;
        for result in results {
            match result {
                Ok(map) => {
                    memory.maps.insert(map.id.key.name.clone(), map);
                }
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        Ok(self.delete_surplus(pool, memory, surplus, (lists, now)).await? || any)
    }

    /// Deletes surplus ConfigMaps. A refusal is noted, and does not stop the pool: the lists of that ConfigMap no
    /// longer count. Returns true if anything changed.
    async fn delete_surplus(
        &self,
        pool: &SwarmPool,
        memory: &mut OutputMemory,
        surplus: Vec<String>,
        (lists, now): (&Published, Timestamp),
    ) -> Result<bool, WriteFailure> {
        let mut waits = memory.delete_refused.as_ref().is_some_and(|refused| refused.waits(now));
        let (mut any, mut refusal) = (false, None);
        for name in &surplus {
            let Some(map) = memory.maps.get(name) else { continue };
            if !waits || !map.exists() {
                match self.delete_output(&map.id).await {
                    Ok(()) => {
                        memory.maps.remove(name);
                        any = true;
                        continue;
                    }
                    Err(error) => {
                        let (cause, message) = cause_of(error)?;
                        // The others are refused, or not answered, too.
                        waits |= matches!(cause, RefusalCause::Permission | RefusalCause::NoAnswer);
                        refusal = Some((cause, message));
                    }
                }
            }
            if !map.is_surplus {
                let emptied = self.empty_surplus(pool, name, map, lists).await?;
                memory.maps.insert(name.clone(), emptied);
                any = true;
            }
        }
        match refusal {
            Some(refusal) => note(&mut memory.delete_refused, refusal, now),
            None if !waits || surplus.is_empty() => memory.delete_refused = None,
            None => {}
        }
        Ok(any)
    }

    /// Removes the jobs from a surplus ConfigMap: a pod that returns under the name of its worker would run them until
    /// it gets a new list.
    async fn empty_surplus(
        &self,
        pool: &SwarmPool,
        name: &str,
        map: &OutputMap,
        lists: &Published,
    ) -> Result<OutputMap, WriteFailure> {
        if map.published.lists.values().all(|list| list.jobs.is_empty()) {
            return Ok(OutputMap { is_surplus: true, ..map.clone() });
        }
        let version = lists.version.max(map.published.version);
        let empty = |name: &String| (name.clone(), JobList { version, ..JobList::default() });
        let published = Published {
            lists: map.published.lists.keys().map(empty).collect(),
            version,
            gaps: lists.gaps.clone(),
            ..Published::default()
        };
        let (text, record) = file::render(&published);
        let write = OutputWrite { name: name.to_owned(), published, text, record };
        let emptied = self.write_output(pool, Some(map), write).await?;
        Ok(OutputMap { is_surplus: true, ..emptied })
    }

    async fn write_output(
        &self,
        pool: &SwarmPool,
        current: Option<&OutputMap>,
        write: OutputWrite,
    ) -> Result<OutputMap, WriteFailure> {
        let key = Key::new(namespace(pool), write.name.clone());
        let request = async {
            match current.filter(|map| map.exists()) {
                None => {
                    let map = new_config_map(pool, &write);
                    self.ctx.writer.create(marks::SWARM_MANAGER, &key.namespace, &map).await
                }
                Some(map) => {
                    let patch = patch_of(pool, map, &write);
                    self.ctx.writer.patch_json(marks::SWARM_MANAGER, &key, patch).await
                }
            }
        };
        match self.ctx.writer.counted("WriteJobs", request).await {
            Ok(map) => {
                self.ctx.store.apply_own::<SwarmPool, ConfigMapFact>(&key_of(pool), fact(&map));
                Ok(OutputMap { published: write.published, ..OutputMap::parse(pool, &map) })
            }
            // The store does not have the ConfigMap yet: read it to find out whether the pool owns it.
            Err(Error::AlreadyExists(_)) => match self.ctx.writer.get::<ConfigMap>(&key).await? {
                Some(map) if !is_own(pool, &fact(&map)) => Err(not_owned(&key.name).into()),
                Some(map) => {
                    self.ctx.store.apply(fact(&map), Origin::Own);
                    Err(Error::Conflict(format!("ConfigMap {} exists", key.name)).into())
                }
                None => Err(Error::Conflict(format!("ConfigMap {} was created and deleted again", key.name)).into()),
            },
            Err(error) => {
                if let Error::Conflict(_) | Error::NotFound(_) = error {
                    self.refresh(&key).await?;
                }
                Err(error.into())
            }
        }
    }

    /// Reads the metadata of a ConfigMap into the cache, since the watch may lag.
    async fn refresh(&self, key: &Key) -> Result<(), Error> {
        let cached = self.ctx.store.read(|world| world.get::<ConfigMapFact>(key).map(|map| map.id.clone()));
        match (self.ctx.writer.get::<ConfigMap>(key).await?, cached) {
            (Some(map), _) => self.ctx.store.apply(fact(&map), Origin::Own),
            (None, Some(id)) => {
                self.ctx.store.remove::<ConfigMapFact>(&Identity { version: String::new(), ..id });
            }
            (None, None) => {}
        }
        Ok(())
    }

    async fn delete_output(&self, id: &Identity) -> Result<(), Error> {
        if id.uid.is_empty() {
            return Ok(());
        }
        let deleted = async {
            match self.ctx.writer.delete::<ConfigMap>(id).await {
                Err(Error::NotFound(_)) => Ok(None),
                done => done,
            }
        };
        self.ctx.writer.counted("DeleteJobs", deleted).await?;
        self.ctx.store.remove::<ConfigMapFact>(&Identity { version: String::new(), ..id.clone() });
        Ok(())
    }
}

fn fact(map: &ConfigMap) -> ConfigMapFact {
    ConfigMapFact::from(&map.metadata)
}

fn new_config_map(pool: &SwarmPool, write: &OutputWrite) -> ConfigMap {
    let owner =
        pool.controller_owner_ref(&()).map(|owner| OwnerReference { block_owner_deletion: Some(true), ..owner });
    let data = BTreeMap::from([
        (pool.spec.output.key.clone(), write.text.clone()),
        (RECORD_KEY.to_owned(), write.record.clone()),
    ]);
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(write.name.clone()),
            labels: label(pool).map(|label| [(marks::SWARM_POOL.to_owned(), label)].into()),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..ConfigMap::default()
    }
}

/// Name of the pool as a label value; None if it is too long.
fn label(pool: &SwarmPool) -> Option<String> {
    Some(pool.name_any()).filter(|name| name.len() <= 63)
}

/// JSON patch that writes the list and the record into an existing ConfigMap.
fn patch_of(pool: &SwarmPool, map: &OutputMap, write: &OutputWrite) -> JsonPatch {
    let mut patch = JsonPatch::at_version(&map.id.uid, &map.id.version);
    patch.add_entry(&["data"], !map.has_data, &pool.spec.output.key, write.text.as_str());
    patch.add(&["data", RECORD_KEY], write.record.as_str());
    if let Some(label) = label(pool) {
        patch.add_entry(&["metadata", "labels"], !map.has_labels, marks::SWARM_POOL, label);
    }
    patch
}

fn too_large(pool: &SwarmPool, bytes: usize) -> PoolProblem {
    let advice = match pool.spec.output.layout {
        OutputLayout::Shared => "create a pool with output.layout: PerWorker",
        OutputLayout::PerWorker => "add workers, or shorten the names of jobs",
    };
    let message =
        format!("the job list has {bytes} bytes, but a ConfigMap holds at most 1 MiB; the old list stays: {advice}");
    PoolProblem::new(PoolReason::OutputTooLarge, message)
}
