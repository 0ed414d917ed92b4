//! The clients against the real servers for which they are written. A test fails if its server cannot be started.

mod alerts;
mod autoscaler;
mod client;
mod inference;
mod pictures;
mod polls;
mod queries;
mod redfish;
mod replay;
mod scaler;
mod usage;
