//! Writes and reads the workers' file, which lists the jobs of each worker in exactly the form of k8s-swarm. It is read
//! line by line, because a YAML parser takes many times as long.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;
use std::sync::Arc;

use super::published::Published;
use super::{MOST_VERSION, scalar};

/// Content of a workers' file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FileLists {
    pub workers: BTreeMap<String, WorkerList>,
    pub version: Option<i64>,
}

impl FileLists {
    /// Largest version in the file.
    pub fn latest(&self) -> i64 {
        self.workers.values().filter_map(|listed| listed.version).chain(self.version).max().unwrap_or_default()
    }
}

/// Entry of a worker in the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WorkerList {
    /// In the order of the file.
    pub jobs: Vec<Arc<str>>,
    pub version: Option<i64>,
}

/// Parses a version; None if it is out of range.
pub fn version(text: &str) -> Option<i64> {
    text.parse().ok().filter(|version| (0..=MOST_VERSION).contains(version))
}

/// Writes the file, with workers in natural order: web-2 before web-10.
pub fn write(published: &Published) -> String {
    let jobs = published.holdings.values().flat_map(|holding| &holding.jobs);
    let bytes: usize = jobs.map(|job| job.name.len() + 11).sum();
    let mut out = String::with_capacity(bytes + published.holdings.len() * 64 + 64);
    let mut holdings: Vec<_> = published.holdings.iter().collect();
    holdings.sort_by_key(|(name, _)| natural(name));
    out.push_str(if holdings.is_empty() { "workloads: {}\n" } else { "workloads:\n" });
    for (name, holding) in holdings {
        out.push_str("  ");
        scalar::write(&mut out, name);
        out.push_str(if holding.jobs.is_empty() { ":\n    jobs: []\n" } else { ":\n    jobs:\n" });
        for job in &holding.jobs {
            out.push_str("      - ");
            scalar::write(&mut out, &job.name);
            out.push('\n');
        }
        // Writing to a text cannot fail.
        let _ = writeln!(out, "    version: {}", holding.version);
    }
    let _ = writeln!(out, "version: {}", published.version);
    out
}

/// Sort key for natural order: the text before the number at the end, the number, and, if numbers are equal, the whole
/// text.
fn natural(name: &str) -> (&str, usize, &str, &str) {
    let before = name.trim_end_matches(|character: char| character.is_ascii_digit());
    let number = name[before.len()..].trim_start_matches('0');
    (before, number.len(), number, name)
}

/// Kind of a line of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    Start,
    Workers,
    NoWorkers,
    Worker,
    Jobs,
    NoJobs,
    Job,
    WorkerVersion,
    Version,
    Foreign,
}

impl Line {
    /// Returns true if line `next` can follow in the form that the operator writes.
    fn leads_to(self, next: Self) -> bool {
        match self {
            Self::Start => matches!(next, Self::Workers | Self::NoWorkers),
            Self::Workers => next == Self::Worker,
            Self::Worker => matches!(next, Self::Jobs | Self::NoJobs),
            Self::Jobs => next == Self::Job,
            Self::Job => matches!(next, Self::Job | Self::WorkerVersion),
            Self::NoJobs => next == Self::WorkerVersion,
            Self::WorkerVersion => matches!(next, Self::Worker | Self::Version),
            Self::NoWorkers => next == Self::Version,
            Self::Version | Self::Foreign => false,
        }
    }
}

/// Reads the lines in the operator's form. The second value is true if the whole text is in that form, so that a YAML
/// parser reads the same. Otherwise the result is the fallback for a text that is not YAML either.
pub fn read(text: &str) -> (FileLists, bool) {
    let mut reader = Reader::default();
    let mut last = Line::Start;
    for line in text.split_terminator('\n') {
        let kept = line.trim_end();
        let kind = reader.line(kept);
        reader.is_ours &= last.leads_to(kind) && kept.len() == line.len();
        last = kind;
    }
    reader.close();
    let is_ours = reader.is_ours && last == Line::Version && text.ends_with('\n');
    (reader.listing, is_ours)
}

struct Reader {
    listing: FileLists,
    /// Worker whose lines are being read.
    current: Option<(String, WorkerList)>,
    is_ours: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Self { listing: FileLists::default(), current: None, is_ours: true }
    }
}

impl Reader {
    fn line(&mut self, line: &str) -> Line {
        if let Some(job) = line.strip_prefix("      - ") {
            let job = self.name(job);
            if let Some((_, listed)) = &mut self.current {
                listed.jobs.push(job.into());
            }
            return Line::Job;
        }
        if let Some(text) = line.strip_prefix("    version: ") {
            let version = self.version(text);
            if let Some((_, listed)) = &mut self.current {
                listed.version = version;
            }
            return Line::WorkerVersion;
        }
        match line {
            "    jobs:" => return Line::Jobs,
            "    jobs: []" => return Line::NoJobs,
            "workloads:" => return Line::Workers,
            "workloads: {}" => return Line::NoWorkers,
            _ => {}
        }
        if let Some(rest) = line.strip_prefix("  ").filter(|rest| !rest.starts_with([' ', '#']) && !rest.is_empty()) {
            // Even if this line is foreign, the lines after it do not belong to the worker before it.
            self.close();
            let Some(worker) = rest.strip_suffix(':') else { return Line::Foreign };
            let name = self.name(worker);
            self.current = Some((name.into_owned(), WorkerList::default()));
            return Line::Worker;
        }
        if let Some(text) = line.strip_prefix("version: ") {
            self.listing.version = self.version(text);
            return Line::Version;
        }
        Line::Foreign
    }

    fn name<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        let (name, is_ours) = scalar::read(text);
        self.is_ours &= is_ours;
        name
    }

    fn version(&mut self, text: &str) -> Option<i64> {
        let found = version(text).filter(|found| found.to_string() == text);
        self.is_ours &= found.is_some();
        found
    }

    /// Stores the worker that was read.
    fn close(&mut self) {
        let Some((name, listed)) = self.current.take() else { return };
        match self.listing.workers.entry(name) {
            Entry::Vacant(entry) => drop(entry.insert(listed)),
            Entry::Occupied(mut entry) => {
                self.is_ours = false;
                entry.get_mut().jobs.extend(listed.jobs);
                entry.get_mut().version = entry.get().version.max(listed.version);
            }
        }
    }
}
