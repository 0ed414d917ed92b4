//! Recordings from CSV files, and what is wrong with a file.

use std::collections::BTreeSet;

use rstest::rstest;

use super::*;

fn read(text: &str) -> Result<Recording, String> {
    let known: BTreeSet<String> = ["cpu", "memory"].map(str::to_owned).into();
    read_csv("a.csv", text, &known).map_err(|error| error.to_string())
}

#[test]
fn times_values_and_gaps_are_read() {
    let text = "\u{feff}time,\"cpu\",memory\r\n2026-11-22T10:00:00Z,5,1Gi\r\n2026-11-22T10:00:15Z,,NaN\r\n";
    let recording = read(text).unwrap();
    assert_eq!((recording.start(), recording.end()), (at(0), at(15)));
    let cpu: Vec<Option<&str>> = recording.samples("cpu").unwrap().iter().map(value).collect();
    assert_eq!(cpu, [Some("5"), None]);
    let memory = recording.samples("memory").unwrap();
    assert_eq!(memory[0].value.as_deref(), Ok("1Gi"));
    assert_eq!(memory[1].value.as_ref().unwrap_err().as_ref(), "the recorded value is NaN, which is not a number");
    let seconds = read("time,cpu\n1795341600,1\n1795341600.5,2\n").unwrap();
    assert_eq!(seconds.end().duration_since(seconds.start()).as_millis(), 500);
}

fn value(sample: &RecordedSample) -> Option<&str> {
    sample.value.as_deref().ok()
}

#[rstest]
#[case::empty("", "a.csv: it is empty: write a line `time,METRIC,...`, and a line for each time")]
#[case::no_values("time,cpu\n", "a.csv: it has no line with values")]
#[case::one_time("time,cpu\n5,1\n", "a.csv: the range from 1970-01-01T00:00:05Z to 1970-01-01T00:00:05Z has no length")]
#[case::no_time("at,cpu\n5,1\n", "a.csv, line 1: the first column is \"at\": call it time")]
#[case::no_columns("time\n5\n", "a.csv, line 1: there is no column with values: write `time,METRIC,...`")]
#[case::unknown(
    "time,cpu,disk\n",
    "a.csv, line 1, field disk: it is no metric of the loop with values of its own: cpu, memory"
)]
#[case::twice("time,cpu,cpu\n", "a.csv, line 1, field cpu: two columns have this name")]
#[case::short("time,cpu,memory\n1,2,3\n4,5\n", "a.csv, line 3: 2 fields, and the first line has 3")]
#[case::blank("time,cpu\n1,2\n\n2,3\n", "a.csv, line 3: 1 fields, and the first line has 2")]
#[case::text("time,cpu\n1,2\n2,many\n", "a.csv, line 3, field cpu: \"many\" is not a number: leave the field empty")]
#[case::back("time,cpu\n20,2\n10,3\n", "a.csv, line 3, field time: 1970-01-01T00:00:10Z is not later than")]
#[case::same("time,cpu\n20,2\n20,3\n", "a.csv, line 3, field time: 1970-01-01T00:00:20Z is not later than")]
#[case::date("time,cpu\nmonday,2\n", "a.csv, line 2, field time: \"monday\" is neither seconds since 1970 nor a time")]
#[case::millis("time,cpu\n1795341600000,2\n", "a.csv, line 2, field time: \"1795341600000\" is too large for seconds")]
#[case::quote("time,cpu\n\"1,2\n", "a.csv, line 2: a quote is not closed")]
#[case::after_quote("time,cpu\n\"1\"2,2\n", "a.csv, line 2: a text follows a closing quote: separate fields by commas")]
fn a_broken_file_is_an_error_with_its_place(#[case] text: &str, #[case] words: &str) {
    let error = read(text).unwrap_err();
    assert!(error.starts_with(words), "{error}");
}
