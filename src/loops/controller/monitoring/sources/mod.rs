//! Polls the sources of loops: one task per loop queries all its sources.
//!
//! A poll stores its answers here and enqueues the loop, so that a slow source delays no other loop. Each loop has at
//! most one poll at a time. The stored answers may be lost in a crash. Each kind of source has its own file and returns
//! a value, or a message that says why there is none.

mod object;
mod resource;
mod web;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use jiff::SignedDuration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::MonitoringController;
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::source::Source;
use ganglion_api::marks;
use ganglion_api::monitoring::{Monitoring, MonitoringSpec};
use ganglion_core::facts::Key;
use ganglion_core::names::DEFAULT_ACCOUNT;
use ganglion_core::world::Fact;
use ganglion_loops_plan::monitoring::{SourceResult, SourceValue};
use ganglion_outbound::client::{OutboundClient, Unanswered};
use ganglion_runtime::account::Account;
use ganglion_runtime::context::Context;
use ganglion_runtime::discovery::Discovery;
use ganglion_runtime::metrics::SourceLabels;

/// Added to the timeout of a source, so that a request to a server times out first: its message names the server.
const SLACK: Duration = Duration::from_millis(100);

/// Answers of a poll, by metric.
pub type Answer = BTreeMap<String, SourceResult>;

/// Polls of all loops.
#[derive(Default)]
pub struct Polls(Mutex<HashMap<Key, Poll>>);

/// Polling task of one loop, and its answers.
struct Poll {
    question: Arc<PollRequest>,
    task: JoinHandle<()>,
    /// Last answer, until a reconcile has handled it.
    answer: Option<Arc<Answer>>,
    /// Whether the sources have answered at least once.
    answered: bool,
}

impl Drop for Poll {
    fn drop(&mut self) {
        self.task.abort();
    }
}

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
    /// The sources have answered. Contains the answer that was not handled yet, if there is one.
    Polled(Option<Arc<Answer>>),
}

/// Metrics with a polled source.
fn asked(spec: &MonitoringSpec) -> impl Iterator<Item = (&String, &Source)> {
    let all = spec.metrics.iter().filter(|_| !spec.paused);
    let asks = |source: &Source| {
        source.prometheus.is_some() || source.http.is_some() || source.object.is_some() || source.resource.is_some()
    };
    all.filter(move |metric| asks(&metric.source)).map(|metric| (&metric.name, &metric.source))
}

impl PollRequest {
    /// Query for this Monitoring.
    pub fn of(key: Key, spec: &MonitoringSpec, interval: SignedDuration) -> Self {
        Self {
            key,
            metrics: asked(spec).map(|(name, source)| (name.clone(), source.clone())).collect(),
            account: spec.service_account_name.clone(),
            target: spec.target.clone(),
            interval,
        }
    }

    /// Timeout of a request: `timeout`, but at most the interval.
    fn within(&self, timeout: Duration) -> Duration {
        Duration::try_from(self.interval).map_or(timeout, |interval| interval.min(timeout))
    }

    fn is_of(&self, spec: &MonitoringSpec, interval: SignedDuration) -> bool {
        self.interval == interval
            && self.account == spec.service_account_name
            && self.target == spec.target
            && self.metrics.iter().map(|(name, source)| (name, source)).eq(asked(spec))
    }
}

impl Polls {
    fn all(&self) -> MutexGuard<'_, HashMap<Key, Poll>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops polling for a deleted loop.
    pub fn forget(&self, key: &Key) {
        self.all().remove(key);
    }

    /// Returns the news of this Monitoring's sources. The first call starts the polling.
    pub fn news(
        &self,
        controller: &Arc<MonitoringController>,
        object: &Monitoring,
        interval: SignedDuration,
    ) -> SourceNews {
        let (key, spec) = (object.id().key, &object.spec);
        let mut polls = self.all();
        if asked(spec).next().is_none() {
            polls.remove(&key);
            return SourceNews::NoSources;
        }
        let current = polls.get(&key).filter(|poll| poll.question.is_of(spec, interval) && !poll.task.is_finished());
        if let Some(poll) = current {
            return if poll.answered { SourceNews::Polled(poll.answer.clone()) } else { SourceNews::Pending };
        }
        let question = Arc::new(PollRequest::of(key.clone(), spec, interval));
        let task = tokio::spawn(poll(Arc::clone(controller), Arc::clone(&question)));
        polls.insert(key, Poll { question, task, answer: None, answered: false });
        SourceNews::Pending
    }

    /// Drops an answer that was handled, unless a newer one has arrived.
    pub fn acknowledge(&self, key: &Key, handled: &Arc<Answer>) {
        let mut polls = self.all();
        if let Some(poll) = polls.get_mut(key) {
            poll.answer = poll.answer.take().filter(|answer| !Arc::ptr_eq(answer, handled));
        }
    }

    /// Stores an answer. False if the loop or its sources have changed since the query.
    fn store(&self, question: &Arc<PollRequest>, answer: Answer) -> bool {
        let mut polls = self.all();
        let Some(poll) = polls.get_mut(&question.key).filter(|poll| Arc::ptr_eq(&poll.question, question)) else {
            return false;
        };
        (poll.answer, poll.answered) = (Some(Arc::new(answer)), true);
        true
    }
}

/// Queries the sources, stores the answers, and waits for the next interval, until the query changes or the leader term
/// ends.
async fn poll(controller: Arc<MonitoringController>, question: Arc<PollRequest>) {
    let sources = &controller.sources;
    let interval = Duration::try_from(question.interval).unwrap_or(sources.outbound.request_timeout);
    let asking = async {
        loop {
            let next = Instant::now() + interval;
            let answer = sources.ask(&question).await.into_iter();
            let answer = answer.map(|(name, got)| (name, got.map_err(|why| why.words))).collect();
            if !controller.polls.store(&question, answer) {
                return;
            }
            controller.ctx.store.queue::<Monitoring>().add([question.key.clone()]);
            sleep_until(next).await;
        }
    };
    tokio::select! {
        biased;
        () = controller.ctx.writer.fenced() => {}
        () = controller.ctx.stop.cancelled() => {}
        () = asking => {}
    }
}

impl Sources {
    /// Queries all sources concurrently; a source that fails or hangs does not affect the others.
    pub async fn ask(&self, question: &PollRequest) -> BTreeMap<String, Result<SourceValue, Unanswered>> {
        let within = question.within(self.outbound.request_timeout);
        let late =
            |what: &str| Err(Unanswered { words: format!("{what} within {} s", within.as_secs_f64()), passing: true });
        let permit = self.outbound.requests.acquire(&question.key.namespace, 1);
        let Ok(_permit) = tokio::time::timeout(within, permit).await else {
            let all = question.metrics.iter();
            return all.map(|(name, _)| (name.clone(), late("too many requests in progress: no query"))).collect();
        };
        let asked = question.metrics.iter().map(|(name, source)| async move {
            let got = tokio::time::timeout(within + SLACK, self.one(question, source, within)).await;
            let got = got.unwrap_or_else(|_| late("no answer"));
            let outcome = if got.is_ok() { "ok" } else { "unknown" };
            let labels = SourceLabels { source: word(source), outcome };
            self.ctx.metrics.sources.get_or_create(&labels).inc();
            (name.clone(), got)
        });
        join_all(asked).await.into_iter().collect()
    }

    async fn one(&self, question: &PollRequest, source: &Source, within: Duration) -> Result<SourceValue, Unanswered> {
        let account = Account {
            writer: self.ctx.writer.clone(),
            namespace: question.key.namespace.clone(),
            name: question.account.clone().unwrap_or_else(|| DEFAULT_ACCOUNT.to_owned()),
            manager: marks::MONITORING_STATUS_MANAGER,
        };
        let reader = SourceReader { sources: self, account };
        match source {
            Source { prometheus: Some(source), .. } => web::prometheus(&reader, source, within).await,
            Source { http: Some(source), .. } => web::http(&reader, source, within).await,
            Source { object: Some(source), .. } => Ok(object::read(&reader, source).await?),
            Source { resource: Some(source), .. } => {
                Ok(resource::read(&reader, source, question.target.as_ref()).await?)
            }
            _ => Err("this version of the operator does not support this source".to_owned().into()),
        }
    }
}

fn word(source: &Source) -> &'static str {
    match source {
        Source { prometheus: Some(_), .. } => "prometheus",
        Source { http: Some(_), .. } => "http",
        Source { object: Some(_), .. } => "object",
        _ => "resource",
    }
}

/// Reads sources as the operator itself, and Kubernetes objects as the loop's account.
pub struct SourceReader<'a> {
    pub sources: &'a Sources,
    pub account: Account,
}
