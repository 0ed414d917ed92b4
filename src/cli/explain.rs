//! `ganglion explain`: describes the state of an object and its children in words.

use clap::{Args, Subcommand};

use super::loops::{Error, LoopFamily, LoopName};
use crate::logic::closed_loop::explain::explain as text;

/// Options of `explain`.
#[derive(Args, Debug, Clone)]
pub struct ExplainArgs {
    #[command(subcommand)]
    what: What,
}

/// What can be explained.
#[derive(Subcommand, Debug, Clone)]
enum What {
    /// Explains a loop: its recent decisions and their reasons, its state, and what to do.
    Loop(LoopName),
}

/// Writes the explanation to standard output.
///
/// # Errors
/// The object does not exist or cannot be read.
pub async fn explain(explain: ExplainArgs) -> Result<(), Error> {
    let What::Loop(name) = explain.what;
    print!("{}", text(&LoopFamily::read(name).await?.subject()));
    Ok(())
}
