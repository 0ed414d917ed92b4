//! How every controller writes what is its own.
//!
//! The API server is not asked to warn of unknown fields: it would parse each body a second time for that, and what we send
//! is made from the same types as the schema.

use std::borrow::Cow;

use kube::Resource;
use kube::api::PatchParams;
use serde::Serialize;

/// The body of a status that is applied.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
pub struct StatusBody<'a, S> {
    api_version: Cow<'static, str>,
    kind: Cow<'static, str>,
    metadata: Head<'a>,
    status: &'a S,
}

/// Which object it is for.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Head<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    /// Only this object.
    pub uid: Option<&'a str>,
    /// Only this version of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<&'a str>,
}

impl<'a, S> StatusBody<'a, S> {
    /// The status of an object of this kind.
    pub fn of<K: Resource<DynamicType = ()>>(metadata: Head<'a>, status: &'a S) -> Self {
        Self { api_version: K::api_version(&()), kind: K::kind(&()), metadata, status }
    }
}

/// Server-side apply under this name, whoever else holds the fields.
pub fn applying(manager: &str) -> PatchParams {
    PatchParams::apply(manager).force().validation_ignore()
}

/// Any other patch under this name.
pub fn changing(manager: &str) -> PatchParams {
    PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() }.validation_ignore()
}
