//! Tests of parsing texts in all forms, and of merging many sources.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn job(name: &str) -> Job {
    Job { name: name.into(), weight: 1, dedicated: false }
}

fn names(text: &str) -> Vec<String> {
    parse(text).unwrap().into_iter().map(|job| job.name.to_string()).collect()
}

#[rstest]
#[case::nothing("", &[])]
#[case::blank(" \n\t\n\r\n", &[])]
#[case::comments("# a\n  # b\n", &[])]
#[case::lines("stream:xxrtve1\n\n  stream:cctv0 \r\n#no\nb # kept", &["stream:xxrtve1", "stream:cctv0", "b # kept"])]
#[case::lines_of_pairs("a: b\nc: {d}", &["a: b", "c: {d}"])]
#[case::lines_with_marks("a\n- b\n-c\n[d", &["a", "- b", "-c", "[d"])]
#[case::dash_in_front("-c\n--d", &["-c", "--d"])]
#[case::jobs_in_front("jobs:new\njobs:old", &["jobs:new", "jobs:old"])]
#[case::mark("\u{feff}a", &["a"])]
#[case::block("- a\n- 'b: c'\n- \"d\\u00e9\"\n", &["a", "b: c", "dé"])]
#[case::after_comments("# these\n\n- a\n", &["a"])]
#[case::indented("  - a\n  - b\n", &["a", "b"])]
#[case::tab("-\ta\n", &["a"])]
#[case::object_below("-\n  name: a\n", &["a"])]
#[case::flow("[a, \"b\",]", &["a", "b"])]
#[case::json("[\"a\", {\"name\": \"b\"}]", &["a", "b"])]
#[case::json_object("{\"version\": 0, \"jobs\": [\"a\"]}", &["a"])]
#[case::document("---\n- a\n", &["a"])]
#[case::empty_document("---\n", &[])]
#[case::k8s_swarm("jobs:\n- stream:a:new\n- \"stream:b\"\nversion: 0\n", &["stream:a:new", "stream:b"])]
#[case::k8s_swarm_flow("jobs: [a, b]\nversion: 0\n", &["a", "b"])]
#[case::version_first("version: 0\njobs:\n  - a\n", &["a"])]
#[case::version_first_flow("version: 0\njobs: [a]\n", &["a"])]
#[case::no_jobs("jobs: []\n", &[])]
#[case::null("jobs:\n", &[])]
#[case::bytes_that_look_like_others("- yes\n- 2001-01-01\n- '1'\n- \"~\"\n", &["yes", "2001-01-01", "1", "~"])]
#[case::twice("a\na", &["a", "a"])]
#[case::alias("- &a x\n- *a\n", &["x", "x"])]
fn texts_have_jobs(#[case] text: &str, #[case] expected: &[&str]) {
    assert_eq!(names(text), expected);
}

#[test]
fn objects_have_weights_and_kinds() {
    let text = "- {name: a, weight: 3}\n- name: b\n  qos: Dedicated\n- {qos: Shared, weight: 1000, name: c}\n- d";
    let expected = vec![
        Job { weight: 3, ..job("a") },
        Job { dedicated: true, ..job("b") },
        Job { weight: 1000, ..job("c") },
        job("d"),
    ];
    assert_eq!(parse(text), Ok(expected));
}

#[rstest]
#[case("a\n\u{7}b\n", "line 2: the name has the control character U+0007; remove it: \"\\u{7}b\"")]
#[case("a\rb", "line 1: the name has the control character U+000D; remove it: \"a\\rb\"")]
#[case("- a\n- ''", "item 2, line 2: the name is empty; it needs 1 to 253 characters")]
#[case("- ' a'", "item 1, line 1: the name begins or ends with a blank; remove it: \" a\"")]
#[case("- {name: 'a '}", "item 1, line 1: the name begins or ends with a blank; remove it: \"a \"")]
#[case("- |\n  a\n", "item 1, line 2: the name begins or ends with a blank; remove it: \"a\\n\"")]
#[case(
    "- a\n- 12",
    "item 2, line 2: a job is a name, or an object with name, weight and qos, but this is a number; write a name in quotes: \"12\""
)]
#[case(
    "- -1.5e3",
    "item 1, line 1: a job is a name, or an object with name, weight and qos, but this is a number; write a name in quotes: \"-1.5e3\""
)]
#[case(
    "[true]",
    "item 1, line 1: a job is a name, or an object with name, weight and qos, but this is true or false; write a name in quotes: \"true\""
)]
#[case("- a\n-\n- b", "item 2, line 2: a job is a name, or an object with name, weight and qos, but this is empty")]
#[case(
    "[[a]]",
    "item 1, line 1: a job is a name, or an object with name, weight and qos, but this is a list: \"[a]]\""
)]
#[case("- {weight: 3}", "item 1, line 1: the object has no name: \"{weight: 3}\"")]
#[case("- {}", "item 1, line 1: the object has no name: \"{}\"")]
#[case("- {name: 3}", "item 1, line 1: the name is a number, not a text; write a name in quotes: \"3\"")]
#[case("- a\n- name: b\n  weight: 0", "item 2, line 3: the weight must be a whole number from 1 to 1000: \"0\"")]
#[case("- {name: a, weight: 1001}", "item 1, line 1: the weight must be a whole number from 1 to 1000: \"1001\"")]
#[case("- {name: a, weight: 1.5}", "item 1, line 1: the weight must be a whole number from 1 to 1000: \"1.5\"")]
#[case("- {name: a, weight: '3'}", "item 1, line 1: the weight must be a whole number from 1 to 1000: \"'3'\"")]
#[case("- {name: a, qos: dedicated}", "item 1, line 1: the qos must be Shared or Dedicated: \"dedicated\"")]
#[case("- name: a\n  wieght: 3", "item 1, line 2: unknown field; a job has only name, weight and qos: \"wieght\"")]
#[case("- name: a\n  name: b", "line 2: the field is set twice: \"name: b\"")]
#[case("{a: b}", "line 1: the object has no field jobs: \"{a: b}\"")]
#[case("jobs: a", "line 1: the jobs must be a list, but this is a text: \"a\"")]
#[case("version: 1\njobs:\n  a: b", "line 3: the jobs must be a list, but this is an object: \"a: b\"")]
#[case("--- a", "line 1: the jobs must be a list, but this is a text: \"a\"")]
#[case("- a\n---\n- b", "line 3: there is more than one YAML document; only one is allowed: \"- b\"")]
#[case(
    "- a\n- b: c: d",
    "line 2: this cannot be read as YAML: mapping values are not allowed in this context: \"- b: c: d\""
)]
#[case("[a, b", "line 1: this cannot be read as YAML: unclosed bracket '[': \"[a, b\"")]
#[case("- *x", "line 1: this cannot be read as YAML: alias references unknown anchor: \"- *x\"")]
fn problems_say_where_and_what(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(parse(text).unwrap_err().to_string(), expected);
}

#[rstest]
#[case::lines(6, "", "line 7: ")]
#[case::list(6, "- ", "item 7, line 7: ")]
fn long_names_are_refused_by_characters_and_quoted_in_part(
    #[case] before: usize,
    #[case] mark: &str,
    #[case] place: &str,
) {
    let text = |name: &str| format!("{}{mark}{name}", format!("{mark}a\n").repeat(before));
    assert_eq!(parse(&text(&"é".repeat(253))).unwrap().len(), 7);
    let message = parse(&text(&"é".repeat(300))).unwrap_err().to_string();
    let shown = "é".repeat(60);
    assert_eq!(message, format!("{place}the name has 300 characters; at most 253 are allowed: \"{shown}…\""));
}

#[rstest]
#[case::flow_levels("[".repeat(500_000))]
#[case::flow_levels_of_objects("{a: ".repeat(250_000))]
#[case::block_levels("- ".repeat(500_000))]
#[case::levels_beside(format!("jobs: []\nx: {}{}", "[".repeat(200), "]".repeat(200)))]
#[case::aliases(format!("- &a x\n{}", "- *a\n".repeat(100_000)))]
fn costly_texts_are_refused_at_once(#[case] text: String) {
    let start = Instant::now();
    parse(&text).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn laughs_beside_the_jobs_are_bounded() {
    let line = |name: char, of: char| format!("{name}: &{name} [{}]\n", format!("*{of}, ").repeat(9));
    let rest: String = ('b'..='i').zip('a'..).map(|(name, of)| line(name, of)).collect();
    let start = Instant::now();
    assert_eq!(parse(&format!("jobs: [x]\na: &a [x, x]\n{rest}")).unwrap_err().fault, JobFault::TooComplex);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[rstest]
#[case::lines(mebibyte("abcdefg\n"))]
#[case::flow(format!("[{}]", mebibyte("abcdefg,")))]
fn a_text_of_the_largest_size_is_read(#[case] text: String) {
    assert_eq!(parse(&text).unwrap().len(), MAX_JOBS);
}

#[rstest]
#[case::lines("abcdefg\n", "")]
#[case::block("- abcd\n", "")]
#[case::flow("abcdefg,", "[")]
fn the_time_of_parsing_grows_with_the_text_only(#[case] piece: &str, #[case] open: &str) {
    let text = |times: usize| format!("{open}{}{}", piece.repeat(times), if open.is_empty() { "" } else { "]" });
    let (short, long) = (text(MAX_JOBS / 8), text(MAX_JOBS));
    let time = |text: &str, times: usize| {
        let begun = Instant::now();
        (0..times).for_each(|_| drop(parse(text).unwrap()));
        begun.elapsed()
    };
    // Both sides are measured in turn, and the best of each counts: other tests run beside this one. A quadratic parser
    // needs eight times as long.
    let ratio = |(short, long): (Duration, Duration)| long.as_secs_f64() / short.as_secs_f64();
    let best = (0..5).map(|_| (time(&short, 8), time(&long, 1))).reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)));
    assert!(ratio(best.unwrap()) < 4.0, "{best:?}");
}

#[rstest]
#[case::lines("a\n".repeat(MAX_JOBS + 1), "line 131073: a text lists at most 131072 jobs; divide it into several ConfigMaps: \"a\"")]
#[case::flow(format!("[{}]", "a,".repeat(MAX_JOBS + 5)), "item 131073, line 1: a text lists at most 131072 jobs")]
fn more_jobs_than_a_text_may_have_are_refused(#[case] text: String, #[case] expected: &str) {
    let error = parse(&text).unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
}

fn mebibyte(piece: &str) -> String {
    piece.repeat((1 << 20) / piece.len())
}

/// Pieces of all forms, in any order.
fn soup() -> impl Strategy<Value = String> {
    let pieces = [
        "- ",
        "-",
        "jobs:",
        "jobs",
        "name",
        "weight",
        "qos",
        "Dedicated",
        ": ",
        ":",
        "[",
        "]",
        "{",
        "}",
        ",",
        "\n",
        "\n  ",
        "  ",
        "\t",
        "\r",
        "#",
        "'",
        "\"",
        "\\",
        "&a ",
        "*a",
        "!x ",
        "!!int ",
        "!!binary ",
        "<<",
        "|\n",
        ">\n",
        "? ",
        "---",
        "...",
        "%",
        "~",
        "null",
        "1",
        "1e999",
        ".nan",
        "a",
        "é",
        "\u{0}",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
        "😀",
    ];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..60).prop_map(|pieces| pieces.concat())
}

/// Checks what `parse` guarantees for any text.
fn assert_sound(text: &str) -> Result<(), TestCaseError> {
    match parse(text) {
        Ok(jobs) => {
            for job in jobs {
                let characters = job.name.chars().count();
                prop_assert!((1..=253).contains(&characters), "{:?}", job);
                prop_assert!(!job.name.chars().any(char::is_control), "{:?}", job);
                prop_assert_eq!(job.name.trim(), &*job.name);
                prop_assert!((1..=1000).contains(&job.weight), "{:?}", job);
            }
        }
        Err(problem) => {
            let message = problem.to_string();
            prop_assert!(!message.chars().any(char::is_control), "{}", message);
            prop_assert!(message.chars().count() < 1000, "{}", message);
            prop_assert!(
                problem.place.line >= 1 && problem.place.line <= 2 + text.matches(['\n', '\r']).count() as u64
            );
        }
    }
    Ok(())
}

fn any_name() -> impl Strategy<Value = String> {
    let nasty = prop::sample::select(vec![
        "a: b", "a #b", "#a", "- a", "-", "?", "&a", "*a", "!a", "|", ">", "%a", "@a", "`a", "null", "true", "1",
        "1e3", "~", "'a'", "\"a\"", "\\", "[a]", "{a}", ",", "<<", "=", "jobs:", "jobs: []", "---", "é", "😀",
        "\u{feff}",
    ]);
    let any = any::<String>().prop_filter("no name", |name| check_name(name).is_ok());
    let long = "[a-z]{1,3}".prop_map(|piece| piece.repeat(253 / piece.len()));
    prop_oneof![4 => "[a-z:]{1,6}".boxed(), 2 => nasty.prop_map(str::to_owned).boxed(), 2 => any.boxed(), 1 => long.boxed()]
}

fn some_job() -> impl Strategy<Value = Job> {
    (any_name(), 1..=1000_u32, any::<bool>()).prop_map(|(name, weight, dedicated)| Job {
        name: name.as_str().into(),
        weight,
        dedicated,
    })
}

/// Sources with few different names, so that names repeat.
fn sources() -> impl Strategy<Value = Vec<(String, Vec<Job>)>> {
    let job = ("[a-b](12345678)?[a-c]", 1..=3_u32, any::<bool>()).prop_map(|(name, weight, dedicated)| Job {
        name: name.as_str().into(),
        weight,
        dedicated,
    });
    prop::collection::vec(("[x-z]", prop::collection::vec(job, 0..12)), 0..5)
}

/// Reference implementation of `merge` with a map.
fn expected(sources: &[(String, Vec<Job>)]) -> JobTable {
    let mut all: BTreeMap<String, (Job, Vec<String>)> = BTreeMap::new();
    for (source, jobs) in sources {
        for job in jobs {
            let (known, by) = all.entry(job.name.to_string()).or_insert_with(|| (job.clone(), vec![]));
            known.weight = known.weight.max(job.weight);
            known.dedicated |= job.dedicated;
            by.push(source.clone());
            by.sort();
        }
    }
    let repeated: Vec<&(Job, Vec<String>)> = all.values().filter(|(_, by)| by.len() > 1).collect();
    let first = repeated
        .first()
        .map(|(job, by)| Repeated { name: job.name.clone(), sources: [by[0].as_str().into(), by[1].as_str().into()] });
    JobTable {
        repeated: repeated.len(),
        first_repeated: first,
        jobs: all.values().map(|(job, _)| job.clone()).collect(),
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        assert_sound(&text)?;
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        assert_sound(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn any_mixture_is_read_or_refused(text in soup()) {
        assert_sound(&text)?;
    }

    #[test]
    fn names_in_lines_are_read_as_they_are(names in prop::collection::vec(any_name(), 0..10)) {
        // The first line makes the text a list of lines; only a later field `jobs` would change that.
        prop_assume!(!names.iter().any(|name| name.starts_with("jobs:")));
        let text = format!("first\n{}", names.join("\n"));
        let lines: Vec<String> = names.into_iter().filter(|name| !name.starts_with('#')).collect();
        prop_assert_eq!(&super::tests::names(&text)[1..], lines);
    }

    #[test]
    fn json_is_read_as_it_is(jobs in prop::collection::vec(some_job(), 0..10), is_object in any::<bool>()) {
        let items: Vec<serde_json::Value> = jobs.iter().map(|job| {
            let qos = if job.dedicated { "Dedicated" } else { "Shared" };
            if job.weight == 1 && !job.dedicated {
                serde_json::json!(&*job.name)
            } else {
                serde_json::json!({"qos": qos, "weight": job.weight, "name": &*job.name})
            }
        }).collect();
        let value = if is_object { serde_json::json!({"version": 0, "jobs": items}) } else { serde_json::json!(items) };
        prop_assert_eq!(parse(&value.to_string()), Ok(jobs.clone()));
        prop_assert_eq!(parse(&serde_json::to_string_pretty(&value).unwrap()), Ok(jobs));
    }

    #[test]
    fn tables_have_each_job_once(sources in sources()) {
        prop_assert_eq!(merge(sources.clone()), expected(&sources));
    }

    #[test]
    fn the_order_of_sources_does_not_matter(sources in sources().prop_shuffle().no_shrink(), by in 0..5_usize) {
        let mut others = sources.clone();
        others.rotate_left(by.min(sources.len()));
        others.iter_mut().for_each(|(_, jobs)| jobs.reverse());
        prop_assert_eq!(merge(sources), merge(others));
    }
}

#[test]
fn the_first_repetition_names_its_sources() {
    let table = merge([("two", vec![job("b"), job("a")]), ("one", vec![job("b"), job("c"), job("c")])]);
    assert_eq!(table.jobs, [job("a"), job("b"), job("c")]);
    assert_eq!(table.repeated, 2);
    assert_eq!(table.first_repeated, Some(Repeated { name: "b".into(), sources: ["one".into(), "two".into()] }));
    assert_eq!(
        merge([("one", vec![job("c"), job("c")])]).first_repeated.unwrap().sources,
        ["one".into(), "one".into()]
    );
    assert_eq!(merge(Vec::<(String, Vec<Job>)>::new()), JobTable::default());
}
