//! Cases that users ran into, laws, forecasts, and the stored memory.

mod bench;
mod cases;
mod demand;
mod forecasts;
mod laws;
mod paces;
mod stored;
