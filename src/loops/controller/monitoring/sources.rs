//! Polled sources of loops: each loop has one background task that queries all its sources. Each kind of source returns
//! a value, or a message that says why there is none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
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
use ganglion_core::document::{self, Text};
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

/// Maximum length of a workload's selector, in bytes.
const MAX_SELECTOR: usize = 16 << 10;

/// Values of a poll, by metric.
pub type PolledValues = BTreeMap<String, SourceResult>;

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
    /// The sources have answered. Contains the values that were not handled yet, if there are any.
    Polled(Option<Arc<PolledValues>>),
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
            loop {
                let next = Instant::now() + interval;
                let mut values = PolledValues::new();
                for (metric, result) in sources.query(&request).await {
                    values.insert(metric, result.map_err(|unanswered| unanswered.words));
                }
                answers.publish(values);
                sleep_until(next).await;
            }
        });
    }
}

impl Sources {
    /// Queries all sources concurrently; a source that fails or hangs does not affect the others.
    pub async fn query(&self, request: &PollRequest) -> BTreeMap<String, Result<SourceValue, Unanswered>> {
        let within = request.within(self.outbound.request_timeout);
        let permit = self.outbound.requests.acquire(&request.key.namespace, 1);
        let Ok(_permit) = tokio::time::timeout(within, permit).await else {
            let late = late("too many requests in progress: no query", within);
            return request.metrics.iter().map(|(name, _)| (name.clone(), Err(late.clone()))).collect();
        };
        // A value is not older than its query. Only metrics.k8s.io reports when it measured.
        let asked = self.ctx.now();
        let queries = request.metrics.iter().map(|(name, source)| async move {
            let result = tokio::time::timeout(within + SLACK, self.read(request, source, within)).await;
            let mut result = result.unwrap_or_else(|_| Err(late("no answer", within)));
            if let Ok(value) = &mut result {
                value.at.get_or_insert(asked);
            }
            let outcome = if result.is_ok() { "ok" } else { "unknown" };
            let labels = SourceLabels { source: source_label(source), outcome };
            self.ctx.metrics.sources.get_or_create(&labels).inc();
            (name.clone(), result)
        });
        join_all(queries).await.into_iter().collect()
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
    Unanswered { words: format!("{what} within {} s", within.as_secs_f64()), passing: true }
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
        let request = Outgoing { url: url.as_str(), auth: source.auth.as_ref(), ca: source.ca.as_ref(), within };
        let answer = self.sources.outbound.get(&self.account, request).await?;
        let point = prometheus::point(answer.status, answer.body())?;
        Ok(sources::queried(point.value, point.at, self.sources.ctx.now())?)
    }

    /// Reads a number in the JSON document of a server.
    async fn http(&self, source: &Http, within: Duration) -> Result<SourceValue, Unanswered> {
        let request = Outgoing { url: &source.url, auth: source.auth.as_ref(), ca: source.ca.as_ref(), within };
        let answer = self.sources.outbound.get(&self.account, request).await?;
        Ok(answer.number(&source.path)?.into())
    }

    /// Reads a field or condition of an object.
    async fn object_field(&self, source: &ObjectField) -> SourceResult {
        let ObjectField { api_version, kind, name, .. } = source;
        let id = TargetRef { api_version: api_version.clone(), kind: kind.clone(), name: name.clone() };
        let object = self.object(&id).await?.bytes;
        let value = match (&source.path, &source.condition) {
            (Some(path), _) => document::number(&object, path, Text::Quantity),
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
