//! Units of resources, and the demand of pods without requests.

const MEBI: f64 = 1_048_576.0;
const GIBI: f64 = 1_073_741_824.0;

/// A resource that the agent can read.
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
    /// Converts an amount of a node to the unit and rounds it down. `amount` is in millicores, bytes or pieces.
    pub fn size(self, amount: f64) -> f64 {
        match self {
            Self::Cpu | Self::Pods | Self::Gpu => amount,
            Self::Memory => (amount / MEBI).floor(),
            Self::EphemeralStorage => (amount / GIBI).floor(),
        }
    }

    /// Converts a request of a pod to its demand in the unit. A pod without a request for CPU or memory counts with a
    /// small default, and each pod counts as one pod.
    pub fn demand(self, request: f64) -> f64 {
        match self {
            Self::Cpu if request <= 0.0 => 10.0,
            Self::Memory if request < MEBI => 16.0,
            Self::Pods => 1.0,
            Self::Cpu | Self::Memory | Self::Gpu | Self::EphemeralStorage => self.size(request),
        }
    }
}
