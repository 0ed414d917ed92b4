//! What workers read, and what is recorded beside it, as texts of ConfigMaps.
//!
//! The file has the form of k8s-swarm (marcosQuesada/k8s-swarm): `workloads: {<pod>: {jobs: […], version: n}}, version: n`. The
//! record is JSON under a key of its own; workers do not read it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::logic::digest::digest;

/// What one worker has been told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Version of the file at which its jobs last changed; 0 if it has never had any.
    pub version: i64,
    /// Sorted by name.
    pub jobs: Vec<HeldJob>,
    /// Jobs that were taken away, and that it has not confirmed to have stopped.
    pub releasing: BTreeSet<Arc<str>>,
    /// uid of the pod that existed when `version` was written: it has started with an older file.
    pub pod: Option<String>,
}

/// A job of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldJob {
    pub name: Arc<str>,
    /// Version of the file with which it came to this worker.
    pub since: i64,
}

/// Everything that workers have been told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// By worker.
    pub holdings: BTreeMap<String, Holding>,
    pub version: i64,
    /// When and why the versions were written that holdings and jobs name.
    pub changes: BTreeMap<i64, ListChange>,
    /// The texts are not as they were written here.
    pub edited: bool,
}

/// A version of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListChange {
    pub at: Timestamp,
    pub why: String,
}

/// The most changes that are kept.
const MAX_CHANGES: usize = 32;

/// The most bytes of a ConfigMap, keys included.
const MAX_BYTES: usize = 1 << 20;

/// Room for the keys.
const KEYS: usize = 512;

/// The file, as it is read.
#[derive(Deserialize, Default)]
struct FileText {
    #[serde(default)]
    workloads: Option<BTreeMap<String, Option<EntryText>>>,
    #[serde(default)]
    version: Option<i64>,
}

#[derive(Deserialize, Default)]
struct EntryText {
    #[serde(default)]
    jobs: Option<Vec<String>>,
    #[serde(default)]
    version: Option<i64>,
}

/// The record.
#[derive(Serialize, Deserialize, Default)]
struct RecordText {
    /// Digest of the file.
    digest: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    workers: BTreeMap<String, WorkerText>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    changes: BTreeMap<i64, ListChange>,
}

#[derive(Serialize, Deserialize, Default)]
struct WorkerText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    releasing: BTreeSet<String>,
    /// The `since` of each job, in their order, equal ones once with their number: `7*12 9 7*3`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    since: String,
}

/// The file and the record.
#[must_use]
pub fn render(published: &Published) -> (String, String) {
    let file = render_file(published);
    let worker = |holding: &Holding| WorkerText {
        pod: holding.pod.clone(),
        releasing: holding.releasing.iter().map(ToString::to_string).collect(),
        since: render_since(&holding.jobs),
    };
    let record = RecordText {
        digest: digest(&[&file], 32),
        workers: published.holdings.iter().map(|(name, holding)| (name.clone(), worker(holding))).collect(),
        changes: published.changes.clone(),
    };
    // Maps with texts as keys, and texts: that cannot fail.
    let record = serde_json::to_string(&record).unwrap_or_default();
    (file, record)
}

fn render_file(published: &Published) -> String {
    let mut file = String::new();
    let mut workers: Vec<_> = published.holdings.iter().collect();
    workers.sort_by(|(a, _), (b, _)| natural(a).cmp(&natural(b)));
    file.push_str(if workers.is_empty() { "workloads: {}\n" } else { "workloads:\n" });
    for (name, holding) in workers {
        // Writing to a String does not fail.
        let _ = writeln!(file, "  {}:", scalar(name));
        file.push_str(if holding.jobs.is_empty() { "    jobs: []\n" } else { "    jobs:\n" });
        for job in &holding.jobs {
            let _ = writeln!(file, "      - {}", scalar(&job.name));
        }
        let _ = writeln!(file, "    version: {}", holding.version);
    }
    let _ = writeln!(file, "version: {}", published.version);
    file
}

/// The order in which people count: web-2 before web-10.
fn natural(name: &str) -> (&str, u64, &str) {
    let head = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name.get(head.len()..).and_then(|digits| digits.parse().ok());
    (if number.is_some() { head } else { name }, number.unwrap_or(0), name)
}

/// A text as a scalar that every YAML parser reads as this very text: plain where that is sure, else in double quotes.
fn scalar(text: &str) -> String {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | '@' | '+');
    let begins_well = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_plain = begins_well && text.chars().all(is_inner) && !text.ends_with(':') && !is_word(text);
    if is_plain { text.to_owned() } else { quoted(text) }
}

/// Whether some YAML parser reads it as something else than a text.
fn is_word(text: &str) -> bool {
    const WORDS: &[&str] = &["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "e"];
    WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// JSON's form of a text, with everything that YAML may not have as it is escaped.
fn quoted(text: &str) -> String {
    let json = serde_json::to_string(text).unwrap_or_default();
    let mut quoted = String::with_capacity(json.len());
    for c in json.chars() {
        match u32::from(c) {
            0x20..=0x7e | 0xa0..=0xd7ff | 0xe000..=0xfefe | 0xff00..=0xfffd
                if !matches!(c, '\u{2028}' | '\u{2029}') =>
            {
                quoted.push(c);
            }
            code @ 0..=0xffff => {
                let _ = write!(quoted, "\\u{code:04x}");
            }
            code => {
                let _ = write!(quoted, "\\U{code:08x}");
            }
        }
    }
    quoted
}

fn render_since(jobs: &[HeldJob]) -> String {
    let mut text = String::new();
    for run in jobs.chunk_by(|a, b| a.since == b.since) {
        let Some(first) = run.first() else { continue };
        let gap = if text.is_empty() { "" } else { " " };
        let _ = match run.len() {
            1 => write!(text, "{gap}{}", first.since),
            many => write!(text, "{gap}{}*{many}", first.since),
        };
    }
    text
}

/// The versions that such a text has, each as often as it says.
fn parse_since(text: &str) -> impl Iterator<Item = i64> {
    let runs = text.split_ascii_whitespace().map_while(|run| match run.split_once('*') {
        Some((version, times)) => Some((version.parse().ok()?, times.parse::<usize>().ok()?)),
        None => Some((run.parse().ok()?, 1)),
    });
    runs.flat_map(|(version, times)| std::iter::repeat_n(version, times))
}

/// What these texts have. Never fails: of texts that somebody has changed, what can be read.
#[must_use]
pub fn parse(file: Option<&str>, record: Option<&str>) -> Published {
    if file.is_none() && record.is_none() {
        return Published::default();
    }
    let read = file.and_then(|text| serde_saphyr::from_str::<FileText>(text).ok());
    let kept = record.and_then(|text| serde_json::from_str::<RecordText>(text).ok());
    let is_as_written = kept.as_ref().is_some_and(|record| record.digest == digest(&[file.unwrap_or_default()], 32));
    let edited = !is_as_written || read.is_none();
    let (read, mut record) = (read.unwrap_or_default(), kept.unwrap_or_default());
    let mut holdings = BTreeMap::new();
    for (name, entry) in read.workloads.unwrap_or_default() {
        let entry = entry.unwrap_or_default();
        let worker = record.workers.remove(&name).unwrap_or_default();
        let version = entry.version.unwrap_or(0);
        let names: BTreeSet<Arc<str>> = entry.jobs.unwrap_or_default().into_iter().map(Arc::from).collect();
        let since = parse_since(&worker.since).chain(std::iter::repeat(version));
        let jobs = names.into_iter().zip(since).map(|(name, since)| HeldJob { name, since }).collect();
        holdings.insert(name, Holding { version, jobs, releasing: shared(worker.releasing), pod: worker.pod });
    }
    // What a worker that somebody has deleted from the file has to release is not forgotten.
    for (name, worker) in record.workers {
        let holding = Holding { releasing: shared(worker.releasing), pod: worker.pod, ..Holding::default() };
        holdings.insert(name, holding);
    }
    let newest = holdings.values().map(|holding| holding.version).max().unwrap_or(0);
    Published { holdings, version: read.version.unwrap_or(0).max(newest), changes: record.changes, edited }
}

fn shared(names: BTreeSet<String>) -> BTreeSet<Arc<str>> {
    names.into_iter().map(Arc::from).collect()
}

/// Forgets the changes that nothing names, and the oldest of too many: the jobs that came with them came with the oldest that is
/// kept.
pub fn prune(published: &mut Published) {
    let mut named = BTreeSet::new();
    for holding in published.holdings.values() {
        named.insert(holding.version);
        named.extend(holding.jobs.iter().map(|job| job.since));
    }
    published.changes.retain(|version, _| named.contains(version));
    let surplus = published.changes.len().saturating_sub(MAX_CHANGES);
    let Some(oldest) = published.changes.keys().nth(surplus).copied().filter(|_| surplus > 0) else { return };
    published.changes.retain(|version, _| *version >= oldest);
    for job in published.holdings.values_mut().flat_map(|holding| &mut holding.jobs) {
        job.since = job.since.max(oldest);
    }
}

/// What the ConfigMap of each worker has, where each has its own.
#[must_use]
pub fn split(published: &Published) -> BTreeMap<String, Published> {
    let part = |(name, holding): (&String, &Holding)| {
        let version = holding.version;
        let mut part = Published {
            holdings: [(name.clone(), holding.clone())].into(),
            version,
            changes: published.changes.clone(),
            edited: published.edited,
        };
        prune(&mut part);
        (name.clone(), part)
    };
    published.holdings.iter().map(part).collect()
}

/// What several ConfigMaps have together.
#[must_use]
pub fn join(parts: impl IntoIterator<Item = Published>) -> Published {
    parts.into_iter().fold(Published::default(), |mut all, part| {
        all.holdings.extend(part.holdings);
        all.version = all.version.max(part.version);
        all.changes.extend(part.changes);
        all.edited |= part.edited;
        all
    })
}

/// Whether the texts fit into one ConfigMap.
#[must_use]
pub fn fits(file: &str, record: &str) -> bool {
    file.len() + record.len() + KEYS <= MAX_BYTES
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z]{1,6}:[a-z0-9]{1,6}",
            "[ -~]{1,12}",
            "\\PC{1,8}",
            prop::sample::select(vec![
                "null",
                "true",
                "No",
                "~",
                "1",
                "1e3",
                "0x1f",
                "1:30",
                "- a",
                "a: b",
                "a #b",
                "#",
                "*a",
                "&a",
                "!a",
                "|",
                ">",
                "%",
                "@",
                "`",
                "'",
                "\"",
                "\\",
                "a:",
                ":",
                "{a",
                "[a",
                ",",
                "?",
                "=",
                "<<",
                "2001-01-01",
                ".inf",
                "\u{2028}",
                "\u{feff}",
                "\u{85}",
                "🎥",
                "e",
                "y",
                "Ω",
                "a\u{300}",
            ])
            .prop_map(str::to_owned),
        ]
        .prop_filter("names have no blank at their ends", |name| name.trim() == name && !name.is_empty())
    }

    fn holding() -> impl Strategy<Value = Holding> {
        let jobs = prop::collection::btree_map(name(), 0..9_i64, 0..8);
        let releasing = prop::collection::btree_set(name(), 0..4);
        (0..9_i64, jobs, releasing, prop::option::of("[a-f0-9]{8}")).prop_map(|(version, jobs, releasing, pod)| {
            Holding {
                version,
                jobs: jobs.into_iter().map(|(name, since)| HeldJob { name: name.into(), since }).collect(),
                releasing: releasing.into_iter().map(Arc::from).collect(),
                pod,
            }
        })
    }

    fn published() -> impl Strategy<Value = Published> {
        let holdings = prop::collection::btree_map("[a-z]{1,3}-[0-9]{1,2}", holding(), 0..5);
        let change = (0..1000_i64, "\\PC{0,8}")
            .prop_map(|(at, why)| ListChange { at: Timestamp::from_second(at).unwrap(), why });
        let changes = prop::collection::btree_map(0..9_i64, change, 0..4);
        (holdings, 9..20_i64, changes).prop_map(|(holdings, version, changes)| Published {
            holdings,
            version,
            changes,
            edited: false,
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(published in published()) {
            let (file, record) = render(&published);
            prop_assert_eq!(parse(Some(&file), Some(&record)), published, "{}", file);
        }

        #[test]
        fn whatever_somebody_writes_is_read_somehow(file in "\\PC{0,200}", record in "\\PC{0,200}") {
            let read = parse(Some(&file), Some(&record));
            prop_assert!(read.edited);
            let (file, record) = render(&Published { edited: false, ..read });
            prop_assert!(!parse(Some(&file), Some(&record)).edited);
        }

        #[test]
        fn parts_are_the_whole(mut published in published()) {
            prune(&mut published);
            published.version = published.holdings.values().map(|holding| holding.version).max().unwrap_or(0);
            prop_assert_eq!(join(split(&published).into_values()), published);
        }
    }

    fn one() -> Published {
        let job = |name: &str, since| HeldJob { name: name.into(), since };
        let jobs = vec![job("stream:a", 2), job("stream:b", 2), job("weird: #1", 3)];
        let first = Holding { version: 3, jobs, releasing: ["x".into()].into(), pod: Some("u".to_owned()) };
        let change = ListChange { at: Timestamp::UNIX_EPOCH, why: "first deal".to_owned() };
        Published {
            holdings: [("w-10".to_owned(), Holding::default()), ("w-2".to_owned(), first)].into(),
            version: 4,
            changes: [(2, change)].into(),
            edited: false,
        }
    }

    #[test]
    fn the_file_has_the_form_of_k8s_swarm() {
        let (file, record) = render(&one());
        let expected = "workloads:\n  w-2:\n    jobs:\n      - stream:a\n      - stream:b\n      - \"weird: #1\"\n    version: 3\n  \
                        w-10:\n    jobs: []\n    version: 0\nversion: 4\n";
        assert_eq!(file, expected);
        assert!(record.contains(r#""since":"2*2 3""#), "{record}");
        assert_eq!(render(&Published::default()).0, "workloads: {}\nversion: 0\n");
    }

    #[test]
    fn a_changed_text_is_noticed_and_what_is_to_be_released_is_kept() {
        let (file, record) = render(&one());
        let edited = parse(Some(&file.replace("stream:b", "stream:z")), Some(&record));
        assert!(edited.edited);
        assert_eq!(edited.holdings["w-2"].jobs.len(), 3);
        let gone = parse(Some("workloads: {}\nversion: 1\n"), Some(&record));
        assert!(gone.edited && gone.holdings["w-2"].releasing.contains("x"));
        assert!(parse(Some(&file), None).edited);
        assert!(parse(None, Some(&record)).edited);
        assert_eq!(parse(None, None), Published::default());
    }

    #[test]
    fn only_so_many_changes_are_kept() {
        let mut published = Published::default();
        let change = |version| ListChange { at: Timestamp::UNIX_EPOCH, why: format!("{version}") };
        let job = |since| HeldJob { name: format!("job-{since:03}").into(), since };
        published.changes = (1..=100).map(|version| (version, change(version))).collect();
        let holding = Holding { version: 100, jobs: (1..100).step_by(2).map(job).collect(), ..Holding::default() };
        published.holdings.insert("w-0".to_owned(), holding);
        prune(&mut published);
        assert_eq!(published.changes.len(), MAX_CHANGES);
        let oldest = *published.changes.keys().next().unwrap();
        assert!(published.holdings["w-0"].jobs.iter().all(|job| job.since >= oldest));
    }
}
