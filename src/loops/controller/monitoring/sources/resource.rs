//! The source `resource`: reads the usage of pods from metrics.k8s.io.

use std::sync::Arc;

use super::{PolledSource, SourceReader};
use ganglion_api::closed_loop::metric::{ResourceName, ResourceUse};
use ganglion_loops_plan::monitoring::{PodSamples, SourceValue};
use ganglion_loops_plan::sources::{self, PodList, PodMetricsList};
use ganglion_loops_plan::track::PodMeasure;
use ganglion_outbound::client::Unanswered;

impl PolledSource for ResourceUse {
    async fn read(&self, reader: &SourceReader<'_>) -> Result<SourceValue, Unanswered> {
        let own = if reader.needs_samples { Some(reader.target_pods().await?) } else { None };
        let labels = match &own {
            Some(own) => own.labels.clone(),
            None => reader.pod_labels(self.pod_labels.as_ref()).await?,
        };
        let used: PodMetricsList = reader.list("API metrics.k8s.io", "metrics.k8s.io/v1beta1", &labels).await?;
        let pods: PodList = reader.list("list of pods", "v1", &labels).await?;
        let now = reader.sources.ctx.now();
        let mut value = sources::pod_usage(self, &used, &pods, now)?;
        if let Some(own) = own {
            let measure = if self.resource == ResourceName::Cpu { PodMeasure::Cpu } else { PodMeasure::Other };
            let samples = sources::usage_samples(self, &used, &pods, now)?;
            let pods = sources::tracked_pods(&pods, &samples, Some(self), |controller| own.own(controller));
            value.pods = Some(Arc::new(PodSamples { measure, pods }));
        }
        Ok(value)
    }
}
