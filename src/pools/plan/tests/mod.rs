//! Tests of the handover with workers that read, restart, hang and vanish at any moment; of the selection of workers;
//! and of the status.

mod clock;
mod handover;
mod refusals;
mod simulation;
mod sources;
mod state;
mod step;
mod workers;
