//! The binary: parses the command line and runs one subcommand.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use ganglion::cli::{self, Cli, Command};

fn main() -> anyhow::Result<ExitCode> {
    if cli::completion::serve() {
        return Ok(ExitCode::SUCCESS);
    }
    let done: anyhow::Result<()> = match Cli::read().command {
        Command::Crds(crds) => Ok(cli::crds(&crds)?),
        Command::Completion(args) => {
            cli::completion::completion(&args);
            Ok(())
        }
        Command::Policies(policies) => Ok(cli::policies(&policies)?),
        Command::Drain(drain) => return Ok(to_its_end(cli::drain::drain(drain))??),
        Command::Timeline(timeline) => return Ok(to_its_end(cli::timeline::timeline(timeline))??),
        Command::Remove(remove) => return Ok(to_its_end(cli::remove::remove(remove))??),
        Command::Top(top) => return Ok(to_its_end(cli::top::top(top))??),
        Command::Run(run) => Ok(to_its_end(cli::run(run))??),
        Command::Push(push) => Ok(to_its_end(cli::push::push(push))??),
        Command::Explain(explain) => Ok(to_its_end(cli::explain::explain(explain))??),
        Command::Plan(plan) => return Ok(to_its_end(cli::plan::plan(plan))??),
        Command::Import(import) => return Ok(to_its_end(cli::import::import(import))??),
        Command::Replay(replay) => return Ok(to_its_end(cli::replay::replay(replay))??),
        Command::Check(check) => return Ok(to_its_end(cli::check::check(check))??),
        Command::Approve(approve) => Ok(to_its_end(cli::approve::approve(approve))??),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn to_its_end<F: Future>(command: F) -> anyhow::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .enable_all()
        .build()
        .context("the asynchronous runtime cannot be started")?;
    let output = runtime.block_on(command);
    // No task may keep the process running: a replica that lost its lease must exit.
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(output)
}

/// Number of worker threads, two to four: each thread costs memory, mostly in the allocator, and the work does not need
/// more.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, 4)
}
