//! Values of metrics: read from documents and objects, or added up from what pods use.

pub mod document;
pub mod usage;
