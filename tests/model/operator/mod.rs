//! Operators under test: what the driver may do with one, and the shell that runs a planner as the real process does.
//!
//! Kinds that come later implement [`Planner`] if they share the effects of WorkloadActions, or [`Operator`] if not.

pub mod naive;
pub mod send;
pub mod shell;
mod watch;

use ganglion::logic::facts::Key;
use ganglion::logic::workload_action::effect::{Effect, Next, Refusal};
use ganglion::logic::workload_action::janitor::Leftovers;
use ganglion::logic::workload_action::{self, Limits};
use ganglion::logic::world::{Kind, World};
use jiff::Timestamp;

use crate::cluster::api::Api;

/// What decides. Everything it knows is in its arguments.
pub trait Planner {
    fn next(&self, key: &Key, world: &World, now: Timestamp, limits: &Limits) -> Next;
    fn refused(&self, key: &Key, world: &World, now: Timestamp, effect: &Effect, refusal: &Refusal) -> Next;
    /// What is to be cleaned up after actions that vanished, and when to look again.
    fn sweep(&self, _left: &mut Leftovers, _world: &World, _now: Timestamp) -> (Vec<Effect>, Option<Timestamp>) {
        (Vec::new(), None)
    }
}

/// The planner of the crate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Real;

impl Planner for Real {
    fn next(&self, key: &Key, world: &World, now: Timestamp, limits: &Limits) -> Next {
        workload_action::next(key, world, now, limits)
    }
    fn refused(&self, key: &Key, world: &World, now: Timestamp, effect: &Effect, refusal: &Refusal) -> Next {
        workload_action::refused(key, world, now, effect, refusal)
    }
    fn sweep(&self, left: &mut Leftovers, world: &World, now: Timestamp) -> (Vec<Effect>, Option<Timestamp>) {
        left.sweep(world, now)
    }
}

/// One thing that an operator's process may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Takes in the next event of this kind, or the next part of its listing.
    Hear(Kind),
    /// Plans for one action that is due.
    Plan,
    /// Sends one request that was planned.
    Send,
    /// Takes in the answer to one request.
    Answer,
    /// One answer never comes: the request timed out.
    LoseAnswer,
    /// The janitor looks for what is left over, and cleans up one such thing.
    Sweep,
    /// Dies and starts again.
    Crash,
    /// The watch of this kind breaks; it lists again at its next turn.
    Cut(Kind),
}

/// What a move came to, for the invariants.
#[derive(Clone, Debug)]
pub enum Deed {
    Nothing,
    /// Something inside the process.
    Inside,
    /// Decided to send this, by what it knew.
    Planned {
        action: Key,
        effect: Effect,
    },
    /// Sent this, and the API server did it, or not.
    Sent {
        action: Key,
        effect: Effect,
        report: bool,
        done: bool,
    },
}

/// An operator's process, as the driver sees it.
pub trait Operator {
    fn step(&mut self, api: &mut Api, step: Move) -> Deed;
    /// What it knows.
    fn world(&self) -> &World;
    /// When time alone brings it something to do.
    fn next_time(&self) -> Option<Timestamp>;
    /// Looks at every action again, as a slow periodic resync would.
    fn wake_all(&mut self);
}

/// The kinds that are watched.
pub const KINDS: [Kind; 9] = [
    Kind::Pod,
    Kind::Node,
    Kind::Set,
    Kind::Deployment,
    Kind::Budget,
    Kind::Service,
    Kind::Scaler,
    Kind::Receipt,
    Kind::Action,
];

/// Where a kind stands in [`KINDS`].
pub fn index(kind: Kind) -> usize {
    KINDS.iter().position(|one| *one == kind).unwrap_or(0)
}
