//! Values of sources, from what servers and the API server answer. Pure. Requests and their errors are in the crate of
//! the controller, which has a file of the same name for each source that it polls; `SOURCE_RULES` has a row for each.
//!
//! | file | content |
//! |---|---|
//! | `prometheus` | answers of Prometheus |
//! | `object` | numbers in objects |
//! | `resource` | usage of pods |
//! | `external` | external metrics of adapters |
//! | `custom` | metrics of objects and pods of adapters |
//! | `node_config` | values of several NodeConfigs |
//! | `answered` | quantities and times in answers of adapters |
//! | `pods` | pods that a source selects |
//! | `reduced` | values of pods as one number |
//! | `samples` | values of single pods, for tracking |

mod answered;
mod custom;
mod external;
mod node_config;
mod object;
mod pods;
mod prometheus;
mod reduced;
mod resource;
mod samples;

#[cfg(test)]
mod tests;

pub use custom::{CustomMetricList, custom_samples, object_value, pods_value};
pub use external::{ExternalMetricList, external_value};
pub use node_config::{SelectableNode, node_value};
pub use object::field_value;
pub use pods::{MeasuredPod, PodList};
pub use prometheus::queried;
pub use resource::{PodMetrics, PodMetricsList, pod_usage, usage_samples};
pub use samples::{ready_pods, tracked_pods};
