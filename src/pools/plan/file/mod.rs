//! The published job lists of a pool, as two keys of a ConfigMap: the file that workers read, and the handover record
//! of the operator. Together they contain everything that the next step needs, so that no other state is necessary.
//!
//! | file | description |
//! |---|---|
//! | `mod` | the published assignment; splits it into one file per worker, and drops old changes |
//! | `text` | writes and reads the workers' file |
//! | `record` | writes and reads the handover record |

mod record;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Job;
use ganglion_core::digest::digest;
use ganglion_core::facts::Uid;
use record::HandoverRecord;
use text::{FileLists, WorkerList};

/// Key of the handover record, beside the key that workers read.
pub const RECORD_KEY: &str = "handover.json";

/// Largest version that is read: the largest integer that every JSON reader supports. A larger version in an edited
/// file would leave no higher version for the next list.
pub const MAX_VERSION: i64 = 1 << 53;

/// Published job list of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobList {
    /// Version of the file at which this worker's jobs last changed.
    pub version: i64,
    /// Sorted by name, each once.
    pub jobs: Vec<ListedJob>,
    /// Jobs that were removed from the list but that the worker may still run, because it had not confirmed that it
    /// stopped them when the list was written. Each with the version at which it was removed.
    pub releasing: BTreeMap<Arc<str>, i64>,
    /// The oldest change that the worker had not confirmed when the list was written: later changes do not start the
    /// clock again. None if an earlier version of the operator wrote the list.
    pub asked: Option<ListRequest>,
    /// Version that the worker has to confirm because it has read a list that this pool did not write. Until then, it
    /// may run any job.
    pub unknown: Option<i64>,
    /// Weight and kind of the jobs that are not ordinary, and of those to release that another worker gets: after a
    /// restart, their source may be unreadable.
    pub kinds: BTreeMap<Arc<str>, JobKind>,
    /// The uid of the pod that existed when `version` was written. That pod started with an older file.
    pub pod: Option<Uid>,
}

/// Weight of a job, and whether it is dedicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobKind {
    pub weight: u32,
    pub dedicated: bool,
}

impl JobKind {
    /// Kind of a job for which its source says nothing.
    pub const ORDINARY: Self = Self { weight: 1, dedicated: false };
}

impl From<&Job> for JobKind {
    fn from(job: &Job) -> Self {
        Self { weight: job.weight, dedicated: job.dedicated }
    }
}

/// Request to a worker to run a version of its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRequest {
    pub version: i64,
    pub at: Timestamp,
}

/// A job on the list of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedJob {
    pub name: Arc<str>,
    /// Version at which the job was added to this list. If that change is no longer recorded, a later version, but at
    /// most that of the list.
    pub since: i64,
}

impl AsRef<str> for ListedJob {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

/// Published job lists of all workers of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Lists by pod name.
    pub lists: BTreeMap<String, JobList>,
    pub version: i64,
    /// Versions that were skipped: all between the two of a pair. No list of this pool ever had them.
    pub gaps: Vec<(i64, i64)>,
    /// Recorded changes, by version; see [`prune`].
    pub changes: BTreeMap<i64, ListChange>,
    /// true: somebody else changed one of the texts.
    pub edited: bool,
}

impl Published {
    /// Whether this pool has written this version.
    pub fn has_written(&self, version: i64) -> bool {
        version <= self.version && !self.gaps.iter().any(|(before, after)| *before < version && version < *after)
    }

    /// Sets the version. Versions between the old and the new one are skipped.
    pub fn advance(&mut self, version: i64) {
        if version > self.version + 1 {
            self.gaps.push((self.version, version));
            if self.gaps.len() > MAX_GAPS {
                // Versions between two gaps then count as not written: workers have to confirm a later one.
                let (first, second) = (self.gaps.remove(0), self.gaps[0]);
                self.gaps[0] = (first.0, second.1);
            }
        }
        self.version = version;
    }
}

/// Maximum number of recorded gaps.
const MAX_GAPS: usize = 16;

/// Time and reason of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListChange {
    pub at: Timestamp,
    /// Reason in words, such as `3 to 4 workers`.
    pub why: String,
}

/// Renders the workers' file and the record. The same input always gives the same bytes.
pub fn render(published: &Published) -> (String, String) {
    let file = text::write(published);
    let record = record::write(published, digest_of(&file));
    (file, record)
}

/// Parses the two texts. If a text cannot be read, or the two do not belong together, everything that can be read is
/// returned and marked as edited: jobs then count as given with the version of their worker, and no version decreases.
pub fn parse(file: Option<&str>, record: Option<&str>) -> Published {
    if file.is_none() && record.is_none() {
        return Published::default();
    }
    let listing = file.map(read).unwrap_or_default();
    let record = record.and_then(record::read);
    let ours = record.as_ref().filter(|record| file.is_some_and(|file| record.digest == digest_of(file)));
    let combined = ours.and_then(|record| combine(&listing, record));
    combined.unwrap_or_else(|| combine_edited(listing, record.unwrap_or_default()))
}

fn digest_of(file: &str) -> String {
    digest(&[file], 32)
}

/// Reads the workers' file: in the form that the operator writes, else as YAML, else only the lines in the operator's
/// form.
fn read(file: &str) -> FileLists {
    let (listing, is_ours) = text::read_lines(file);
    if is_ours { listing } else { text::read_yaml(file).unwrap_or(listing) }
}

/// Combines two texts that the operator wrote. None if their workers or numbers of jobs differ.
fn combine(listing: &FileLists, record: &HandoverRecord) -> Option<Published> {
    let version = listing.version?;
    if listing.workers.len() != record.workers.len() {
        return None;
    }
    let mut lists = BTreeMap::new();
    for (name, listed) in &listing.workers {
        let (recorded, version) = (record.workers.get(name)?, listed.version?);
        let since = record::versions(&recorded.since, listed.jobs.len())?;
        let jobs = listed.jobs.iter().zip(since).map(|(name, since)| ListedJob { name: Arc::clone(name), since });
        let list = JobList {
            version,
            kinds: recorded.kinds(&listed.jobs),
            jobs: sorted(jobs.collect()),
            releasing: recorded.releasing(version),
            asked: recorded.asked,
            unknown: recorded.unknown,
            pod: recorded.pod.clone(),
        };
        lists.insert(name.clone(), list);
    }
    let gaps = record.gaps.iter().copied().filter(|gap| gap.1 <= version).take(MAX_GAPS).collect();
    Some(Published { lists, version, gaps, changes: record.changes.clone(), edited: false })
}

/// Combines texts that somebody else changed, as far as possible.
fn combine_edited(listing: FileLists, record: HandoverRecord) -> Published {
    let version = listing.latest().max(record.latest());
    let fallback = listing.version;
    let mut lists: BTreeMap<String, JobList> = BTreeMap::new();
    for (name, WorkerList { jobs, version }) in listing.workers {
        let version = version.or(fallback).unwrap_or_default();
        let jobs = jobs.into_iter().map(|name| ListedJob { name, since: version });
        lists.insert(name, JobList { version, jobs: sorted(jobs.collect()), ..JobList::default() });
    }
    for (name, recorded) in record.workers {
        // A worker that is no longer in the file may still run jobs that it has to release.
        let list = lists.entry(name).or_insert_with(|| JobList { version, ..JobList::default() });
        list.releasing = recorded.releasing(list.version);
        list.asked = recorded.asked.filter(|asked| asked.version <= list.version);
        list.unknown = recorded.unknown;
        list.pod = recorded.pod;
    }
    Published { lists, version, gaps: Vec::new(), changes: record.changes, edited: true }
}

/// Sorts jobs by name and removes repetitions.
fn sorted(mut jobs: Vec<ListedJob>) -> Vec<ListedJob> {
    jobs.sort_by(|a, b| a.name.cmp(&b.name));
    jobs.dedup_by(|a, b| a.name == b.name);
    jobs
}

/// Limit of the API server for the data of a ConfigMap, in bytes.
const MAX_BYTES: usize = 1_048_576;

/// Maximum length of a key of a ConfigMap.
const MAX_KEY: usize = 253;

/// Returns true if a ConfigMap can hold these two texts, for any key of the file.
pub fn fits(file: &str, record: &str) -> bool {
    MAX_KEY + file.len() + RECORD_KEY.len() + record.len() <= MAX_BYTES
}

/// Splits the lists into one file per worker. The version of a file is that of its worker's list, so that the file does
/// not change until this worker's jobs change.
pub fn split(published: &Published) -> BTreeMap<String, Published> {
    let files = published.lists.iter().map(|(name, list)| {
        let mut file = Published {
            lists: BTreeMap::from([(name.clone(), list.clone())]),
            version: list.version,
            gaps: published.gaps.iter().copied().filter(|(_, after)| *after <= list.version).collect(),
            changes: BTreeMap::new(),
            edited: published.edited,
        };
        let changes =
            referenced_versions(&file).into_iter().filter_map(|version| published.changes.get_key_value(&version));
        file.changes = changes.map(|(version, change)| (*version, change.clone())).collect();
        (name.clone(), file)
    });
    files.collect()
}

/// Joins the files of all workers. If two files contain the same worker, the one with the larger version of its list
/// wins.
pub fn join(files: impl IntoIterator<Item = Published>) -> Published {
    let mut joined = Published::default();
    for file in files {
        joined.version = joined.version.max(file.version);
        joined.edited |= file.edited;
        joined.changes.extend(file.changes);
        joined.gaps.extend(file.gaps);
        for (name, list) in file.lists {
            let is_newer = joined.lists.get(&name).is_none_or(|other| other.version < list.version);
            if is_newer {
                joined.lists.insert(name, list);
            }
        }
    }
    joined.gaps.sort_unstable();
    joined.gaps.dedup();
    joined
}

/// Maximum number of recorded changes.
pub const MAX_CHANGES: usize = 32;

/// Versions that something refers to: those at which jobs were added to lists, and those of the lists, whose time is
/// the start of each wait for a worker.
pub fn referenced_versions(published: &Published) -> BTreeSet<i64> {
    let mut named = BTreeSet::new();
    for list in published.lists.values() {
        named.insert(list.version);
        let mut last = None;
        for job in &list.jobs {
            // Neighbours were mostly added together.
            if last.replace(job.since) != Some(job.since) {
                named.insert(job.since);
            }
        }
    }
    named
}

/// Drops changes that nothing refers to, and all but the latest [`MAX_CHANGES`] of the others. Older jobs then count
/// as added with the oldest recorded change, but at most with the version of their list, because the worker would not
/// report a later one.
pub fn prune(published: &mut Published) {
    let named = referenced_versions(published);
    published.changes.retain(|version, _| named.contains(version));
    let Some(surplus) = published.changes.len().checked_sub(MAX_CHANGES).filter(|surplus| *surplus > 0) else {
        return;
    };
    let Some(oldest) = published.changes.keys().nth(surplus).copied() else { return };
    published.changes = published.changes.split_off(&oldest);
    for list in published.lists.values_mut() {
        let earliest = oldest.min(list.version);
        for job in &mut list.jobs {
            job.since = job.since.max(earliest);
        }
    }
}
