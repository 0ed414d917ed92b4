//! Merges the jobs of all sources of a pool into one table. The result does not depend on the order of the sources.

use std::mem;
use std::sync::Arc;

use super::Job;

/// All jobs of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobTable {
    /// Sorted by name, each once.
    pub jobs: Vec<Job>,
    /// Number of jobs that are listed more than once.
    pub repeated: usize,
    /// First of these jobs.
    pub first_repeated: Option<Repeated>,
}

/// A job that is listed more than once, and the first two sources that list it; both are the same if one source lists
/// it twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    pub name: Arc<str>,
    pub sources: [Arc<str>; 2],
}

/// Merges named sources into one table. A job that is listed more than once gets its largest weight, and is dedicated
/// if any source says so.
pub fn merge<S: Into<Arc<str>>>(sources: impl IntoIterator<Item = (S, Vec<Job>)>) -> JobTable {
    let mut sources: Vec<(Arc<str>, Vec<Job>)> = sources.into_iter().map(|(name, jobs)| (name.into(), jobs)).collect();
    sources.sort_by(|(a, _), (b, _)| a.cmp(b));
    let skipped = common_prefix(&sources);
    let mut all: Vec<(u64, Job, &Arc<str>)> = Vec::with_capacity(sources.iter().map(|(_, jobs)| jobs.len()).sum());
    for (source, jobs) in &mut sources {
        all.extend(mem::take(jobs).into_iter().map(|job| (head(&job.name, skipped), job, &*source)));
    }
    // Stable sort: keeps the order of the sources, and is fast because lists are often sorted already.
    all.sort_by(|(a_head, a, _), (b_head, b, _)| a_head.cmp(b_head).then_with(|| a.name.cmp(&b.name)));

    let mut table = JobTable { jobs: Vec::with_capacity(all.len()), ..JobTable::default() };
    let mut last: Option<(&Arc<str>, usize)> = None;
    for (_, job, source) in all {
        match (table.jobs.last_mut(), &mut last) {
            (Some(known), Some((first, times))) if known.name == job.name => {
                known.weight = known.weight.max(job.weight);
                known.dedicated |= job.dedicated;
                table.repeated += usize::from(*times == 1);
                *times += 1;
                table.first_repeated.get_or_insert_with(|| Repeated {
                    name: job.name,
                    sources: [Arc::clone(first), Arc::clone(source)],
                });
            }
            _ => {
                table.jobs.push(job);
                last = Some((source, 1));
            }
        }
    }
    table
}

/// Length of the common prefix of all names, in bytes.
fn common_prefix(sources: &[(Arc<str>, Vec<Job>)]) -> usize {
    let mut names = sources.iter().flat_map(|(_, jobs)| jobs).map(|job| job.name.as_bytes());
    let Some(first) = names.next() else { return 0 };
    names
        .fold(first, |common, name| {
            let same = common.iter().zip(name).take_while(|(a, b)| a == b).count();
            &common[..same]
        })
        .len()
}

/// First eight bytes of a name after the common prefix, as a number with the same order. Most comparisons end there,
/// without a memory access for the name.
fn head(name: &str, skipped: usize) -> u64 {
    let mut head = [0; 8];
    let rest = name.as_bytes().get(skipped..).unwrap_or_default();
    let length = rest.len().min(head.len());
    head[..length].copy_from_slice(&rest[..length]);
    u64::from_be_bytes(head)
}
