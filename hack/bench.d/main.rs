//! The benches. Each runs on its own control planes, and reports its figures as a table on the terminal and as JSON.
//!
//! `hack/bench` builds everything in release mode and starts this program. A new bench is a module here and a line in
//! [`Name`]. Machines and their load differ, so each bound limits a ratio to something measured in the same run, such
//! as a bare program that makes the same writes.

mod actions;
mod fleet;
mod forecast;
mod frame;
mod loops;
mod memory;
mod nodes;
mod placement;
mod queue;
mod replay;
mod swarm;
mod tenants;
mod unit;
mod watchers;
mod worth;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};

use forecast::ForecastOptions;
use frame::Bench;
use worth::WorthOptions;

/// Maximum time to wait for any event that should happen by itself.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// Measures the operator on local control planes.
#[derive(Parser, Debug)]
#[command(name = "hack/bench")]
struct Options {
    /// Bench to run.
    name: Name,
    /// Also write the figures to this file: [{"name", "value", "unit", "bound", "holds"}].
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Exit with 1 if a bound does not hold.
    #[arg(long)]
    strict: bool,
    /// Run only the parts whose names contain this text.
    #[arg(long, value_name = "PART", default_value = "")]
    only: String,
    /// Keep the API server's audit log and the operator's log of each part in this directory.
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
    #[command(flatten)]
    forecast: ForecastOptions,
    #[command(flatten)]
    worth: WorthOptions,
    #[command(flatten)]
    process: ProcessOptions,
}

/// Options of the processes that a bench starts.
#[derive(clap::Args, Debug)]
struct ProcessOptions {
    #[arg(long, hide = true)]
    kubeconfig: Option<PathBuf>,
    #[arg(long, hide = true)]
    targets: Option<PathBuf>,
    #[arg(long, hide = true)]
    bind: Option<SocketAddr>,
    #[arg(long, hide = true)]
    nodes: Option<usize>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    /// Moves: time, the operator's own share, requests, many at once, memory, start, idle operator.
    Actions,
    /// Forecasts: capacity that is missing and not needed, compared with the rule of a HorizontalPodAutoscaler.
    Forecast,
    /// Closed loops: samples back to back, and many loops with one per second, compared with a bare program; loops that
    /// act; calm loops; loops that track a target, compared with HorizontalPodAutoscalers.
    Loops,
    /// Memory of an object of each kind at its largest, compared with the estimate that limits namespaces.
    Memory,
    /// Node configs: one template for many nodes, and polls of many machines, each compared with a bare program.
    Nodes,
    /// Latency of the controllers' queue, compared with kube's applier.
    Queue,
    /// Placement: filter and score requests of kube-scheduler, compared with a handler that only reads them.
    Placement,
    /// Replays: time for a week of three metrics.
    Replay,
    /// Swarm pools: the assignment of a million jobs, compared with a sort of their names.
    Swarm,
    /// Tenants: latencies of one tenant while another one is hostile, compared with the same load on ConfigMaps.
    Tenants,
    /// Worth: energy, overload and waiting times of workloads, compared with other schedulers; decisions compared with
    /// those on a control plane.
    Worth,
    /// A process that the actions bench starts.
    #[value(hide = true)]
    Watchers,
    /// A process that the nodes bench starts.
    #[value(hide = true)]
    BarePolls,
    /// A process that the placement bench starts.
    #[value(hide = true)]
    PlacementServer,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = tokio::select! {
        done = measure(&options) => done,
        _ = tokio::signal::ctrl_c() => {
            eprintln!("interrupted");
            return ExitCode::from(130);
        }
    };
    match outcome {
        Ok(all_hold) => ExitCode::from(u8::from(options.strict && !all_hold)),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the bench. Returns whether all bounds hold.
async fn measure(options: &Options) -> Result<bool> {
    let process = &options.process;
    let mut bench = Bench::new(&options.only, options.logs.as_deref())?;
    let measured = match options.name {
        Name::Actions => actions::run(&mut bench).await,
        Name::Forecast => forecast::run(&mut bench, &options.forecast).await,
        Name::Loops => loops::run(&mut bench).await,
        Name::Memory => memory::run(&mut bench),
        Name::Nodes => nodes::run(&mut bench).await,
        Name::Queue => queue::run(&mut bench).await,
        Name::Placement => placement::run(&mut bench).await,
        Name::Replay => replay::run(&mut bench),
        Name::Swarm => swarm::run(&mut bench).await,
        Name::Tenants => tenants::run(&mut bench).await,
        Name::Worth => worth::run(&mut bench, &options.worth).await,
        Name::Watchers => {
            let kubeconfig = process.kubeconfig.clone().context("--kubeconfig is missing")?;
            return watchers::run(kubeconfig, process.bind.context("--bind is missing")?).await.map(|()| true);
        }
        Name::PlacementServer => {
            let bind = process.bind.context("--bind is missing")?;
            return placement::requests::server(bind, process.nodes.unwrap_or(0)).await.map(|()| true);
        }
        Name::BarePolls => {
            let targets = process.targets.as_deref().context("--targets is missing")?;
            return nodes::bare_polls::run(targets, process.bind.context("--bind is missing")?).await.map(|()| true);
        }
    };
    bench.show();
    if let Some(file) = &options.json {
        std::fs::write(file, bench.json()?).with_context(|| format!("cannot write {}", file.display()))?;
    }
    // Returns an error only after the figures are shown: they may explain it.
    measured.map(|()| bench.all_hold())
}
