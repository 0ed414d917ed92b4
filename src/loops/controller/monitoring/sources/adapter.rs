//! Values of APIs with metrics, which adapters serve behind the API server. Requests are those of the loop's account.
//!
//! Errors say what to do: an adapter that is not installed, is down, or does not have the metric differ.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use serde::de::DeserializeOwned;

use super::SourceReader;
use ganglion_core::document;
use ganglion_core::kind_path::{BadSegment, MetricPath, MetricQuery};
use ganglion_core::metrics_api::MetricsApi;
use ganglion_outbound::client::Unanswered;
use ganglion_outbound::client::objects::ReadError;
use ganglion_runtime::error::Error;

/// Metric of an adapter.
pub struct AdapterMetric<'a> {
    pub api: MetricsApi,
    pub namespace: &'a str,
    pub metric: &'a str,
    pub selector: Option<&'a LabelSelector>,
    /// Description of the metric and of what it describes, for messages.
    pub described: String,
}

impl SourceReader<'_> {
    /// Reads the values of a metric, at most `limit` bytes. `path`: builds the path of the request.
    pub async fn metric<T: DeserializeOwned>(
        &self,
        metric: AdapterMetric<'_>,
        limit: usize,
        path: impl FnOnce(MetricQuery<'_>) -> Result<MetricPath, BadSegment>,
    ) -> Result<T, Unanswered> {
        let (api, sources) = (&metric.api, self.sources);
        let selector = selector_text(metric.selector)?;
        let found = sources.discovery.metrics_version(&sources.ctx, api).await;
        let found = found.map_err(|error| self.metric_error(&metric, "", ReadError::Api(error)))?;
        let Some(api_version) = found else { return Err(api.not_served().into()) };
        let AdapterMetric { namespace, metric: name, .. } = metric;
        let path = path(MetricQuery { api_version, namespace, metric: name, selector: &selector });
        let opened = self.account.open_metric(&path.map_err(|error| error.to_string())?).await;
        match sources.outbound.body(&self.account.namespace, opened, limit).await {
            Ok(body) => document::parsed(&body.bytes).map_err(|error| format!("{}: {error}", metric.described).into()),
            Err(error) => Err(self.metric_error(&metric, api_version, error)),
        }
    }

    /// Describes why there are no values.
    fn metric_error(&self, metric: &AdapterMetric<'_>, api_version: &str, error: ReadError) -> Unanswered {
        let AdapterMetric { api, namespace, described, .. } = metric;
        let (passing, failure) = (error.is_passing(), error.failure_status());
        let words = match (error, failure) {
            (ReadError::Api(Error::NotFound(_)), _) => {
                // The adapter may have been removed, or may serve another version.
                self.sources.discovery.forget_metrics_version(api);
                api.no_metric(api_version, described)
            }
            (ReadError::Api(Error::Forbidden(refused)), _) => self.account.refusal_message_in(namespace, &refused),
            (_, Some(status)) if status.as_u16() == 503 => api.unavailable(api_version, &status.to_string()),
            (_, Some(status)) => api.failed(&status.to_string()),
            (error, None) => error.for_account(&self.account, described),
        };
        Unanswered { passing, ..Unanswered::from(words) }
    }
}

/// Text of a selector in a request.
fn selector_text(selector: Option<&LabelSelector>) -> Result<String, String> {
    let Some(selector) = selector else { return Ok(String::new()) };
    let selector = Selector::try_from(selector.clone());
    Ok(selector.map_err(|error| format!("the selector of the metric is not valid: {error}"))?.to_string())
}
