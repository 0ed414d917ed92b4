//! Controllers of NodeConfig and NodeConfigTemplate: they carry out what `ganglion_nodes_plan` decides.

pub mod config;
pub mod template;
