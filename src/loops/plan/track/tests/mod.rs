//! Cases that users ran into, laws, and the stored memory.

mod bench;
mod cases;
mod laws;
mod paces;
mod stored;
