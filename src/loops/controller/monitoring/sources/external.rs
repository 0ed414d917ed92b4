//! The source `external`: reads a metric from external.metrics.k8s.io.

use super::adapter::AdapterMetric;
use super::{PolledSource, SourceReader};
use ganglion_api::closed_loop::adapter_metric::ExternalMetric;
use ganglion_core::kind_path::MetricPath;
use ganglion_core::metrics_api::EXTERNAL_METRICS;
use ganglion_loops_plan::monitoring::SourceValue;
use ganglion_loops_plan::sources::{self, ExternalMetricList};
use ganglion_outbound::client::Unanswered;

impl PolledSource for ExternalMetric {
    async fn read(&self, reader: &SourceReader<'_>) -> Result<SourceValue, Unanswered> {
        let namespace = self.namespace.as_ref().unwrap_or(&reader.account.namespace);
        let metric = AdapterMetric {
            api: EXTERNAL_METRICS,
            namespace,
            metric: &self.metric,
            selector: self.selector.as_ref(),
            described: format!("metric {} in namespace {namespace}", self.metric),
        };
        let limit = reader.sources.outbound.limits.object;
        let answer: ExternalMetricList = reader.metric(metric, limit, MetricPath::external).await?;
        Ok(sources::external_value(self, &answer)?)
    }
}
