//! Background tasks that query the sources of loops: one for each loop, once per interval, and in between when a scaler
//! wakes a metric. The results are published as they come.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, SelectAll, StreamExt};
use jiff::SignedDuration;
use tokio::time::{Instant, sleep_until};

use super::turns::{QueryTurns, WokenMetrics};
use super::{MetricResult, PolledValues};
use crate::monitoring::MonitoringController;
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::action::LoopAction;
use ganglion_api::closed_loop::metric::Source;
use ganglion_api::closed_loop::track::TrackType;
use ganglion_api::monitoring::{Monitoring, MonitoringSpec};
use ganglion_core::facts::Key;
use ganglion_core::world::Fact;
use ganglion_loops_plan::monitoring::source_rule::SourceRule;
use ganglion_loops_plan::monitoring::tracking::TargetReading;
use ganglion_loops_plan::schedule::CronNumber;
use ganglion_runtime::background::BackgroundWork;

/// Time within which results are used together, so that the rank decides between their alarms, and not which server is
/// a little faster.
const TOGETHER: Duration = Duration::from_millis(250);

/// Minimum time between two polls of a loop that its scalers wake, however often they say that they are active.
const WAKE_PAUSE: Duration = Duration::from_secs(1);

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

/// Answer to one query of a poll.
enum PollAnswer {
    Metric(MetricResult),
    Target(Result<TargetReading, String>),
}

/// Query of a poll: sources, account, interval.
pub struct PollRequest {
    pub(super) key: Key,
    pub(super) metrics: Vec<(String, Source)>,
    /// Parsed sources `cron`, by metric: a search in the calendar is not repeated with each poll.
    pub(super) crons: BTreeMap<String, CronNumber>,
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
            metrics: tracking
                .clone()
                .flat_map(|action| action.when.alarms())
                .map(|alarm| alarm.metric.clone())
                .collect(),
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
        let cron = |(name, source): (&String, &Source)| {
            Some((name.clone(), CronNumber::parse(name, source.cron.as_ref()?).ok()?))
        };
        Self {
            key,
            metrics: polled_sources(spec).map(|(name, source)| (name.clone(), source.clone())).collect(),
            crons: polled_sources(spec).filter_map(cron).collect(),
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

    /// Queries the sources once per interval, and those whose scaler wakes them at once. Then it reads the target if an
    /// action tracks: its number of replicas is determined from values of the same interval.
    fn start_polls(self: &Arc<Self>, request: PollRequest) {
        let (controller, request) = (Arc::clone(self), Arc::new(request));
        self.polls.start(&self.ctx, request.key.clone(), Arc::clone(&request), |answers| async move {
            let sources = &controller.sources;
            let interval = Duration::try_from(request.interval).unwrap_or(sources.outbound.request_timeout);
            let all = request.metrics.iter().map(|(name, _)| name.clone()).collect();
            let woken = WokenMetrics::default();
            let query = |metrics| {
                let results = stream::once(sources.results(&request, metrics)).flatten();
                results.map(PollAnswer::Metric).boxed()
            };
            let read_target = || {
                let reading = stream::once(sources.target(&request));
                let answer = reading.filter_map(async |reading| reading.map(PollAnswer::Target));
                (!request.tracking.is_empty()).then(|| answer.boxed())
            };
            let publish = |latest| answers.publish(latest);
            tokio::select! {
                never = poll(interval, &all, &woken, (query, read_target), publish) => match never {},
                never = sources.follow_streams(&request, &woken) => match never {},
            }
        });
    }
}

/// Queries these metrics once per interval, and woken ones at once, each at most once at a time. Adds the results to
/// the latest ones, and publishes these as they come: otherwise the slowest source would delay all others. Results that
/// come within [`TOGETHER`] are published together.
async fn poll<'a>(
    interval: Duration,
    all: &BTreeSet<String>,
    woken: &WokenMetrics,
    (query, read_target): (
        impl Fn(BTreeSet<String>) -> BoxStream<'a, PollAnswer>,
        impl Fn() -> Option<BoxStream<'a, PollAnswer>>,
    ),
    publish: impl Fn(SourceAnswers),
) -> Infallible {
    let (mut latest, mut turns) = (SourceAnswers::default(), QueryTurns::default());
    let (mut target_is_due, mut target_is_read) = (false, false);
    let mut results = SelectAll::<BoxStream<'a, PollAnswer>>::new();
    let (mut publish_at, mut next) = (None, Instant::now());
    let mut awake_from = next;
    loop {
        let due = tokio::select! {
            biased;
            Some(answer) = results.next() => match answer {
                PollAnswer::Metric((metric, result)) => {
                    let again = turns.end(&metric);
                    latest.values.insert(metric, result.map_err(|unanswered| unanswered.words));
                    publish_at.get_or_insert_with(|| Instant::now() + TOGETHER);
                    again
                }
                PollAnswer::Target(reading) => {
                    latest.target = Some(Arc::new(reading));
                    target_is_read = false;
                    publish_at = Some(Instant::now());
                    BTreeSet::new()
                }
            },
            () = sleep_until(publish_at.unwrap_or(next)), if publish_at.is_some() => {
                publish(latest.clone());
                publish_at = None;
                BTreeSet::new()
            }
            () = sleep_until(next) => {
                next = Instant::now() + interval;
                target_is_due = true;
                turns.start(all.clone())
            }
            metrics = woken.take(awake_from) => {
                awake_from = Instant::now() + WAKE_PAUSE;
                target_is_due = true;
                turns.start(metrics)
            }
        };
        if !due.is_empty() {
            results.push(query(due));
        }
        if target_is_due && !target_is_read && !turns.are_awaited() {
            target_is_due = false;
            if let Some(reading) = read_target() {
                target_is_read = true;
                results.push(reading);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use tokio::time::{sleep, timeout};

    use super::*;
    use futures::stream::FuturesUnordered;
    use ganglion_loops_plan::monitoring::SourceValue;

    const INTERVAL: Duration = Duration::from_secs(10);

    /// Polls sources that answer after these times, for so long. Returns when results were published, in milliseconds,
    /// with the number of answers of each metric until then.
    async fn published(
        sources: &[(u64, &'static str)],
        wakes: &[(u64, &str)],
        millis: u64,
    ) -> Vec<(u128, Vec<(String, String)>)> {
        published_with(sources, wakes, millis, false).await
    }

    /// Name of the target in the results.
    const TARGET: &str = "target";

    /// The same; `tracks`: whether the target is read, too.
    async fn published_with(
        sources: &[(u64, &'static str)],
        wakes: &[(u64, &str)],
        millis: u64,
        tracks: bool,
    ) -> Vec<(u128, Vec<(String, String)>)> {
        let (begun, published, counts) = (Instant::now(), RefCell::new(Vec::new()), RefCell::new(BTreeMap::new()));
        let query = |metrics: BTreeSet<String>| {
            let wanted = sources.iter().filter(|(_, metric)| metrics.contains(*metric)).copied();
            let answers = wanted.map(|(millis, metric)| {
                let mut counts = counts.borrow_mut();
                let count: &mut u32 = counts.entry(metric).or_default();
                *count += 1;
                let value = SourceValue::from(count.to_string());
                async move {
                    sleep(Duration::from_millis(millis)).await;
                    PollAnswer::Metric((metric.to_owned(), Ok(value)))
                }
            });
            answers.collect::<FuturesUnordered<_>>().boxed()
        };
        let publish = |latest: SourceAnswers| {
            let metrics = latest.values.into_iter().map(|(metric, result)| (metric, result.unwrap().value));
            let target = latest.target.map(|reading| (TARGET.to_owned(), (*reading).clone().unwrap_err()));
            let values = metrics.chain(target).collect();
            published.borrow_mut().push((begun.elapsed().as_millis(), values));
        };
        let reads = RefCell::new(0);
        let read_target = || {
            *reads.borrow_mut() += 1;
            let reading = PollAnswer::Target(Err(reads.borrow().to_string()));
            tracks.then(|| stream::once(std::future::ready(reading)).boxed())
        };
        let (all, woken) = (sources.iter().map(|(_, metric)| (*metric).to_owned()).collect(), WokenMetrics::default());
        let wake = async {
            for (millis, metric) in wakes {
                sleep_until(begun + Duration::from_millis(*millis)).await;
                woken.insert(metric);
            }
            std::future::pending::<()>().await;
        };
        let polls = async {
            tokio::select! {
                never = poll(INTERVAL, &all, &woken, (query, read_target), publish) => match never {},
                () = wake => {}
            }
        };
        let _ = timeout(Duration::from_millis(millis), polls).await;
        published.into_inner()
    }

    fn values(of: &[(&str, &str)]) -> Vec<(String, String)> {
        of.iter().map(|(metric, value)| ((*metric).to_owned(), (*value).to_owned())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn no_value_waits_for_a_slow_source() {
        let found = published(&[(8500, "slow"), (300, "fast"), (400, "faster")], &[], 9000).await;
        let expected = [
            (550, values(&[("fast", "1"), ("faster", "1")])),
            (8750, values(&[("fast", "1"), ("faster", "1"), ("slow", "1")])),
        ];
        assert_eq!(found, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn values_that_come_together_are_used_together() {
        let found = published(&[(300, "a"), (310, "b")], &[], 9000).await;
        assert_eq!(found, [(550, values(&[("a", "1"), ("b", "1")]))]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_is_queried_once_per_interval_and_a_late_one_when_it_has_answered() {
        let found = published(&[(10_100, "late"), (100, "soon")], &[], 21_000).await;
        let times: Vec<u128> = found.iter().map(|(millis, _)| *millis).collect();
        assert_eq!(times, [350, 10_350, 20_350], "{found:?}");
        assert_eq!(found[2].1, values(&[("late", "2"), ("soon", "3")]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_woken_metric_is_queried_at_once_although_another_hangs() {
        let found = published(&[(9000, "hangs"), (100, "a")], &[(2000, "a")], 3000).await;
        assert_eq!(found, [(350, values(&[("a", "1")])), (2350, values(&[("a", "2")]))]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_target_is_read_when_all_sources_have_answered() {
        let found = published_with(&[(300, "a"), (2000, "b")], &[], 12_500, true).await;
        let times: Vec<u128> = found.iter().map(|(millis, _)| *millis).collect();
        assert_eq!(times, [550, 2000, 10_550, 12_000], "{found:?}");
        assert_eq!(found[1].1, values(&[("a", "1"), ("b", "1"), (TARGET, "1")]));
        assert_eq!(found[3].1, values(&[("a", "2"), ("b", "2"), (TARGET, "2")]));
        let found = published_with(&[], &[], 10_500, true).await;
        assert_eq!(found, [(0, values(&[(TARGET, "1")])), (10_000, values(&[(TARGET, "2")]))], "without a source");
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_hangs_delays_the_target_by_an_interval() {
        let found = published_with(&[(25_000, "hangs"), (100, "a")], &[], 21_000, true).await;
        let times: Vec<u128> = found.iter().filter(|(_, values)| values.len() > 1).map(|(millis, _)| *millis).collect();
        assert_eq!(times, [10_100, 20_100], "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_woken_metric_lets_the_target_be_read_at_once() {
        let found = published_with(&[(100, "a")], &[(2000, "a")], 3000, true).await;
        assert_eq!(found.last(), Some(&(2100, values(&[("a", "2"), (TARGET, "2")]))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_scaler_cannot_wake_a_metric_all_the_time() {
        let wakes: Vec<(u64, &str)> = (100..500).map(|time| (time * 10, "a")).collect();
        let found = published(&[(10, "a")], &wakes, 5500).await;
        assert_eq!(found.len(), 6, "{found:?}");
    }
}
