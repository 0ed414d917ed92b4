//! The source `scaler`: asks an external scaler of KEDA, and follows its stream.

use std::convert::Infallible;

use futures::future;
use tracing::debug;

use super::turns::WokenMetrics;
use super::{PollRequest, PolledSource, SourceReader, Sources};
use ganglion_api::closed_loop::scaler::{ScalerSource, ScalerValue};
use ganglion_loops_plan::monitoring::SourceValue;
use ganglion_outbound::client::Unanswered;
use ganglion_outbound::client::scaler::{ActivityNews, AskedScaler};
use ganglion_outbound::external_scaler::ScalerQuestion;
use ganglion_outbound::external_scaler::wire::ScaledObjectRef;

impl PolledSource for ScalerSource {
    async fn read(&self, reader: &SourceReader<'_>) -> Result<SourceValue, Unanswered> {
        let metric = self.metric.as_deref();
        let question = match self.value.unwrap_or_default() {
            ScalerValue::Metric => ScalerQuestion::Metric(metric),
            ScalerValue::Target => ScalerQuestion::Target(metric),
            ScalerValue::Active => ScalerQuestion::Active,
        };
        let object = object(self, reader);
        let answer =
            reader.sources.outbound.ask_scaler(&reader.account, asked(self, reader, &object), question).await?;
        Ok(answer.into())
    }
}

/// The loop, as a scaler sees it.
fn object(source: &ScalerSource, reader: &SourceReader<'_>) -> ScaledObjectRef {
    ScaledObjectRef {
        name: reader.loop_name.to_owned(),
        namespace: reader.account.namespace.clone(),
        scaler_metadata: source.metadata.clone().unwrap_or_default(),
    }
}

fn asked<'a>(source: &'a ScalerSource, reader: &SourceReader<'_>, object: &'a ScaledObjectRef) -> AskedScaler<'a> {
    let ScalerSource { address, tls, auth, .. } = source;
    AskedScaler { address, tls: tls.as_ref(), auth: auth.as_ref(), object, within: reader.within }
}

impl Sources {
    /// Follows the streams of a loop's scalers. Wakes a metric when its scaler says that it is active.
    pub(super) async fn follow_streams(&self, request: &PollRequest, woken: &WokenMetrics) -> Infallible {
        let scalers = request.metrics.iter().filter_map(|(name, source)| Some((name, source.scaler.as_ref()?)));
        let streams = scalers.filter(|(_, scaler)| scaler.stream == Some(true));
        future::join_all(streams.map(|(name, scaler)| self.follow_stream(request, name, scaler, woken))).await;
        future::pending().await
    }

    async fn follow_stream(
        &self,
        request: &PollRequest,
        metric: &str,
        source: &ScalerSource,
        woken: &WokenMetrics,
    ) -> Infallible {
        let reader = self.reader(request, request.within(self.outbound.request_timeout));
        let (object, key) = (object(source, &reader), &request.key);
        let report = |news| match news {
            ActivityNews::Active => woken.insert(metric),
            ActivityNews::Closed(why) => {
                debug!(namespace = key.namespace, name = key.name, metric, why, "the stream of a scaler is closed");
            }
        };
        self.outbound.follow_scaler(&reader.account, asked(source, &reader, &object), report).await
    }
}
