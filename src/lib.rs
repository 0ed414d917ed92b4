//! Ganglion: a Kubernetes operator that changes workloads on request and by closed loops.
//!
//! This package is the binary: the command line and the composition root. `ARCHITECTURE.md` beside this file
//! shows the rooms.

pub mod cli;
pub mod operator;
