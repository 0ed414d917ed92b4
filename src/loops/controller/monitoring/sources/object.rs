//! The source `object`: a field or condition of an object, read as the loop's account.

use super::SourceReader;
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::source::ObjectField;
use ganglion_core::document::{self, Text};
use ganglion_loops_plan::monitoring::SourceResult;
use ganglion_outbound::body::BoundedBody;
use ganglion_outbound::client::objects::{ReadError, name};
use ganglion_runtime::account::ObjectPath;

/// Reads the value.
pub async fn read(reader: &SourceReader<'_>, source: &ObjectField) -> SourceResult {
    let ObjectField { api_version, kind, name: object, .. } = source;
    let id = TargetRef { api_version: api_version.clone(), kind: kind.clone(), name: object.clone() };
    let object = reader.object(&id).await?.bytes;
    let found = match (&source.path, &source.condition) {
        (Some(path), _) => document::number(&object, path, Text::Quantity),
        (None, Some(condition)) => document::condition(&object, condition),
        (None, None) => Err("object names neither path nor condition".to_owned()),
    };
    Ok(found?.into())
}

impl SourceReader<'_> {
    /// Reads any object of the loop's namespace except Secrets.
    pub async fn object(&self, id: &TargetRef) -> Result<BoundedBody, String> {
        let TargetRef { api_version, kind, name: object } = id;
        // The schema refuses Secrets too, but a spec may be older than this rule of the schema.
        if kind == "Secret" {
            return Err("a Secret is no source: its values would be shown in a status".to_owned());
        }
        let what = format!("{kind} {object}");
        for part in api_version.split('/') {
            name(part)?;
        }
        let found = match self.sources.discovery.find(&self.sources.ctx, api_version, kind).await {
            Ok(Some(found)) => found,
            Ok(None) => return Err(format!("the API server does not know a namespaced kind {kind} in {api_version}")),
            Err(error) => return Err(ReadError::Api(error).for_account(&self.account, &what)),
        };
        let url = found.url(&self.account.namespace);
        let opened = self.account.open(ObjectPath { url: &url, name: name(object)?, subresource: None }).await;
        let outbound = &self.sources.outbound;
        outbound.read(&self.account, &what, opened, outbound.limits.object).await
    }
}
