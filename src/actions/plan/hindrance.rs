//! Why a new pod cannot run before the old one is gone, or not without a loss: what the planner and a drain have in common.

use std::fmt::{Display, Formatter, Result};

use serde::Serialize;

use ganglion_core::facts::{ClaimFact, PodVolumes};

/// One obstacle to a replacement that comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Hindrance {
    /// A claim that one node at a time may mount; its mode.
    Claim { name: String, mode: String },
    /// `strategy: Recreate` of its Deployment.
    Recreate,
    /// A pod of a StatefulSet, whose successor has its name.
    SameName,
    /// A volume whose data end with the pod.
    Scratch { volume: String },
    /// A directory of the node that the pod writes.
    HostPath { path: String },
}

impl Hindrance {
    /// Of a claim that pods on two nodes cannot have at the same time.
    #[must_use]
    pub fn of_claim(claim: &ClaimFact) -> Option<Self> {
        let mode = claim.access_modes.first().filter(|_| !claim.is_shared())?;
        Some(Self::Claim { name: claim.id.key.name.clone(), mode: mode.clone() })
    }

    /// The data that a pod with these volumes leaves behind.
    pub fn of_data(volumes: &PodVolumes) -> impl Iterator<Item = Self> {
        let scratch = volumes.scratch.iter().map(|volume| Self::Scratch { volume: volume.clone() });
        scratch.chain(volumes.host_paths.iter().map(|path| Self::HostPath { path: path.clone() }))
    }

    /// Whether it keeps the new pod from running while the old one does; else only data are lost.
    #[must_use]
    pub fn keeps_apart(&self) -> bool {
        match self {
            Self::Claim { .. } | Self::Recreate | Self::SameName => true,
            Self::Scratch { .. } | Self::HostPath { .. } => false,
        }
    }
}

impl Display for Hindrance {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Claim { name, mode } => write!(f, "claim {name} is {mode}"),
            Self::Recreate => write!(f, "the Deployment has strategy: Recreate"),
            Self::SameName => write!(f, "the next pod of a StatefulSet has the same name"),
            Self::Scratch { volume } => write!(f, "the data of volume {volume} are lost with the pod"),
            Self::HostPath { path } => write!(f, "the data in {path} stay on the node"),
        }
    }
}
