//! Polled sources of loops. Each kind has one file with its implementation of [`PolledSource`], one branch in
//! [`SourceReader::read`], and one row in [`SOURCE_RULES`]. It returns a value, or a message that says why there is
//! none.
//!
//! | file | content |
//! |---|---|
//! | `polls` | background tasks that query the sources of loops |
//! | `target` | the target of a loop that tracks |
//! | `turns` | which of a loop's metrics are queried now, and which again |
//! | `objects` | objects and lists of the API server, read as the account of the loop |
//! | `adapter` | values of APIs with metrics, read as the account of the loop |
//! | others | one kind of source each |
//!
//! [`SOURCE_RULES`]: ganglion_loops_plan::monitoring::source_rule::SOURCE_RULES

mod adapter;
mod cron;
mod custom;
mod external;
mod http;
mod object;
mod objects;
mod polls;
mod prometheus;
mod resource;
mod scaler;
mod target;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, FuturesUnordered, StreamExt};

use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::metric::Source;
use ganglion_api::marks;
use ganglion_core::names::DEFAULT_ACCOUNT;
use ganglion_loops_plan::monitoring::source_rule::SourceRule;
use ganglion_loops_plan::monitoring::{SourceResult, SourceValue};
use ganglion_loops_plan::schedule::CronNumber;
use ganglion_outbound::client::{OutboundClient, Unanswered};
use ganglion_runtime::account::Account;
use ganglion_runtime::context::Context;
use ganglion_runtime::discovery::Discovery;
use ganglion_runtime::metrics::SourceLabels;
pub use polls::{PollRequest, SourceAnswers, SourceNews, SourcePolls};

/// Added to the timeout of a source, so that a request to a server times out first: its message names the server.
const SLACK: Duration = Duration::from_millis(100);

/// Latest result of each source that has answered, by metric.
pub type PolledValues = BTreeMap<String, SourceResult>;

/// Name of a metric, and the result of its source.
type MetricResult = (String, Result<SourceValue, Unanswered>);

/// Dependencies of reading sources.
pub struct Sources {
    pub ctx: Context,
    pub outbound: Arc<OutboundClient>,
    pub discovery: Arc<Discovery>,
}

/// Kind of source that is queried once per interval.
trait PolledSource {
    /// Queries it once. Does not need to observe a timeout.
    async fn read(&self, reader: &SourceReader<'_>) -> Result<SourceValue, Unanswered>;
}

/// Reads sources: servers as the operator itself, with Secrets of the loop's namespace, and Kubernetes objects as the
/// loop's account.
struct SourceReader<'a> {
    sources: &'a Sources,
    account: Account,
    /// Name of the loop.
    loop_name: &'a str,
    /// Target of the loop.
    target: Option<&'a TargetRef>,
    /// The source, if it is `cron`.
    cron: Option<&'a CronNumber>,
    /// Whether the samples of the target's own pods are needed, since an action tracks the metric.
    needs_samples: bool,
    /// Timeout of a request to a server.
    within: Duration,
}

impl Sources {
    /// Queries all sources concurrently; a source that fails or hangs does not affect the others.
    pub async fn query(&self, request: &PollRequest) -> BTreeMap<String, Result<SourceValue, Unanswered>> {
        let all = request.metrics.iter().map(|(name, _)| name.clone()).collect();
        self.results(request, all).await.collect().await
    }

    /// Starts the queries of these metrics. Their results are in the order in which they come.
    async fn results<'a>(&'a self, request: &'a PollRequest, metrics: BTreeSet<String>) -> BoxStream<'a, MetricResult> {
        let within = request.within(self.outbound.request_timeout);
        let permit = self.outbound.requests.acquire(&request.key.namespace, 1);
        let Ok(permit) = tokio::time::timeout(within, permit).await else {
            let late = late("too many requests in progress: no query", within);
            return stream::iter(metrics).map(move |name| (name, Err(late.clone()))).boxed();
        };
        // A value is not older than its query. Some sources report when they measured.
        let asked = self.ctx.now();
        let permit = Arc::new(permit);
        let wanted = request.metrics.iter().filter(|(name, _)| metrics.contains(name));
        let queries = wanted.map(|(name, source)| {
            let permit = Arc::clone(&permit);
            async move {
                let mut result = self.read_in_time(request, (name, source), within).await;
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
        (metric, source): (&str, &Source),
        within: Duration,
    ) -> Result<SourceValue, Unanswered> {
        let needs_samples = request.tracking.tracks(metric);
        let cron = request.crons.get(metric);
        let reader = SourceReader { cron, needs_samples, ..self.reader(request, within) };
        let result = tokio::time::timeout(within + SLACK, reader.read(source)).await;
        let result = result.unwrap_or_else(|_| Err(late("no answer", within)));
        let outcome = if result.is_ok() { "ok" } else { "unknown" };
        let labels = SourceLabels { source: SourceRule::of(source).name, outcome };
        self.ctx.metrics.sources.get_or_create(&labels).inc();
        result
    }

    /// Reader for the sources of this loop.
    fn reader<'a>(&'a self, request: &'a PollRequest, within: Duration) -> SourceReader<'a> {
        let account = Account {
            writer: self.ctx.writer.clone(),
            namespace: request.key.namespace.clone(),
            name: request.account.clone().unwrap_or_else(|| DEFAULT_ACCOUNT.to_owned()),
            manager: marks::MONITORING_STATUS_MANAGER,
        };
        let (loop_name, target) = (request.key.name.as_str(), request.target.as_ref());
        SourceReader { sources: self, account, loop_name, target, cron: None, needs_samples: false, within }
    }
}

impl SourceReader<'_> {
    /// Reads one source.
    async fn read(&self, source: &Source) -> Result<SourceValue, Unanswered> {
        match source {
            Source { prometheus: Some(source), .. } => source.read(self).await,
            Source { http: Some(source), .. } => source.read(self).await,
            Source { scaler: Some(source), .. } => source.read(self).await,
            Source { object: Some(source), .. } => source.read(self).await,
            Source { resource: Some(source), .. } => source.read(self).await,
            Source { external: Some(source), .. } => source.read(self).await,
            Source { custom: Some(source), .. } => source.read(self).await,
            Source { cron: Some(source), .. } => source.read(self).await,
            _ => Err("this version of the operator does not support this source".to_owned().into()),
        }
    }
}

fn late(what: &str, within: Duration) -> Unanswered {
    Unanswered::passing(format!("{what} within {} s", within.as_secs_f64()))
}
