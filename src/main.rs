//! The binary: reads the command line and calls one subcommand.

use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use ganglion::cli::{self, Cli, Command};

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Crds(crds) => Ok(cli::crds(&crds)?),
        Command::Run(run) => {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .context("the asynchronous runtime does not start")?;
            let result = runtime.block_on(cli::run(run));
            // Whatever still runs must not keep the process: a replica without its lease has to be gone.
            runtime.shutdown_timeout(Duration::from_millis(100));
            Ok(result?)
        }
    }
}
