//! Tests of the handover against workers that read, restart, hang and vanish at any moment; of who takes part, and of how a pool is.

mod crew;
mod handover;
mod state;
mod workers;
