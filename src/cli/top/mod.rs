//! `ganglion top`: a live view of the objects of all kinds, or a plain table of them.

mod command;
mod detail;
mod effect;
mod facts;
mod jobs;
mod keys;
mod kinds;
mod live;
mod model;
mod plain;
mod rows;
mod screen;
mod table;
mod terminal;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod trend;
mod update;
mod watch;
mod work;

use std::io::{self, ErrorKind, IsTerminal, Write, stdout};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use jiff::Timestamp;
use kube::Client;
use thiserror::Error;

use super::cluster::{self, ClusterOptions};
use super::signals::SignalsError;
use crate::operator;
use crate::operator::read::pages;
use facts::TopObject;
use ganglion_runtime::error::failure;
use kinds::TopKind;
use model::{TopModel, TopScope, WatchState, gap};
use update::WatchNews;
use watch::{api, unread};

/// Read timeout of watches: they are silent while nothing changes.
const SILENCE: Duration = Duration::from_secs(300);

/// Options of `top`.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "The view follows the cluster by watches. Keys: ? shows all keys; Enter explains an object; s suspends, \
    r resumes, x aborts an action, a approves a proposal. Each change asks first, and the rights for it are checked. A \
    kind that you may not list, or that is not installed, is named; the others are shown. If NO_COLOR is set, no colors \
    are used. Without a terminal, the table is written once, as with --once.\n\n\
    Exit code: 0; 1 error, with --once also if a kind cannot be listed; 2 invalid arguments; 130 interrupted."
)]
pub struct TopArgs {
    /// Kinds to show, as kubectl names them: wa, loop, swp, ncfg, plpol. Default: all.
    #[arg(value_name = "KIND", value_delimiter = ',', value_parser = TopKind::parse,
        add = ArgValueCandidates::new(TopKind::candidates))]
    kinds: Vec<TopKind>,
    /// Namespace to show. Default: the namespace of the context.
    #[arg(short, long, value_name = "NS", conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// Show all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Write the table once, without a live view.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Error: nothing can be shown.
#[derive(Debug, Error)]
pub enum Error {
    #[error("the API server does not answer: {0}; check the kubeconfig and the context, and try `kubectl version`")]
    NoCluster(String),
    #[error("the terminal cannot be used; `ganglion top --once` writes a plain table")]
    Terminal(#[source] io::Error),
    #[error("the table cannot be written")]
    Output(#[source] io::Error),
    #[error(transparent)]
    Signals(#[from] SignalsError),
    #[error("a task of the view failed; the message above says where")]
    Panicked,
    #[error(transparent)]
    App(#[from] operator::Error),
}

/// Shows the live view, or writes the table once.
pub async fn top(args: TopArgs) -> Result<ExitCode, Error> {
    let (mut config, namespace) = cluster::configured(args.cluster, args.namespace).await?;
    let scope = if args.all_namespaces { TopScope::All } else { TopScope::Namespace(namespace) };
    let is_shown = |kind: &TopKind| args.kinds.is_empty() || args.kinds.contains(kind);
    let kinds: Vec<TopKind> = TopKind::SHOWN.into_iter().filter(is_shown).collect();
    let client = operator::client(config.clone())?;
    check_cluster(&client).await?;
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    if args.once || is_dumb || !stdout().is_terminal() {
        return write_once(TopModel::new(scope, kinds, (0, 0), false), &client).await;
    }
    config.read_timeout = Some(SILENCE);
    let watcher = operator::client(config)?;
    let size = crossterm::terminal::size().map_err(Error::Terminal)?;
    let has_color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    live::show(TopModel::new(scope, kinds, size, has_color), watcher, client).await
}

/// Checks that the API server answers, whatever this user may do.
async fn check_cluster(client: &Client) -> Result<(), Error> {
    match client.apiserver_version().await {
        Err(kube::Error::Api(status)) if status.code != 401 => Ok(()),
        Err(error) => Err(Error::NoCluster(failure(&error))),
        Ok(_) => Ok(()),
    }
}

/// Lists all kinds, and writes the table to standard output, and the kinds that cannot be listed to standard error.
async fn write_once(mut model: TopModel, client: &Client) -> Result<ExitCode, Error> {
    let mut is_complete = true;
    for kind in TopKind::watched(&model.kinds) {
        let objects = api(client, kind, &model.scope);
        let listed = pages(&objects, |object| model.put(TopObject::read(kind, &object))).await;
        let Err(error) = listed else { continue };
        is_complete = false;
        match unread(&error) {
            WatchNews::Denied => eprintln!("{}", gap(kind, &WatchState::Denied, &model.scope).unwrap_or_default()),
            WatchNews::Missing => eprintln!("{}", gap(kind, &WatchState::Missing, &model.scope).unwrap_or_default()),
            _ => eprintln!("{}: not listed: {}", kind.title(), failure(&error)),
        }
    }
    // Kinds with more objects than are shown.
    model.gaps().iter().for_each(|line| eprintln!("{line}"));
    model.refresh();
    if model.rows.is_empty() && is_complete {
        eprintln!("No objects in {}.", model.scope.words());
    }
    let table = plain::plain_table(&model, Timestamp::now());
    match stdout().write_all(table.as_bytes()).and_then(|()| stdout().flush()) {
        // The reader needs no more lines.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.map_err(Error::Output)?,
    }
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
