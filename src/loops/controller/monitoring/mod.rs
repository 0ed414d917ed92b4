//! The monitoring controller, the first stage of a loop: it turns pushed samples, answers of sources, and decisions of
//! other loops into alarms.
//!
//! | step | content |
//! |---|---|
//! | fetch | whether the loop's account may read NodeConfigs of other namespaces (`nodes`) |
//! | observe | the Monitoring, the answers of its sources (`sources/`, polled in separate tasks) |
//! | | the decisions of other loops (`loops`), the statuses of NodeConfigs (`nodes`) |
//! | plan | `ganglion_loops_plan::monitoring` |
//! | act | nothing |
//! | report | `Monitoring.status`, if it is still the status that was read; senders write the spec at the same time |
//!
//! A status that is not worth a write stays in memory and may be lost in a crash.

use ganglion_loops_plan::world::{Family, LoopsWorld};
mod loops;
mod nodes;
mod sources;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use jiff::{SignedDuration, Timestamp};

use crate::status_cache::StatusCache;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::marks;
use ganglion_api::monitoring::{Monitoring, MonitoringSpec, MonitoringStatus};
use ganglion_api::sample::{Sample, Tag};
use ganglion_core::facts::{Identity, Key};
use ganglion_core::world::Fact;
use ganglion_loops_plan::decision::{Executor, settlement};
use ganglion_loops_plan::figures;
use ganglion_loops_plan::monitoring::tag;
use ganglion_loops_plan::monitoring::{Measurement, MonitoringRules, ObserveContext, ObserveTrigger, SourceResult};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::frame::{Memories, Next, Reconciler};
use ganglion_runtime::status::{StatusMethod, StatusWriter};
pub use nodes::NodeAccess;
use nodes::NodePermissions;
use sources::{Answer, SourceNews};
pub use sources::{PollRequest, Polls, Sources};

const STATUS: StatusWriter = StatusWriter {
    manager: marks::MONITORING_STATUS_MANAGER,
    effect: "RecordMonitoring",
    invalid: LoopReason::InvalidObject.as_str(),
    method: StatusMethod::Update,
};

/// Controller and its dependencies.
pub struct MonitoringController {
    pub ctx: Context,
    pub sources: Sources,
    pub memories: Memories<MonitoringMemory>,
    /// Polls in background tasks, which also change this state.
    pub polls: Polls,
    /// Permissions of accounts, for all loops.
    pub node_access: NodeAccess,
}

/// In-memory state of one Monitoring.
#[derive(Default)]
pub struct MonitoringMemory {
    status: StatusCache<Monitoring>,
    /// Last sample that was accepted or refused.
    sample: Option<Sample>,
    /// Spec, without the sample, at the last evaluation of the levels.
    evaluated_spec: Option<MonitoringSpec>,
    /// Time of the last evaluation of the levels.
    evaluated_at: Option<Timestamp>,
    /// Start of the current interval of the sources.
    interval_started: Option<Timestamp>,
    /// Last values of the sources `nodeConfig`.
    node_values: BTreeMap<String, SourceResult>,
    /// Whether the loop's account may read the NodeConfigs of other namespaces.
    node_permissions: NodePermissions,
}

/// A Monitoring and what it is evaluated from.
pub struct ObservedMonitoring {
    object: Arc<Monitoring>,
    family: Family,
    rules: MonitoringRules,
    /// Current status: the stored one, or a newer one that is not worth a write.
    before: Arc<MonitoringStatus>,
    /// Somebody restored an old status.
    rolled_back: bool,
    /// The spec, except for the sample, is not the one that was evaluated last.
    spec_changed: bool,
    /// Time alone may change an alarm or a value.
    due: bool,
    /// Pushed sample that was not handled before.
    sample: Option<Sample>,
    sources: SourceNews,
    node_values: BTreeMap<String, SourceResult>,
    node_values_changed: bool,
    /// Values of the sources `loop`, if they are due.
    loop_values: Option<Measurement>,
    now: Timestamp,
}

/// Decision about the alarms.
pub enum MonitoringPlan {
    /// Nothing can be decided before the sources have answered for the first time.
    AwaitSources,
    /// The next status. `evaluated`: the levels were evaluated. `write`: the status is worth a write.
    Evaluated { status: Arc<MonitoringStatus>, evaluated: bool, write: bool },
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

    async fn fetch(&self, key: &Key, memory: &mut MonitoringMemory) -> Result<(), Error> {
        if let Some((object, _)) = self.family(key) {
            memory.node_permissions = nodes::permissions(&self.ctx, &self.node_access, &object).await;
        }
        Ok(())
    }

    /// None also if the spec is invalid; the loop's status reports that.
    fn observe(self: &Arc<Self>, key: &Key, memory: &mut MonitoringMemory) -> Option<ObservedMonitoring> {
        let (object, family) = self.family(key)?;
        let rules = MonitoringRules::parse(&object.spec).ok()?;
        let now = self.ctx.now();
        let rolled_back = memory.status.is_ahead_of(&object);
        let before = if rolled_back { Arc::clone(memory.status.now()) } else { memory.status.of(&object) };
        let node_values = nodes::values(&self.ctx, &memory.node_permissions, &object);
        let mut observed = ObservedMonitoring {
            rolled_back,
            spec_changed: memory.evaluated_spec.as_ref() != Some(&without_sample(&object.spec)),
            due: false,
            sample: None,
            sources: self.polls.news(self, &object, rules.interval),
            node_values_changed: node_values != memory.node_values,
            node_values,
            loop_values: None,
            object,
            family,
            rules,
            before,
            now,
        };
        observed.due = observed.is_due(memory);
        observed.sample = new_sample(&observed, memory, &self.ctx.term);
        if observed.interval_ended(memory) || observed.node_values_changed {
            observed.loop_values = loops::values(&self.ctx, &observed.object, &observed.before);
        }
        Some(observed)
    }

    fn plan(&self, observed: &ObservedMonitoring, memory: &mut MonitoringMemory) -> MonitoringPlan {
        if matches!(observed.sources, SourceNews::Pending) {
            return MonitoringPlan::AwaitSources;
        }
        let interval_ended = observed.interval_ended(memory);
        let measurements = observed.measurements(interval_ended);
        let mut triggers: Vec<ObserveTrigger> = measurements.iter().map(ObserveTrigger::Measured).collect();
        let time = interval_ended || observed.spec_changed || observed.due || observed.rolled_back;
        if triggers.is_empty() && time {
            triggers.push(ObserveTrigger::Time);
        }
        let context = observed.context(&self.ctx.term);
        let (status, write) = observed.rules.observe_all(&observed.before, &triggers, context);
        MonitoringPlan::Evaluated {
            status: status.map_or_else(|| Arc::clone(&observed.before), Arc::new),
            evaluated: !triggers.is_empty(),
            write: write || observed.rolled_back,
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
        let recorded = match plan {
            MonitoringPlan::AwaitSources => {
                memory.status.keep(&observed.object, Some(Arc::clone(&observed.before)));
                Ok(Next::At(later(Some(observed.now), observed.rules.interval)))
            }
            MonitoringPlan::Evaluated { status, evaluated, write } => {
                self.record(observed, status, *write, memory).await.map(|()| {
                    self.remember(observed, *evaluated, memory);
                    next_evaluation(observed, memory)
                })
            }
        };
        let values = figures::numbers(&memory.status.now().values);
        let key = observed.object.id().key;
        self.ctx.metrics.loop_values.set(&key.namespace, &key.name, values);
        recorded
    }

    fn forget(&self, key: &Key) {
        self.polls.forget(key);
        self.ctx.metrics.loop_values.remove(&key.namespace, &key.name);
    }
}

impl MonitoringController {
    /// Returns the Monitoring of this name and its loop, if the loop owns it and is not being deleted.
    fn family(&self, key: &Key) -> Option<(Arc<Monitoring>, Family)> {
        let family = self.ctx.store.read(|world| world.family(key))?.own();
        if family.parent.metadata.deletion_timestamp.is_some() {
            return None;
        }
        Some((family.monitoring.clone()?, family))
    }

    async fn record(
        &self,
        observed: &ObservedMonitoring,
        status: &Arc<MonitoringStatus>,
        write: bool,
        memory: &mut MonitoringMemory,
    ) -> Result<(), Error> {
        let object = &observed.object;
        if !write {
            memory.status.keep(object, Some(Arc::clone(status)));
            return Ok(());
        }
        let id = object.id();
        let request = self.write(object, &id, status);
        self.ctx.write_own::<Monitoring, Monitoring>(STATUS.effect, &**object, request).await?;
        match self.ctx.store.read(|world| world.table::<Monitoring>().get(&id.key).cloned()) {
            Some(stored) => memory.status.keep(&stored, None),
            None => memory.status = StatusCache::default(),
        }
        Ok(())
    }

    /// Replaces the status of this version of the object. If a sender wrote another sample in the meantime (409),
    /// retries with a JSON patch that only requires the status that was read. The patch costs the API server more.
    async fn write(&self, object: &Monitoring, id: &Identity, status: &MonitoringStatus) -> Result<Monitoring, Error> {
        match self.ctx.writer.replace_status(STATUS.manager, id, status).await {
            Err(Error::Conflict(_)) => {
                self.ctx.writer.patch_status(STATUS.manager, &id.key, &patch(object, status)?).await
            }
            replaced => replaced,
        }
    }

    /// Notes what this reconcile has handled. If the status could not be written, the next reconcile handles it again.
    fn remember(&self, observed: &ObservedMonitoring, evaluated: bool, memory: &mut MonitoringMemory) {
        let ObservedMonitoring { object, sources, now, .. } = observed;
        // A sample triggers the evaluation of the levels, but does not restart the interval of polled sources.
        let only_pushed = object.spec.metrics.iter().all(|metric| metric.source.push.is_some());
        let restarts = observed.interval_ended(memory) || (only_pushed && evaluated);
        if restarts || memory.interval_started.is_none() {
            memory.interval_started = Some(*now);
        }
        if let SourceNews::Polled(Some(answer)) = sources {
            self.polls.acknowledge(&object.id().key, answer);
        }
        if evaluated {
            memory.evaluated_at = Some(*now);
        }
        if let Some(sample) = &observed.sample {
            memory.sample = Some(sample.clone());
        }
        memory.evaluated_spec = Some(without_sample(&object.spec));
        memory.node_values.clone_from(&observed.node_values);
    }
}

impl ObservedMonitoring {
    fn stored(&self) -> &MonitoringStatus {
        stored_status(&self.object)
    }

    /// Returns the stored state of the loop's children that the stage depends on.
    fn context<'a>(&'a self, term: &'a str) -> ObserveContext<'a> {
        let executor = self.family.execution.as_deref().and_then(Executor::of);
        let decided = self.family.decision.as_ref().and_then(|object| object.status.as_ref());
        let awaited = decided.is_some_and(|status| settlement::awaits_execution(status, executor));
        ObserveContext { last: latest_tag(&self.family), written: self.stored(), awaited, term, now: self.now }
    }

    /// Whether the time has come at which the levels must be evaluated even if nothing new arrives.
    fn is_due(&self, memory: &MonitoringMemory) -> bool {
        // A time in the future comes from before the clock was set back.
        let evaluated_at = memory.evaluated_at.filter(|last| *last <= self.now).unwrap_or(Timestamp::MIN);
        let due = self.rules.next_look(&self.before, self.stored(), evaluated_at);
        due.is_some_and(|due| due <= self.now)
    }

    /// Whether the polled sources have new answers. Without such sources, whether an interval has passed.
    fn interval_ended(&self, memory: &MonitoringMemory) -> bool {
        match &self.sources {
            SourceNews::Pending => false,
            SourceNews::Polled(answer) => answer.is_some(),
            SourceNews::NoSources => later(memory.interval_started, self.rules.interval) <= self.now,
        }
    }

    /// Returns the new values, in the order in which they count: the current values of sources, then the pushed sample.
    fn measurements(&self, interval_ended: bool) -> Vec<Measurement> {
        let mut measurements = Vec::new();
        if interval_ended || self.node_values_changed {
            let polled = match &self.sources {
                SourceNews::Polled(Some(answer)) => Answer::clone(answer),
                SourceNews::Polled(None) | SourceNews::NoSources | SourceNews::Pending => Answer::new(),
            };
            measurements.extend(merge(polled, self.node_values.clone(), self.loop_values.clone()));
        }
        measurements.extend(self.sample.as_ref().map(|sample| self.rules.pushed(sample)));
        measurements
    }
}

/// Returns the current values of all sources except pushed ones; None if no metric has such a source.
pub async fn current_values(
    ctx: &Context,
    access: &NodeAccess,
    object: &Monitoring,
    before: &MonitoringStatus,
    polled: BTreeMap<String, SourceResult>,
) -> Option<Measurement> {
    let permissions = nodes::permissions(ctx, access, object).await;
    merge(polled, nodes::values(ctx, &permissions, object), loops::values(ctx, object, before))
}

fn merge(
    polled: BTreeMap<String, SourceResult>,
    node_values: BTreeMap<String, SourceResult>,
    loop_values: Option<Measurement>,
) -> Option<Measurement> {
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
    let ObservedMonitoring { rules, now, .. } = observed;
    let pause = match &observed.sources {
        // An answer enqueues the loop. The longer pause covers a missing answer.
        SourceNews::Polled(_) => rules.interval * 2,
        SourceNews::NoSources | SourceNews::Pending => rules.interval,
    };
    let interval_ends = later(memory.interval_started, pause).max(*now);
    let stored = memory.status.stored().map_or(&*EMPTY, |object| stored_status(object));
    let next_look = rules.next_look(memory.status.now(), stored, *now);
    Next::earliest([next_look, Some(interval_ends), memory.node_permissions.expire()])
}

static EMPTY: LazyLock<MonitoringStatus> = LazyLock::new(MonitoringStatus::default);

fn stored_status(object: &Monitoring) -> &MonitoringStatus {
    object.status.as_ref().unwrap_or(&EMPTY)
}

fn without_sample(spec: &MonitoringSpec) -> MonitoringSpec {
    MonitoringSpec { sample: None, ..spec.clone() }
}

/// Returns a JSON patch that replaces the status if it still has the tag that was read. A late request of a process
/// that has ended may have changed it.
fn patch(object: &Monitoring, status: &MonitoringStatus) -> Result<Vec<serde_json::Value>, Error> {
    use serde_json::json;
    let malformed = |error: serde_json::Error| Error::Malformed(error.to_string());
    let test = |path: &str, value: serde_json::Value| json!({"op": "test", "path": path, "value": value});
    let uid = test("/metadata/uid", json!(object.metadata.uid));
    let unchanged = match object.status.as_ref().and_then(|status| status.tag.as_ref()) {
        Some(tag) => test("/status/tag", serde_json::to_value(tag).map_err(malformed)?),
        // Without a tag there is no earlier status to protect.
        None => test("/metadata/resourceVersion", json!(object.metadata.resource_version)),
    };
    let value = serde_json::to_value(status).map_err(malformed)?;
    Ok(vec![uid, unchanged, json!({"op": "add", "path": "/status", "value": value})])
}

/// Returns the pushed sample if it was not accepted or refused before. After a restart the tags decide: a sample that
/// is not newer has been handled.
fn new_sample(observed: &ObservedMonitoring, memory: &MonitoringMemory, term: &str) -> Option<Sample> {
    let sample = observed.object.spec.sample.as_ref()?;
    let is_new = match &memory.sample {
        Some(handled) => handled != sample,
        None => observed.rules.may_be_news(&observed.before, sample, observed.context(term)),
    };
    is_new.then(|| sample.clone())
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
