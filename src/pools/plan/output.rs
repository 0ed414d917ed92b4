//! The output ConfigMaps of a pool, as last read or written: one for all workers, or one per worker.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;

use super::file::{self, Published, RECORD_KEY};
use super::refusals::WriteRefusal;
use super::sources::is_current;
use ganglion_api::swarm_pool::status::PoolWorker;
use ganglion_api::swarm_pool::{Output, OutputLayout, SwarmPool};
use ganglion_core::facts::Identity;

/// Output ConfigMaps in the cache, by name.
pub type ObservedOutputs = BTreeMap<String, Identity>;

/// One output ConfigMap, as last read or written.
#[derive(Clone, Debug)]
pub struct OutputMap {
    /// The uid and resourceVersion; both are empty if the ConfigMap does not exist.
    pub id: Identity,
    pub has_data: bool,
    pub has_labels: bool,
    pub published: Published,
    /// true: somebody else edited or deleted the ConfigMap, so it must be written again.
    pub is_foreign_edit: bool,
    /// true: its worker is gone, but the API server refuses to delete it. Its lists no longer count.
    pub is_surplus: bool,
}

impl OutputMap {
    /// Parses an output ConfigMap.
    pub fn parse(pool: &SwarmPool, map: &ConfigMap) -> Self {
        let text = |key: &str| map.data.as_ref().and_then(|data| data.get(key)).map(String::as_str);
        Self {
            id: (&map.metadata).into(),
            has_data: map.data.as_ref().is_some_and(|data| !data.is_empty()),
            has_labels: !map.labels().is_empty(),
            published: file::parse(text(&pool.spec.output.key), text(RECORD_KEY)),
            is_foreign_edit: false,
            is_surplus: false,
        }
    }

    /// Lists that count. The versions of a surplus ConfigMap count, because workers may have read them.
    fn counted(&self) -> Published {
        let published = self.published.clone();
        if self.is_surplus { Published { lists: BTreeMap::new(), ..published } } else { published }
    }

    /// Whether the ConfigMap exists.
    pub fn exists(&self) -> bool {
        !self.id.uid.is_empty()
    }
}

/// Output ConfigMaps that this process has read or written.
#[derive(Default)]
pub struct OutputMemory {
    /// By name.
    pub maps: BTreeMap<String, OutputMap>,
    /// true: this process has read the output ConfigMaps.
    pub has_read: bool,
    /// true: somebody edited or deleted the output ConfigMaps before this process read them; workers may have read
    /// lists that the operator did not write.
    pub is_distrusted: bool,
    /// The last refused deletion of a surplus ConfigMap.
    pub delete_refused: Option<WriteRefusal>,
}

impl OutputMemory {
    /// Joins the published lists of all ConfigMaps. Their version is at least that in the status: the ConfigMaps may
    /// have been deleted.
    pub fn published(&self, pool: &SwarmPool) -> Published {
        let joined = file::join(self.maps.values().map(OutputMap::counted));
        let reported = pool.status.as_ref().and_then(|status| status.version).unwrap_or(0);
        Published { version: joined.version.max(reported), ..joined }
    }

    /// Names of the surplus ConfigMaps that the API server refuses to delete.
    pub fn surplus(&self) -> impl Iterator<Item = &str> {
        self.maps.iter().filter(|(_, map)| map.is_surplus).map(|(name, _)| name.as_str())
    }

    /// Marks ConfigMaps that somebody deleted, which are created again with the same content. Returns those that
    /// somebody else changed since this process last read or wrote them.
    pub fn unread(&mut self, observed: &ObservedOutputs) -> Vec<Identity> {
        for (name, map) in &mut self.maps {
            if !observed.contains_key(name) && map.exists() {
                map.id = Identity { key: map.id.key.clone(), ..Identity::default() };
                map.is_foreign_edit = true;
            }
        }
        let is_read = |id: &Identity| self.maps.get(&id.key.name).is_some_and(|map| is_current(&map.id, id));
        observed.values().filter(|id| !is_read(id)).cloned().collect()
    }

    /// Stores a ConfigMap that was read. The lists that this process wrote last win over its content, unless it is
    /// newer.
    pub fn insert_read(&mut self, read: OutputMap) {
        self.is_distrusted |= read.published.edited && !self.has_read;
        let written = self.maps.remove(&read.id.key.name).map(|map| map.published);
        // A newer version is one of our own, whose write succeeded although its answer was lost: workers may have read
        // it.
        let is_lost_write = |written: &Published| !read.published.edited && read.published.version > written.version;
        let published = written.filter(|map| !is_lost_write(map)).unwrap_or_else(|| read.published.clone());
        let is_foreign_edit = read.published.edited || published != read.published;
        let map = OutputMap { published: Published { edited: false, ..published }, is_foreign_edit, ..read };
        self.maps.insert(map.id.key.name.clone(), map);
    }

    /// Ends the reading of all changed ConfigMaps.
    pub fn end_read(&mut self, pool: &SwarmPool) {
        if !self.has_read {
            let has_written = pool.status.as_ref().and_then(|status| status.version).is_some_and(|version| version > 0);
            self.is_distrusted |= has_written && (self.maps.is_empty() || self.is_replaced(pool));
            self.has_read = true;
        }
    }
}

impl OutputMemory {
    /// Whether somebody replaced the ConfigMaps by older ones, such as those of a backup: the status shows a later
    /// version, which workers may have read. Lists are always written before the status.
    fn is_replaced(&self, pool: &SwarmPool) -> bool {
        let Some(status) = &pool.status else { return false };
        let stored = file::join(self.maps.values().map(|map| map.published.clone()));
        // The version of a file of one worker is that of its list, and a file with a later version may have been
        // deleted.
        let is_shared = pool.spec.output.layout == OutputLayout::Shared;
        let is_older = |worker: &PoolWorker| {
            stored.lists.get(&worker.name).is_some_and(|list| Some(list.version) < worker.desired_version)
        };
        is_shared && Some(stored.version) < status.version || status.workers.iter().any(is_older)
    }
}

/// Desired content of each output ConfigMap, by name.
pub fn output_files(pool: &SwarmPool, lists: &Published) -> BTreeMap<String, Published> {
    let Output { config_map: name, layout, .. } = &pool.spec.output;
    match layout {
        OutputLayout::Shared => [(name.clone(), lists.clone())].into(),
        OutputLayout::PerWorker => {
            file::split(lists).into_iter().map(|(worker, file)| (format!("{name}-{worker}"), file)).collect()
        }
    }
}
