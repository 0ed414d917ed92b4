//! Settings of the custom resources that each replica keeps in memory.

use serde::Deserialize;

use ganglion_core::world::OccupancyLimits;

/// See [`Settings::objects`](super::Settings::objects).
#[derive(Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Objects {
    /// Maximum memory, as an estimate in bytes, of the objects of one namespace, 1048576 to 68719476736. Custom
    /// resources count whole; of other objects, labels, selectors and pod templates count beyond 4 KiB for each object.
    /// Custom resources beyond it are not worked on, and actions on other objects beyond it are refused. Default:
    /// 67108864.
    pub max_bytes_per_namespace: usize,
    /// Maximum memory of the objects of all namespaces, at least `maxBytesPerNamespace`. Beyond it, namespaces
    /// with more than an equal share cannot add objects. Default: 268435456.
    pub max_bytes_in_all: usize,
}

impl Default for Objects {
    fn default() -> Self {
        let OccupancyLimits { per_namespace, in_all } = OccupancyLimits::default();
        Self { max_bytes_per_namespace: per_namespace, max_bytes_in_all: in_all }
    }
}
