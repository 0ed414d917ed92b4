//! The lab: recorded or generated workloads on simulated clusters, with several schedulers, to compare what they cost
//! and what they leave undone. `hack/bench worth` runs it; `hack/bench.d/WORTH.md` describes formats and method.

pub mod cluster;
pub mod compare;
pub mod contender;
pub mod convert;
pub mod csv;
pub mod fleet;
pub mod generate;
pub mod ground;
pub mod plane;
pub mod report;
pub mod statistics;
pub mod trace;
