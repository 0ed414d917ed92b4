//! NodeConfigs: parsed spec, cached values of a node, and status.
//!
//! | file | content |
//! |---|---|
//! | `asked` | parsed spec: the sources, with defaults |
//! | `readings` | values of one node, their freshness, and why a value is missing |
//! | `standing` | whether the NodeConfig may be measured: its namespace, its node, other NodeConfigs of the node |
//! | `node_plan` | plan of one NodeConfig: its parsed spec and whether it may be measured |
//! | `report` | status |
//! | `advice` | advice for users, by reason |
//! | `explain` | explanation of a node for a terminal |
//! | `news` | whether a status is worth a write |
//! | `template` | NodeConfigTemplates: rendering, plans, status |

pub mod advice;
pub mod asked;
pub mod explain;
pub mod news;
pub mod node_plan;
pub mod readings;
pub mod report;
pub mod standing;
pub mod template;
#[cfg(test)]
mod tests;
pub mod world;
