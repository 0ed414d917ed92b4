//! The source `custom`: reads a metric of an object or of pods from custom.metrics.k8s.io.

use std::sync::Arc;

use super::adapter::AdapterMetric;
use super::{PolledSource, SourceReader};
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::adapter_metric::{CustomMetric, MetricPods};
use ganglion_core::kind_path::MetricPath;
use ganglion_core::metrics_api::CUSTOM_METRICS;
use ganglion_loops_plan::monitoring::{PodSamples, SourceValue};
use ganglion_loops_plan::sources::{self, CustomMetricList, PodList};
use ganglion_loops_plan::track::PodMeasure;
use ganglion_loops_plan::validate::preflight::{is_namespace, metric_resource};
use ganglion_outbound::client::Unanswered;

impl PolledSource for CustomMetric {
    async fn read(&self, reader: &SourceReader<'_>) -> Result<SourceValue, Unanswered> {
        match (&self.object, &self.pods) {
            (Some(object), _) => of_object(self, reader, object).await,
            (None, Some(pods)) => of_pods(self, reader, pods).await,
            (None, None) => Err("custom names neither object nor pods".to_owned().into()),
        }
    }
}

/// The metric of what these words describe.
fn metric<'a>(source: &'a CustomMetric, reader: &'a SourceReader<'_>, of: &str) -> AdapterMetric<'a> {
    let namespace = &reader.account.namespace;
    AdapterMetric {
        api: CUSTOM_METRICS,
        namespace,
        metric: &source.metric,
        selector: source.selector.as_ref(),
        described: format!("metric {} of {of} in namespace {namespace}", source.metric),
    }
}

async fn of_object(
    source: &CustomMetric,
    reader: &SourceReader<'_>,
    object: &TargetRef,
) -> Result<SourceValue, Unanswered> {
    let TargetRef { api_version, kind, name } = object;
    let (namespace, limit) = (reader.account.namespace.as_str(), reader.sources.outbound.limits.object);
    let metric = metric(source, reader, &format!("{kind} {name}"));
    let answer: CustomMetricList = if is_namespace(object) {
        if name != namespace {
            let message =
                format!("only the metrics of the loop's own namespace can be read: set object.name to {namespace}");
            return Err(message.into());
        }
        reader.metric(metric, limit, MetricPath::of_namespace).await?
    } else {
        let plural = reader.kind(api_version, kind).await?.plural;
        let resource = metric_resource(object, &plural);
        reader.metric(metric, limit, |query| MetricPath::of_object(query, &resource, name)).await?
    };
    Ok(sources::object_value(source, &answer, (namespace, name))?)
}

async fn of_pods(
    source: &CustomMetric,
    reader: &SourceReader<'_>,
    pods: &MetricPods,
) -> Result<SourceValue, Unanswered> {
    let (asked, limit) = (reader.sources.ctx.now(), reader.sources.outbound.limits.pods);
    let own = if reader.needs_samples { Some(reader.target_pods().await?) } else { None };
    let labels = match &own {
        Some(own) => own.labels.clone(),
        None => reader.pod_labels(pods.pod_labels.as_ref()).await?,
    };
    let metric = metric(source, reader, "pods");
    let answer: CustomMetricList = reader.metric(metric, limit, |query| MetricPath::of_pods(query, &labels)).await?;
    let pods: PodList = reader.list("list of pods", "v1", &labels).await?;
    let namespace = &reader.account.namespace;
    let mut value = sources::pods_value(source, &answer, &pods, (namespace, asked))?;
    if let Some(own) = own {
        let samples = sources::custom_samples(source, &answer, namespace, asked)?;
        let pods = sources::tracked_pods(&pods, &samples, None, |controller| own.own(controller));
        value.pods = Some(Arc::new(PodSamples { measure: PodMeasure::Other, pods }));
    }
    Ok(value)
}
