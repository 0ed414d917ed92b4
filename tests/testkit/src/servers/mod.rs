//! Servers that the operator asks and tells beside the API server: one of a few lines that misbehaves as a test wants it, a
//! real Prometheus, a real metrics-server, a real prometheus-adapter, a real Redfish service.

pub mod adapter;
mod aggregation;
pub mod bmc;
pub mod http;
pub mod prometheus;
pub mod usage;
