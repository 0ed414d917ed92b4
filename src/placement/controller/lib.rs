//! Placement: the controller of PlacementPolicy, the cache from which requests are answered, and the scheduler
//! extender.

pub mod cache;
pub mod extender;
pub mod learned;
pub mod policy;
