//! NodeConfigs: parsed spec, cached values of a node, and status.
//!
//! | file | content |
//! |---|---|
//! | `node_spec` | parsed spec: the sources, with defaults |
//! | `accuracy` | error of predicted power, compared with a straight line |
//! | `known_sensor` | sensor that a search has found, and when to search again |
//! | `batches` | batches of rows for a model that may accept only few |
//! | `readings` | values of one node, their freshness, and why a value is missing |
//! | `node_plan` | plan of one NodeConfig: its parsed spec and whether it may be measured |
//! | `report` | status, with advice |
//! | `explain` | explanation of a node for a terminal |
//! | `news` | whether a status is worth a write |
//! | `template` | NodeConfigTemplates: rendering, plans, status |

pub mod accuracy;
pub mod batches;
pub mod cpu_family;
pub mod explain;
pub mod known_sensor;
pub mod news;
pub mod node_plan;
pub mod node_spec;
pub mod readings;
pub mod report;
pub mod template;
#[cfg(test)]
mod tests;
pub mod world;
