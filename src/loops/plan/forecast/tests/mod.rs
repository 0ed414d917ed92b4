//! Cases of loads, faults of time, laws, and the stored memory.

mod bench;
mod cases;
mod laws;
mod rules;
mod stored;
mod times;
