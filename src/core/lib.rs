//! Pure foundations of every product: facts of Kubernetes objects, versioned tables, quantities, expressions,
//! conditions.
//!
//! No client, clock, I/O or log: time and settings are arguments. Knows the kinds of [`ganglion_api`] only as data.

pub mod amounts;
pub mod check;
pub mod cloud_event;
pub mod conditions;
pub mod contest;
pub mod definitions;
pub mod digest;
pub mod document;
pub mod duration;
pub mod exporter_series;
pub mod expression;
pub mod facts;
pub mod items;
pub mod json_patch;
pub mod kind_path;
pub mod layout;
pub mod metrics_api;
pub mod names;
pub mod namespaces;
pub mod node_values;
pub mod owners;
pub mod policies;
pub mod power_curve;
pub mod quantity;
pub mod reading;
pub mod status;
pub mod trace;
pub mod words;
pub mod world;
