//! NodeConfigs and their templates: pure decisions.

pub mod template;
