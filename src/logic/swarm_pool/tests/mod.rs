//! Tests of the handover against workers that read, restart, hang and vanish at any moment; and of who takes part.

mod crew;
mod handover;
mod workers;
