//! Amounts of processors and memory, as objects of API servers have them.

use serde::{Deserialize, Deserializer};

use ganglion_api::closed_loop::source::ResourceName;

/// Quantities of the two resources that are measured.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Amounts {
    /// In cores.
    pub cpu: Option<String>,
    /// In bytes.
    pub memory: Option<String>,
}

impl Amounts {
    /// The quantity of this resource.
    #[must_use]
    pub fn of(&self, resource: ResourceName) -> Option<&str> {
        match resource {
            ResourceName::Cpu => self.cpu.as_deref(),
            ResourceName::Memory => self.memory.as_deref(),
        }
    }
}

/// Reads null as the default: servers written in Go write null for what is empty.
///
/// # Errors
/// The value has another form.
pub fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
