//! Objects and lists of the API server that sources read, as the account of the loop.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use serde::de::DeserializeOwned;

use super::SourceReader;
use ganglion_api::closed_loop::TargetRef;
use ganglion_core::document;
use ganglion_core::kind_path::KindPath;
use ganglion_outbound::client::objects::{self, ReadError};
use ganglion_runtime::account::ObjectPath;
use ganglion_runtime::body::BoundedBody;
use ganglion_runtime::discovery::DiscoveredKind;

/// Maximum length of a workload's selector, in bytes.
const MAX_SELECTOR: usize = 16 << 10;

impl SourceReader<'_> {
    /// Reads any object of the loop's namespace except Secrets.
    pub async fn object(&self, id: &TargetRef) -> Result<BoundedBody, String> {
        let TargetRef { api_version, kind, name: object } = id;
        // The schema refuses Secrets too, but a spec may be older than this rule of the schema.
        if kind == "Secret" {
            return Err("a Secret is no source: its values would be shown in a status".to_owned());
        }
        let what = format!("{kind} {object}");
        let kind =
            self.kind(api_version, kind).await?.path(&self.account.namespace).map_err(|error| error.to_string())?;
        let opened =
            self.account.open(ObjectPath { kind: &kind, name: objects::name(object)?, subresource: None }).await;
        let outbound = &self.sources.outbound;
        outbound.read(&self.account, &what, opened, outbound.limits.object).await
    }

    /// Looks up a namespaced kind.
    pub async fn kind(&self, api_version: &str, kind: &str) -> Result<DiscoveredKind, String> {
        match self.sources.discovery.find(&self.sources.ctx, api_version, kind).await {
            Ok(Some(discovered)) => Ok(discovered),
            Ok(None) => Err(format!("the API server does not know a namespaced kind {kind} in {api_version}")),
            Err(error) => Err(ReadError::Api(error).for_account(&self.account, &format!("kind {kind}"))),
        }
    }

    /// Returns the selector of the pods with these labels, or else of the target's pods.
    pub async fn pod_labels(&self, labels: Option<&BTreeMap<String, String>>) -> Result<String, String> {
        let selector: Selector = match (labels, self.target) {
            (Some(labels), _) => labels.clone().into_iter().collect(),
            (None, Some(target)) => pod_selector(target, &self.object(target).await?.bytes)?,
            (None, None) => return Err("the loop has no target with pods: set podLabels".to_owned()),
        };
        if selector.selects_all() {
            return Err("the target's selector matches every pod: set podLabels".to_owned());
        }
        Ok(selector.to_string())
    }

    /// Lists the pods with these labels, as this API version has them.
    pub async fn list<T: DeserializeOwned>(&self, what: &str, api_version: &str, labels: &str) -> Result<T, String> {
        let outbound = &self.sources.outbound;
        let kind = KindPath::namespaced(api_version, &self.account.namespace, "pods");
        let opened = self.account.open_list(&kind.map_err(|error| error.to_string())?, labels).await;
        let body = outbound.read(&self.account, what, opened, outbound.limits.pods).await?;
        document::parsed(&body.bytes).map_err(|error| format!("{what}: {error}"))
    }
}

/// Returns the selector of the target's pods.
pub fn pod_selector(target: &TargetRef, object: &[u8]) -> Result<Selector, String> {
    let text = document::at(object, "spec.selector").ok().filter(|text| text.len() <= MAX_SELECTOR);
    let selector = text.and_then(|text| parse_selector(text.as_bytes()));
    selector.ok_or_else(|| format!("{} {} has no selector for its pods: set podLabels", target.kind, target.name))
}

/// Parses a selector. A ReplicationController has a plain map of labels as its selector.
fn parse_selector(text: &[u8]) -> Option<Selector> {
    if let Ok(labels) = document::parsed::<BTreeMap<String, String>>(text) {
        return Some(labels.into_iter().collect());
    }
    Selector::try_from(document::parsed::<LabelSelector>(text).ok()?).ok()
}
