//! The operator under test: the controller that is shipped, what the driver may do with its process, and flaws to put into
//! it on the way.

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
    /// Begins a pass over one action that is due.
    Plan,
    /// One request arrives at the API server and is carried out.
    Send,
    /// The answer to one request arrives.
    Answer,
    /// One answer never comes.
    LoseAnswer,
    /// The API server turns one request away.
    Refuse,
    /// The janitor begins a round.
    Sweep,
    /// Dies and starts again.
    Crash,
    /// The watch of this kind breaks; it lists again at its next turn.
    Cut(Watched),
}
