//! Units of resources, and the demand of pods that request nothing.

const MEBI: f64 = 1_048_576.0;
const GIBI: f64 = 1_073_741_824.0;

/// A resource that a policy can look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PigeonResource {
    /// In millicores.
    Cpu,
    /// In MiB.
    Memory,
    Pods,
    /// `nvidia.com/gpu`.
    Gpu,
    /// In GiB.
    EphemeralStorage,
}

impl PigeonResource {
    /// An amount of a node in the unit, rounded down; `amount` is in millicores, bytes or pieces.
    #[must_use]
    pub fn size(self, amount: f64) -> f64 {
        match self {
            Self::Cpu | Self::Pods | Self::Gpu => amount,
            Self::Memory => (amount / MEBI).floor(),
            Self::EphemeralStorage => (amount / GIBI).floor(),
        }
    }

    /// The demand of a pod in the unit. Pods without a request for CPU or memory count as small, and each pod as one pod.
    #[must_use]
    pub fn demand(self, request: f64) -> f64 {
        match self {
            Self::Cpu if request <= 0.0 => 10.0,
            Self::Memory if request < MEBI => 16.0,
            Self::Pods => 1.0,
            Self::Cpu | Self::Memory | Self::Gpu | Self::EphemeralStorage => self.size(request),
        }
    }
}
