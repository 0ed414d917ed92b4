//! What this version of the operator can do: of what the schema accepts, the part that is not there yet is named.

use crate::api::closed_loop::ClosedLoopSpec;
use crate::logic::closed_loop::common::FieldError;

/// Checks that everything the spec asks for can be done.
///
/// # Errors
///
/// It cannot; the fault names the first field that is in the way.
pub fn check(spec: &ClosedLoopSpec) -> Result<(), FieldError> {
    let missing = spec.metrics.iter().find(|metric| metric.source.node_config.is_some());
    if let Some(metric) = missing {
        let field = format!("spec.metrics[{}].source.nodeConfig", metric.name);
        return Err(FieldError::new(field, "this version of the operator does not support it yet"));
    }
    Ok(())
}
