//! Requests of the operator itself for objects of kinds that are only known at run time.

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::Request;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::account::ObjectPath;
use super::error::Error;
use super::writer::{AnswerBounds, Writer};
use ganglion_core::kind_path::segment;

/// Reads an object or a subresource.
pub async fn get<T: DeserializeOwned>(writer: &Writer, path: ObjectPath<'_>) -> Result<T, Error> {
    writer.bounded(path.request()?, AnswerBounds::OBJECT).await
}

/// Patches an object by a merge patch. The body contains uid and resourceVersion as preconditions.
pub async fn merge(writer: &Writer, manager: &str, path: ObjectPath<'_>, body: &Value) -> Result<DynamicObject, Error> {
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    let request = Request::new(path.kind.as_str()).patch(segment(path.name)?, &params, &Patch::Merge(body));
    writer.bounded(request.map_err(|error| Error::Malformed(error.to_string()))?, AnswerBounds::OBJECT).await
}
