//! The decisions of closed loops: monitoring, decision and execution as pure stages, and what ties loops together.
//!
//! Each stage is total: its policy (parsed once, where it enters), the status that it wrote last, what is new, and the time
//! go in; the next status comes out, and whether it is worth a write. A stage keeps nothing between two calls, so that a
//! crash between any two writes is answered by asking again. What must survive one stands in status before it matters.
//!
//! | folder or file | what it decides |
//! |---|---|
//! | `monitoring/` | which sample counts, which alarm stands |
//! | `decision/` | which alarm is served, by which rung, and why the others are not |
//! | `execution/` | what the target is to be, and what to do next so that each decision has one effect |
//! | `tuning/` | how a slow loop finds what to tune, and how far it may |
//! | `sources/` | the number at a path of a document; what pods use, as one number |
//! | `explain/` | how all of it is told to people |
//! | `validate/` | whether the loop as a whole may act: its spec, who else acts on the target, how loops stand on one another |
//! | `children` | what the loop's three children are to be |
//! | `common`, `conditions`, `duration`, `rung` | what the folders share |

pub mod children;
pub mod common;
pub mod conditions;
pub mod decision;
pub mod duration;
pub mod execution;
pub mod explain;
pub mod monitoring;
pub mod rung;
pub mod sources;
pub mod tuning;
pub mod validate;

#[cfg(test)]
mod tests;
