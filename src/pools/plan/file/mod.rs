//! The published job lists of a pool, as two keys of a ConfigMap: the file that workers read, and the handover record
//! of the operator. Together they contain everything that the next step needs, so that no other state is necessary.
//!
//! | file | description |
//! |---|---|
//! | `published` | the content of both texts |
//! | `scalar` | writes and reads one name in the workers' file |
//! | `listing` | writes the workers' file, and reads it line by line |
//! | `lenient` | reads a workers' file that somebody else wrote, as YAML |
//! | `record` | writes and reads the handover record |
//! | `layout` | splits the lists into one file per worker, and checks the size limit |
//! | `prune` | drops old changes from the record |

mod layout;
mod lenient;
mod listing;
mod prune;
mod published;
mod record;
mod scalar;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use ganglion_core::digest::digest;

pub use layout::{fits, join, split};
pub use prune::{MOST_CHANGES, prune};
pub use published::{HeldJob, Holding, ListChange, Published};

use listing::{FileLists, WorkerList};
use record::Record;

/// Key of the handover record, beside the key that workers read.
pub const RECORD_KEY: &str = "handover.json";

/// Largest version that is read: the largest integer that every JSON reader supports. A larger version in an edited
/// file would leave no higher version for the next list.
pub const MOST_VERSION: i64 = 1 << 53;

/// Renders the workers' file and the record. The same input always gives the same bytes.
pub fn render(published: &Published) -> (String, String) {
    let file = listing::write(published);
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
    let known = ours.and_then(|record| faithful(&listing, record));
    known.unwrap_or_else(|| edited(listing, record.unwrap_or_default()))
}

fn digest_of(file: &str) -> String {
    digest(&[file], 32)
}

/// Reads the workers' file: in the form that the operator writes, else as YAML, else only the lines in the operator's
/// form.
fn read(file: &str) -> FileLists {
    let (listing, is_ours) = listing::read(file);
    if is_ours { listing } else { lenient::read(file).unwrap_or(listing) }
}

/// Combines two texts that the operator wrote. None if their workers or numbers of jobs differ.
fn faithful(listing: &FileLists, record: &Record) -> Option<Published> {
    let version = listing.version?;
    if listing.workers.len() != record.workers.len() {
        return None;
    }
    let mut holdings = BTreeMap::new();
    for (name, listed) in &listing.workers {
        let (noted, version) = (record.workers.get(name)?, listed.version?);
        let since = record::versions(&noted.since, listed.jobs.len())?;
        let jobs = listed.jobs.iter().zip(since).map(|(name, since)| HeldJob { name: Arc::clone(name), since });
        let holding =
            Holding { version, jobs: sorted(jobs.collect()), releasing: noted.releasing(), pod: noted.pod.clone() };
        holdings.insert(name.clone(), holding);
    }
    Some(Published { holdings, version, changes: record.changes.clone(), edited: false })
}

/// Combines texts that somebody else changed, as far as possible.
fn edited(listing: FileLists, record: Record) -> Published {
    let version = listing.latest().max(record.latest());
    let fallback = listing.version;
    let mut holdings: BTreeMap<String, Holding> = BTreeMap::new();
    for (name, WorkerList { jobs, version }) in listing.workers {
        let version = version.or(fallback).unwrap_or_default();
        let jobs = jobs.into_iter().map(|name| HeldJob { name, since: version });
        holdings.insert(name, Holding { version, jobs: sorted(jobs.collect()), ..Holding::default() });
    }
    for (name, noted) in record.workers {
        // A worker that is no longer in the file may still run jobs that it has to release.
        let holding = holdings.entry(name).or_insert_with(|| Holding { version, ..Holding::default() });
        holding.releasing = noted.releasing();
        holding.pod = noted.pod;
    }
    Published { holdings, version, changes: record.changes, edited: true }
}

/// Sorts jobs by name and removes repetitions.
fn sorted(mut jobs: Vec<HeldJob>) -> Vec<HeldJob> {
    jobs.sort_by(|a, b| a.name.cmp(&b.name));
    jobs.dedup_by(|a, b| a.name == b.name);
    jobs
}
