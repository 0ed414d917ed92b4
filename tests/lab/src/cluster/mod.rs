//! A simulated cluster in virtual time: servers, pods that share their CPU, a scheduler, and autoscaled services.
//!
//! A step lasts [`STEP`]. Within a step usage is constant. Owns what happens; a [`Placer`] decides where.

pub mod facts;
mod ledger;
mod moves;
mod node;
mod placer;
mod pod;
pub mod published;
mod request;
mod service;
mod share;
mod simulation;

#[cfg(test)]
mod tests;

pub use ledger::{MEASURES, MeasureKind, RunMeasures};
pub use moves::MoveRules;
pub use node::{LabNode, OVERLOAD, STEP, UsageStatistics};
pub use placer::Placer;
pub use request::{PodRequest, bytes, millis};
pub use service::{ReplicaScaling, TARGET, time};
pub use simulation::{LabRun, PlacedPodAt, RunSettings, run};
