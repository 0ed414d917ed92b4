//! `ganglion replay`: shows what a loop would have decided on recorded values. Runs the stages of the controllers;
//! changes nothing, and needs a cluster only for `--recorded`.

mod compare;
mod csv;
mod source;
mod svg;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;
use thiserror::Error as ThisError;

use super::cluster::ClusterOptions;
use super::output::OutputFormat;
use super::progress::CommandProgress;
use super::signals::{SignalsError, interrupts, nothing_changed};
use super::{file, manifests, objects, parse_duration};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_core::duration;
use ganglion_core::words::quoted;
use ganglion_loops_plan::replay::{
    CsvError, RecordingError, ReplayError, ReplayOptions, ReplayReport, ReplayRules, replay as replay_loop,
};
use ganglion_outbound::prometheus::range::RangeError;
use source::HistorySource;

/// Options of `replay`.
#[derive(Args, Debug, Clone)]
#[command(group = ArgGroup::new("values").required(true).args(["prometheus", "csv", "recorded"]))]
pub struct ReplayArgs {
    /// File with a ClosedLoop, YAML or JSON; - for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// File with another ClosedLoop, which is replayed on its own values of the same time and shown beside the first.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Address of a Prometheus server, without /api/v1: the queries of the loop are evaluated over the range.
    #[arg(long, value_name = "URL")]
    prometheus: Option<String>,
    /// CSV file with the columns time,METRIC,...: times rise, and are seconds since 1970 or such as
    /// 2026-11-28T10:00:00Z; an empty field is a gap. The column `replicas` is the recorded number of replicas.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Use the values that the running loop of this name has recorded with its last decisions.
    #[arg(long)]
    recorded: bool,
    /// Length of the range, such as 7d, 12h or 90m. Default: 7d with --prometheus, everything otherwise.
    #[arg(long, value_name = "DURATION", value_parser = days)]
    since: Option<SignedDuration>,
    /// End of the range, such as 2026-11-28T10:00:00Z. Default: now with --prometheus, the last value otherwise.
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
    /// PromQL query for a metric of another source, or for the recorded number of replicas. May be repeated.
    #[arg(long = "query", value_name = "METRIC=QUERY", value_parser = pair, requires = "prometheus")]
    queries: Vec<(String, String)>,
    /// File with a bearer token for the Prometheus server.
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    token_file: Option<PathBuf>,
    /// File with the certificate authorities of the Prometheus server, PEM. Default: the public ones.
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    ca_file: Option<PathBuf>,
    /// Value at the start of something that the loop changes, such as replicas=3, app/cpu=500m or spec.size=5. May be
    /// repeated. Default: the first recorded number of replicas.
    #[arg(long = "start", value_name = "NAME=VALUE", value_parser = pair)]
    start: Vec<(String, String)>,
    /// Effect of the actions on the values, which no history contains: none; proportional=METRIC,... for values that
    /// are a total shared by the pods; or, for one rung of an alarm, 'High cpu/1: cpu*0.7' or 'High cpu/1: cpu-20'.
    /// The last form may be repeated. Default: none.
    #[arg(long = "effect", value_name = "MODEL")]
    effects: Vec<String>,
    /// Time until a new pod serves, and until an action has its effect. Default: 0s.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    startup: SignedDuration,
    /// Approve each proposal of a loop with `mode: Approve` at once. Default: none is approved.
    #[arg(long)]
    approve: bool,
    /// Output format; csv has one line for each decision.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ReplayFormat,
    /// Write a picture to this file too, as SVG: values against levels, decisions, and effects.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Namespace of the running loop, for --recorded. Default: the namespace of the manifest, or of the context.
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Output format of a replay.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum ReplayFormat {
    Text,
    Json,
    Csv,
}

/// Error: a loop was not replayed.
#[derive(Debug, ThisError)]
pub enum Error {
    #[error("{path} has {count} ClosedLoops: leave one in it")]
    Several { path: PathBuf, count: usize },
    #[error("{path} is no ClosedLoop: {problem}")]
    NotALoop { path: PathBuf, problem: String },
    #[error("{path}: {source}")]
    Loop {
        path: PathBuf,
        #[source]
        source: ReplayError,
    },
    #[error("--start {0}: no loop changes it")]
    UnknownStart(String),
    #[error("--query {name}: it is no metric of a loop: {known}")]
    UnknownQuery { name: String, known: String },
    #[error("metric {metric}: {source}")]
    Query {
        metric: String,
        #[source]
        source: Box<RangeError>,
    },
    #[error("the loop has no metric with a query: give one with --query, or values with --csv")]
    NoQueries,
    #[error("the running loop {0} has recorded no decision with a value yet")]
    NothingRecorded(String),
    #[error("cannot read {path}: {source}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot write {path}: {source}; choose another file with --svg")]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the picture cannot be drawn: {0}")]
    Draw(String),
    #[error("cannot write to standard output")]
    Output(#[source] std::io::Error),
    #[error("the result cannot be serialized as JSON")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Csv(#[from] CsvError),
    #[error(transparent)]
    Range(#[from] RecordingError),
    #[error(transparent)]
    Manifests(#[from] manifests::Error),
    #[error(transparent)]
    Object(#[from] objects::Error),
    #[error(transparent)]
    Signals(#[from] SignalsError),
}

/// A loop of a file.
struct LoopFile {
    path: PathBuf,
    object: ClosedLoop,
    rules: ReplayRules,
}

/// The replay of the loop of a file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownReplay {
    /// Name of the file.
    file: String,
    /// Origin of the values.
    values: String,
    #[serde(flatten)]
    report: ReplayReport,
}

/// Replays the loops, and writes the result to standard output.
pub async fn replay(args: ReplayArgs) -> Result<ExitCode, Error> {
    let paths: Vec<&PathBuf> = [Some(&args.file), args.against.as_ref()].into_iter().flatten().collect();
    let loops = paths.into_iter().map(|path| LoopFile::read(path, &args)).collect::<Result<Vec<_>, _>>()?;
    check_names(&loops, &args)?;
    let format = if args.output == ReplayFormat::Text { OutputFormat::Text } else { OutputFormat::Json };
    let (progress, mut interrupted) = (CommandProgress::new(format), interrupts()?);
    let work = replay_all(&loops, &args, &progress);
    let Some(shown) = progress.follow(&mut interrupted, work).await.transpose()? else {
        return Ok(nothing_changed());
    };
    if let Some(path) = &args.svg {
        let picture = svg::svg(&shown).map_err(Error::Draw)?;
        file::write(path, &picture).map_err(|source| Error::Write { path: path.clone(), source })?;
    }
    let text = match args.output {
        ReplayFormat::Text if shown.len() > 1 => compare::text(&shown),
        ReplayFormat::Text => shown.iter().map(text::text).collect(),
        ReplayFormat::Json => serde_json::to_string_pretty(&shown)? + "\n",
        ReplayFormat::Csv => csv::text(&shown),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

async fn replay_all(
    loops: &[LoopFile],
    args: &ReplayArgs,
    progress: &CommandProgress,
) -> Result<Vec<ShownReplay>, Error> {
    let source = HistorySource::new(args, loops)?;
    let mut shown = Vec::new();
    for one in loops {
        let (recording, values) = source.read(one, progress).await?;
        progress.set("replays the values");
        let report =
            replay_loop(&one.rules, &recording).map_err(|source| Error::Loop { path: one.path.clone(), source })?;
        shown.push(ShownReplay { file: one.path.display().to_string(), values, report });
    }
    Ok(shown)
}

impl LoopFile {
    fn read(path: &Path, args: &ReplayArgs) -> Result<Self, Error> {
        let mut documents = manifests::of_kind("ClosedLoop", path)?;
        let count = documents.len();
        let document = documents.pop().filter(|_| count == 1);
        let document = document.ok_or_else(|| Error::Several { path: path.to_owned(), count })?;
        let object = closed_loop(document).map_err(|problem| Error::NotALoop { path: path.to_owned(), problem })?;
        let name = object.metadata.name.clone().unwrap_or_default();
        // A value may be for the other loop.
        let dimensions = ReplayRules::dimensions_of(&object.spec);
        let start = args.start.iter().filter(|(dimension, _)| dimensions.contains(dimension)).cloned();
        let options = ReplayOptions {
            start: start.collect::<BTreeMap<_, _>>(),
            effects: args.effects.clone(),
            delay: args.startup,
            approves: args.approve,
        };
        let rules = ReplayRules::new(&name, &object.spec, &options)
            .map_err(|source| Error::Loop { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), object, rules })
    }
}

/// Parses a manifest. A status in it does not matter. A member of the spec that nothing reads is an error, as for
/// `kubectl apply`.
fn closed_loop(mut document: Value) -> Result<ClosedLoop, String> {
    if let Some(object) = document.as_object_mut() {
        object.remove("status");
    }
    let given = document["spec"].clone();
    let object: ClosedLoop = serde_json::from_value(document).map_err(|error| error.to_string())?;
    let read = serde_json::to_value(&object.spec).map_err(|error| error.to_string())?;
    match unknown_member(&given, &read) {
        Some(path) => Err(format!("spec{path}: there is no such field")),
        None => Ok(object),
    }
}

/// Path of the first member that was not read. Members with a default value may be left out of what was read.
fn unknown_member(given: &Value, read: &Value) -> Option<String> {
    match (given, read) {
        (Value::Object(given), Value::Object(read)) => given.iter().find_map(|(name, value)| match read.get(name) {
            Some(read) => unknown_member(value, read).map(|path| format!(".{name}{path}")),
            None if value.is_null() || *value == Value::Bool(false) => None,
            None => Some(format!(".{name}")),
        }),
        (Value::Array(given), Value::Array(read)) => {
            let mut items = given.iter().zip(read).enumerate();
            items.find_map(|(index, (given, read))| Some(format!("[{index}]{}", unknown_member(given, read)?)))
        }
        _ => None,
    }
}

/// Checks that each name in an option is one of a loop.
fn check_names(loops: &[LoopFile], args: &ReplayArgs) -> Result<(), Error> {
    let dimensions: BTreeSet<String> =
        loops.iter().flat_map(|one| ReplayRules::dimensions_of(&one.object.spec)).collect();
    if let Some((unknown, _)) = args.start.iter().find(|(dimension, _)| !dimensions.contains(dimension)) {
        return Err(Error::UnknownStart(unknown.clone()));
    }
    let known: BTreeSet<String> = loops.iter().flat_map(|one| one.rules.recordable()).collect();
    if let Some((unknown, _)) = args.queries.iter().find(|(name, _)| !known.contains(name)) {
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        return Err(Error::UnknownQuery { name: unknown.clone(), known });
    }
    Ok(())
}

/// Parses a duration that may have days, such as 7d or 1d12h.
fn days(text: &str) -> Result<SignedDuration, String> {
    let (days, rest) = text.split_once('d').unwrap_or(("0", text));
    let hours = days.parse::<i64>().ok().and_then(|days| days.checked_mul(24));
    let whole = hours.filter(|hours| (0..=876_600).contains(hours)).map(SignedDuration::from_hours);
    let whole = whole.ok_or_else(|| format!("{} is not a duration: write it as 7d, 12h or 90m", quoted(text)))?;
    if rest.is_empty() {
        return Ok(whole);
    }
    Ok(whole + duration::parse(rest).map_err(|error| error.to_string())?)
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    if name.is_empty() || value.is_empty() {
        return Err("expected NAME=VALUE".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Writes to standard output. A reader that went away, such as `head`, is no error.
fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Error::Output),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("7d", Some(604_800))]
    #[case("1d12h", Some(129_600))]
    #[case("90m", Some(5400))]
    #[case("0s", Some(0))]
    #[case("week", None)]
    #[case("d", None)]
    #[case("-1d", None)]
    #[case("1d2", None)]
    fn ranges_may_have_days(#[case] text: &str, #[case] seconds: Option<i64>) {
        assert_eq!(days(text).ok().map(|range| range.as_secs()), seconds);
    }

    #[test]
    fn pairs_have_both_parts() {
        assert_eq!(pair("app/cpu=500m"), Ok(("app/cpu".to_owned(), "500m".to_owned())));
        assert_eq!(pair("q=up{a=\"b\"}"), Ok(("q".to_owned(), "up{a=\"b\"}".to_owned())));
        assert!(pair("cpu").is_err() && pair("=1").is_err() && pair("a=").is_err());
    }
}
