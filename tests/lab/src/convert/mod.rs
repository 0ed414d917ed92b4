//! Converters of public traces: each reads the files of a directory that the user has downloaded.
//!
//! `hack/bench.d/WORTH.md` lists the files, their licenses and the assumptions.

mod alibaba;
mod opendc;
mod planetlab;

use std::path::Path;

use crate::trace::{TraceError, WorkPod, WorkTrace};

/// Format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// The format of the lab.
    Lab,
    /// cluster-trace-v2018 of Alibaba.
    Alibaba,
    /// Workloads of OpenDC, exported as CSV.
    OpenDc,
    /// CPU usage of PlanetLab's virtual machines, as CloudSim has it.
    PlanetLab,
}

impl TraceFormat {
    pub const ALL: [Self; 4] = [Self::Lab, Self::Alibaba, Self::OpenDc, Self::PlanetLab];

    pub fn name(self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Alibaba => "alibaba-2018",
            Self::OpenDc => "opendc",
            Self::PlanetLab => "planetlab",
        }
    }

    /// The format of this name.
    pub fn from_name(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        let format = Self::ALL.into_iter().find(|format| format.name() == name);
        format.ok_or_else(|| format!("\"{name}\" is none of {}", names()))
    }

    /// Reads the trace in this directory.
    pub fn read(self, directory: &Path) -> Result<WorkTrace, TraceError> {
        match self {
            Self::Lab => WorkTrace::read(directory),
            Self::Alibaba => alibaba::read(directory),
            Self::OpenDc => opendc::read(directory),
            Self::PlanetLab => planetlab::read(directory),
        }
    }
}

/// A trace that begins with its first pod.
fn from_first(mut pods: Vec<WorkPod>) -> WorkTrace {
    let first = pods.iter().map(|pod| pod.arrival).fold(f64::INFINITY, f64::min);
    pods.iter_mut().for_each(|pod| pod.arrival -= first);
    WorkTrace::new(pods)
}

#[cfg(test)]
mod tests;
