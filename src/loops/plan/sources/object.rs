//! Numbers in objects.

use crate::monitoring::SourceResult;
use ganglion_api::closed_loop::metric::ObjectField;
use ganglion_core::document;

/// Returns the number at the path, or the status of the condition, of an object as the API server sent it.
pub fn field_value(source: &ObjectField, object: &[u8]) -> SourceResult {
    let value = match (&source.path, &source.condition) {
        (Some(path), _) => document::number(object, path),
        (None, Some(condition)) => document::condition(object, condition),
        (None, None) => Err("object names neither path nor condition".to_owned()),
    };
    Ok(value?.into())
}
