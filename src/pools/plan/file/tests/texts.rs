//! The exact bytes, case by case.

use rstest::rstest;

use super::*;
use crate::file::{record, text};

#[test]
fn the_texts_have_this_form() {
    let mut published = Published {
        lists: BTreeMap::from([
            ("swarm-worker-10".to_owned(), list(7, &[])),
            ("swarm-worker-2".to_owned(), list(7, &[("a: b", 7), ("stream:xxrtve1", 3), ("stream:xxrtve2", 3)])),
        ]),
        version: 7,
        changes: BTreeMap::from([(7, change(1_790_000_000, "3 to 4 workers"))]),
        edited: false,
        gaps: Vec::new(),
    };
    let second = published.lists.get_mut("swarm-worker-10").unwrap();
    second.releasing.insert("x \"y\"".into(), second.version);
    second.pod = Some("c0ffee".into());
    let (file, record) = render(&published);
    let expected = "workloads:\n  swarm-worker-2:\n    jobs:\n      - \"a: b\"\n      - stream:xxrtve1\n      - stream:xxrtve2\n    \
                    version: 7\n  swarm-worker-10:\n    jobs: []\n    version: 7\nversion: 7\n";
    assert_eq!(file, expected);
    let digest = digest(&[&file], 32);
    let expected = format!(
        "{{\"digest\":\"{digest}\",\"workers\":{{\"swarm-worker-10\":{{\"pod\":\"c0ffee\",\"releasing\":[\"x \\\"y\\\"\"]}},\
         \"swarm-worker-2\":{{\"since\":\"7 3*2\"}}}},\"changes\":{{\"7\":{{\"at\":\"2026-09-21T14:13:20Z\",\"why\":\"3 to 4 workers\"}}}}}}"
    );
    assert_eq!(record, expected);
    assert_eq!(render(&Published::default()).0, "workloads: {}\nversion: 0\n");
}

#[test]
fn nothing_is_nothing() {
    assert_eq!(parse(None, None), Published::default());
}

#[rstest]
#[case::empty(Some(""), None)]
#[case::no_yaml(Some("\"\n"), Some("{"))]
#[case::other_yaml(Some("[1, 2]"), Some("[]"))]
#[case::empty_record(None, Some("{}"))]
fn what_cannot_be_read_is_edited(#[case] file: Option<&str>, #[case] record: Option<&str>) {
    assert_eq!(parse(file, record), Published { edited: true, ..Published::default() });
}

#[test]
fn the_file_of_k8s_swarm_is_read() {
    let file = "workloads:\n    web-1:\n        jobs:\n            - stream:b\n            - stream:a\n        version: 3\n    \
                web-0:\n        jobs: []\nversion: 5\n";
    let expected = Published {
        lists: BTreeMap::from([
            ("web-0".to_owned(), list(5, &[])),
            ("web-1".to_owned(), list(3, &[("stream:a", 3), ("stream:b", 3)])),
        ]),
        version: 5,
        changes: BTreeMap::new(),
        edited: true,
        gaps: Vec::new(),
    };
    assert_eq!(parse(Some(file), None), expected);
}

#[test]
fn kinds_of_jobs_are_in_the_record_and_not_in_the_file() {
    let plain = Published {
        lists: [("a".to_owned(), list(9, &[("x", 1), ("y", 1)]))].into(),
        version: 9,
        ..Published::default()
    };
    let mut published = plain.clone();
    let list = published.lists.get_mut("a").unwrap();
    list.releasing = [("p".into(), 8), ("q".into(), 9)].into();
    let kind = |weight, dedicated| JobKind { weight, dedicated };
    list.kinds = [("y".into(), kind(3, true)), ("q".into(), JobKind::ORDINARY)].into();
    let (file, record) = render(&published);
    assert_eq!(file, render(&plain).0);
    assert_eq!(parse(Some(&file), Some(&record)), published);
    // A record of an earlier version of the operator.
    let (_, earlier) = render(&plain);
    assert_eq!(parse(Some(&file), Some(&earlier)), plain);
}

#[test]
fn a_lost_file_leaves_what_the_record_has() {
    let mut published = Published { version: 9, ..Published::default() };
    published.lists.insert("a".to_owned(), list(9, &[("x", 8), ("y", 9)]));
    published.lists.get_mut("a").unwrap().releasing.insert("z".into(), 3);
    let (_, record) = render(&published);
    let read = parse(None, Some(&record));
    assert!(read.edited);
    assert_eq!(read.version, 9);
    assert_eq!(read.lists["a"], JobList { releasing: [("z".into(), 3)].into(), ..list(9, &[]) });
}

#[rstest]
#[case::job("      - x\n", "      - z\n", &["y", "z"])]
#[case::other_form("      - x\n", "      - 'x' # first\n", &["x", "y"])]
#[case::number("      - x\n", "      - 1e3\n", &["1e3", "y"])]
#[case::object("      - x\n", "      - {name: x}\n", &["y", "{name: x}"])]
#[case::no_yaml("      - x\n", "      - \"x\n", &["\"x", "y"])]
#[case::twice("      - x\n", "      - y\n", &["y"])]
#[case::indent("    jobs:\n", "   jobs:\n", &["x", "y"])]
fn an_edit_of_one_line_leaves_the_rest(#[case] from: &str, #[case] to: &str, #[case] expected: &[&str]) {
    let mut published = Published { version: 9, ..Published::default() };
    published.lists.insert("a".to_owned(), list(9, &[("x", 8), ("y", 9)]));
    published.lists.insert("b".to_owned(), list(7, &[("v", 3)]));
    let (file, record) = render(&published);
    let edited = file.replacen(from, to, 1);
    assert_ne!(file, edited);
    let read = parse(Some(&edited), Some(&record));
    let jobs: Vec<(&str, i64)> = expected.iter().map(|name| (*name, 9)).collect();
    published.lists.insert("a".to_owned(), list(9, &jobs));
    published.lists.insert("b".to_owned(), list(7, &[("v", 7)]));
    assert_eq!(read, Published { edited: true, ..published });
}

#[test]
fn jobs_of_a_worker_that_cannot_be_read_are_nobodys() {
    let text = "workloads:\n  a:\n    jobs:\n      - x\n    version: 1\n  b\n    jobs:\n      - y\n    version: 2\nversion: 2\n";
    let read = parse(Some(text), None);
    assert!(read.lists.keys().eq(["a"]));
    assert_eq!(read.lists["a"], list(1, &[("x", 1)]));
}

#[rstest]
#[case::other_worker("\"a\":{", "\"b\":{")]
#[case::other_count("8 9", "8 9*2")]
#[case::other_digest("\"digest\":\"", "\"digest\":\"0")]
#[case::no_since("\"since\":\"8 9\"", "\"x\":0")]
fn a_record_that_does_not_fit_is_seen(#[case] from: &str, #[case] to: &str) {
    let mut published = Published { version: 9, ..Published::default() };
    published.lists.insert("a".to_owned(), list(9, &[("x", 8), ("y", 9)]));
    let (file, record) = render(&published);
    let edited = record.replacen(from, to, 1);
    assert_ne!(record, edited);
    let read = parse(Some(&file), Some(&edited));
    assert!(read.edited);
    assert_eq!(read.lists["a"], list(9, &[("x", 9), ("y", 9)]));
}

#[test]
fn an_absurd_version_in_an_edited_file_is_no_version() {
    let read = parse(Some("workloads:\n  a:\n    jobs: [x]\n    version: 9223372036854775807\nversion: 4\n"), None);
    assert_eq!(read.version, 4);
    assert_eq!(read.lists["a"], list(4, &[("x", 4)]));
    let record = r#"{"changes": {"9223372036854775807": {"at": "2026-09-21T14:13:20Z", "why": ""}}}"#;
    assert_eq!(parse(None, Some(record)).version, 0);
}

#[rstest]
#[case("stream:xxrtve1", "stream:xxrtve1")]
#[case("a/b.c_d-e", "a/b.c_d-e")]
#[case("a:", "\"a:\"")]
#[case("1", "\"1\"")]
#[case("1e3", "\"1e3\"")]
#[case("NO", "\"NO\"")]
#[case("nothing", "nothing")]
#[case("", "\"\"")]
#[case("a\"b\\c", "\"a\\\"b\\\\c\"")]
#[case("é 😀", "\"é 😀\"")]
#[case("\u{feff}\u{2028}\u{7}", "\"\\ufeff\\u2028\\u0007\"")]
fn names_are_written_so_that_all_readers_agree(#[case] name: &str, #[case] expected: &str) {
    let mut written = String::new();
    text::write_name(&mut written, name);
    assert_eq!(written, expected);
}

#[test]
fn workers_stand_in_the_order_of_their_numbers() {
    let names = [
        "2",
        "10",
        "a",
        "a-b-1",
        "web",
        "web-0",
        "web-00",
        "web-1",
        "web-2",
        "web-02",
        "web-10",
        "web-99999999999999999999",
    ];
    let lists = names.map(|name| (name.to_owned(), JobList::default())).into_iter().collect();
    let (file, _) = render(&Published { lists, ..Published::default() });
    let workers = file.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let workers: Vec<&str> = workers.map(|line| line.trim().trim_end_matches(':').trim_matches('"')).collect();
    let expected = [
        "2",
        "10",
        "a",
        "a-b-1",
        "web",
        "web-0",
        "web-00",
        "web-1",
        "web-02",
        "web-2",
        "web-10",
        "web-99999999999999999999",
    ];
    assert_eq!(workers, expected);
}

#[rstest]
#[case("", 0, Some(vec![]))]
#[case("7*2 9 7", 4, Some(vec![7, 7, 9, 7]))]
#[case("7*1 7", 2, Some(vec![7, 7]))]
#[case("7*0", 0, Some(vec![]))]
#[case("7*2", 1, None)]
#[case("7*2", 3, None)]
#[case("7*18446744073709551615 7", 1, None)]
#[case("7*99999999999999999999", 1, None)]
#[case("x", 1, None)]
#[case("7**2", 2, None)]
fn versions_are_counted(#[case] text: &str, #[case] count: usize, #[case] expected: Option<Vec<i64>>) {
    assert_eq!(record::versions(text, count), expected);
}

#[rstest]
#[case::form("workloads: {}\nversion: 1\n", true)]
#[case::no_end("workloads: {}\nversion: 1", false)]
#[case::carriage_return("workloads: {}\r\nversion: 1\n", false)]
#[case::more("workloads: {}\nversion: 1\n\n", false)]
#[case::padded("workloads: {}\nversion: 01\n", false)]
#[case::twice(
    "workloads:\n  a:\n    jobs: []\n    version: 1\n  a:\n    jobs: []\n    version: 1\nversion: 1\n",
    false
)]
#[case::needless_quotes("workloads:\n  \"a\":\n    jobs: []\n    version: 1\nversion: 1\n", false)]
#[case::jobs_of_none("workloads:\n  a:\n    jobs: []\n      - x\n    version: 1\nversion: 1\n", false)]
#[case::nothing("", false)]
fn only_our_own_form_passes_for_it(#[case] text: &str, #[case] expected: bool) {
    assert_eq!(text::read_lines(text).1, expected);
}

#[test]
fn a_config_map_has_a_limit() {
    let most = 1_048_576 - 253 - RECORD_KEY.len();
    assert!(fits(&"x".repeat(most - 7), &"x".repeat(7)));
    assert!(!fits(&"x".repeat(most - 7), &"x".repeat(8)));
}

#[test]
fn versions_of_jobs_and_of_workers_are_remembered() {
    let mut published = Published {
        lists: BTreeMap::from([("a".to_owned(), list(5, &[("x", 2)])), ("b".to_owned(), list(4, &[]))]),
        version: 6,
        changes: (1..=6).map(|version| (version, change(version, ""))).collect(),
        edited: false,
        gaps: Vec::new(),
    };
    prune(&mut published);
    assert!(published.changes.keys().eq([2, 4, 5].iter()));
}

#[test]
fn no_job_becomes_younger_than_the_list_of_its_worker() {
    let jobs: Vec<(String, i64)> = (1..=40).map(|since| (format!("j{since:02}"), since)).collect();
    let jobs: Vec<(&str, i64)> = jobs.iter().map(|(name, since)| (name.as_str(), *since)).collect();
    let mut published = Published {
        lists: BTreeMap::from([("a".to_owned(), list(40, &jobs)), ("b".to_owned(), list(5, &[("x", 2)]))]),
        version: 40,
        changes: (1..=40).map(|version| (version, change(version, ""))).collect(),
        edited: false,
        gaps: Vec::new(),
    };
    prune(&mut published);
    assert!(published.changes.keys().copied().eq(9..=40));
    let since: Vec<i64> = published.lists["a"].jobs.iter().map(|job| job.since).collect();
    assert_eq!(since[..10], [9, 9, 9, 9, 9, 9, 9, 9, 9, 10]);
    assert_eq!(published.lists["b"], list(5, &[("x", 5)]));
}

#[test]
fn of_two_files_with_one_worker_the_newer_counts() {
    let own = |version| Published {
        lists: BTreeMap::from([("a".to_owned(), list(version, &[]))]),
        version,
        ..Published::default()
    };
    assert_eq!(join([own(2), own(3)]), own(3));
    assert_eq!(join([own(3), own(2)]), own(3));
    let edited = || Published { edited: true, ..own(2) };
    assert!(join([own(3), edited()]).edited && join([edited(), own(3)]).edited);
}
