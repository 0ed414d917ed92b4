//! `ganglion timeline`: shows what happened to a loop, an action or a pool on one time axis, as text or as a picture.
//!
//! `build` decides what is read and builds the pure `model` from it; `text` and `svg` render it. Only `read` and
//! `follow` send requests.

mod action;
mod build;
mod conditions;
mod events;
mod follow;
mod graph;
mod loops;
mod model;
mod pool;
mod read;
mod scale;
mod svg;
mod text;
mod width;

#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use console::Term;
use jiff::{SignedDuration, Timestamp};
use thiserror::Error as ThisError;

use super::cluster::{self, ClusterOptions};
use super::file;
use super::objects;
use super::parse_duration;
use super::signals::{INTERRUPTED, SignalsError, interrupts};
use crate::operator;
pub use build::{TimelineKind, TimelineObjects};
use follow::{FollowEnd, READ_TIMEOUT, ShownEntries};
use read::TimelineSubject;
use text::TextStyle;

/// Options of `timeline`.
#[derive(Args, Debug, Clone)]
pub struct TimelineArgs {
    #[command(subcommand)]
    what: TimelineObject,
}

/// The object of the timeline.
#[derive(Subcommand, Debug, Clone)]
enum TimelineObject {
    /// Shows the values of a loop against their levels, its alarms, decisions and their effects, alarms that were
    /// passed over, tuning, and changes that others undid.
    Loop(TimelineOptions),
    /// Shows the steps of each replica of a WorkloadAction, evictions, and what it waited for.
    #[command(aliases = ["action", "workloadaction"])]
    Wa(TimelineOptions),
    /// Shows the assignments of a SwarmPool, hand-overs, and changes of its workers.
    #[command(aliases = ["pool", "swarmpool"])]
    Swp(TimelineOptions),
}

/// Options of a timeline.
#[derive(Args, Debug, Clone)]
struct TimelineOptions {
    /// Name of the object.
    #[arg(value_name = "NAME")]
    name: String,
    /// Namespace of the object. Default: the namespace of the context.
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    /// Go on, and add a line for each thing that happens.
    #[arg(short, long, conflicts_with = "svg")]
    watch: bool,
    /// Show only this time before now, such as 90s, 10m or 1h. Default: everything that is recorded.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    since: Option<SignedDuration>,
    /// Write a picture to this file, as SVG, instead of text.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Error: a timeline was not shown.
#[derive(Debug, ThisError)]
pub enum Error {
    #[error("there is no {kind} {name} in namespace {namespace}; `{command}` lists all of them")]
    NoObject { kind: String, name: String, namespace: String, command: String },
    #[error("the API server has no kind {kind}: install the operator's CRDs, see kustomize/README.md")]
    NoKind { kind: String },
    #[error("{kind} {name} cannot be parsed ({source}); use the command of the operator's version")]
    Unreadable {
        kind: String,
        name: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("cannot write {path}: {source}; choose another file with --svg")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot write to standard output")]
    Output(#[source] std::io::Error),
    #[error(transparent)]
    Signals(#[from] SignalsError),
    #[error(transparent)]
    Object(#[from] objects::Error),
    #[error(transparent)]
    App(#[from] operator::Error),
}

/// Shows a timeline, and follows the object if asked to.
pub async fn timeline(args: TimelineArgs) -> Result<ExitCode, Error> {
    let (kind, options) = match args.what {
        TimelineObject::Loop(options) => (TimelineKind::Loop, options),
        TimelineObject::Wa(options) => (TimelineKind::Action, options),
        TimelineObject::Swp(options) => (TimelineKind::Pool, options),
    };
    let (mut config, namespace) = cluster::configured(options.cluster.clone(), options.namespace.clone()).await?;
    let subject =
        TimelineSubject { client: operator::client(config.clone())?, kind, namespace, name: options.name.clone() };
    let objects = subject.read().await?;
    let built = build(&subject, &options, &objects)?;
    if let Some(path) = &options.svg {
        file::write(path, &svg::svg(&built)).map_err(|source| Error::File { path: path.clone(), source })?;
        print(&format!("wrote {}\n", path.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&text::text(&built, style()))?;
    if !options.watch {
        return Ok(ExitCode::SUCCESS);
    }
    // Nothing may change for a long time.
    config.read_timeout = Some(READ_TIMEOUT);
    let subject = TimelineSubject { client: operator::client(config)?, ..subject };
    let mut shown = ShownEntries::default();
    shown.news(&built);
    go_on(&subject, &options, objects, shown).await
}

async fn go_on(
    subject: &TimelineSubject,
    options: &TimelineOptions,
    objects: TimelineObjects,
    mut shown: ShownEntries,
) -> Result<ExitCode, Error> {
    print("\nWaiting for what happens next; Ctrl-C ends.\n")?;
    let mut interrupted = interrupts()?;
    let mut failed = None;
    let show = |objects: &TimelineObjects| match build(subject, options, objects) {
        Ok(built) => {
            let lines: String = shown.news(&built).iter().map(|entry| text::line(entry, built.end, style())).collect();
            print(&lines).unwrap_or_else(|error| {
                failed = Some(error);
                false
            })
        }
        Err(error) => {
            eprintln!("{error}");
            true
        }
    };
    let end = tokio::select! {
        end = follow::follow(subject, objects, show) => end,
        () = interrupted.arrived() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    if let Some(error) = failed {
        return Err(error);
    }
    if let FollowEnd::Deleted(at) = end {
        print(&format!("{}  {} was deleted; its timeline ends.\n", ganglion_core::layout::clock(at), subject.name))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn build(
    subject: &TimelineSubject,
    options: &TimelineOptions,
    objects: &TimelineObjects,
) -> Result<model::Timeline, Error> {
    let now = Timestamp::now();
    let since = options.since.and_then(|since| now.checked_sub(since).ok());
    subject.kind.timeline(objects, now, since).map_err(|source| Error::Unreadable {
        kind: subject.kind.resource().kind,
        name: subject.name.clone(),
        source,
    })
}

/// The picture of these objects at this time, as an SVG document.
pub fn picture(kind: TimelineKind, objects: &TimelineObjects, now: Timestamp) -> Result<String, serde_json::Error> {
    Ok(svg::svg(&kind.timeline(objects, now, None)?))
}

/// The style of standard output: that of its terminal, or plain lines.
fn style() -> TextStyle {
    let term = Term::stdout();
    if !term.is_term() {
        return TextStyle { width: None, colors: false };
    }
    TextStyle { width: Some(usize::from(term.size().1)), colors: console::colors_enabled() }
}

/// Writes to standard output. Returns whether anybody reads it: a reader that went away, such as `head`, is no error.
fn print(text: &str) -> Result<bool, Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).map_err(Error::Output),
    }
}
