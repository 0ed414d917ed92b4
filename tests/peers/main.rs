//! The clients against the real servers that they are made for. A test that cannot have its server fails.

mod client;
mod inference;
mod polls;
mod redfish;
mod usage;
