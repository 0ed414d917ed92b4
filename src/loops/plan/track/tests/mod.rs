//! Cases that users ran into, laws, and the stored memory.

mod bench;
mod cases;
mod demand;
mod laws;
mod paces;
mod stored;
