//! `ganglion remove`: removes the operator's objects and marks from the cluster, before the installation is deleted.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use console::Term;
use jiff::SignedDuration;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::cluster::ClusterOptions;
use super::output::{self, OutputFormat};
use super::progress::CommandProgress;
use super::signals::{INTERRUPTED, Interrupts, SignalsError, interrupts, nothing_changed};
use super::{host_identity, parse_duration};
use crate::operator;
use crate::operator::remove::{self, Removal, RemovalOptions, interruption_text, report_text, survey_text};

/// Exit code: the timeout has expired.
const TIMED_OUT: u8 = 4;

/// Options of `remove`.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "Run it before you delete the installation (kubectl delete -k OVERLAY). It deletes the objects of all kinds \
    of the operator, loops first, and waits until the actions in progress are completed or undone: by the running \
    operator, or, if none runs, by this command. Then it removes what is left: labels, annotations, scheduling gates and \
    cordons of drains, receipts, job lists of pools, learned values, the extender's Secrets and the lease, and switches \
    autoscalers on again that `import` has switched off. It can be interrupted and run again at any time, also after the \
    operator, its kinds, its policies or its namespace were deleted.\n\n\
    Exit code: 0 nothing is left; 1 error; 2 invalid arguments; 4 timeout; 130 interrupted."
)]
pub struct RemoveArgs {
    /// Namespace of the operator.
    #[arg(short, long, env = "GANGLION_LEASE_NAMESPACE", value_name = "NS", default_value = "ganglion-system")]
    namespace: String,
    /// Remove only what is in this namespace; may be repeated or a comma-separated list. Default: the namespaces of an
    /// operator that watches only some, or else the whole cluster.
    #[arg(long = "watch-namespace", value_name = "NS", value_delimiter = ',')]
    watch_namespaces: Vec<String>,
    /// Show what would be removed, and change nothing. The values are those of kubectl; server is the same as client.
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "client",
        value_parser = ["none", "client", "server"])]
    dry_run: Option<String>,
    /// Do not ask. Required without a terminal.
    #[arg(short, long)]
    yes: bool,
    /// Also remove objects that a GitOps tool manages, which may create them again.
    #[arg(long)]
    force: bool,
    /// Maximum time to wait, such as 90s, 10m or 1h; 0s: no limit. Actions in progress then continue. Default: no
    /// limit.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    timeout: Option<SignedDuration>,
    /// Output format; json and yaml write only the report at the end, or with --dry-run what would be removed.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Error: not everything was removed.
#[derive(Debug, Error)]
pub enum Error {
    #[error(transparent)]
    Remove(#[from] remove::Error),
    #[error(transparent)]
    Output(#[from] output::Error),
    #[error(transparent)]
    App(#[from] operator::Error),
    #[error(transparent)]
    Signals(#[from] SignalsError),
    #[error(
        "nothing was changed: without a terminal, this command requires --yes; --dry-run shows what would be removed"
    )]
    NotConfirmed,
    #[error("the answer cannot be read")]
    Answer(#[source] std::io::Error),
}

/// Removes everything, or shows what would be removed.
pub async fn remove(args: RemoveArgs) -> Result<ExitCode, Error> {
    let config = operator::config(&args.cluster.clone().into()).await?;
    let options = RemovalOptions {
        namespace: args.namespace.clone(),
        namespaces: args.watch_namespaces.iter().filter(|name| !name.is_empty()).cloned().collect(),
        timeout: args.timeout.filter(SignedDuration::is_positive).and_then(|limit| Duration::try_from(limit).ok()),
        identity: host_identity(),
        force: args.force,
    };
    let is_text = args.output == OutputFormat::Text;
    let (progress, mut interrupted) = (CommandProgress::new(args.output), interrupts()?);
    let say = |text: &str| progress.set(text);
    let survey = Removal::new(config, options, &say);
    let Some(removal) = progress.follow(&mut interrupted, survey).await.transpose()? else {
        return Ok(nothing_changed());
    };
    let is_dry = args.dry_run.as_deref().is_some_and(|how| how != "none");
    if is_dry || is_text {
        print!("{}", args.output.of(&removal.survey, || survey_text(&removal.survey))?);
    }
    if is_dry {
        return Ok(ExitCode::SUCCESS);
    }
    removal.obstacle()?;
    if !args.yes {
        let answer = tokio::task::spawn_blocking(confirmed);
        let is_confirmed = tokio::select! {
            answer = answer => answer.map_err(operator::Error::from)??,
            () = interrupted.arrived() => {
                println!();
                return Ok(nothing_changed());
            }
        };
        if !is_confirmed {
            println!("Nothing was changed.");
            return Ok(ExitCode::SUCCESS);
        }
    }
    run(&args, &removal, &progress, interrupted).await
}

async fn run(
    args: &RemoveArgs,
    removal: &Removal,
    progress: &CommandProgress,
    mut interrupted: Interrupts,
) -> Result<ExitCode, Error> {
    let say = |line: &str| match args.output {
        OutputFormat::Text => progress.print(line),
        OutputFormat::Json | OutputFormat::Yaml => progress.set(line),
    };
    let stop = CancellationToken::new();
    let mut work = std::pin::pin!(removal.run(&stop, &say));
    let result = match progress.follow(&mut interrupted, &mut work).await {
        Some(result) => result,
        None => {
            stop.cancel();
            work.await
        }
    };
    match result {
        Ok(report) => {
            print!("{}", args.output.of(&report, || report_text(&report))?);
            Ok(ExitCode::SUCCESS)
        }
        Err(remove::Error::Interrupted(waits_for)) => {
            eprintln!("{}", interruption_text(&removal.survey.actor, &waits_for));
            Ok(ExitCode::from(INTERRUPTED))
        }
        Err(error @ remove::Error::TimedOut(_)) => {
            eprintln!("{error}");
            Ok(ExitCode::from(TIMED_OUT))
        }
        Err(error) => Err(error.into()),
    }
}

/// Asks the user on the terminal.
fn confirmed() -> Result<bool, Error> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Error::NotConfirmed);
    }
    print!("Remove all this? [y/N] ");
    std::io::stdout().flush().map_err(Error::Answer)?;
    let answer = Term::stdout().read_line().map_err(Error::Answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
