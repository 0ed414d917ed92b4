//! The output ConfigMaps that workers read: one for all workers, or one per worker. Each also contains the handover
//! record.
//!
//! Each write tests the resourceVersion that the plan was made from, and leaves other fields of the object unchanged.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::Patch;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::memory::Memory;
use super::{Stop, SwarmPoolController, namespace, own_key};
use ganglion_api::marks;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::swarm_pool::output::{Output, OutputLayout};
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_core::facts::{ConfigMapFact, Identity, Key};
use ganglion_core::world::Origin;
use ganglion_pools_plan::file::{self, Published, RECORD_KEY};
use ganglion_pools_plan::state::PoolProblem;
use ganglion_runtime::error::Error;

/// Number of ConfigMaps that are read or written at the same time.
const AT_ONCE: usize = 8;

/// One output ConfigMap, as last read or written.
#[derive(Clone, Debug)]
pub struct OutputPart {
    /// The uid and resourceVersion; both are empty if the ConfigMap does not exist.
    id: Identity,
    /// Whether `data` is missing, and whether `metadata.labels` is missing.
    bare: (bool, bool),
    pub published: Published,
    /// true: somebody else edited or deleted the ConfigMap, so it must be written again.
    is_foreign_edit: bool,
}

/// Joins the published lists of all output ConfigMaps.
pub fn published(memory: &Memory) -> Published {
    file::join(memory.parts.values().map(|part| part.published.clone()))
}

impl SwarmPoolController {
    /// Reads the output ConfigMaps that somebody else changed since this process last read or wrote them.
    pub(super) async fn read_output(&self, pool: &SwarmPool, memory: &mut Memory) -> Result<(), Stop> {
        let found = self.outputs(pool)?;
        for (name, part) in &mut memory.parts {
            if !found.contains_key(name) && !part.id.uid.is_empty() {
                // Deleted: it is created again with the same content.
                part.id = Identity { key: part.id.key.clone(), ..Identity::default() };
                part.is_foreign_edit = true;
            }
        }
        let is_known = |id: &Identity| {
            memory.parts.get(&id.key.name).is_some_and(|part| part.id.uid == id.uid && part.id.order() >= id.order())
        };
        let changed: Vec<Identity> = found.into_values().filter(|id| !is_known(id)).collect();
        let reads = changed.iter().map(|id| self.ctx.writer.get::<ConfigMap>(&id.key));
        let mut reads = stream::iter(reads.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        let mut any_edited = false;
        while let Some(read) = reads.next().await {
            let Some(map) = read? else { continue };
            let read = part(pool, &map);
            let known = memory.parts.remove(&read.id.key.name);
            // The lists that this process wrote last win over the content of the ConfigMap.
            let published = known.map_or_else(|| read.published.clone(), |known| known.published);
            let is_foreign_edit = read.published.edited || published != read.published;
            any_edited |= read.published.edited && !memory.has_read;
            memory.parts.insert(
                read.id.key.name.clone(),
                OutputPart { published: Published { edited: false, ..published }, is_foreign_edit, ..read },
            );
        }
        if !memory.has_read {
            let has_written = pool.status.as_ref().and_then(|status| status.version).is_some_and(|version| version > 0);
            memory.distrusts = any_edited || has_written && memory.parts.is_empty();
            memory.has_read = true;
        }
        Ok(())
    }

    /// Existing output ConfigMaps, by name.
    fn outputs(&self, pool: &SwarmPool) -> Result<BTreeMap<String, Identity>, Stop> {
        let Output { config_map: name, layout, .. } = &pool.spec.output;
        let namespace = namespace(pool);
        self.ctx.store.read(|world| {
            let is_own = |map: &ConfigMapFact| {
                map.controller.as_ref().is_some_and(|owner| Some(&owner.uid) == pool.metadata.uid.as_ref())
            };
            match layout {
                OutputLayout::Shared => match world.get::<ConfigMapFact>(&Key::new(namespace, name.clone())) {
                    Some(map) if !is_own(map) => Err(not_owned(name).into()),
                    map => Ok(map.into_iter().map(|map| (name.clone(), map.id.clone())).collect()),
                },
                OutputLayout::PerWorker => {
                    let prefix = format!("{name}-");
                    let own = world.within::<ConfigMapFact>(&namespace).filter(|map| is_own(map));
                    let own = own.filter(|map| map.id.key.name.starts_with(&prefix));
                    Ok(own.map(|map| (map.id.key.name.clone(), map.id.clone())).collect())
                }
            }
        })
    }

    /// Writes the ConfigMaps that differ from `lists` or that somebody else edited, and deletes surplus ones. Returns
    /// true if there was anything to write.
    pub(super) async fn write_output(
        &self,
        pool: &SwarmPool,
        memory: &mut Memory,
        lists: &Published,
    ) -> Result<bool, Stop> {
        let wanted = parts(pool, lists);
        let surplus: Vec<Identity> = memory
            .parts
            .iter()
            .filter(|(name, _)| !wanted.contains_key(*name))
            .map(|(_, part)| part.id.clone())
            .collect();
        let mut writes = Vec::new();
        for (name, published) in wanted {
            let known = memory.parts.get(&name);
            if known.is_some_and(|part| !part.is_foreign_edit && part.published == published) {
                continue;
            }
            let (text, record) = file::render(&published);
            if !file::fits(&text, &record) {
                return Err(too_large(pool, text.len() + record.len()).into());
            }
            writes.push(self.write_part(pool, name, known, published, text, record));
        }
        let any = !writes.is_empty() || !surplus.is_empty();
        let mut done = stream::iter(writes).buffer_unordered(AT_ONCE);
        let mut written = Vec::new();
        let mut failed = None;
        while let Some(result) = done.next().await {
            match result {
                Ok(part) => written.push(part),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        drop(done);
        memory.parts.extend(written.into_iter().map(|part| (part.id.key.name.clone(), part)));
        if let Some(error) = failed {
            return Err(error);
        }
        for id in surplus {
            self.delete_part(&id).await?;
            memory.parts.remove(&id.key.name);
        }
        Ok(any)
    }

    async fn write_part(
        &self,
        pool: &SwarmPool,
        name: String,
        known: Option<&OutputPart>,
        published: Published,
        text: String,
        record: String,
    ) -> Result<OutputPart, Stop> {
        let key = Key::new(namespace(pool), name);
        let write = async {
            match known.filter(|part| !part.id.uid.is_empty()) {
                None => {
                    let map = new(pool, &key.name, text, record);
                    self.ctx.writer.create(marks::SWARM_MANAGER, &key.namespace, &map).await
                }
                Some(part) => {
                    let patch = serde_json::from_value(change(pool, part, &text, &record).into());
                    let patch = patch.map_err(|error| Error::Malformed(error.to_string()))?;
                    self.ctx.writer.patch::<ConfigMap>(marks::SWARM_MANAGER, &key, &Patch::Json::<()>(patch)).await
                }
            }
        };
        match self.ctx.writer.counted("WriteJobs", write).await {
            Ok(map) => {
                let part = OutputPart { published, is_foreign_edit: false, ..part(pool, &map) };
                self.ctx.store.apply_own::<SwarmPool, ConfigMapFact>(&own_key(pool), fact(&map));
                Ok(part)
            }
            // The store does not have the ConfigMap yet: read it to find out whether the pool owns it.
            Err(Error::AlreadyExists(_)) => match self.ctx.writer.get::<ConfigMap>(&key).await? {
                Some(map) if !is_own(pool, &map) => Err(not_owned(&key.name).into()),
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

    async fn refresh(&self, key: &Key) -> Result<(), Error> {
        let known = self.ctx.store.read(|world| world.get::<ConfigMapFact>(key).map(|map| map.id.clone()));
        match (self.ctx.writer.get::<ConfigMap>(key).await?, known) {
            (Some(map), _) => self.ctx.store.apply(fact(&map), Origin::Own),
            (None, Some(id)) => {
                self.ctx.store.remove::<ConfigMapFact>(&id.unversioned());
            }
            (None, None) => {}
        }
        Ok(())
    }

    async fn delete_part(&self, id: &Identity) -> Result<(), Error> {
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
        self.ctx.store.remove::<ConfigMapFact>(&id.clone().unversioned());
        Ok(())
    }
}

/// Desired content of each output ConfigMap, by name.
fn parts(pool: &SwarmPool, lists: &Published) -> BTreeMap<String, Published> {
    let Output { config_map: name, layout, .. } = &pool.spec.output;
    match layout {
        OutputLayout::Shared => [(name.clone(), lists.clone())].into(),
        OutputLayout::PerWorker => {
            file::split(lists).into_iter().map(|(worker, part)| (format!("{name}-{worker}"), part)).collect()
        }
    }
}

fn fact(map: &ConfigMap) -> ConfigMapFact {
    ConfigMapFact::from(&map.metadata)
}

fn is_own(pool: &SwarmPool, map: &ConfigMap) -> bool {
    fact(map).controller.is_some_and(|owner| Some(owner.uid) == pool.metadata.uid)
}

/// Parses an output ConfigMap.
fn part(pool: &SwarmPool, map: &ConfigMap) -> OutputPart {
    let text = |key: &str| map.data.as_ref().and_then(|data| data.get(key)).map(String::as_str);
    OutputPart {
        id: (&map.metadata).into(),
        bare: (map.data.as_ref().is_none_or(BTreeMap::is_empty), map.labels().is_empty()),
        published: file::parse(text(&pool.spec.output.key), text(RECORD_KEY)),
        is_foreign_edit: false,
    }
}

fn new(pool: &SwarmPool, name: &str, text: String, record: String) -> ConfigMap {
    let owner =
        pool.controller_owner_ref(&()).map(|owner| OwnerReference { block_owner_deletion: Some(true), ..owner });
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: label(pool).map(|label| [(marks::SWARM_POOL.to_owned(), label)].into()),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some([(pool.spec.output.key.clone(), text), (RECORD_KEY.to_owned(), record)].into()),
        ..ConfigMap::default()
    }
}

/// Name of the pool as a label value; None if it is too long.
fn label(pool: &SwarmPool) -> Option<String> {
    Some(pool.name_any()).filter(|name| name.len() <= 63)
}

/// JSON patch that writes the list and the record into an existing ConfigMap.
fn change(pool: &SwarmPool, part: &OutputPart, text: &str, record: &str) -> Vec<Value> {
    let test = |path: &str, value: &str| json!({"op": "test", "path": path, "value": value});
    let mut patch = vec![test("/metadata/uid", &part.id.uid), test("/metadata/resourceVersion", &part.id.version)];
    let (bare_data, bare_labels) = part.bare;
    if bare_data {
        patch.push(json!({"op": "add", "path": "/data", "value": {}}));
    }
    patch.push(json!({"op": "add", "path": format!("/data/{}", pool.spec.output.key), "value": text}));
    patch.push(json!({"op": "add", "path": format!("/data/{RECORD_KEY}"), "value": record}));
    if let Some(label) = label(pool) {
        if bare_labels {
            patch.push(json!({"op": "add", "path": "/metadata/labels", "value": {}}));
        }
        let path = format!("/metadata/labels/{}", marks::SWARM_POOL.replace('/', "~1"));
        patch.push(json!({"op": "add", "path": path, "value": label}));
    }
    patch
}

fn not_owned(name: &str) -> PoolProblem {
    let message = format!(
        "ConfigMap {name} exists, but the pool does not own it: delete it, so that the pool can create its own, or \
         create a pool with another output.configMap"
    );
    PoolProblem::new(PoolReason::NotOwned, message)
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
