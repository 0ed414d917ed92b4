//! Objects of kinds that are known at run time only, read and changed by the operator itself.

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::Request;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::account::ObjectPath;
use super::error::Error;
use super::writer::Writer;

/// Reads an object, or a subresource.
///
/// # Errors
/// The request did not succeed.
pub async fn get<T: DeserializeOwned>(writer: &Writer, path: ObjectPath<'_>) -> Result<T, Error> {
    writer.call(writer.client().request(path.request()?)).await
}

/// Changes an object by a merge patch. Its body contains uid and resourceVersion, which the API server checks.
///
/// # Errors
/// The request did not succeed.
pub async fn merge(writer: &Writer, manager: &str, path: ObjectPath<'_>, body: &Value) -> Result<DynamicObject, Error> {
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    let request = Request::new(path.url).patch(path.name, &params, &Patch::Merge(body));
    let request = request.map_err(|error| Error::Malformed(error.to_string()))?;
    writer.call(writer.client().request(request)).await
}
