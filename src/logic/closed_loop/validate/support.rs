//! Fields that the schema accepts and this version of the operator does not support.

use crate::api::closed_loop::ClosedLoopSpec;
use crate::logic::closed_loop::common::FieldError;

/// Checks that everything in the spec is supported.
///
/// # Errors
///
/// It is not; the error names the first field.
pub fn check(spec: &ClosedLoopSpec) -> Result<(), FieldError> {
    let missing = spec.metrics.iter().find(|metric| metric.source.node_config.is_some());
    if let Some(metric) = missing {
        let field = format!("spec.metrics[{}].source.nodeConfig", metric.name);
        return Err(FieldError::new(field, "this version of the operator does not support it yet"));
    }
    Ok(())
}
