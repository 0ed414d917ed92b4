//! The source `resource`: the usage of pods from metrics.k8s.io, read as the loop's account.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use serde::de::DeserializeOwned;

use super::SourceReader;
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::source::ResourceUse;
use ganglion_core::document::{at, parsed};
use ganglion_loops_plan::monitoring::SourceResult;
use ganglion_loops_plan::sources::usage::{self, PodList, PodMetricsList};

/// Maximum length of a workload's selector, in bytes.
const MAX_SELECTOR: usize = 16 << 10;

/// Reads the value.
pub async fn read(reader: &SourceReader<'_>, source: &ResourceUse, target: Option<&TargetRef>) -> SourceResult {
    let selector = match (&source.pod_labels, target) {
        (Some(labels), _) => labels.clone().into_iter().collect(),
        (None, Some(target)) => selector(target, &reader.object(target).await?.bytes)?,
        (None, None) => return Err("the loop has no target with pods: set podLabels".to_owned()),
    };
    if selector.selects_all() {
        return Err("the target's selector matches every pod: set podLabels".to_owned());
    }
    let (labels, namespace) = (selector.to_string(), &reader.account.namespace);
    let url = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods");
    let used: PodMetricsList = reader.list("API metrics.k8s.io", &url, &labels).await?;
    let mut pods = PodList::default();
    if usage::needs_pods(source) {
        pods = reader.list("list of pods", &format!("/api/v1/namespaces/{namespace}/pods"), &labels).await?;
    }
    usage::amount(source, &used, &pods.items)
}

impl SourceReader<'_> {
    /// Lists the objects with these labels.
    async fn list<T: DeserializeOwned>(&self, what: &str, url: &str, labels: &str) -> Result<T, String> {
        let outbound = &self.sources.outbound;
        let opened = self.account.open_list(url, labels).await;
        let body = outbound.read(&self.account, what, opened, outbound.limits.pods).await?;
        parsed(&body.bytes).map_err(|error| format!("{what}: {error}"))
    }
}

/// Returns the selector of the target's pods. A ReplicationController has a plain map of labels as its selector.
fn selector(target: &TargetRef, object: &[u8]) -> Result<Selector, String> {
    let found = at(object, "spec.selector").ok().filter(|found| found.len() <= MAX_SELECTOR).and_then(|found| {
        let plain = parsed::<BTreeMap<String, String>>(found.as_bytes()).ok();
        let full = || Selector::try_from(parsed::<LabelSelector>(found.as_bytes()).ok()?).ok();
        plain.map(|labels| labels.into_iter().collect()).or_else(full)
    });
    found.ok_or_else(|| format!("{} {} has no selector for its pods: set podLabels", target.kind, target.name))
}
