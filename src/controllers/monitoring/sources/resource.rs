//! The source `resource`: the usage of pods from metrics.k8s.io, read as the loop's account.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{ObjectList, Selector};
use serde_json::Value;

use super::SourceReader;
use crate::api::closed_loop::TargetRef;
use crate::api::closed_loop::source::ResourceUse;
use crate::controllers::outbound::unread;
use crate::logic::closed_loop::monitoring::SourceResult;
use crate::logic::closed_loop::sources::usage::{self, PodMetricsList};

/// The value.
pub async fn read(reader: &SourceReader<'_>, source: &ResourceUse, target: Option<&TargetRef>) -> SourceResult {
    let selector = match (&source.pod_labels, target) {
        (Some(labels), _) => labels.clone().into_iter().collect(),
        (None, Some(target)) => selector(target, &reader.object(target).await?)?,
        (None, None) => return Err("the loop has no target with pods: set podLabels".to_owned()),
    };
    if selector.selects_all() {
        return Err("the target's selector matches every pod: set podLabels".to_owned());
    }
    let labels = selector.to_string();
    let account = &reader.account;
    let url = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods", account.namespace);
    let used: PodMetricsList = match account.list(&url, &labels).await {
        Ok(used) => used,
        Err(error) => return Err(unread(account, "API metrics.k8s.io", error)),
    };
    let mut pods = Vec::new();
    if usage::needs_pods(source) {
        let url = format!("/api/v1/namespaces/{}/pods", account.namespace);
        match account.list::<ObjectList<Pod>>(&url, &labels).await {
            Ok(found) => pods = found.items,
            Err(error) => return Err(unread(account, "list of pods", error)),
        }
    }
    usage::amount(source, &used, &pods)
}

/// The selector of the target's pods.
fn selector(target: &TargetRef, object: &Value) -> Result<Selector, String> {
    let found = object.pointer("/spec/selector").cloned();
    let is_plain = found.as_ref().and_then(Value::as_object).is_some_and(|all| all.values().all(Value::is_string));
    let found = match found {
        // The form of a ReplicationController.
        Some(labels) if is_plain => serde_json::from_value(labels)
            .ok()
            .map(|labels| LabelSelector { match_labels: Some(labels), match_expressions: None }),
        Some(selector) => serde_json::from_value::<LabelSelector>(selector).ok(),
        None => None,
    };
    found
        .and_then(|selector| Selector::try_from(selector).ok())
        .ok_or_else(|| format!("{} {} has no selector for its pods: set podLabels", target.kind, target.name))
}
