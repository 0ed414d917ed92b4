//! What the workers of a pool have been told: the file that they read, and the record of ours beside it, as two keys of a
//! ConfigMap. Everything that the next step needs is in them, so that nothing is remembered elsewhere.
//!
//! | file | what |
//! |---|---|
//! | `published` | what the two texts mean |
//! | `scalar` | how a name is written in the workers' file |
//! | `listing` | the workers' file: written, and read line by line |
//! | `lenient` | a workers' file that others wrote |
//! | `record` | our record |
//! | `layout` | one file for all workers, or one each; what fits |
//! | `prune` | which changes are remembered |

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

/// The key of our record, beside the key that workers read.
pub const RECORD_KEY: &str = "handover.json";

/// The largest version that is read: what a number of JSON can be for every reader. A larger one in an edited file would leave
/// none to go on with.
pub const MOST_VERSION: i64 = 1 << 53;

/// The workers' file and our record. The same input always gives the same bytes.
#[must_use]
pub fn render(published: &Published) -> (String, String) {
    let file = listing::write(published);
    let record = record::write(published, digest_of(&file));
    (file, record)
}

/// What the two texts say. Of texts that cannot be read, or do not belong together, everything that can be read, marked as
/// edited; the jobs then count as given with the version of their worker, and no version goes back.
#[must_use]
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

/// The workers' file, in whatever form: in ours, as YAML, or of what is no YAML the lines that have our form.
fn read(file: &str) -> FileLists {
    let (listing, is_ours) = listing::read(file);
    if is_ours { listing } else { lenient::read(file).unwrap_or(listing) }
}

/// What we wrote, if both texts have the same workers with the same numbers of jobs.
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

/// What can be said of texts that are not as we wrote them.
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
        // A worker that is not in the file any more may still have what it was told to release.
        let holding = holdings.entry(name).or_insert_with(|| Holding { version, ..Holding::default() });
        holding.releasing = noted.releasing();
        holding.pod = noted.pod;
    }
    Published { holdings, version, changes: record.changes, edited: true }
}

/// By name, each once.
fn sorted(mut jobs: Vec<HeldJob>) -> Vec<HeldJob> {
    jobs.sort_by(|a, b| a.name.cmp(&b.name));
    jobs.dedup_by(|a, b| a.name == b.name);
    jobs
}
