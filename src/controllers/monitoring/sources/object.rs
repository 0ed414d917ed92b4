//! The source `object`: a field or condition of an object, read as the loop's account.

use serde_json::Value;

use super::SourceReader;
use crate::api::closed_loop::TargetRef;
use crate::api::closed_loop::source::ObjectField;
use crate::controllers::outbound::{name, unread};
use crate::logic::closed_loop::monitoring::SourceResult;
use crate::logic::closed_loop::sources::document::{self, Text};
use crate::runtime::account::ObjectPath;

/// The value.
pub async fn read(reader: &SourceReader<'_>, source: &ObjectField) -> SourceResult {
    let ObjectField { api_version, kind, name: object, .. } = source;
    let id = TargetRef { api_version: api_version.clone(), kind: kind.clone(), name: object.clone() };
    let object = reader.object(&id).await?;
    let found = match (&source.path, &source.condition) {
        (Some(path), _) => document::number(&object, path, Text::Quantity),
        (None, Some(condition)) => document::condition(&object, condition),
        (None, None) => Err("object names neither path nor condition".to_owned()),
    };
    Ok(found?.into())
}

impl SourceReader<'_> {
    /// Any object of the loop's namespace.
    pub async fn object(&self, id: &TargetRef) -> Result<Value, String> {
        let TargetRef { api_version, kind, name: object } = id;
        let what = format!("{kind} {object}");
        for part in api_version.split('/') {
            name(part)?;
        }
        let found = match self.controller.discovery.find(&self.controller.ctx, api_version, kind).await {
            Ok(Some(found)) => found,
            Ok(None) => return Err(format!("the API server does not know a namespaced kind {kind} in {api_version}")),
            Err(error) => return Err(unread(&self.account, &what, error)),
        };
        let url = found.url(&self.account.namespace);
        match self.account.get(ObjectPath { url: &url, name: name(object)?, subresource: None }).await {
            Ok(found) => Ok(found),
            Err(error) => Err(unread(&self.account, &what, error)),
        }
    }
}
