//! Amounts of CPU and memory, in the format of API servers.

use serde::{Deserialize, Deserializer};

use ganglion_api::closed_loop::metric::ResourceName;

/// Quantities of CPU and memory.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Amounts {
    /// In cores.
    pub cpu: Option<String>,
    /// In bytes.
    pub memory: Option<String>,
}

impl Amounts {
    /// Quantity of this resource.
    pub fn of(&self, resource: ResourceName) -> Option<&str> {
        match resource {
            ResourceName::Cpu => self.cpu.as_deref(),
            ResourceName::Memory => self.memory.as_deref(),
        }
    }
}

/// Deserializes null as the default value: servers written in Go write null for empty values.
pub fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
