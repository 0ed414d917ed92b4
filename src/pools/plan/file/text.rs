//! Writes and reads the workers' file, which lists the jobs of each worker in exactly the form of k8s-swarm. It is read
//! line by line, because a YAML parser takes many times as long.
//!
//! A name is written plain if every YAML 1.1 or 1.2 parser reads it as the same string; otherwise in double quotes, with
//! escapes that YAML and JSON share.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::Deserialize;
use serde_saphyr::options::DuplicateKeyPolicy;

use super::{MAX_VERSION, Published};
use crate::yaml;

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
fn parse_version(text: &str) -> Option<i64> {
    text.parse().ok().filter(|version| (0..=MAX_VERSION).contains(version))
}

/// Writes the file, with workers in natural order: web-2 before web-10.
pub fn write(published: &Published) -> String {
    let jobs = published.lists.values().flat_map(|list| &list.jobs);
    let bytes: usize = jobs.map(|job| job.name.len() + 11).sum();
    let mut out = String::with_capacity(bytes + published.lists.len() * 64 + 64);
    let mut lists: Vec<_> = published.lists.iter().collect();
    lists.sort_by_key(|(name, _)| natural(name));
    out.push_str(if lists.is_empty() { "workloads: {}\n" } else { "workloads:\n" });
    for (name, list) in lists {
        out.push_str("  ");
        write_name(&mut out, name);
        out.push_str(if list.jobs.is_empty() { ":\n    jobs: []\n" } else { ":\n    jobs:\n" });
        for job in &list.jobs {
            out.push_str("      - ");
            write_name(&mut out, &job.name);
            out.push('\n');
        }
        // Writing to a text cannot fail.
        let _ = writeln!(out, "    version: {}", list.version);
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
enum LineKind {
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

impl LineKind {
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
pub fn read_lines(text: &str) -> (FileLists, bool) {
    let mut reader = FileReader::default();
    let mut last = LineKind::Start;
    for line in text.split_terminator('\n') {
        let kept = line.trim_end();
        let kind = reader.line(kept);
        reader.is_ours &= last.leads_to(kind) && kept.len() == line.len();
        last = kind;
    }
    reader.close();
    let is_ours = reader.is_ours && last == LineKind::Version && text.ends_with('\n');
    (reader.lists, is_ours)
}

struct FileReader {
    lists: FileLists,
    /// Worker whose lines are being read.
    current: Option<(String, WorkerList)>,
    is_ours: bool,
}

impl Default for FileReader {
    fn default() -> Self {
        Self { lists: FileLists::default(), current: None, is_ours: true }
    }
}

impl FileReader {
    fn line(&mut self, line: &str) -> LineKind {
        if let Some(job) = line.strip_prefix("      - ") {
            let job = self.name(job);
            if let Some((_, listed)) = &mut self.current {
                listed.jobs.push(job.into());
            }
            return LineKind::Job;
        }
        if let Some(text) = line.strip_prefix("    version: ") {
            let version = self.version(text);
            if let Some((_, listed)) = &mut self.current {
                listed.version = version;
            }
            return LineKind::WorkerVersion;
        }
        match line {
            "    jobs:" => return LineKind::Jobs,
            "    jobs: []" => return LineKind::NoJobs,
            "workloads:" => return LineKind::Workers,
            "workloads: {}" => return LineKind::NoWorkers,
            _ => {}
        }
        if let Some(rest) = line.strip_prefix("  ").filter(|rest| !rest.starts_with([' ', '#']) && !rest.is_empty()) {
            // Even if this line is foreign, the lines after it do not belong to the worker before it.
            self.close();
            let Some(worker) = rest.strip_suffix(':') else { return LineKind::Foreign };
            let name = self.name(worker);
            self.current = Some((name.into_owned(), WorkerList::default()));
            return LineKind::Worker;
        }
        if let Some(text) = line.strip_prefix("version: ") {
            self.lists.version = self.version(text);
            return LineKind::Version;
        }
        LineKind::Foreign
    }

    fn name<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        let (name, is_ours) = read_name(text);
        self.is_ours &= is_ours;
        name
    }

    fn version(&mut self, text: &str) -> Option<i64> {
        let version = parse_version(text).filter(|version| version.to_string() == text);
        self.is_ours &= version.is_some();
        version
    }

    /// Stores the worker that was read.
    fn close(&mut self) {
        let Some((name, listed)) = self.current.take() else { return };
        match self.lists.workers.entry(name) {
            Entry::Vacant(entry) => drop(entry.insert(listed)),
            Entry::Occupied(mut entry) => {
                self.is_ours = false;
                entry.get_mut().jobs.extend(listed.jobs);
                entry.get_mut().version = entry.get().version.max(listed.version);
            }
        }
    }
}

#[derive(Deserialize)]
struct YamlFile {
    workloads: Option<BTreeMap<String, Option<YamlWorker>>>,
    version: Option<String>,
}

#[derive(Default, Deserialize)]
struct YamlWorker {
    jobs: Option<Vec<Option<String>>>,
    version: Option<String>,
}

/// Reads a file that k8s-swarm or a person wrote: YAML in any form, with any additional fields.
///
/// Returns None if the text is not YAML, or has other values in the places of names and versions.
pub fn read_yaml(text: &str) -> Option<FileLists> {
    let mut options = yaml::options();
    options.duplicate_keys = DuplicateKeyPolicy::LastWins;
    let file: YamlFile = serde_saphyr::from_str_with_options(text, options).ok()?;
    let number = |text: Option<String>| text.as_deref().and_then(parse_version);
    let workers = file.workloads.unwrap_or_default().into_iter().map(|(name, worker)| {
        let worker = worker.unwrap_or_default();
        let jobs = worker.jobs.unwrap_or_default().into_iter().flatten().map(Into::into).collect();
        (name, WorkerList { jobs, version: number(worker.version) })
    });
    Some(FileLists { workers: workers.collect(), version: number(file.version) })
}

/// Words that some YAML parser does not read as a string, in any case of their letters.
const WORDS: [&str; 13] =
    ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity", "undefined"];

/// Writes a name.
pub fn write_name(out: &mut String, name: &str) {
    if is_plain(name) {
        out.push_str(name);
        return;
    }
    out.push('"');
    for character in name.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            _ if is_escaped(character) => {
                // Writing to a text cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

/// Parses a name. The second value is true if `write_name` would write it the same way.
pub fn read_name(text: &str) -> (Cow<'_, str>, bool) {
    if is_plain(text) {
        return (Cow::Borrowed(text), true);
    }
    let quoted: Option<String> = if text.starts_with('"') { serde_json::from_str(text).ok() } else { None };
    let Some(name) = quoted else { return (Cow::Borrowed(text), false) };
    let mut again = String::with_capacity(text.len());
    write_name(&mut again, &name);
    let is_ours = again == text;
    (Cow::Owned(name), is_ours)
}

/// Returns true if a name needs no quotes: it begins with a letter and has only characters without a meaning in YAML.
/// No number, date or constant begins with a letter, except [`WORDS`].
fn is_plain(name: &str) -> bool {
    let is_safe =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'-' | b':' | b'@' | b'+');
    name.as_bytes().first().is_some_and(u8::is_ascii_alphabetic)
        && name.as_bytes().iter().all(is_safe)
        && !name.ends_with(':')
        && !WORDS.iter().any(|word| word.eq_ignore_ascii_case(name))
}

/// Returns true for characters that are not printable, break lines, or that some parser reads as a byte order mark.
fn is_escaped(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}
