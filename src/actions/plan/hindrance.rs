//! Reasons why a new pod cannot run before the old one is gone, or not without data loss. The planner and drains share
//! them.

use std::fmt::{Display, Formatter, Result};

use serde::Serialize;

use ganglion_core::facts::{ClaimFact, PodVolumes};

/// One obstacle to a replacement that runs before the old pod is gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Hindrance {
    /// A claim that only one node at a time may mount, with its access mode.
    Claim { name: String, mode: String },
    /// The Deployment has `strategy: Recreate`.
    Recreate,
    /// The pod belongs to a StatefulSet, so its successor has the same name.
    SameName,
    /// A volume whose data are deleted with the pod.
    Scratch { volume: String },
    /// A directory of the node that the pod writes.
    HostPath { path: String },
}

impl Hindrance {
    /// The hindrance of a claim that pods on two nodes cannot mount at the same time.
    pub fn of_claim(claim: &ClaimFact) -> Option<Self> {
        let mode = claim.access_modes.first().filter(|_| !claim.is_shared())?;
        Some(Self::Claim { name: claim.id.key.name.clone(), mode: mode.clone() })
    }

    /// The hindrances of the data that a pod with these volumes leaves behind.
    pub fn of_data(volumes: &PodVolumes) -> impl Iterator<Item = Self> {
        let scratch = volumes.scratch.iter().map(|volume| Self::Scratch { volume: volume.clone() });
        scratch.chain(volumes.host_paths.iter().map(|path| Self::HostPath { path: path.clone() }))
    }

    /// Whether the new pod cannot run while the old one does. Otherwise only data are lost.
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
