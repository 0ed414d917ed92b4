//! Conversion of a HorizontalPodAutoscaler or a ScaledObject to a loop that does the same, and the steps by which the
//! loop takes over from it.
//!
//! | file | content |
//! |---|---|
//! | `draft` | a loop under construction, with what it cannot express |
//! | `difference` | the list of differences, each a sentence |
//! | `names` | names of metrics |
//! | `hpa`, `pace` | HorizontalPodAutoscaler: metrics and bounds, `behavior` |
//! | `scaled_object`, `triggers` | ScaledObject: bounds and times, triggers |
//! | `cron` | cron triggers as a schedule |
//! | `fallback` | `fallback` as `missing` of each metric |
//! | `formula` | `scalingModifiers.formula` in CEL |
//! | `imported` | an autoscaler that is switched off and on, and the records of that |
//! | `handover` | the next step of a handover, from what is in the cluster |
//!
//! The types of foreign specs refuse unknown fields, so that no field is left out silently. The spec of the loop is
//! JSON until the end: a source that this version does not have is found there, and refused by name.

mod cron;
mod difference;
mod draft;
mod fallback;
mod formula;
pub mod handover;
mod hpa;
mod imported;
mod names;
mod pace;
mod scaled_object;
mod triggers;

#[cfg(test)]
mod tests;

pub use draft::{ImportOptions, ImportRefusal, ImportedLoop};
pub use hpa::convert as convert_hpa;
pub use imported::{HandoverRefusal, ImportClaim, ImportRecord, ImportedKind, ImportedScaler};
pub use scaled_object::{ScaledObjectInput, convert as convert_scaled_object, hpa_name};
