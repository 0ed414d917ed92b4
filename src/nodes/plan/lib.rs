//! NodeConfigs: what is asked of machines and servers, what is known, and what the status says of it.
//!
//! | file | what |
//! |---|---|
//! | `asked` | the spec, parsed: the sources, with defaults |
//! | `readings` | the values of one node, and why there is none; whether they are fresh |
//! | `standing` | whether the NodeConfig may be measured at all: its namespace, its node, others of the same node |
//! | `report` | the status |
//! | `advice` | what a user can do, for each reason |
//! | `explain` | what is known of a node, for a terminal |
//! | `news` | whether a status is worth a write |
//! | `lockout` | when a refused login is tried again |
//! | `template` | templates of NodeConfigs: rendering, plans, and how a template is |

pub mod advice;
pub mod asked;
pub mod explain;
pub mod news;
pub mod readings;
pub mod report;
pub mod standing;
pub mod template;
#[cfg(test)]
mod tests;
