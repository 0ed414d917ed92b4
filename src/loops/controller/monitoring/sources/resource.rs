//! The source `resource`: reads the usage of pods from metrics.k8s.io.

use super::{PolledSource, SourceReader};
use ganglion_api::closed_loop::metric::ResourceUse;
use ganglion_loops_plan::monitoring::SourceValue;
use ganglion_loops_plan::sources::{self, PodList, PodMetricsList};
use ganglion_outbound::client::Unanswered;

impl PolledSource for ResourceUse {
    async fn read(&self, reader: &SourceReader<'_>) -> Result<SourceValue, Unanswered> {
        let labels = reader.pod_labels(self.pod_labels.as_ref()).await?;
        let used: PodMetricsList = reader.list("API metrics.k8s.io", "metrics.k8s.io/v1beta1", &labels).await?;
        let pods: PodList = reader.list("list of pods", "v1", &labels).await?;
        Ok(sources::pod_usage(self, &used, &pods, reader.sources.ctx.now())?)
    }
}
