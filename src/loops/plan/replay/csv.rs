//! A recording from a CSV file: the column `time`, and one column for each metric.
//!
//! Nothing is skipped: what cannot be read is an error that names file, line and field.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use super::recording::{RecordedSample, Recording, RecordingError};
use ganglion_core::quantity;
use ganglion_core::words::quoted;

/// Name of the column with the times.
const TIME: &str = "time";

/// Reason of a value that is missing.
const EMPTY: &str = "the recording has no value at this time";

/// Texts that programs write for values that are no numbers.
const NO_NUMBERS: [&str; 6] = ["NaN", "nan", "+Inf", "-Inf", "inf", "-inf"];

/// Number of seconds since 1970 from which a time is most likely one in milliseconds: the year 5138.
const TOO_LATE: f64 = 1e11;

/// Error: the file is no recording.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CsvError {
    #[error("{file}: {problem}")]
    File { file: String, problem: String },
    #[error("{file}, line {line}: {problem}")]
    Line { file: String, line: usize, problem: String },
    #[error("{file}, line {line}, field {field}: {problem}")]
    Field { file: String, line: usize, field: String, problem: String },
    #[error("{file}: {source}")]
    Recording {
        file: String,
        #[source]
        source: RecordingError,
    },
}

/// A column with its values.
struct CsvColumn {
    name: String,
    samples: Vec<RecordedSample>,
}

/// Position in a file, for errors.
#[derive(Clone, Copy)]
struct CsvLine<'a> {
    file: &'a str,
    number: usize,
}

impl CsvLine<'_> {
    fn error(self, problem: impl Into<String>) -> CsvError {
        CsvError::Line { file: self.file.to_owned(), line: self.number, problem: problem.into() }
    }

    fn field_error(self, field: &str, problem: impl Into<String>) -> CsvError {
        let (file, field) = (self.file.to_owned(), field.to_owned());
        CsvError::Field { file, line: self.number, field, problem: problem.into() }
    }
}

/// Reads a recording. `file`: its name in errors. `known`: names that a column may have besides `time`. Times rise from
/// line to line; they are seconds since 1970, or RFC 3339. Values are numbers or quantities. An empty field is a gap.
pub fn read_csv(file: &str, text: &str, known: &BTreeSet<String>) -> Result<Recording, CsvError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = (1..).zip(text.trim_end().lines()).map(|(number, text)| (CsvLine { file, number }, text));
    let of_file = |problem: &str| CsvError::File { file: file.to_owned(), problem: problem.to_owned() };
    let Some((first, header)) = lines.next() else {
        return Err(of_file("it is empty: write a line `time,METRIC,...`, and a line for each time"));
    };
    let mut columns = columns(first, header, known)?;
    let mut times: Vec<Timestamp> = Vec::new();
    for (line, text) in lines {
        let fields = fields(text).map_err(|problem| line.error(problem))?;
        if fields.len() != columns.len() + 1 {
            return Err(line.error(format!("{} fields, and the first line has {}", fields.len(), columns.len() + 1)));
        }
        let at = time(&fields[0]).map_err(|problem| line.field_error(TIME, problem))?;
        if let Some(last) = times.last().filter(|last| **last >= at) {
            let problem = format!("{at} is not later than {last} in the line before: sort the lines by time");
            return Err(line.field_error(TIME, problem));
        }
        times.push(at);
        for (column, field) in columns.iter_mut().zip(&fields[1..]) {
            let value = value(field).map_err(|problem| line.field_error(&column.name, problem))?;
            column.samples.push(RecordedSample { at, value });
        }
    }
    let (Some(start), Some(end)) = (times.first(), times.last()) else {
        return Err(of_file("it has no line with values"));
    };
    let of_recording = |source| CsvError::Recording { file: file.to_owned(), source };
    let mut recording = Recording::new(*start, *end).map_err(of_recording)?;
    for column in columns {
        recording.add(&column.name, column.samples).map_err(of_recording)?;
    }
    Ok(recording)
}

/// Parses the first line.
fn columns(line: CsvLine, header: &str, known: &BTreeSet<String>) -> Result<Vec<CsvColumn>, CsvError> {
    let names = fields(header).map_err(|problem| line.error(problem))?;
    let (first, rest) = names.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    if first != TIME {
        return Err(line.error(format!("the first column is {}: call it {TIME}", quoted(first))));
    }
    if rest.is_empty() {
        return Err(line.error("there is no column with values: write `time,METRIC,...`"));
    }
    let mut columns: Vec<CsvColumn> = Vec::new();
    for name in rest {
        if !known.contains(name) {
            let all = known.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(line.field_error(name, format!("it is no metric of the loop with values of its own: {all}")));
        }
        if columns.iter().any(|column| column.name == *name) {
            return Err(line.field_error(name, "two columns have this name"));
        }
        columns.push(CsvColumn { name: name.clone(), samples: Vec::new() });
    }
    Ok(columns)
}

/// Splits a line. A field may be in double quotes, in which `""` is one.
fn fields(line: &str) -> Result<Vec<String>, &'static str> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let end;
        if let Some(quoted) = rest.trim_start().strip_prefix('"') {
            let (field, tail) = quoted_field(quoted)?;
            fields.push(field);
            end = tail;
        } else {
            let at = rest.find(',').unwrap_or(rest.len());
            fields.push(rest[..at].trim().to_owned());
            end = &rest[at..];
        }
        match end.strip_prefix(',') {
            Some(tail) => rest = tail,
            None if end.is_empty() => return Ok(fields),
            None => return Err("a text follows a closing quote: separate fields by commas"),
        }
    }
}

/// Reads a field after its opening quote. Returns the field, and the rest of the line.
fn quoted_field(text: &str) -> Result<(String, &str), &'static str> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let Some((part, tail)) = rest.split_once('"') else { return Err("a quote is not closed") };
        field.push_str(part);
        match tail.strip_prefix('"') {
            Some(tail) => {
                field.push('"');
                rest = tail;
            }
            None => return Ok((field.trim().to_owned(), tail.trim_start())),
        }
    }
}

fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        if seconds.abs() >= TOO_LATE {
            return Err(format!("{} is too large for seconds since 1970: divide milliseconds by 1000", quoted(text)));
        }
        let since = SignedDuration::try_from_secs_f64(seconds).ok();
        let at = since.and_then(|since| Timestamp::from_microsecond(i64::try_from(since.as_micros()).ok()?).ok());
        return at.ok_or_else(|| format!("{} is no time", quoted(text)));
    }
    text.parse()
        .map_err(|_| format!("{} is neither seconds since 1970 nor a time such as 2026-11-28T10:00:00Z", quoted(text)))
}

fn value(text: &str) -> Result<Result<String, Arc<str>>, String> {
    if text.is_empty() {
        return Ok(Err(EMPTY.into()));
    }
    if NO_NUMBERS.contains(&text) {
        return Ok(Err(format!("the recorded value is {text}, which is not a number").into()));
    }
    match quantity::number(text) {
        Ok(_) => Ok(Ok(text.to_owned())),
        Err(_) => Err(format!("{} is not a number: leave the field empty if the value is unknown", quoted(text))),
    }
}
