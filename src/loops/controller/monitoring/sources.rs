//! Polled sources of loops: each loop has one background task that queries all its sources. Each kind of source returns
//! a value, or a message that says why there is none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, FuturesUnordered, Stream, StreamExt};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};

use super::MonitoringController;
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::metric::{Http, ObjectField, Prometheus, ResourceUse, Source};
use ganglion_api::marks;
use ganglion_api::monitoring::{Monitoring, MonitoringSpec};
use ganglion_core::document;
use ganglion_core::facts::Key;
use ganglion_core::kind_path::KindPath;
use ganglion_core::names::DEFAULT_ACCOUNT;
use ganglion_core::world::Fact;
use ganglion_loops_plan::monitoring::{SourceResult, SourceValue};
use ganglion_loops_plan::sources::{self, PodList, PodMetricsList};
use ganglion_outbound::client::objects::{self, ReadError};
use ganglion_outbound::client::{OutboundClient, Outgoing, Unanswered};
use ganglion_outbound::prometheus;
use ganglion_runtime::account::{Account, ObjectPath};
use ganglion_runtime::background::BackgroundWork;
use ganglion_runtime::body::BoundedBody;
use ganglion_runtime::context::Context;
use ganglion_runtime::discovery::Discovery;
use ganglion_runtime::metrics::SourceLabels;

/// Added to the timeout of a source, so that a request to a server times out first: its message names the server.
const SLACK: Duration = Duration::from_millis(100);

/// Time within which results are used together, so that the rank decides between their alarms, and not which server is
/// a little faster.
const TOGETHER: Duration = Duration::from_millis(250);

/// Maximum length of a workload's selector, in bytes.
const MAX_SELECTOR: usize = 16 << 10;

/// Latest result of each source that has answered, by metric.
pub type PolledValues = BTreeMap<String, SourceResult>;

/// Name of a metric, and the result of its source.
type MetricResult = (String, Result<SourceValue, Unanswered>);

/// Polls of all loops.
pub type SourcePolls = BackgroundWork<Monitoring, PollRequest, PolledValues>;

/// Dependencies of reading sources.
pub struct Sources {
    pub ctx: Context,
    pub outbound: Arc<OutboundClient>,
    pub discovery: Arc<Discovery>,
}

/// Query of a poll: sources, account, interval.
pub struct PollRequest {
    key: Key,
    metrics: Vec<(String, Source)>,
    account: Option<String>,
    target: Option<TargetRef>,
    interval: SignedDuration,
}

/// State of a loop's sources.
pub enum SourceNews {
    /// The loop has no polled sources.
    NoSources,
    /// No answer since the loop or its sources changed; earlier values must not lead to decisions.
    Pending,
    /// Some source has answered. Contains the results that were not handled yet, if there are any.
    Polled(Option<Arc<PolledValues>>),
}

impl SourceNews {
    /// Returns the metrics whose polled source has not answered since it is in the spec. `handled`: results that were
    /// handled before.
    pub fn unanswered(&self, spec: &MonitoringSpec, handled: Option<&PolledValues>) -> Vec<String> {
        let latest = match self {
            Self::Polled(Some(latest)) => Some(&**latest),
            Self::Polled(None) | Self::Pending | Self::NoSources => handled,
        };
        let has_answered = |metric: &String| latest.is_some_and(|latest| latest.contains_key(metric));
        polled_sources(spec).map(|(metric, _)| metric).filter(|metric| !has_answered(metric)).cloned().collect()
    }
}

/// Metrics with a polled source.
fn polled_sources(spec: &MonitoringSpec) -> impl Iterator<Item = (&String, &Source)> {
    let metrics = spec.metrics.iter().filter(|metric| !spec.paused && is_polled(&metric.source));
    metrics.map(|metric| (&metric.name, &metric.source))
}

fn is_polled(source: &Source) -> bool {
    source.prometheus.is_some() || source.http.is_some() || source.object.is_some() || source.resource.is_some()
}

impl PollRequest {
    /// Query for this Monitoring.
    pub fn new(key: Key, spec: &MonitoringSpec, interval: SignedDuration) -> Self {
        Self {
            key,
            metrics: polled_sources(spec).map(|(name, source)| (name.clone(), source.clone())).collect(),
            account: spec.service_account_name.clone(),
            target: spec.target.clone(),
            interval,
        }
    }

    /// Timeout of a request: `timeout`, but at most the interval.
    fn within(&self, timeout: Duration) -> Duration {
        Duration::try_from(self.interval).map_or(timeout, |interval| interval.min(timeout))
    }

    /// Whether this is the query for a Monitoring with this spec.
    fn is_for(&self, spec: &MonitoringSpec, interval: SignedDuration) -> bool {
        self.interval == interval
            && self.account == spec.service_account_name
            && self.target == spec.target
            && self.metrics.iter().map(|(name, source)| (name, source)).eq(polled_sources(spec))
    }
}

impl MonitoringController {
    /// Returns the news of this Monitoring's sources. The first call starts the polls.
    pub(super) fn source_news(self: &Arc<Self>, object: &Monitoring, interval: SignedDuration) -> SourceNews {
        let (key, spec) = (object.id().key, &object.spec);
        if polled_sources(spec).next().is_none() {
            self.polls.cancel(&key);
            return SourceNews::NoSources;
        }
        match self.polls.state(&key, |request| request.is_for(spec, interval)) {
            Some(state) if !state.has_ended && state.has_answered => SourceNews::Polled(state.answer),
            Some(state) if !state.has_ended => SourceNews::Pending,
            Some(_) | None => {
                self.start_polls(PollRequest::new(key, spec, interval));
                SourceNews::Pending
            }
        }
    }

    /// Queries the sources once per interval.
    fn start_polls(self: &Arc<Self>, request: PollRequest) {
        let (controller, request) = (Arc::clone(self), Arc::new(request));
        self.polls.start(&self.ctx, request.key.clone(), Arc::clone(&request), |answers| async move {
            let sources = &controller.sources;
            let interval = Duration::try_from(request.interval).unwrap_or(sources.outbound.request_timeout);
            let mut latest = PolledValues::new();
            loop {
                let next = Instant::now() + interval;
                let results = sources.results(&request).await;
                let results = results.map(|(metric, result)| (metric, result.map_err(|unanswered| unanswered.words)));
                publish_as_they_come(results, &mut latest, |values| answers.publish(values)).await;
                sleep_until(next).await;
            }
        });
    }
}

/// Adds the results to the latest ones, and publishes these as they come: otherwise the slowest source would delay all
/// others. Results that come within [`TOGETHER`] are published together.
async fn publish_as_they_come(
    mut results: impl Stream<Item = (String, SourceResult)> + Unpin,
    latest: &mut PolledValues,
    publish: impl Fn(PolledValues),
) {
    let mut publish_at = None;
    loop {
        tokio::select! {
            biased;
            result = results.next() => match result {
                Some((metric, result)) => {
                    latest.insert(metric, result);
                    publish_at.get_or_insert_with(|| Instant::now() + TOGETHER);
                }
                None => break,
            },
            () = sleep_until(publish_at.unwrap_or_else(Instant::now)), if publish_at.is_some() => {
                publish(latest.clone());
                publish_at = None;
            }
        }
    }
    if publish_at.is_some() {
        publish(latest.clone());
    }
}

impl Sources {
    /// Queries all sources concurrently; a source that fails or hangs does not affect the others.
    pub async fn query(&self, request: &PollRequest) -> BTreeMap<String, Result<SourceValue, Unanswered>> {
        self.results(request).await.collect().await
    }

    /// Starts the queries of all sources. Their results are in the order in which they come.
    async fn results<'a>(&'a self, request: &'a PollRequest) -> BoxStream<'a, MetricResult> {
        let within = request.within(self.outbound.request_timeout);
        let permit = self.outbound.requests.acquire(&request.key.namespace, 1);
        let Ok(permit) = tokio::time::timeout(within, permit).await else {
            let late = late("too many requests in progress: no query", within);
            let all = request.metrics.iter().map(move |(name, _)| (name.clone(), Err(late.clone())));
            return stream::iter(all).boxed();
        };
        // A value is not older than its query. Only metrics.k8s.io reports when it measured.
        let asked = self.ctx.now();
        let permit = Arc::new(permit);
        let queries = request.metrics.iter().map(|(name, source)| {
            let permit = Arc::clone(&permit);
            async move {
                let mut result = self.read_in_time(request, source, within).await;
                if let Ok(value) = &mut result {
                    value.at.get_or_insert(asked);
                }
                // The last query returns the permit.
                drop(permit);
                (name.clone(), result)
            }
        });
        queries.collect::<FuturesUnordered<_>>().boxed()
    }

    /// Reads one source within the time, and counts the result.
    async fn read_in_time(
        &self,
        request: &PollRequest,
        source: &Source,
        within: Duration,
    ) -> Result<SourceValue, Unanswered> {
        let result = tokio::time::timeout(within + SLACK, self.read(request, source, within)).await;
        let result = result.unwrap_or_else(|_| Err(late("no answer", within)));
        let outcome = if result.is_ok() { "ok" } else { "unknown" };
        let labels = SourceLabels { source: source_label(source), outcome };
        self.ctx.metrics.sources.get_or_create(&labels).inc();
        result
    }

    /// Reads one source.
    async fn read(&self, request: &PollRequest, source: &Source, within: Duration) -> Result<SourceValue, Unanswered> {
        let account = Account {
            writer: self.ctx.writer.clone(),
            namespace: request.key.namespace.clone(),
            name: request.account.clone().unwrap_or_else(|| DEFAULT_ACCOUNT.to_owned()),
            manager: marks::MONITORING_STATUS_MANAGER,
        };
        let reader = SourceReader { sources: self, account };
        match source {
            Source { prometheus: Some(source), .. } => reader.prometheus(source, within).await,
            Source { http: Some(source), .. } => reader.http(source, within).await,
            Source { object: Some(source), .. } => Ok(reader.object_field(source).await?),
            Source { resource: Some(source), .. } => Ok(reader.pod_usage(source, request.target.as_ref()).await?),
            _ => Err("this version of the operator does not support this source".to_owned().into()),
        }
    }
}

fn late(what: &str, within: Duration) -> Unanswered {
    Unanswered::passing(format!("{what} within {} s", within.as_secs_f64()))
}

/// Label of a source in metrics.
fn source_label(source: &Source) -> &'static str {
    match source {
        Source { prometheus: Some(_), .. } => "prometheus",
        Source { http: Some(_), .. } => "http",
        Source { object: Some(_), .. } => "object",
        _ => "resource",
    }
}

/// Reads sources: servers as the operator itself, with Secrets of the loop's namespace, and Kubernetes objects as the
/// loop's account.
struct SourceReader<'a> {
    sources: &'a Sources,
    account: Account,
}

impl SourceReader<'_> {
    /// Queries Prometheus.
    async fn prometheus(&self, source: &Prometheus, within: Duration) -> Result<SourceValue, Unanswered> {
        let url = prometheus::query_url(&source.url, &source.query)?;
        let request = Outgoing {
            url: url.as_str(),
            auth: source.auth.as_ref(),
            ca: source.ca.as_ref(),
            headers: source.headers.as_deref().unwrap_or_default(),
            within,
        };
        let answer = self.sources.outbound.get(&self.account, request).await?;
        let point = prometheus::point(answer.status, answer.body())?;
        Ok(sources::queried(point.value, point.at, self.sources.ctx.now())?)
    }

    /// Reads a number in the JSON document of a server.
    async fn http(&self, source: &Http, within: Duration) -> Result<SourceValue, Unanswered> {
        let request = Outgoing {
            url: &source.url,
            auth: source.auth.as_ref(),
            ca: source.ca.as_ref(),
            headers: source.headers.as_deref().unwrap_or_default(),
            within,
        };
        let answer = self.sources.outbound.get(&self.account, request).await?;
        Ok(answer.number(&source.path)?.into())
    }

    /// Reads a field or condition of an object.
    async fn object_field(&self, source: &ObjectField) -> SourceResult {
        let ObjectField { api_version, kind, name, .. } = source;
        let id = TargetRef { api_version: api_version.clone(), kind: kind.clone(), name: name.clone() };
        let object = self.object(&id).await?.bytes;
        let value = match (&source.path, &source.condition) {
            (Some(path), _) => document::number(&object, path),
            (None, Some(condition)) => document::condition(&object, condition),
            (None, None) => Err("object names neither path nor condition".to_owned()),
        };
        Ok(value?.into())
    }

    /// Reads any object of the loop's namespace except Secrets.
    async fn object(&self, id: &TargetRef) -> Result<BoundedBody, String> {
        let TargetRef { api_version, kind, name: object } = id;
        // The schema refuses Secrets too, but a spec may be older than this rule of the schema.
        if kind == "Secret" {
            return Err("a Secret is no source: its values would be shown in a status".to_owned());
        }
        let what = format!("{kind} {object}");
        let discovered = match self.sources.discovery.find(&self.sources.ctx, api_version, kind).await {
            Ok(Some(discovered)) => discovered,
            Ok(None) => return Err(format!("the API server does not know a namespaced kind {kind} in {api_version}")),
            Err(error) => return Err(ReadError::Api(error).for_account(&self.account, &what)),
        };
        let kind = discovered.path(&self.account.namespace).map_err(|error| error.to_string())?;
        let opened =
            self.account.open(ObjectPath { kind: &kind, name: objects::name(object)?, subresource: None }).await;
        let outbound = &self.sources.outbound;
        outbound.read(&self.account, &what, opened, outbound.limits.object).await
    }

    /// Reads the usage of pods from metrics.k8s.io.
    async fn pod_usage(&self, source: &ResourceUse, target: Option<&TargetRef>) -> SourceResult {
        let selector = match (&source.pod_labels, target) {
            (Some(labels), _) => labels.clone().into_iter().collect(),
            (None, Some(target)) => pod_selector(target, &self.object(target).await?.bytes)?,
            (None, None) => return Err("the loop has no target with pods: set podLabels".to_owned()),
        };
        if selector.selects_all() {
            return Err("the target's selector matches every pod: set podLabels".to_owned());
        }
        let labels = selector.to_string();
        let used: PodMetricsList = self.list("API metrics.k8s.io", "metrics.k8s.io/v1beta1", &labels).await?;
        let pods: PodList = self.list("list of pods", "v1", &labels).await?;
        sources::pod_usage(source, &used, &pods, self.sources.ctx.now())
    }

    /// Lists the pods with these labels, as this API version has them.
    async fn list<T: DeserializeOwned>(&self, what: &str, api_version: &str, labels: &str) -> Result<T, String> {
        let outbound = &self.sources.outbound;
        let kind = KindPath::namespaced(api_version, &self.account.namespace, "pods");
        let opened = self.account.open_list(&kind.map_err(|error| error.to_string())?, labels).await;
        let body = outbound.read(&self.account, what, opened, outbound.limits.pods).await?;
        document::parsed(&body.bytes).map_err(|error| format!("{what}: {error}"))
    }
}

/// Returns the selector of the target's pods.
fn pod_selector(target: &TargetRef, object: &[u8]) -> Result<Selector, String> {
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::time::sleep;

    use super::*;

    /// Publishes the results of sources that answer after these times. Returns when each was published, in
    /// milliseconds, with the metrics that had answered until then.
    async fn published(sources: &[(u64, &str)]) -> Vec<(u128, String)> {
        let results: FuturesUnordered<_> = sources
            .iter()
            .map(|(millis, metric)| async move {
                sleep(Duration::from_millis(*millis)).await;
                ((*metric).to_owned(), Ok(SourceValue::from("1".to_owned())))
            })
            .collect();
        let (begun, published) = (Instant::now(), RefCell::new(Vec::new()));
        let publish = |latest: PolledValues| {
            let metrics: Vec<String> = latest.into_keys().collect();
            published.borrow_mut().push((begun.elapsed().as_millis(), metrics.join(" ")));
        };
        publish_as_they_come(results, &mut PolledValues::new(), publish).await;
        published.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn no_value_waits_for_a_slow_source() {
        let found = published(&[(8500, "slow"), (300, "fast"), (400, "faster")]).await;
        assert_eq!(found, [(550, "fast faster".to_owned()), (8500, "fast faster slow".to_owned())]);
    }

    #[tokio::test(start_paused = true)]
    async fn values_that_come_together_are_used_together() {
        assert_eq!(published(&[(300, "a"), (310, "b")]).await, [(310, "a b".to_owned())]);
        assert_eq!(published(&[(7, "a")]).await, [(7, "a".to_owned())]);
        assert!(published(&[]).await.is_empty());
    }
}
