//! `ganglion drain`: drains nodes and shows the progress.

mod screen;

use std::process::ExitCode;

use clap::Args;
use jiff::SignedDuration;
use thiserror::Error;

use super::cluster::{self, ClusterOptions};
use super::output::{self, OutputFormat};
use super::parse_duration;
use super::progress::CommandProgress;
use super::signals::{INTERRUPTED, Interrupts, SignalsError, interrupts, nothing_changed};
use crate::operator;
use crate::operator::drain::{Drain, DrainOptions};
use ganglion_actions_plan::drain::{
    DrainOutcome, DrainReport, DrainWishes, advice, interruption_text, nodes_words, plan_text, report_text,
};
use ganglion_core::words::counted;
use screen::Screen;

/// Exit code: pods stay that are neither DaemonSet pods nor static pods.
const STAYS: u8 = 3;

/// Exit code: the timeout has expired.
const TIMED_OUT: u8 = 4;

/// Options of `drain`.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "The nodes are cordoned, if you have all rights that the drain needs. For each workload with pods on a node, a \
    WorkloadAction is created in its namespace: each new pod is Ready on another node before the old one is evicted. Pods \
    that no action moves are evicted by this command if an option says so. PodDisruptionBudgets are respected in all cases. \
    Pods of DaemonSets and static pods stay. The drain waits for pods of Jobs to end. If a drain is interrupted, its \
    actions continue; run the same command again to follow them.\n\n\
    Exit code: 0 only pods of DaemonSets and static pods are left; 1 error; 2 invalid arguments; 3 other pods stay; \
    4 timeout; 130 interrupted. With --plan: 0 or 3, as predicted."
)]
pub struct DrainArgs {
    /// Nodes to drain.
    #[arg(value_name = "NODE", required_unless_present = "selector", value_parser = node_name)]
    nodes: Vec<String>,
    /// Also drain the nodes with these labels: KEY=VALUE,…
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Move only pods with these labels: KEY=VALUE,… The replicas of a workload on a node move together or not at all.
    #[arg(long, value_name = "LABELS")]
    pod_selector: Option<String>,
    /// Show what would be moved and what would stay, and change nothing.
    #[arg(long, conflicts_with_all = ["watch", "no_wait", "uncordon"])]
    plan: bool,
    /// The same as --plan, with the values of kubectl drain: none, client or server.
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "client",
        value_parser = ["none", "client", "server"], conflicts_with_all = ["watch", "no_wait", "uncordon"])]
    dry_run: Option<String>,
    /// Show a live tree of namespaces, workloads and replicas; without a terminal, one line per change.
    #[arg(short, long, conflicts_with_all = ["no_wait", "uncordon"])]
    watch: bool,
    /// Create the actions and do not wait for them.
    #[arg(long, conflicts_with_all = ["parallel", "timeout", "uncordon"])]
    no_wait: bool,
    /// End a drain: abort its actions in progress, and uncordon the nodes. Replicas that have moved are not moved back.
    #[arg(long)]
    uncordon: bool,
    /// Maximum time to wait, such as 90s, 10m or 1h; 0s: no limit. Actions in progress then continue. Default: no
    /// limit.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    timeout: Option<SignedDuration>,
    /// Maximum number of replicas that this drain moves at once. Default: the limits in the operator's settings.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    parallel: Option<u32>,
    /// Also move pods that must stop before their replacement starts (a ReadWriteOnce volume, strategy: Recreate, a
    /// StatefulSet), and pods that lose data (emptyDir on disk, a directory of the node). Evict pods that the operator
    /// leaves alone: pods of other controllers, pods of namespaces in which it does not work, such as kube-system, and
    /// pods that have ended.
    #[arg(long)]
    disruption: bool,
    /// Also evict pods without a controller, which nothing makes again.
    #[arg(long)]
    force: bool,
    /// Evict pods of Jobs instead of waiting for them. Their Jobs begin them again elsewhere.
    #[arg(long, conflicts_with = "leave_jobs")]
    evict_jobs: bool,
    /// Do not wait for pods of Jobs.
    #[arg(long)]
    leave_jobs: bool,
    /// Seconds that each evicted pod gets to end, at most 86400; -1: the pod's own grace period.
    #[arg(long, value_name = "SECONDS", default_value_t = -1, allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(-1..=86_400))]
    grace_period: i32,
    /// Namespace of the operator's lease, by which the drain sees whether an operator runs. Default: any namespace.
    #[arg(long, env = "GANGLION_LEASE_NAMESPACE", value_name = "NS")]
    lease_namespace: Option<String>,
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
    #[error(transparent)]
    Signals(#[from] SignalsError),
}

/// Name of a node as kubectl accepts it: `n0`, `node/n0`.
fn node_name(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        None => Ok(text.to_owned()),
        Some(("node" | "nodes" | "no", name)) if !name.is_empty() && !name.contains('/') => Ok(name.to_owned()),
        Some(_) => Err("write the name of a node, or node/NAME".to_owned()),
    }
}

/// Drains nodes, shows the plan of a drain, or ends a drain.
pub async fn drain(args: DrainArgs) -> Result<ExitCode, Error> {
    let (client, _) = cluster::open(args.cluster.clone(), None).await?;
    let wishes = DrainWishes {
        disruption: args.disruption,
        force: args.force,
        evict_jobs: args.evict_jobs,
        leave_jobs: args.leave_jobs,
        pod_selector: args.pod_selector.clone(),
        parallel: args.parallel.and_then(|most| usize::try_from(most).ok()),
        grace_seconds: u32::try_from(args.grace_period).ok(),
    };
    let options = DrainOptions { wishes, lease_namespace: args.lease_namespace.clone() };
    let (progress, mut interrupted) = (CommandProgress::new(args.output), interrupts()?);
    let say = |text: &str| progress.set(text);
    say("reads the nodes");
    let found = Drain::new(client, args.nodes.clone(), args.selector.as_deref(), options);
    let Some(mut drain) = progress.follow(&mut interrupted, found).await.transpose()? else {
        return Ok(nothing_changed());
    };
    if args.uncordon {
        return undo(&args, &drain).await;
    }
    if args.plan || args.dry_run.as_deref().is_some_and(|how| how != "none") {
        let preview = progress.follow(&mut interrupted, drain.preview(&say)).await;
        let Some((report, previews)) = preview.transpose()? else { return Ok(nothing_changed()) };
        let text = || plan_text(&drain.progress(), &report, &previews) + &report_text(&report, true);
        print!("{}", args.output.of(&report, text)?);
        return Ok(code(&report));
    }
    let is_text = args.output == OutputFormat::Text;
    let begun = progress.follow(&mut interrupted, drain.begin(&say)).await;
    let Some(open) = begun.transpose()? else {
        eprintln!(
            "Interrupted. No action was created. {} may be cordoned.\n{}",
            nodes_words(&drain.nodes),
            advice(&drain.progress())
        );
        return Ok(ExitCode::from(INTERRUPTED));
    };
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
    follow(&args, &mut drain, &progress, interrupted).await
}

async fn follow(
    args: &DrainArgs,
    drain: &mut Drain,
    progress: &CommandProgress,
    mut interrupted: Interrupts,
) -> Result<ExitCode, Error> {
    let mut screen = Screen::new(args.watch, args.output, progress);
    let until = args.timeout.filter(|limit| limit.is_positive()).map(|limit| drain.since() + limit);
    let followed = progress.follow(&mut interrupted, drain.follow(until, |drain| screen.show(drain))).await;
    let Some(in_time) = followed.transpose()? else {
        eprintln!("{}", interruption_text(&drain.progress()));
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let report = drain.report(!in_time).await;
    print!("{}", args.output.of(&report, || report_text(&report, false))?);
    Ok(code(&report))
}

/// Creates the actions and sends the evictions once, and describes how to follow them.
async fn made(args: &DrainArgs, drain: &mut Drain) -> Result<ExitCode, Error> {
    drain.step(None).await?;
    let report = drain.progress().report(false, SignedDuration::ZERO);
    let text = || {
        let mut lines: Vec<String> = report.actions.iter().map(|name| format!("made {name}")).collect();
        if report.evicted > 0 {
            lines.push(format!("{} evicted", counted(report.evicted as u64, "pod")));
        }
        let others = report.stays.iter().filter(|stay| !stay.is_expected());
        lines.extend(
            others.map(|stay| format!("stays: {} {} on {}: {}", stay.namespace, stay.what, stay.node, stay.message)),
        );
        lines.push(if drain.progress().is_over() {
            "Nothing to wait for.".to_owned()
        } else {
            advice(&drain.progress())
        });
        lines.join("\n") + "\n"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_as_kubectl_names_it() {
        for text in ["n0", "node/n0", "nodes/n0", "no/n0"] {
            assert_eq!(node_name(text), Ok("n0".to_owned()), "{text}");
        }
        for text in ["pod/n0", "node/", "node/n0/x", "/n0"] {
            assert!(node_name(text).is_err(), "{text}");
        }
    }
}
