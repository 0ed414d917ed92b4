//! Tests of the handover against workers that read, restart, hang and vanish at any moment.

mod handover;
mod workers;
