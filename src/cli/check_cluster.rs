//! `ganglion check cluster`: checks an installation.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use thiserror::Error;

use super::cluster::{self, ClusterOptions};
use super::output::{self, OutputFormat};
use super::progress::CommandProgress;
use super::signals::{SignalsError, interrupts, nothing_changed};
use crate::operator;
use crate::operator::installation::{self, InstallationOptions};
use crate::operator::settings::{self, Settings};
use ganglion_core::check::{CheckReport, CheckState};

/// Options of `check cluster`.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "Checks the version of Kubernetes, CRDs, admission policies, permissions of the operator, its Deployment and \
    Lease, the scheduler extender, metrics APIs and Prometheus, and says what to do about each gap. Changes nothing. A point \
    that you may not read is marked with ? and names the permission.\n\n\
    Exit code: 0 nothing failed; 1 a check failed, or the cluster does not answer; 2 invalid arguments."
)]
pub struct CheckClusterArgs {
    /// Namespace of the operator. Default: that of its Deployment, which is found by its labels, or else
    /// ganglion-system.
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    /// Send one query to this Prometheus server, from this machine.
    #[arg(long, value_name = "URL")]
    prometheus: Option<String>,
    /// The operator's settings file. Default: the settings that its Deployment uses.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Error: an installation was not checked, or has gaps.
#[derive(Debug, Error)]
pub enum Error {
    #[error("{failed} of {all} checks failed")]
    Failed { failed: usize, all: usize },
    #[error(transparent)]
    Installation(#[from] installation::Error),
    #[error(transparent)]
    Output(#[from] output::Error),
    #[error(transparent)]
    Settings(#[from] settings::Error),
    #[error(transparent)]
    App(#[from] operator::Error),
    #[error(transparent)]
    Signals(#[from] SignalsError),
}

/// The complete result.
#[derive(Debug, Serialize)]
struct ClusterCheck {
    passed: usize,
    unsure: usize,
    failed: usize,
    groups: Vec<CheckReport>,
}

impl ClusterCheck {
    fn new(groups: Vec<CheckReport>) -> Self {
        let count = |state| groups.iter().map(|group| group.count(state)).sum();
        let [passed, unsure, failed] = [CheckState::Passed, CheckState::Unsure, CheckState::Failed].map(count);
        Self { passed, unsure, failed, groups }
    }

    fn text(&self) -> String {
        let groups: String = self.groups.iter().map(CheckReport::text).collect();
        let Self { passed, unsure, failed, .. } = self;
        format!("{groups}{passed} passed, {unsure} unsure, {failed} failed\n")
    }
}

/// Writes the report on the installation to standard output.
pub async fn check(args: CheckClusterArgs) -> Result<ExitCode, Error> {
    let settings = args.settings.as_deref().map(Settings::load).transpose()?;
    let (config, _) = cluster::configured(args.cluster, None).await?;
    let url = config.cluster_url.to_string();
    let client = operator::client(config)?;
    let options = InstallationOptions { namespace: args.namespace, settings, prometheus: args.prometheus };
    let (progress, mut interrupted) = (CommandProgress::new(args.output), interrupts()?);
    let say = |text: &str| progress.set(text);
    let work = installation::check(&client, &url, &options, &say);
    let Some(groups) = progress.follow(&mut interrupted, work).await.transpose()? else {
        return Ok(nothing_changed());
    };
    let found = ClusterCheck::new(groups);
    print!("{}", args.output.of(&found, || found.text())?);
    match found.failed {
        0 => Ok(ExitCode::SUCCESS),
        failed => Err(Error::Failed { failed, all: found.passed + found.unsure + failed }),
    }
}
