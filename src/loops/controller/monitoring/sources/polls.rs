//! Background tasks that query the sources of loops: one for each loop, once per interval. The results are published as
//! they come.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{Stream, StreamExt};
use jiff::SignedDuration;
use tokio::time::{Instant, sleep_until};

use super::PolledValues;
use crate::monitoring::MonitoringController;
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::action::LoopAction;
use ganglion_api::closed_loop::metric::Source;
use ganglion_api::closed_loop::track::TrackType;
use ganglion_api::monitoring::{Monitoring, MonitoringSpec};
use ganglion_core::facts::Key;
use ganglion_core::world::Fact;
use ganglion_loops_plan::monitoring::SourceResult;
use ganglion_loops_plan::monitoring::source_rule::SourceRule;
use ganglion_loops_plan::monitoring::tracking::TargetReading;
use ganglion_runtime::background::BackgroundWork;

/// Time within which results are used together, so that the rank decides between their alarms, and not which server is
/// a little faster.
const TOGETHER: Duration = Duration::from_millis(250);

/// Polls of all loops.
pub type SourcePolls = BackgroundWork<Monitoring, PollRequest, SourceAnswers>;

/// Answers of the sources of a loop.
#[derive(Clone, Debug, Default)]
pub struct SourceAnswers {
    /// Latest results.
    pub values: PolledValues,
    /// State of the target, read when all sources had answered; None before that, and if no action tracks.
    pub target: Option<Arc<Result<TargetReading, String>>>,
}

/// Query of a poll: sources, account, interval.
pub struct PollRequest {
    pub(super) key: Key,
    pub(super) metrics: Vec<(String, Source)>,
    pub(super) account: Option<String>,
    pub(super) target: Option<TargetRef>,
    pub(super) tracking: TrackedParts,
    interval: SignedDuration,
}

/// Parts of the target that actions on side Target need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrackedParts {
    /// Metrics with an action on side Target.
    metrics: BTreeSet<String>,
    /// Whether the number of ready pods is needed.
    pub(super) counts_ready_pods: bool,
}

impl TrackedParts {
    fn of(spec: &MonitoringSpec) -> Self {
        let tracking = spec.tracking.iter().filter(|_| !spec.paused);
        let of_value = |action: &LoopAction| {
            let mut scales = action.ladder.iter().filter_map(|rung| rung.scale.as_ref()?.track.as_ref());
            scales.any(|track| track.type_ == TrackType::Value)
        };
        Self {
            metrics: tracking.clone().map(|action| action.when.metric.clone()).collect(),
            counts_ready_pods: tracking.clone().any(of_value),
        }
    }

    pub(super) fn tracks(&self, metric: &str) -> bool {
        self.metrics.contains(metric)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.metrics.is_empty()
    }
}

/// State of a loop's sources.
pub enum SourceNews {
    /// The loop has no polled sources.
    NoSources,
    /// No answer since the loop or its sources changed; earlier values must not lead to decisions.
    Pending,
    /// Some source has answered. Contains the results that were not handled yet, if there are any.
    Polled(Option<Arc<SourceAnswers>>),
}

impl SourceNews {
    /// Returns the metrics whose polled source has not answered since it is in the spec. `handled`: results that were
    /// handled before.
    pub fn unanswered(&self, spec: &MonitoringSpec, handled: Option<&PolledValues>) -> Vec<String> {
        let latest = match self {
            Self::Polled(Some(latest)) => Some(&latest.values),
            Self::Polled(None) | Self::Pending | Self::NoSources => handled,
        };
        let has_answered = |metric: &String| latest.is_some_and(|latest| latest.contains_key(metric));
        polled_sources(spec).map(|(metric, _)| metric).filter(|metric| !has_answered(metric)).cloned().collect()
    }
}

/// Metrics with a polled source.
fn polled_sources(spec: &MonitoringSpec) -> impl Iterator<Item = (&String, &Source)> {
    let metrics = spec.metrics.iter().filter(|metric| !spec.paused && SourceRule::of(&metric.source).is_polled);
    metrics.map(|metric| (&metric.name, &metric.source))
}

impl PollRequest {
    /// Query for this Monitoring.
    pub fn new(key: Key, spec: &MonitoringSpec, interval: SignedDuration) -> Self {
        Self {
            key,
            metrics: polled_sources(spec).map(|(name, source)| (name.clone(), source.clone())).collect(),
            account: spec.service_account_name.clone(),
            target: spec.target.clone(),
            tracking: TrackedParts::of(spec),
            interval,
        }
    }

    /// Timeout of a request: `timeout`, but at most the interval.
    pub(super) fn within(&self, timeout: Duration) -> Duration {
        Duration::try_from(self.interval).map_or(timeout, |interval| interval.min(timeout))
    }

    /// Whether this is the query for a Monitoring with this spec.
    fn is_for(&self, spec: &MonitoringSpec, interval: SignedDuration) -> bool {
        self.interval == interval
            && self.account == spec.service_account_name
            && self.target == spec.target
            && self.tracking == TrackedParts::of(spec)
            && self.metrics.iter().map(|(name, source)| (name, source)).eq(polled_sources(spec))
    }
}

impl MonitoringController {
    /// Returns the news of this Monitoring's sources. The first call starts the polls.
    pub fn source_news(self: &Arc<Self>, object: &Monitoring, interval: SignedDuration) -> SourceNews {
        let (key, spec) = (object.id().key, &object.spec);
        if polled_sources(spec).next().is_none() && (spec.tracking.is_empty() || spec.paused) {
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

    /// Queries the sources once per interval, and then the target if an action tracks: its number of replicas is
    /// determined from values of the same interval.
    fn start_polls(self: &Arc<Self>, request: PollRequest) {
        let (controller, request) = (Arc::clone(self), Arc::new(request));
        self.polls.start(&self.ctx, request.key.clone(), Arc::clone(&request), |answers| async move {
            let sources = &controller.sources;
            let interval = Duration::try_from(request.interval).unwrap_or(sources.outbound.request_timeout);
            let mut latest = SourceAnswers::default();
            loop {
                let next = Instant::now() + interval;
                let results = sources.results(&request).await;
                let results = results.map(|(metric, result)| (metric, result.map_err(|unanswered| unanswered.words)));
                publish_as_they_come(results, &mut latest, |latest| answers.publish(latest)).await;
                if let Some(reading) = sources.target(&request).await {
                    latest.target = Some(Arc::new(reading));
                    answers.publish(latest.clone());
                }
                sleep_until(next).await;
            }
        });
    }
}

/// Adds the results to the latest ones, and publishes these as they come: otherwise the slowest source would delay all
/// others. Results that come within [`TOGETHER`] are published together.
async fn publish_as_they_come(
    mut results: impl Stream<Item = (String, SourceResult)> + Unpin,
    latest: &mut SourceAnswers,
    publish: impl Fn(SourceAnswers),
) {
    let mut publish_at = None;
    loop {
        tokio::select! {
            biased;
            result = results.next() => match result {
                Some((metric, result)) => {
                    latest.values.insert(metric, result);
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::time::sleep;

    use super::*;
    use futures::stream::FuturesUnordered;
    use ganglion_loops_plan::monitoring::SourceValue;

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
        let publish = |latest: SourceAnswers| {
            let metrics: Vec<String> = latest.values.into_keys().collect();
            published.borrow_mut().push((begun.elapsed().as_millis(), metrics.join(" ")));
        };
        publish_as_they_come(results, &mut SourceAnswers::default(), publish).await;
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
