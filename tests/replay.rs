//! `ganglion replay` on CSV files: the decisions, both loops side by side, and what is wrong with the input.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use testkit::block_on;
use testkit::servers::http::{Authority, Manner, Server};

const LOOP: &str = "\
apiVersion: ganglion.dev/v1alpha1
kind: ClosedLoop
metadata: {name: web}
spec:
  target: {apiVersion: apps/v1, kind: Deployment, name: web}
  metrics:
    - {name: cpu, source: {push: {}}, high: {raise: '80'}, low: {raise: '10'}}
  policy: {dwell: DWELL}
  actions:
    - {when: {metric: cpu, side: High}, ladder: [{scale: {by: 1, max: 6}}]}
    - {when: {metric: cpu, side: Low}, ladder: [{scale: {by: -1, min: 1}}]}
";

const VALUES: &str = "\
time,cpu
2026-11-22T10:00:00Z,50
2026-11-22T10:00:15Z,90
2026-11-22T10:00:30Z,90
2026-11-22T10:00:45Z,
2026-11-22T10:01:00Z,5
";

/// A folder with a loop, another one with a dwell, and values.
struct ReplayFiles {
    dir: TempDir,
}

impl ReplayFiles {
    fn new(values: &str) -> Self {
        let files = Self { dir: tempfile::tempdir().unwrap() };
        files.write("loop.yaml", &LOOP.replace("DWELL", "0s"));
        files.write("calm.yaml", &LOOP.replace("DWELL", "40s"));
        files.write("values.csv", values);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Replays the loop on the values. Returns whether that worked, and the output or the error.
    fn replay(&self, args: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ganglion"));
        command.current_dir(self.dir.path()).args(["replay", "loop.yaml", "--csv", "values.csv"]).args(args);
        let output = command.output().unwrap();
        let text = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    fn replayed(&self, args: &[&str]) -> String {
        let (is_good, text) = self.replay(args);
        assert!(is_good, "{text}");
        text
    }

    fn refused(&self, args: &[&str]) -> String {
        let (is_good, text) = self.replay(args);
        assert!(!is_good, "{text}");
        text
    }
}

/// The text with one blank between two words.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_decisions_are_listed_with_their_reasons_and_limits() {
    let text = words(&ReplayFiles::new(VALUES).replayed(&["--start", "replicas=5"]));
    for part in [
        "ClosedLoop web of loop.yaml 2026-11-22 10:00:00 to 2026-11-22 10:01:00 UTC (1m)",
        "effect of the actions on the values: none: the values are as recorded, whatever the loop does",
        "2026-11-22 10:00:15 High cpu 90 scale by 1, at most 6 5 -> 6 Served",
        "2026-11-22 10:00:30 High cpu 90 scale by 1, at most 6 it is at 6, and max is 6 Limited",
        "2026-11-22 10:01:00 Low cpu 5 scale by -1, at least 1 6 -> 5 Served",
        "TOTALS 3 decisions, 2 carried out, 1 at a bound, 1 in the opposite direction of the one before",
        "High cpu (80) 45s 45s 1",
        "changes of the target by others, conflicts and missing rights are not replayed",
    ] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn two_loops_stand_side_by_side() {
    let files = ReplayFiles::new(VALUES);
    let text = words(&files.replayed(&["--start", "replicas=2", "--against", "calm.yaml"]));
    for part in [
        "A: ClosedLoop web of loop.yaml",
        "B: ClosedLoop web of calm.yaml",
        "carried out 3 2",
        "2026-11-22 10:00:30 High cpu: 3 -> 4 Served -",
    ] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn programs_read_json_and_csv() {
    let files = ReplayFiles::new(VALUES);
    let text = files.replayed(&["--start", "replicas=2", "-o", "json", "--effect", "proportional=cpu"]);
    assert_eq!(text, files.replayed(&["--start", "replicas=2", "-o", "json", "--effect", "proportional=cpu"]));
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(shown[0]["decisions"][0]["at"], "2026-11-22T10:00:15Z");
    assert_eq!(shown[0]["totals"]["served"], 2, "{shown:#}");
    assert!(shown[0]["effect"].as_str().unwrap().starts_with("proportional: cpu"));
    let lines = files.replayed(&["--start", "replicas=2", "-o", "csv"]);
    let second = lines.lines().nth(1).unwrap();
    assert_eq!(
        second,
        "loop.yaml,web,1,2026-11-22T10:00:15Z,High cpu,90,1,\"scale by 1, at most 6\",2,3,Served,\
         changed Deployment/web from 2 to 3"
    );
}

#[test]
fn a_picture_is_well_formed_and_always_the_same() {
    let files = ReplayFiles::new(VALUES);
    let draw = |name: &str| {
        files.replayed(&["--start", "replicas=2", "--against", "calm.yaml", "--svg", name]);
        std::fs::read_to_string(files.path(name)).unwrap()
    };
    let picture = draw("a.svg");
    assert_eq!(picture, draw("b.svg"));
    let document = roxmltree::Document::parse(&picture).unwrap();
    let texts: Vec<&str> = document.descendants().filter_map(|node| node.text()).map(str::trim).collect();
    for name in ["cpu", "replicas", "High", "Low"] {
        assert!(texts.contains(&name), "{name} is not in {texts:?}");
    }
    assert!(document.descendants().filter(|node| node.has_tag_name("polyline")).count() >= 4);
}

/// Answer of Prometheus to a query over a range.
const ANSWER: &str = r#"{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": [
    [1795341600, "50"], [1795341615, "90"], [1795341630, "90"]]}]}}"#;

/// The server has a certificate of its own authority, and answers whoever has the token.
#[test]
fn a_server_is_reached_with_a_token_and_its_own_authority() {
    let files = ReplayFiles::new(VALUES);
    let authority = Authority::create();
    files.write("token", "secret\n");
    files.write("wrong", "guessed\n");
    std::fs::write(files.path("ca.pem"), authority.pem()).unwrap();
    let replay = async |options: &[&str]| {
        let manner = Manner::Guarded("authorization: Bearer secret", ANSWER.to_owned());
        let server = Server::secure(manner, &authority).await;
        let url = format!("https://{}", server.address);
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_ganglion"));
        command.current_dir(files.dir.path()).args(["replay", "loop.yaml", "--prometheus", &url, "--query", "cpu=up"]);
        command.args(["--start", "replicas=2", "--since", "45s", "--until", "2026-11-22T10:00:45Z"]).args(options);
        let output = command.output().await.unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.success(), words(&text))
    };
    block_on(async {
        let (is_good, text) = replay(&["--token-file", "token", "--ca-file", "ca.pem"]).await;
        assert!(is_good && text.contains("10:00:15 High cpu"), "{text}");
        for (options, expected) in [
            (&["--token-file", "wrong", "--ca-file", "ca.pem"][..], "401 Unauthorized"),
            (&["--ca-file", "ca.pem"], "401 Unauthorized"),
            (&["--token-file", "token"], "certificate"),
            (&["--token-file", "none", "--ca-file", "ca.pem"], "cannot read none"),
        ] {
            let (is_good, text) = replay(options).await;
            assert!(!is_good && text.contains(expected), "{options:?}: {text}");
        }
    });
}

#[test]
fn wrong_input_is_an_error_that_names_its_place() {
    let files = ReplayFiles::new("time,cpu\n2026-11-22T10:00:15Z,1\n2026-11-22T10:00:00Z,2\n");
    let error = files.refused(&["--start", "replicas=2"]);
    assert!(error.contains("values.csv, line 3, field time: 2026-11-22T10:00:00Z is not later than"), "{error}");
    let files = ReplayFiles::new("time,cpu,disk\n1,2,3\n");
    let error = files.refused(&["--start", "replicas=2"]);
    assert!(error.contains("values.csv, line 1, field disk: it is no metric of the loop"), "{error}");
    let files = ReplayFiles::new(VALUES);
    files.write("typo.yaml", &LOOP.replace("dwell: DWELL", "dwel: 5s"));
    for (args, expected) in [
        (
            &[][..],
            "loop.yaml: the loop reads or changes replicas: give its value at the start with --start replicas=VALUE",
        ),
        (&["--start", "size=2"], "--start size: no loop changes it"),
        (
            &["--start", "replicas=2", "--since", "0s"],
            "the range from 2026-11-22T10:01:00Z to 2026-11-22T10:01:00Z has no",
        ),
        (&["--start", "replicas=2", "--effect", "much"], "\"much\" is no effect: write none, proportional=METRIC,"),
        (&["--start", "replicas=2", "--prometheus", "http://p"], "cannot be used with"),
        (&["--start", "replicas=2", "--against", "none.yaml"], "cannot read none.yaml"),
        (
            &["--start", "replicas=2", "--against", "typo.yaml"],
            "typo.yaml is no ClosedLoop: spec.policy.dwel: there is no",
        ),
    ] {
        let error = files.refused(args);
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}
