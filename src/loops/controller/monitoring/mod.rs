//! The monitoring controller, the first stage of a loop: it turns pushed samples, answers of sources, and decisions of
//! other loops into alarms.
//!
//! | step | content |
//! |---|---|
//! | fetch | whether the loop's account may read NodeConfigs of other namespaces (`stored_sources`) |
//! | observe | the Monitoring, and the answers of its sources (`sources`, polled in background tasks) |
//! | | the decisions of other loops, the statuses of NodeConfigs, the target's replicas (`stored_sources`) |
//! | plan | `ganglion_loops_plan::monitoring` |
//! | act | nothing |
//! | report | `Monitoring.status`, if it is still the status that was read; senders write the spec at the same time |
//!
//! A status that is not worth a write stays in memory and may be lost in a crash.

mod sources;
mod stored_sources;

use std::sync::{Arc, LazyLock};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::status_cache::StatusCache;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::closed_loop::metric::Source;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::status::ForecastState;
use ganglion_api::marks;
use ganglion_api::monitoring::{Monitoring, MonitoringSpec, MonitoringStatus};
use ganglion_api::monitoring::{Sample, Tag};
use ganglion_core::definitions::GuardProblem;
use ganglion_core::facts::Key;
use ganglion_core::world::{Fact, Origin};
use ganglion_loops_plan::decision::{Executor, settlement};
use ganglion_loops_plan::figures;
use ganglion_loops_plan::forecast::ForecastMemory;
use ganglion_loops_plan::monitoring::tracking::{OwnScaling, PassMemory, TargetNews};
use ganglion_loops_plan::monitoring::windows::MetricWindows;
use ganglion_loops_plan::monitoring::{Measurement, MonitoringRules, ObserveContext, ObserveTrigger, SourceResult};
use ganglion_loops_plan::monitoring::{Observation, formula, source_rule, tag};
use ganglion_loops_plan::track::TrackMemory;
use ganglion_loops_plan::world::{Family, LoopsWorld};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::frame::{Memories, Next, Reconciler};
use ganglion_runtime::status::{StatusMethod, StatusWriter};
pub use sources::{PollRequest, SourcePolls, Sources};
use sources::{PolledValues, SourceAnswers, SourceNews};
use stored_sources::SourcePermissions;
pub use stored_sources::{SourceAccess, replicas_of};

/// Senders write samples into the spec at the same time. A late request of a process that has ended may have changed
/// the tag.
const STATUS: StatusWriter = StatusWriter {
    manager: marks::MONITORING_STATUS_MANAGER,
    effect: "RecordMonitoring",
    invalid: LoopReason::InvalidObject.as_str(),
    method: StatusMethod::UpdateUnlessChanged { field: "tag" },
    observes_generation: false,
};

/// Controller and its dependencies.
pub struct MonitoringController {
    pub ctx: Context,
    pub sources: Sources,
    pub memories: Memories<MonitoringMemory>,
    pub polls: SourcePolls,
    /// Permissions of accounts, for all loops.
    pub source_access: SourceAccess,
}

/// In-memory state of one Monitoring.
#[derive(Default)]
pub struct MonitoringMemory {
    status: StatusCache<Monitoring>,
    /// Last sample that was accepted or refused.
    sample: Option<Sample>,
    /// Time since which the values are watched. None in a new process, and while the loop is paused.
    watched_since: Option<Timestamp>,
    /// Last parsed spec, without the sample, with its rules.
    rules: Option<(MonitoringSpec, Arc<MonitoringRules>)>,
    /// Spec, without the sample, at the last evaluation of the levels.
    evaluated_spec: Option<MonitoringSpec>,
    /// Time of the last evaluation of the levels.
    evaluated_at: Option<Timestamp>,
    /// Start of the current interval of the sources.
    interval_started: Option<Timestamp>,
    /// Last values of the sources `nodeConfig`.
    node_values: PolledValues,
    /// Last handled answers of the polled sources. None: none of them has answered.
    polled: Option<Arc<SourceAnswers>>,
    /// Memory of the actions on side Target. None: that of the status counts.
    track: Option<TrackMemory>,
    /// Memory of the forecast, if there is one. None: that of the loop's status counts.
    forecast: Option<ForecastMemory>,
    /// Samples of the metrics with values of a period of time.
    windows: MetricWindows,
    /// Rights of the loop's account to read.
    permissions: SourcePermissions,
}

/// A Monitoring, with its loop and its parsed spec.
struct MonitoredLoop {
    object: Arc<Monitoring>,
    family: Family,
    rules: Arc<MonitoringRules>,
    /// The target's number of replicas, or why it is not known. Read only if a formula needs it.
    replicas: Result<i32, String>,
    /// Current status: the stored one, or a newer one that is not worth a write.
    before: Arc<MonitoringStatus>,
    now: Timestamp,
}

/// A Monitoring and what it is evaluated from.
pub struct ObservedMonitoring {
    monitored: MonitoredLoop,
    /// Somebody restored an old status.
    rolled_back: bool,
    /// The spec, except for the sample, is not the one that was evaluated last.
    spec_changed: bool,
    /// Time alone may change an alarm or a value.
    due: bool,
    /// Pushed sample that was not handled before, and when it arrived.
    sample: Option<(Sample, Timestamp)>,
    sources: SourceNews,
    /// Answers of the polled sources that were handled before.
    previous: Option<Arc<SourceAnswers>>,
    /// Metrics whose polled source has not answered yet.
    unanswered: Vec<String>,
    /// The polled sources have new answers. Without such sources: an interval has passed.
    interval_ended: bool,
    node_values: PolledValues,
    node_values_changed: bool,
    /// Values of the sources `loop`, if they are due.
    loop_values: Option<Measurement>,
}

/// Decision about the alarms.
pub enum MonitoringPlan {
    /// Nothing can be decided before the sources have answered for the first time.
    AwaitSources,
    /// The next status. `evaluated`: the levels were evaluated. `write`: the status is worth a write.
    /// `pass`: memories of the actions on side Target, if the number of replicas was determined.
    Evaluated { status: Arc<MonitoringStatus>, evaluated: bool, write: bool, pass: Option<Box<PassMemory>> },
}

impl Reconciler for MonitoringController {
    type Kind = Monitoring;
    type Memory = MonitoringMemory;
    type Observed = ObservedMonitoring;
    type Plan = MonitoringPlan;
    type Done = ();
    const NAME: &'static str = "monitoring";

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn memories(&self) -> &Memories<MonitoringMemory> {
        &self.memories
    }

    async fn unreadable(&self, key: &Key) -> Option<Result<(), Error>> {
        STATUS.report_unreadable::<Monitoring>(&self.ctx, key).await
    }

    async fn unguarded(&self, key: &Key, problem: &GuardProblem) -> Result<(), Error> {
        STATUS.report_unguarded::<Monitoring>(&self.ctx, key, problem).await
    }

    async fn begin(&self, key: &Key, memory: &mut MonitoringMemory) -> Result<(), Error> {
        if let Some((object, _)) = self.family(key) {
            let reads_replicas = rules(&object.spec, memory).is_some_and(|rules| rules.reads_replicas());
            let (ctx, access) = (&self.ctx, &self.source_access);
            memory.permissions = stored_sources::source_permissions(ctx, access, &object, reads_replicas).await;
        }
        Ok(())
    }

    /// None also if the spec is invalid; the loop's status reports that.
    fn observe(self: &Arc<Self>, key: &Key, memory: &mut MonitoringMemory) -> Option<ObservedMonitoring> {
        let (object, family) = self.family(key)?;
        let rules = rules(&object.spec, memory)?;
        let now = self.ctx.now();
        let execution = family.execution.as_ref().and_then(|execution| execution.status.as_ref());
        let mut replicas = Err("no formula reads it".to_owned());
        if rules.reads_replicas() {
            replicas = stored_sources::target_replicas(&self.ctx, &memory.permissions, &object, execution);
        }
        let sources = self.source_news(&object, rules.interval);
        if matches!(sources, SourceNews::Pending) {
            memory.polled = None;
        }
        let unanswered = sources.unanswered(&object.spec, memory.polled.as_ref().map(|answers| &answers.values));
        let node_values = stored_sources::node_values(&self.ctx, &memory.permissions, &object);
        let rolled_back = memory.status.is_ahead_of(&object);
        let before = if rolled_back { Arc::clone(memory.status.last()) } else { memory.status.current(&object) };
        let interval_ended = match &sources {
            SourceNews::Pending => false,
            SourceNews::Polled(answer) => answer.is_some(),
            SourceNews::NoSources => later(memory.interval_started, rules.interval) <= now,
        };
        let node_values_changed = node_values != memory.node_values;
        let mut loop_values = None;
        if interval_ended || node_values_changed {
            loop_values = stored_sources::loop_values(&self.ctx, &object, &before);
        }
        let monitored = MonitoredLoop { object, family, rules, replicas, before, now };
        Some(ObservedMonitoring {
            rolled_back,
            spec_changed: memory.evaluated_spec.as_ref() != Some(&without_sample(&monitored.object.spec)),
            due: monitored.is_due(memory.evaluated_at),
            sample: monitored.new_sample(memory, &self.ctx.term),
            sources,
            previous: memory.polled.clone(),
            unanswered,
            interval_ended,
            node_values,
            node_values_changed,
            loop_values,
            monitored,
        })
    }

    fn plan(&self, observed: &ObservedMonitoring, memory: &mut MonitoringMemory) -> MonitoringPlan {
        if awaits_sources(&observed.sources, observed.sample.as_ref()) {
            return MonitoringPlan::AwaitSources;
        }
        let MonitoredLoop { rules, before, .. } = &observed.monitored;
        let context = observed.monitored.context(&self.ctx.term, memory, &observed.unanswered);
        let measurements = observed.measurements().into_iter();
        let measurements: Vec<Measurement> =
            measurements.map(|measured| rules.windowed(&mut memory.windows, before, measured, context)).collect();
        let mut triggers: Vec<ObserveTrigger> = measurements.iter().map(ObserveTrigger::Measured).collect();
        let time = observed.interval_ended || observed.spec_changed || observed.due || observed.rolled_back;
        if triggers.is_empty() && time {
            triggers.push(ObserveTrigger::Time);
        }
        let track = memory.track.clone().unwrap_or_else(|| observed.monitored.stored_track());
        let forecast = observed.monitored.forecast(memory.forecast.as_ref());
        let context = ObserveContext { target: observed.target_news(&track, forecast.as_ref()), ..context };
        let evaluated = !triggers.is_empty();
        match rules.observe_all(before, &triggers, context) {
            Some(Observation { status, write, memory, .. }) => {
                let write = write || observed.rolled_back;
                MonitoringPlan::Evaluated { status: Arc::new(status), evaluated, write, pass: memory.map(Box::new) }
            }
            None => {
                let (status, write) = (Arc::clone(before), observed.rolled_back);
                MonitoringPlan::Evaluated { status, evaluated, write, pass: None }
            }
        }
    }

    /// Does nothing: the decision controller reads the alarms.
    async fn act(
        self: &Arc<Self>,
        _: &ObservedMonitoring,
        _: &MonitoringPlan,
        _: &mut MonitoringMemory,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Writes the status if it is worth a write, and caches it in either case.
    async fn report(
        self: &Arc<Self>,
        observed: &ObservedMonitoring,
        plan: &MonitoringPlan,
        _: Result<&(), &Error>,
        memory: &mut MonitoringMemory,
    ) -> Result<Next, Error> {
        let MonitoredLoop { object, rules, before, now, .. } = &observed.monitored;
        let recorded = match plan {
            MonitoringPlan::AwaitSources => {
                memory.status.set(object, Some(Arc::clone(before)));
                Ok(Next::At(later(Some(*now), rules.interval)))
            }
            MonitoringPlan::Evaluated { status, evaluated, write, pass } => {
                let recorded = self.record(object, status, *write, memory).await;
                if recorded.is_ok() {
                    self.remember(observed, *evaluated, memory);
                    if let Some(PassMemory { track, forecast }) = pass.as_deref() {
                        memory.track = Some(track.clone());
                        memory.forecast.clone_from(forecast);
                    }
                }
                let saved = match recorded {
                    Ok(()) => self.save_forecast(observed, memory).await,
                    Err(error) => Err(error),
                };
                saved.map(|()| next_evaluation(observed, memory))
            }
        };
        let values = figures::numbers(&memory.status.last().values);
        let key = object.id().key;
        self.ctx.metrics.loop_values.set(&key.namespace, &key.name, values);
        recorded
    }

    fn forget(&self, key: &Key) {
        self.polls.cancel(key);
        self.ctx.metrics.loop_values.remove(&key.namespace, &key.name);
    }
}

impl MonitoringController {
    /// Returns the Monitoring of this name and its loop, if the loop owns it and is not being deleted, and if its spec
    /// is what the loop says: otherwise somebody else could have the operator send requests with Secrets.
    fn family(&self, key: &Key) -> Option<(Arc<Monitoring>, Family)> {
        let family = self.ctx.store.read(|world| world.family(key))?.own();
        if family.parent.metadata.deletion_timestamp.is_some() {
            return None;
        }
        Some((Arc::clone(family.agreed_monitoring()?), family))
    }

    async fn record(
        &self,
        object: &Arc<Monitoring>,
        status: &Arc<MonitoringStatus>,
        write: bool,
        memory: &mut MonitoringMemory,
    ) -> Result<(), Error> {
        if !write {
            memory.status.set(object, Some(Arc::clone(status)));
            return Ok(());
        }
        STATUS.write(&self.ctx, &**object, &**status, []).await?;
        match self.ctx.store.read(|world| world.table::<Monitoring>().get(&object.id().key).cloned()) {
            Some(stored) => memory.status.set(&stored, None),
            None => memory.status = StatusCache::default(),
        }
        Ok(())
    }

    /// Writes the memory of the forecast once an hour, to the status of the loop, which no decision writes.
    async fn save_forecast(&self, observed: &ObservedMonitoring, memory: &MonitoringMemory) -> Result<(), Error> {
        let Some(forecast) = &memory.forecast else { return Ok(()) };
        let parent = &observed.monitored.family.parent;
        if !forecast.needs_write(observed.monitored.stored_forecast()) {
            return Ok(());
        }
        let id = parent.id();
        let status = json!({"forecast": ForecastState { memory: forecast.text() }});
        let written = self.ctx.writer.apply_status::<ClosedLoop>(marks::FORECAST_MANAGER, &id, &status).await?;
        self.ctx.store.apply(written, Origin::Own);
        Ok(())
    }

    /// Notes what this reconcile has handled. If the status could not be written, the next reconcile handles it again.
    fn remember(&self, observed: &ObservedMonitoring, evaluated: bool, memory: &mut MonitoringMemory) {
        let MonitoredLoop { object, now, .. } = &observed.monitored;
        // A sample triggers the evaluation of the levels, but does not restart the interval of polled sources.
        let is_pushed = |source: &Source| source.push.is_some() || source.formula.is_some();
        let only_pushed = object.spec.metrics.iter().all(|metric| is_pushed(&metric.source));
        let restarts = observed.interval_ended || (only_pushed && evaluated);
        if restarts || memory.interval_started.is_none() {
            memory.interval_started = Some(*now);
        }
        if let SourceNews::Polled(Some(answer)) = &observed.sources {
            self.polls.acknowledge(&object.id().key, answer);
            memory.polled = Some(Arc::clone(answer));
        }
        if evaluated {
            memory.evaluated_at = Some(*now);
        }
        if let Some((sample, _)) = &observed.sample {
            memory.sample = Some(sample.clone());
        }
        memory.watched_since = (!object.spec.paused).then(|| memory.watched_since.unwrap_or(*now));
        memory.evaluated_spec = Some(without_sample(&object.spec));
        memory.node_values.clone_from(&observed.node_values);
    }
}

impl MonitoredLoop {
    /// Returns the stored state of the loop's children that the stage depends on.
    fn context<'a>(&'a self, term: &'a str, memory: &MonitoringMemory, unanswered: &'a [String]) -> ObserveContext<'a> {
        let executor = self.family.execution.as_deref().and_then(Executor::from_execution);
        let decided = self.family.decision.as_ref().and_then(|object| object.status.as_ref());
        let awaited = decided.is_some_and(|status| settlement::awaits_execution(status, executor));
        let written = stored_status(&self.object);
        let (last, watched_since) = (latest_tag(&self.family), memory.watched_since.unwrap_or(self.now));
        let replicas = self.replicas.as_ref().copied().map_err(String::as_str);
        let (target, now) = (None, self.now);
        ObserveContext { last, written, unanswered, watched_since, replicas, target, awaited, term, now }
    }

    /// Returns the memory of the actions on side Target that is stored in the status. A form that cannot be read is
    /// one of a later version, or somebody else has written it: windows start again.
    fn stored_track(&self) -> TrackMemory {
        let text = self.before.tracking.as_ref().and_then(|state| state.memory.as_deref());
        text.and_then(|text| TrackMemory::parse(text, self.now).ok()).unwrap_or_default()
    }

    /// Memory of the forecast in the loop's status.
    fn stored_forecast(&self) -> Option<&str> {
        let status = self.family.parent.status.as_ref()?;
        status.forecast.as_ref().map(|forecast| forecast.memory.as_str())
    }

    /// Returns the memory of the forecast, if the loop has one: that of this process, if its rules are the same; that
    /// of the status; or an empty one.
    fn forecast(&self, known: Option<&ForecastMemory>) -> Option<ForecastMemory> {
        let rules = self.rules.tracking.as_ref()?.forecast.as_ref()?;
        let own = known.filter(|memory| memory.is_of(rules)).cloned();
        let stored = || ForecastMemory::parse(self.stored_forecast()?, rules).ok();
        own.or_else(stored).or_else(|| ForecastMemory::new(rules, self.now).ok())
    }

    /// Whether the time has come at which the levels must be evaluated even if nothing new arrives.
    fn is_due(&self, evaluated_at: Option<Timestamp>) -> bool {
        // A time in the future comes from before the clock was set back.
        let last = evaluated_at.filter(|last| *last <= self.now).unwrap_or(Timestamp::MIN);
        let due = self.rules.next_evaluation(&self.before, stored_status(&self.object), last);
        due.is_some_and(|due| due <= self.now)
    }

    /// Returns the pushed sample, and when it arrived, if it was not accepted or refused before. After a restart the
    /// tags decide: a sample that is not newer has been handled. A paused loop leaves its samples for later.
    fn new_sample(&self, memory: &MonitoringMemory, term: &str) -> Option<(Sample, Timestamp)> {
        let sample = self.object.spec.sample.as_ref().filter(|_| !self.object.spec.paused)?;
        let is_new = match &memory.sample {
            Some(handled) => handled != sample,
            None => self.rules.may_be_news(&self.before, sample, self.context(term, memory, &[])),
        };
        is_new.then(|| (sample.clone(), source_rule::arrival(&sample.time, memory.watched_since.is_some(), self.now)))
    }
}

impl ObservedMonitoring {
    /// Returns the state of the target, if it was read since the last reconcile.
    fn target_news<'a>(
        &'a self,
        memory: &'a TrackMemory,
        forecast: Option<&'a ForecastMemory>,
    ) -> Option<TargetNews<'a>> {
        let SourceNews::Polled(Some(answers)) = &self.sources else { return None };
        let reading = answers.target.as_ref()?;
        let before = self.previous.as_ref().and_then(|previous| previous.target.as_ref());
        if before.is_some_and(|before| Arc::ptr_eq(before, reading)) {
            return None;
        }
        let execution = self.monitored.family.execution.as_ref().and_then(|execution| execution.status.as_ref());
        Some(TargetNews {
            reading: (**reading).as_ref().map_err(String::as_str),
            results: &answers.values,
            memory,
            forecast,
            own_change: execution.and_then(OwnScaling::last_of),
            is_changing: execution.is_some_and(|status| formula::is_changing(status, self.monitored.now)),
        })
    }

    /// Returns the new values, in the order in which they count: the current values of sources, then the pushed sample.
    fn measurements(&self) -> Vec<Measurement> {
        let mut measurements = Vec::new();
        if self.interval_ended || self.node_values_changed {
            let polled = match &self.sources {
                SourceNews::Polled(Some(answer)) => {
                    news(&answer.values, self.previous.as_ref().map(|previous| &previous.values))
                }
                SourceNews::Polled(None) | SourceNews::NoSources | SourceNews::Pending => PolledValues::new(),
            };
            measurements.extend(merge(polled, self.node_values.clone(), self.loop_values.clone()));
        }
        measurements
            .extend(self.sample.as_ref().map(|(sample, arrived)| self.monitored.rules.pushed(sample, *arrived)));
        measurements
    }
}

/// Returns the rules of this spec, cached until the spec changes; None if it is invalid.
fn rules(spec: &MonitoringSpec, memory: &mut MonitoringMemory) -> Option<Arc<MonitoringRules>> {
    let spec = without_sample(spec);
    if let Some((_, rules)) = memory.rules.as_ref().filter(|(known, _)| *known == spec) {
        return Some(Arc::clone(rules));
    }
    let rules = Arc::new(MonitoringRules::parse(&spec).ok()?);
    memory.rules = Some((spec, Arc::clone(&rules)));
    Some(rules)
}

/// Whether nothing can be decided before a source has answered. A pushed sample is used at once: otherwise, the slowest
/// source would delay it.
fn awaits_sources(sources: &SourceNews, sample: Option<&(Sample, Timestamp)>) -> bool {
    matches!(sources, SourceNews::Pending) && sample.is_none()
}

/// Returns the results without the values that were handled before.
fn news(latest: &PolledValues, previous: Option<&PolledValues>) -> PolledValues {
    let is_new = |metric: &String, result: &SourceResult| {
        result.is_err() || previous.and_then(|previous| previous.get(metric)) != Some(result)
    };
    let results = latest.iter().filter(|(metric, result)| is_new(metric, result));
    results.map(|(metric, result)| (metric.clone(), result.clone())).collect()
}

/// Returns the current values of all sources except pushed ones; None if no metric has such a source.
pub async fn current_values(
    ctx: &Context,
    access: &SourceAccess,
    object: &Monitoring,
    before: &MonitoringStatus,
    polled: PolledValues,
) -> Option<Measurement> {
    let permissions = stored_sources::source_permissions(ctx, access, object, false).await;
    let node_values = stored_sources::node_values(ctx, &permissions, object);
    merge(polled, node_values, stored_sources::loop_values(ctx, object, before))
}

fn merge(polled: PolledValues, node_values: PolledValues, loop_values: Option<Measurement>) -> Option<Measurement> {
    if polled.is_empty() && node_values.is_empty() {
        return loop_values;
    }
    let mut measurement = loop_values.unwrap_or_default();
    measurement.values.extend(polled);
    measurement.values.extend(node_values);
    Some(measurement)
}

/// Returns when to evaluate the levels again if nothing changes.
fn next_evaluation(observed: &ObservedMonitoring, memory: &MonitoringMemory) -> Next {
    let MonitoredLoop { rules, now, .. } = &observed.monitored;
    let pause = match &observed.sources {
        // An answer enqueues the loop. The longer pause covers a missing answer.
        SourceNews::Polled(_) => rules.interval * 2,
        SourceNews::NoSources | SourceNews::Pending => rules.interval,
    };
    let interval_ends = later(memory.interval_started, pause).max(*now);
    let stored = memory.status.stored().map_or(&*EMPTY, |object| stored_status(object));
    let levels_change = rules.next_evaluation(memory.status.last(), stored, *now);
    Next::earliest([levels_change, Some(interval_ends), memory.permissions.expire_at()])
}

static EMPTY: LazyLock<MonitoringStatus> = LazyLock::new(MonitoringStatus::default);

fn stored_status(object: &Monitoring) -> &MonitoringStatus {
    object.status.as_ref().unwrap_or(&EMPTY)
}

fn without_sample(spec: &MonitoringSpec) -> MonitoringSpec {
    MonitoringSpec { sample: None, ..spec.clone() }
}

/// Adds the duration to the time. Returns `Timestamp::MIN`, which is always due, if there is no time.
fn later(time: Option<Timestamp>, duration: SignedDuration) -> Timestamp {
    time.and_then(|time| time.checked_add(duration).ok()).unwrap_or(Timestamp::MIN)
}

/// Returns the newest tag that a later stage of the loop has recorded.
fn latest_tag(family: &Family) -> Option<&Tag> {
    let decided = family.decision.as_ref().and_then(|object| object.status.as_ref()?.tag.as_ref());
    let done = family.execution.as_ref().and_then(|object| object.status.as_ref()?.tag.as_ref());
    tag::latest([decided, done])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_does_not_wait_for_a_slow_source() {
        let sample = (Sample::default(), Timestamp::UNIX_EPOCH);
        assert!(awaits_sources(&SourceNews::Pending, None));
        assert!(!awaits_sources(&SourceNews::Pending, Some(&sample)));
        assert!(!awaits_sources(&SourceNews::Polled(None), None));
        assert!(!awaits_sources(&SourceNews::NoSources, None));
    }
}
