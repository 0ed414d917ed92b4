//! The operator under test: the controller as it is shipped, the driver's steps of its process, and flaws to inject.

pub mod build;
pub mod feed;
pub mod flaw;
pub mod process;

use feed::Watched;

/// One thing that the operator's process may do next, or that may happen to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Takes in the next event of this kind, or the next part of its listing.
    Hear(Watched),
    /// Starts the reconcile of one action that is due.
    Plan,
    /// One request arrives at the API server and is carried out.
    Send,
    /// The answer to one request arrives.
    Answer,
    /// One answer is lost.
    LoseAnswer,
    /// The API server refuses one request.
    Refuse,
    /// The janitor begins a round.
    Sweep,
    /// Crashes and starts again.
    Crash,
    /// The watch of this kind breaks; its next step lists again.
    Cut(Watched),
}
