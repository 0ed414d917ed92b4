//! Our record beside the workers' file: what belongs to the file, and is of no interest to them. JSON, as short as it can be,
//! since it shares the size of a ConfigMap with the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::MOST_VERSION;
use super::published::{Holding, ListChange, Published};

/// The record.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Of the file that it belongs to.
    pub digest: String,
    pub workers: BTreeMap<String, Noted>,
    pub changes: BTreeMap<i64, ListChange>,
}

impl Record {
    /// The largest version in it.
    pub fn latest(&self) -> i64 {
        let runs =
            self.workers.values().flat_map(|noted| runs(&noted.since)).filter_map(|run| run.map(|(since, _)| since));
        runs.chain(self.changes.keys().copied())
            .filter(|version| (0..=MOST_VERSION).contains(version))
            .max()
            .unwrap_or_default()
    }
}

/// What the record has of a worker.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Noted {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    releasing: Vec<String>,
    /// For each of its jobs, in order, since when it has it: `7*12 9` is twelve times 7, and 9.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub since: String,
}

impl Noted {
    pub fn releasing(&self) -> BTreeSet<Arc<str>> {
        self.releasing.iter().map(|name| name.as_str().into()).collect()
    }
}

/// Writes the record that belongs to the file with this digest.
pub fn write(published: &Published, digest: String) -> String {
    let noted = |holding: &Holding| Noted {
        pod: holding.pod.clone(),
        releasing: holding.releasing.iter().map(|name| name.to_string()).collect(),
        since: counted(holding.jobs.iter().map(|job| job.since)),
    };
    let workers = published.holdings.iter().map(|(name, holding)| (name.clone(), noted(holding))).collect();
    let record = Record { digest, workers, changes: published.changes.clone() };
    // Texts and whole numbers always have a form in JSON.
    serde_json::to_string(&record).unwrap_or_default()
}

/// None: it is no such record.
pub fn read(text: &str) -> Option<Record> {
    serde_json::from_str(text).ok()
}

/// Versions in order, equal neighbours counted.
fn counted(versions: impl Iterator<Item = i64>) -> String {
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

/// The runs of such a text; None for one that is none.
fn runs(text: &str) -> impl Iterator<Item = Option<(i64, usize)>> {
    text.split_ascii_whitespace().map(|run| match run.split_once('*') {
        Some((version, times)) => Some((version.parse().ok()?, times.parse().ok()?)),
        None => Some((run.parse().ok()?, 1)),
    })
}

/// The versions of such a text, if they are so many.
pub fn versions(text: &str, count: usize) -> Option<Vec<i64>> {
    let mut versions = Vec::with_capacity(count);
    for run in runs(text) {
        let (version, times) = run?;
        // Counted before it is spread: the number can be anything.
        if times > count - versions.len() {
            return None;
        }
        versions.resize(versions.len() + times, version);
    }
    (versions.len() == count).then_some(versions)
}
