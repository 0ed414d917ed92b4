//! `ganglion check`: checks whether loops would work before they are applied, and shows what they would do now; with
//! `cluster`, checks an installation.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use thiserror::Error;

use super::check_cluster::{self, CheckClusterArgs};
use super::cluster::{self, ClusterOptions};
use super::manifests;
use super::output::OutputFormat;
use super::progress::CommandProgress;
use super::signals::{SignalsError, interrupts, nothing_changed};
use crate::operator;
use crate::operator::settings::{self, Settings};
use ganglion_core::check::{CheckReport, CheckState};
use ganglion_core::quantity;

/// Options of `check`.
#[derive(Args, Debug, Clone)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct CheckArgs {
    #[command(subcommand)]
    what: Option<CheckedSubject>,
    /// File with ClosedLoops, YAML or JSON; - for standard input. May be repeated. Other kinds in it are ignored.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Namespace of loops without a namespace. Default: the namespace of the context.
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    /// Use this value for a metric instead of querying its source. May be repeated.
    #[arg(long = "value", value_name = "METRIC=NUMBER", value_parser = metric_value)]
    values: Vec<(String, String)>,
    /// The operator's settings file. Default: all settings have their defaults.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// The subject of a check, if it is not loops.
#[derive(Subcommand, Debug, Clone)]
enum CheckedSubject {
    /// Checks an installation: what works in this cluster, and what to do about each gap.
    Cluster(CheckClusterArgs),
}

/// Error: loops or an installation were not checked, or would not work.
#[derive(Debug, Error)]
pub enum Error {
    #[error("{failed} of {all} checks failed")]
    Failed { failed: usize, all: usize },
    #[error(transparent)]
    Manifests(#[from] manifests::Error),
    #[error(transparent)]
    Settings(#[from] settings::Error),
    #[error(transparent)]
    Cluster(#[from] check_cluster::Error),
    #[error(transparent)]
    App(#[from] operator::Error),
    #[error(transparent)]
    Signals(#[from] SignalsError),
}

fn metric_value(text: &str) -> Result<(String, String), String> {
    let (metric, value) = text.split_once('=').ok_or("expected METRIC=NUMBER")?;
    quantity::number(value).map_err(|error| error.to_string())?;
    Ok((metric.to_owned(), value.to_owned()))
}

/// Writes the report on each loop, or on the installation, to standard output.
pub async fn check(check: CheckArgs) -> Result<ExitCode, Error> {
    if let Some(CheckedSubject::Cluster(args)) = check.what {
        return Ok(check_cluster::check(args).await?);
    }
    let loops = manifests::all_of_kind("ClosedLoop", &check.files)?;
    let settings = check.settings.as_deref().map(Settings::load).transpose()?.unwrap_or_default();
    let (config, namespace) = cluster::configured(check.cluster, check.namespace).await?;
    let values: BTreeMap<String, String> = check.values.into_iter().collect();
    let (progress, mut interrupted) = (CommandProgress::new(OutputFormat::Text), interrupts()?);
    let say = |text: &str| progress.set(text);
    let work = operator::check::check(config, &namespace, &settings, &loops, &values, &say);
    let Some(reports) = progress.follow(&mut interrupted, work).await.transpose()? else {
        return Ok(nothing_changed());
    };
    for report in &reports {
        print!("{}", report.text());
    }
    let count = |state| reports.iter().map(|report: &CheckReport| report.count(state)).sum::<usize>();
    let failed = count(CheckState::Failed);
    match failed {
        0 => Ok(ExitCode::SUCCESS),
        _ => Err(Error::Failed { failed, all: failed + count(CheckState::Passed) + count(CheckState::Unsure) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbers() {
        assert_eq!(metric_value("cpu=200m"), Ok(("cpu".to_owned(), "200m".to_owned())));
        assert!(metric_value("cpu").is_err() && metric_value("cpu=much").is_err());
    }
}
