//! Values of sources, from what servers and the API server answer. Pure. Requests and their errors are in the crate of
//! the controller, which has a file of the same name for each source that it polls; `SOURCE_RULES` has a row for each.
//!
//! | file | content |
//! |---|---|
//! | `prometheus` | answers of Prometheus |
//! | `object` | numbers in objects |
//! | `resource` | usage of pods |
//! | `node_config` | values of several NodeConfigs |
//! | `pods` | pods that a source selects |
//! | `reduced` | values of pods as one number |
//! | `samples` | values of single pods, for tracking |

mod node_config;
mod object;
mod pods;
mod prometheus;
mod reduced;
mod resource;
mod samples;

#[cfg(test)]
mod tests;

pub use node_config::{SelectableNode, node_value};
pub use object::field_value;
pub use pods::{MeasuredPod, PodList};
pub use prometheus::queried;
pub use resource::{PodMetrics, PodMetricsList, pod_usage};
pub use samples::{ready_pods, usage_samples};
