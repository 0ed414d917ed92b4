//! The operator under test: the shipped controller, the driver's steps of its process, and flaws to inject.

pub mod build;
pub mod feed;
pub mod flaw;
pub mod process;

use feed::WatchedKind;

/// Possible next step or failure of the operator's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Delivers the next event of this kind, or the next part of its list.
    Hear(WatchedKind),
    /// Starts the reconcile of one action that is due.
    Plan,
    /// One request arrives at the API server and is carried out.
    Send,
    /// The answer to one request arrives.
    Answer,
    /// One answer is lost.
    LoseAnswer,
    /// The API server rejects one request.
    Refuse,
    /// The janitor begins a round.
    Sweep,
    /// The process crashes and starts again.
    Crash,
    /// The watch of this kind breaks; its next step lists again.
    Cut(WatchedKind),
}
