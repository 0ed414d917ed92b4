//! `ganglion drain`: drains nodes and shows the progress.

mod screen;

use std::process::ExitCode;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use super::cluster::{self, ClusterOptions};
use super::output::{self, OutputFormat};
use crate::operator;
use crate::operator::drain::Drain;
use ganglion_actions_plan::drain::{DrainOutcome, DrainReport, DrainWishes, nodes_words, plan_text, report_text};
use ganglion_core::duration;
use ganglion_core::words::counted;
use screen::Screen;

/// Exit code: pods stay that are neither DaemonSet pods nor static pods.
const STAYS: u8 = 3;

/// Exit code: the timeout has expired.
const TIMED_OUT: u8 = 4;

/// Exit code: interrupted. The value that a shell reports for a process that SIGINT ends.
const INTERRUPTED: u8 = 130;

/// Options of `drain`.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "The nodes are cordoned. For each workload with pods on a node, a WorkloadAction is created in its namespace: each \
    new pod is Ready on another node before the old one is evicted, and PodDisruptionBudgets are respected. Pods of \
    DaemonSets, static pods, and pods without a workload stay. The drain waits for pods of Jobs to end. If a drain is \
    interrupted, its actions continue; run the same command again to follow them.\n\n\
    Exit code: 0 only pods of DaemonSets and static pods are left; 1 error; 2 invalid arguments; 3 other pods stay; \
    4 timeout; 130 interrupted. With --plan: 0 or 3, as predicted."
)]
pub struct DrainArgs {
    /// Nodes to drain.
    #[arg(value_name = "NODE", required_unless_present = "selector")]
    nodes: Vec<String>,
    /// Also drain the nodes with these labels: KEY=VALUE,…
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Show what would be moved and what would stay, and change nothing.
    #[arg(long, conflicts_with_all = ["watch", "no_wait", "uncordon"])]
    plan: bool,
    /// Show a live tree of namespaces, workloads and replicas; without a terminal, one line per change.
    #[arg(short, long, conflicts_with_all = ["no_wait", "uncordon"])]
    watch: bool,
    /// Create the actions and do not wait for them.
    #[arg(long, conflicts_with_all = ["parallel", "timeout", "uncordon"])]
    no_wait: bool,
    /// End a drain: abort its actions in progress, and uncordon the nodes. Replicas that have moved are not moved back.
    #[arg(long)]
    uncordon: bool,
    /// Maximum time to wait, such as 90s, 10m or 1h. Actions in progress then continue. Default: no limit.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    timeout: Option<SignedDuration>,
    /// Maximum number of replicas that this drain moves at once. Default: the limits in the operator's settings.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    parallel: Option<u32>,
    /// Also move pods that must stop before their replacement starts (a ReadWriteOnce volume, strategy: Recreate, a
    /// StatefulSet), and pods that lose data (emptyDir on disk, a directory of the node).
    #[arg(long)]
    disruption: bool,
    /// Do not wait for pods of Jobs.
    #[arg(long)]
    leave_jobs: bool,
    /// Output format; json and yaml write only the report at the end.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Error: nodes were not drained.
#[derive(Debug, Error)]
pub enum Error {
    #[error(transparent)]
    Drain(#[from] operator::drain::Error),
    #[error(transparent)]
    Output(#[from] output::Error),
    #[error(transparent)]
    App(#[from] operator::Error),
    #[error("signals cannot be received")]
    Signals(#[source] std::io::Error),
}

fn parse_duration(text: &str) -> Result<SignedDuration, String> {
    let time = duration::parse(text).map_err(|error| error.to_string())?;
    if time.is_positive() { Ok(time) } else { Err("the duration must be longer than zero".to_owned()) }
}

/// Drains nodes, shows the plan of a drain, or ends a drain.
pub async fn drain(args: DrainArgs) -> Result<ExitCode, Error> {
    let (client, _) = cluster::open(args.cluster.clone(), None).await?;
    let wishes = DrainWishes {
        disruption: args.disruption,
        leave_jobs: args.leave_jobs || args.no_wait,
        parallel: args.parallel.and_then(|most| usize::try_from(most).ok()),
    };
    let mut drain = Drain::new(client, args.nodes.clone(), args.selector.as_deref(), wishes).await?;
    if args.uncordon {
        return undo(&args, &drain).await;
    }
    if args.plan {
        let (report, previews) = drain.preview().await?;
        let text = || plan_text(&drain.progress(), &previews) + &report_text(&report, true);
        print!("{}", args.output.of(&report, text)?);
        return Ok(code(&report));
    }
    let is_text = args.output == OutputFormat::Text;
    let open = drain.begin().await?;
    if is_text {
        let on = if open > 0 {
            format!("; going on with {} of an earlier drain", counted(open as u64, "open action"))
        } else {
            String::new()
        };
        println!("{} cordoned{on}.", nodes_words(&drain.nodes));
    }
    if args.no_wait {
        return made(&args, &mut drain).await;
    }
    follow(&args, &mut drain, Screen::new(args.watch, is_text)).await
}

async fn follow(args: &DrainArgs, drain: &mut Drain, mut screen: Screen) -> Result<ExitCode, Error> {
    let until = args.timeout.map(|limit| drain.since() + limit);
    let mut interrupted = interrupts()?;
    let in_time = tokio::select! {
        over = drain.follow(until, |drain| screen.show(drain)) => Some(over?),
        () = interrupted.arrived() => None,
    };
    let Some(in_time) = in_time else {
        eprintln!("{}", how_to_go_on(drain));
        return Ok(ExitCode::from(INTERRUPTED));
    };
    screen.end();
    let report = drain.progress().report(!in_time, Timestamp::now().duration_since(drain.since()));
    print!("{}", args.output.of(&report, || report_text(&report, false))?);
    Ok(code(&report))
}

/// SIGINT and SIGTERM.
struct Interrupts {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

fn interrupts() -> Result<Interrupts, Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let on = |kind| signal(kind).map_err(Error::Signals);
    Ok(Interrupts { interrupt: on(SignalKind::interrupt())?, terminate: on(SignalKind::terminate())? })
}

impl Interrupts {
    async fn arrived(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

fn how_to_go_on(drain: &Drain) -> String {
    let nodes = drain.nodes.join(" ");
    format!(
        "Its actions go on.\nTo wait for them: kubectl ganglion drain {nodes} -w\nTo undo what was not evicted yet, and uncordon: \
         kubectl ganglion drain {nodes} --uncordon"
    )
}

/// Creates the actions, and describes how to follow them.
async fn made(args: &DrainArgs, drain: &mut Drain) -> Result<ExitCode, Error> {
    drain.step(None).await?;
    let report = drain.progress().report(false, SignedDuration::ZERO);
    let text = || {
        let made: String = report.actions.iter().map(|name| format!("made {name}\n")).collect();
        let stays: String = report
            .stays
            .iter()
            .filter(|stay| !stay.is_expected())
            .map(|stay| format!("stays: {} {} on {}: {}\n", stay.namespace, stay.what, stay.node, stay.message))
            .collect();
        format!("{made}{stays}{}\n", how_to_go_on(drain))
    };
    print!("{}", args.output.of(&report, text)?);
    Ok(code(&report))
}

async fn undo(args: &DrainArgs, drain: &Drain) -> Result<ExitCode, Error> {
    let aborted: Vec<String> = drain.undo().await?.iter().map(ToString::to_string).collect();
    let text = || {
        let lines: String = aborted.iter().map(|name| format!("aborted {name}\n")).collect();
        format!("{lines}{} uncordoned.\n", nodes_words(&drain.nodes))
    };
    print!("{}", args.output.of(&aborted, text)?);
    Ok(ExitCode::SUCCESS)
}

fn code(report: &DrainReport) -> ExitCode {
    match report.outcome {
        DrainOutcome::Empty => ExitCode::SUCCESS,
        DrainOutcome::Stays => ExitCode::from(STAYS),
        DrainOutcome::TimedOut => ExitCode::from(TIMED_OUT),
    }
}
