//! The handover record beside the workers' file: the state that workers do not need. Compact JSON, because it shares
//! the size limit of the ConfigMap with the file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{JobKind, JobList, ListChange, ListRequest, MAX_VERSION, Published};
use ganglion_core::facts::Uid;

/// Content of the record.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HandoverRecord {
    /// Digest of the file that the record belongs to.
    pub digest: String,
    pub workers: BTreeMap<String, RecordedWorker>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<(i64, i64)>,
    pub changes: BTreeMap<i64, ListChange>,
}

impl HandoverRecord {
    /// Largest version in the record.
    pub fn latest(&self) -> i64 {
        let runs = self
            .workers
            .values()
            .flat_map(|recorded| runs(&recorded.since))
            .filter_map(|run| run.map(|(since, _)| since));
        runs.chain(self.changes.keys().copied())
            .filter(|version| (0..=MAX_VERSION).contains(version))
            .max()
            .unwrap_or_default()
    }
}

/// Entry of a worker in the record.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordedWorker {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<Uid>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    releasing: Vec<String>,
    /// Version at which each of these jobs was removed, in the form of `since`. Empty: the version of the list.
    #[serde(skip_serializing_if = "String::is_empty")]
    removed: String,
    /// Kind of each of these jobs, in the form of `kinds`; 0 for jobs that no source lists any more. Empty: all 0.
    #[serde(skip_serializing_if = "String::is_empty")]
    wanted: String,
    /// Weight of each of its jobs, in the form of `since`, with a minus sign for dedicated jobs; 0 for ordinary ones.
    /// Empty: all 0.
    #[serde(skip_serializing_if = "String::is_empty")]
    kinds: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<ListRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<i64>,
    /// Version at which each of its jobs was added, in order, run-length encoded: `7*12 9` is twelve times 7, then 9.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub since: String,
}

impl RecordedWorker {
    /// Kinds of its jobs, which are given in the order of the file, and of those that it has to stop.
    pub fn kinds(&self, jobs: &[Arc<str>]) -> BTreeMap<Arc<str>, JobKind> {
        let mut kinds = BTreeMap::new();
        let listed = versions(&self.kinds, jobs.len()).unwrap_or_default();
        for (job, kind) in jobs.iter().zip(listed.into_iter().map(decode_kind)) {
            kinds.extend(kind.filter(|kind| *kind != JobKind::ORDINARY).map(|kind| (Arc::clone(job), kind)));
        }
        let wanted = versions(&self.wanted, self.releasing.len()).unwrap_or_default();
        for (job, kind) in self.releasing.iter().zip(wanted.into_iter().map(decode_kind)) {
            kinds.extend(kind.map(|kind| (Arc::from(job.as_str()), kind)));
        }
        kinds
    }

    /// Jobs that the worker has to stop, each with the version at which it was removed from the list, at most `latest`.
    pub fn releasing(&self, latest: i64) -> BTreeMap<Arc<str>, i64> {
        let removed =
            versions(&self.removed, self.releasing.len()).unwrap_or_else(|| vec![latest; self.releasing.len()]);
        let names = self.releasing.iter().map(|name| Arc::from(name.as_str()));
        names.zip(removed).map(|(name, version)| (name, version.min(latest))).collect()
    }
}

/// Writes the record for the file with this digest.
pub fn write(published: &Published, digest: String) -> String {
    let recorded = |list: &JobList| RecordedWorker {
        pod: list.pod.clone(),
        releasing: list.releasing.keys().map(|name| name.to_string()).collect(),
        removed: encode_removed(list),
        wanted: encode_kinds(list.releasing.keys().map(|job| list.kinds.get(job).copied())),
        kinds: encode_kinds(list.jobs.iter().map(|job| list.kinds.get(&job.name).copied())),
        asked: list.asked,
        unknown: list.unknown,
        since: encode_runs(list.jobs.iter().map(|job| job.since)),
    };
    let workers = published.lists.iter().map(|(name, list)| (name.clone(), recorded(list))).collect();
    let record = HandoverRecord { digest, workers, gaps: published.gaps.clone(), changes: published.changes.clone() };
    // Serialization of strings and integers cannot fail.
    serde_json::to_string(&record).unwrap_or_default()
}

/// Returns None if the text is not a record.
pub fn read(text: &str) -> Option<HandoverRecord> {
    serde_json::from_str(text).ok()
}

/// Versions at which the jobs to release were removed; empty if all were removed at the version of the list.
fn encode_removed(list: &JobList) -> String {
    let is_latest = list.releasing.values().all(|version| *version == list.version);
    if is_latest { String::new() } else { encode_runs(list.releasing.values().copied()) }
}

/// Run-length encodes kinds in order, 0 for None; empty if all are None.
fn encode_kinds(kinds: impl Iterator<Item = Option<JobKind>> + Clone) -> String {
    let encode = |kind: Option<JobKind>| {
        let kind = kind.map(|kind| (i64::from(kind.weight), kind.dedicated));
        kind.map_or(0, |(weight, dedicated)| if dedicated { -weight } else { weight })
    };
    if kinds.clone().all(|kind| kind.is_none()) { String::new() } else { encode_runs(kinds.map(encode)) }
}

/// Decodes a kind; None for 0.
fn decode_kind(kind: i64) -> Option<JobKind> {
    let weight = u32::try_from(kind.unsigned_abs()).ok().filter(|weight| *weight > 0)?;
    Some(JobKind { weight, dedicated: kind < 0 })
}

/// Run-length encodes versions in order.
fn encode_runs(versions: impl Iterator<Item = i64>) -> String {
    let mut out = String::new();
    let mut versions = versions.peekable();
    while let Some(version) = versions.next() {
        let mut times = 1_usize;
        while versions.next_if_eq(&version).is_some() {
            times += 1;
        }
        let gap = if out.is_empty() { "" } else { " " };
        // Writing to a text cannot fail.
        let _ = if times == 1 { write!(out, "{gap}{version}") } else { write!(out, "{gap}{version}*{times}") };
    }
    out
}

/// Decodes the runs of such a text; None for each invalid run.
fn runs(text: &str) -> impl Iterator<Item = Option<(i64, usize)>> {
    text.split_ascii_whitespace().map(|run| match run.split_once('*') {
        Some((version, times)) => Some((version.parse().ok()?, times.parse().ok()?)),
        None => Some((run.parse().ok()?, 1)),
    })
}

/// Decodes such a text; None if it does not have exactly `count` versions.
pub fn versions(text: &str, count: usize) -> Option<Vec<i64>> {
    let mut versions = Vec::with_capacity(count);
    for run in runs(text) {
        let (version, times) = run?;
        // Checked before the vector grows, because an edited number can be huge.
        if times > count - versions.len() {
            return None;
        }
        versions.resize(versions.len() + times, version);
    }
    (versions.len() == count).then_some(versions)
}
