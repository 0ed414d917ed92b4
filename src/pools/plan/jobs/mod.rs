//! Parses the jobs of a pool from the texts of its sources, and merges several sources into one table.
//!
//! | file | description |
//! |---|---|
//! | `mod` | parses one job per line, describes errors, and merges the jobs of all sources, each once |
//! | `list` | parses a YAML or JSON list |

mod list;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::{fmt, mem};

use super::Job;

/// Parses the jobs of a text: one job per line; or a YAML or JSON list of names and objects; or an object whose field
/// `jobs` is such a list. Returns them in the order of the text, with repetitions.
///
/// One invalid job fails the whole text: otherwise the valid part would be assigned as if it were complete.
pub fn parse(text: &str) -> Result<Vec<Job>, JobsProblem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if is_yaml(text) { list::parse(text) } else { parse_lines(text) }
}

/// Returns true if the text is YAML (which includes JSON): its content begins like YAML, or a later line is a field
/// `jobs`, which other fields may precede.
fn is_yaml(text: &str) -> bool {
    let mut content = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let Some(first) = content.next() else { return false };
    let starts_with_marker = |marker: &str| {
        first.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
    };
    let opens_list = |line: &str| {
        let rest = line.strip_prefix("jobs:").map(str::trim_start);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '#']))
    };
    first.starts_with(['[', '{'])
        || starts_with_marker("-")
        || starts_with_marker("---")
        || starts_with_marker("jobs:")
        || content.any(opens_list)
}

/// Parses one job per line. Ignores whitespace at both ends, empty lines, and lines that begin with `#`.
fn parse_lines(text: &str) -> Result<Vec<Job>, JobsProblem> {
    let mut jobs = Vec::new();
    for (line, name) in (1..).zip(text.lines().map(str::trim)) {
        if name.is_empty() || name.starts_with('#') {
            continue;
        }
        let checked = if jobs.len() < MAX_JOBS { check_name(name) } else { Err(JobFault::TooMany) };
        checked.map_err(|fault| JobsProblem::new(TextPosition { line, item: None }, fault, name))?;
        jobs.push(Job { name: name.into(), weight: 1, dedicated: false });
    }
    Ok(jobs)
}

/// Maximum number of jobs in one text. A job occupies many times its text, so a text of short names is not read whole.
pub const MAX_JOBS: usize = 1 << 17;

/// Maximum length of a name, in characters.
pub const MAX_CHARACTERS: usize = 253;

/// Checks that a job can have this name.
fn check_name(name: &str) -> Result<(), JobFault> {
    if name.is_empty() {
        return Err(JobFault::EmptyName);
    }
    if name.starts_with(char::is_whitespace) || name.ends_with(char::is_whitespace) {
        return Err(JobFault::BlankEnd);
    }
    if let Some(control) = name.chars().find(|character| character.is_control()) {
        return Err(JobFault::Control(control));
    }
    if name.contains(char::REPLACEMENT_CHARACTER) {
        return Err(JobFault::Lost);
    }
    // A name never has more characters than bytes, so counting them is rarely necessary.
    if name.len() > MAX_CHARACTERS {
        let characters = name.chars().count();
        if characters > MAX_CHARACTERS {
            return Err(JobFault::LongName(characters));
        }
    }
    Ok(())
}

/// Maximum number of characters that a message quotes.
const QUOTED_CHARACTERS: usize = 60;

/// Error that makes the whole text invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {fault}{}", Quoted(text))]
pub struct JobsProblem {
    pub place: TextPosition,
    pub fault: JobFault,
    /// Beginning of the wrong text; empty if there is nothing to quote.
    pub text: String,
}

impl JobsProblem {
    fn new(place: TextPosition, fault: JobFault, text: &str) -> Self {
        let mut characters = text.chars();
        let mut text: String = characters.by_ref().take(QUOTED_CHARACTERS).collect();
        if characters.next().is_some() {
            text.push('…');
        }
        Self { place, fault, text }
    }
}

/// TextPosition in a text, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPosition {
    pub line: u64,
    /// Number of the item of the list.
    pub item: Option<usize>,
}

impl fmt::Display for TextPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.item {
            Some(item) => write!(f, "item {item}, line {}", self.line),
            None => write!(f, "line {}", self.line),
        }
    }
}

/// Kind of an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobFault {
    #[error("the name is empty; it needs 1 to 253 characters")]
    EmptyName,
    #[error("the name has {0} characters; at most 253 are allowed")]
    LongName(usize),
    #[error("the name begins or ends with a blank; remove it")]
    BlankEnd,
    #[error("the name has the control character U+{:04X}; remove it", u32::from(*.0))]
    Control(char),
    #[error("the name has the character U+FFFD, which stands for lost characters: save the text as UTF-8")]
    Lost,
    #[error("a job is a name, or an object with name, weight and qos, but this is {0}{hint}", hint = quote_hint(.0))]
    NotAJob(&'static str),
    #[error("the name is {0}, not a text{hint}", hint = quote_hint(.0))]
    NotAName(&'static str),
    #[error("the object has no name")]
    NoName,
    #[error("the weight must be a whole number from 1 to 1000")]
    Weight,
    #[error("the qos must be Shared or Dedicated")]
    Qos,
    #[error("unknown field; a job has only name, weight and qos")]
    UnknownMember,
    #[error("the jobs must be a list, but this is {0}")]
    NotAList(&'static str),
    #[error("the object has no field jobs")]
    NoJobs,
    #[error("the field is set twice")]
    Twice,
    #[error("there is more than one YAML document; only one is allowed")]
    SeveralDocuments,
    #[error("a text lists at most {MAX_JOBS} jobs; divide it into several ConfigMaps")]
    TooMany,
    #[error("the YAML has too many aliases or levels")]
    TooComplex,
    #[error("this cannot be read as YAML: {0}")]
    Yaml(String),
}

/// Advice for a number or a constant, which may be meant as a name.
fn quote_hint(kind: &str) -> &'static str {
    match kind {
        "a list" | "an object" | "empty" => "",
        _ => "; write a name in quotes",
    }
}

/// Quotation at the end of a message, with control characters escaped.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {:?}", self.0) }
    }
}

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

impl JobTable {
    /// Position of the job with this name.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.jobs.binary_search_by(|job| (*job.name).cmp(name)).ok()
    }

    /// The job with this name.
    pub fn get(&self, name: &str) -> Option<&Job> {
        self.jobs.get(self.index_of(name)?)
    }
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
