//! Values of metrics: read from documents and objects, or aggregated from the usage of pods.

pub mod nodes;
pub mod usage;
