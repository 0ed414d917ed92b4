//! Texts that the operator wrote are read back unchanged, for any names; texts that others wrote or changed are read as
//! far as possible.

mod properties;
mod texts;

use proptest::prelude::*;

use super::*;
use ganglion_core::facts::Uid;

fn list(version: i64, jobs: &[(&str, i64)]) -> JobList {
    let jobs = jobs.iter().map(|(name, since)| ListedJob { name: (*name).into(), since: *since });
    JobList { version, jobs: jobs.collect(), ..JobList::default() }
}

fn change(at: i64, why: &str) -> ListChange {
    ListChange { at: jiff::Timestamp::from_second(at).unwrap(), why: why.to_owned() }
}

/// Names that some YAML parser does not read as the same string.
fn nasty() -> impl Strategy<Value = String> {
    let nasty = [
        "'a'",
        "\"a\"",
        "\"",
        "'",
        "\\",
        "a\\",
        "\\n",
        "a: b",
        "a:",
        ":a",
        ":",
        "a #b",
        "#a",
        "- a",
        "-",
        "--- a",
        "---",
        "...",
        "?",
        "? a",
        "&a",
        "*a",
        "!a",
        "!!str a",
        "|",
        ">",
        ">-",
        "%a",
        "@a",
        "`a`",
        ",",
        "[a]",
        "{a}",
        "a, b",
        "<<",
        "=",
        "~",
        "null",
        "Null",
        "NULL",
        "true",
        "True",
        "yes",
        "No",
        "on",
        "OFF",
        "y",
        "N",
        "1",
        "-1",
        "+1",
        "007",
        "0x1f",
        "0o7",
        "0b1",
        "1_000",
        "1e3",
        "1.5",
        ".5",
        "1.",
        ".inf",
        "-.inf",
        ".nan",
        "NaN",
        "inf",
        "Infinity",
        "1:30",
        "12:30:45",
        "2001-01-01",
        "2001-01-01T00:00:00Z",
        "a:b",
        "stream:xxrtve1",
        "rtsp://cam-7.example:554/live?x=1&y=2",
        "jobs:",
        "version: 3",
        "workloads:",
        "é",
        "日本語",
        "😀",
        "a\u{a0}b",
        "\u{feff}a",
        "a\u{2028}b",
        "a\u{2029}b",
        "\u{202e}a",
        "\u{fffe}a",
        "a\u{200b}",
        "\u{10ffff}",
        "e\u{301}",
        "{{ .Values.x }}",
        "${HOME}",
        "%20",
    ];
    prop::sample::select(nasty.to_vec()).prop_map(str::to_owned)
}

/// Valid names of jobs.
fn name() -> impl Strategy<Value = String> {
    let is_name = |name: &String| {
        (1..=253).contains(&name.chars().count()) && name.trim() == name && !name.chars().any(char::is_control)
    };
    let any = any::<String>().prop_filter("no name", is_name);
    let long = "[a-z\"é😀]{1,3}".prop_map(|piece| piece.repeat(253 / piece.chars().count()));
    prop_oneof![4 => "[a-z][a-z0-9:]{0,5}[a-z]".boxed(), 4 => nasty().boxed(), 2 => any.boxed(), 1 => long.boxed()]
}

/// Valid names of workers, and some invalid ones.
fn worker() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-c]-(0|[1-9][0-9]?)".boxed(),
        1 => "[0-9]{1,3}|y|no|1e3|0x1|null|a\\.b-0".boxed(),
        1 => nasty().boxed(),
    ]
}

fn version() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0..6_i64, 1 => 0..=MAX_VERSION, 1 => Just(MAX_VERSION)]
}

fn some_change() -> impl Strategy<Value = ListChange> {
    let nanoseconds = prop_oneof![-9_000_000_000_000_000_000..9_000_000_000_000_000_000_i128, Just(0)];
    (nanoseconds, any::<String>())
        .prop_map(|(nanoseconds, why)| ListChange { at: jiff::Timestamp::from_nanosecond(nanoseconds).unwrap(), why })
}

fn some_list() -> impl Strategy<Value = JobList> {
    let jobs = prop::collection::btree_map(name(), version(), 0..12);
    let releasing = prop::collection::btree_map(name(), version(), 0..3);
    let asked = prop::option::of((version(), any::<u32>()));
    let pod = prop::option::of("[0-9a-f]{8}");
    (version(), jobs, releasing, asked, pod).prop_map(|(version, jobs, releasing, asked, pod)| JobList {
        version,
        jobs: jobs.into_iter().map(|(name, since)| ListedJob { name: name.into(), since }).collect(),
        releasing: releasing.into_iter().map(|(name, removed)| (name.into(), removed.min(version))).collect(),
        unknown: version.checked_sub(3),
        kinds: BTreeMap::new(),
        asked: asked.map(|(first, at)| ListRequest { version: first.min(version), at: change(at.into(), "").at }),
        pod: pod.map(Uid::from),
    })
}

fn published() -> impl Strategy<Value = Published> {
    let lists = prop::collection::btree_map(worker(), some_list(), 0..5);
    let changes = prop::collection::btree_map(version(), some_change(), 0..4);
    (lists, version(), changes).prop_map(|(lists, version, changes)| {
        let gaps = if version > 4 { vec![(0, 2), (3, version)] } else { Vec::new() };
        Published { lists, version, gaps, changes, edited: false }
    })
}
