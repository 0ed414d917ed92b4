//! The monitoring controller, the first stage of a loop: it turns pushed samples, answers of sources, and decisions of
//! other loops into alarms.
//!
//! | step | content |
//! |---|---|
//! | observe | the Monitoring, the answers of its sources (`sources/`, polled in separate tasks) |
//! | | the decisions of other loops (`loops`), the statuses of NodeConfigs (`nodes`) |
//! | plan | [`ganglion_loops_plan::monitoring`] |
//! | act | nothing |
//! | report | `Monitoring.status`, if it is still the status that was read; senders write the spec at the same time |
//!
//! A status that is not worth a write stays in memory and may be lost in a crash.

mod loops;
mod nodes;
mod sources;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::status_cache::StatusCache;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::marks;
use ganglion_api::monitoring::{Monitoring, MonitoringSpec, MonitoringStatus};
use ganglion_api::sample::{Sample, Tag};
use ganglion_core::facts::{Identity, Key};
use ganglion_core::world::Fact;
use ganglion_core::world::loops::Family;
use ganglion_loops_plan::decision::{Executor, settlement};
use ganglion_loops_plan::figures;
use ganglion_loops_plan::monitoring::tag;
use ganglion_loops_plan::monitoring::{
    Measurement, MonitoringRules, Observation, ObserveContext, ObserveTrigger, SourceResult,
};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::invalid::{self, StatusWrite};
use ganglion_runtime::run::{Controller, ReconcileResult};
pub use nodes::NodeAccess;
use nodes::NodeAnswer;
pub use sources::{PollRequest, Sources};
use sources::{PollState, Polls};

/// Controller and its dependencies.
pub struct MonitoringController {
    pub ctx: Context,
    pub sources: Sources,
    pub memory: MonitoringMemory,
}

/// In-memory state between reconciles.
#[derive(Default)]
pub struct MonitoringMemory {
    objects: Mutex<HashMap<Key, Memory>>,
    polls: Polls,
    node_access: NodeAccess,
}

/// In-memory state of one Monitoring.
#[derive(Default)]
struct Memory {
    status: StatusCache<Monitoring>,
    /// Last sample that was accepted or refused.
    sample: Option<Sample>,
    /// Spec, without the sample, at the last evaluation of the levels.
    watched: Option<MonitoringSpec>,
    /// Time of the last evaluation of the levels.
    observed: Option<Timestamp>,
    /// Start of the current interval of the sources.
    looked: Option<Timestamp>,
    /// Last values of the sources `nodeConfig`.
    nodes: BTreeMap<String, SourceResult>,
}

impl MonitoringMemory {
    fn objects(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for MonitoringController {
    type Kind = Monitoring;
    const NAME: &'static str = "monitoring";

    async fn reconcile(self: Arc<Self>, key: Key) -> ReconcileResult {
        let (reason, by) =
            (LoopReason::InvalidObject.as_str(), (marks::MONITORING_STATUS_MANAGER, StatusWrite::Update));
        if let Some(done) = invalid::pass::<Monitoring>(&self.ctx, &key, reason, by).await {
            return done;
        }
        let mut memory = self.memory.objects().remove(&key).unwrap_or_default();
        let alive = |family: &Family| family.parent.metadata.deletion_timestamp.is_none();
        let family = self.ctx.store.read(|world| world.family(&key)).map(Family::own).filter(alive);
        let read =
            family.and_then(|family| Some((MonitoringRules::parse(&family.monitoring.as_ref()?.spec).ok()?, family)));
        // The loop's status reports an invalid spec.
        let Some((rules, family)) = read else {
            self.memory.polls.forget(&key);
            self.ctx.metrics.loop_values.remove(&key.namespace, &key.name);
            return self.ctx.finish(Ok(None));
        };
        let done = self.observe(&rules, &family, &mut memory).await;
        let values = figures::numbers(&memory.status.now().values);
        self.ctx.metrics.loop_values.set(&key.namespace, &key.name, values);
        self.memory.objects().insert(key, memory);
        self.ctx.finish(done)
    }
}

impl MonitoringController {
    /// Evaluates new values and writes the status if it is worth a write. Returns the time of the next reconcile.
    /// Writes nothing until the sources have answered for the first time, since there is nothing to decide on.
    async fn observe(
        self: &Arc<Self>,
        rules: &MonitoringRules,
        family: &Family,
        memory: &mut Memory,
    ) -> Result<Option<Timestamp>, Error> {
        let Some(object) = family.monitoring.clone() else { return Ok(None) };
        let now = self.ctx.now();
        let put_back = memory.status.is_ahead_of(&object);
        let before = if put_back { Arc::clone(memory.status.now()) } else { memory.status.of(&object) };
        let watched = MonitoringSpec { sample: None, ..object.spec.clone() };
        let anew = memory.watched.as_ref() != Some(&watched);
        let nothing = MonitoringStatus::default();
        let written = object.status.as_ref().unwrap_or(&nothing);
        let context = context(&self.ctx, written, family, now);
        let observed = memory.observed.filter(|last| *last <= now).unwrap_or(Timestamp::MIN);
        let due = rules.next_look(&before, written, observed).is_some_and(|due| due <= now);
        let sample = new_sample(memory, &object, rules, &before, context);
        let (answer, pause) = match self.memory.polls.turn(self, &object, rules.interval) {
            PollState::Waits => {
                memory.status.keep(&object, Some(before));
                return Ok(Some(later(Some(now), rules.interval)));
            }
            // An answer enqueues the loop. The longer pause covers a missing answer.
            PollState::Goes(answer) => (answer, rules.interval * 2),
            PollState::NoSources => {
                let ticked = later(memory.looked, rules.interval) <= now;
                (ticked.then(BTreeMap::new), rules.interval)
            }
        };
        let ticked = answer.is_some();
        let NodeAnswer { values: nodes, again: ask_again } =
            nodes::asked(&self.ctx, &self.memory.node_access, &object).await;
        let answer = answer.or_else(|| (nodes != memory.nodes).then(BTreeMap::new));
        memory.nodes.clone_from(&nodes);
        let answer = answer.and_then(|answer| merged(answer, nodes, loops::asked(&self.ctx, &object, &before)));
        let pushed = sample.as_ref().map(|sample| rules.pushed(sample));
        let mut triggers: Vec<ObserveTrigger> = answer.iter().chain(&pushed).map(ObserveTrigger::Measured).collect();
        if triggers.is_empty() && (ticked || anew || due || put_back) {
            triggers.push(ObserveTrigger::Time);
        }
        let (status, write) = observe_all(rules, before, &triggers, context);
        self.keep(&object, memory, (status, write || put_back)).await?;
        if !triggers.is_empty() {
            memory.observed = Some(now);
        }
        memory.watched = Some(watched);
        memory.sample = sample.or(memory.sample.take());
        // A sample triggers the evaluation of the levels, but does not restart the interval of polled sources.
        let only_pushed = object.spec.metrics.iter().all(|metric| metric.source.push.is_some());
        if ticked || (only_pushed && !triggers.is_empty()) || memory.looked.is_none() {
            memory.looked = Some(now);
        }
        let again = later(memory.looked, pause).max(now);
        let written = memory.status.stored().and_then(|object| object.status.as_ref()).unwrap_or(&nothing);
        Ok(rules.next_look(memory.status.now(), written, now).into_iter().chain([again]).chain(ask_again).min())
    }

    /// Replaces the status of this version of the object. If a sender wrote another sample in the meantime (409),
    /// retries with a JSON patch that only requires the status that was read. The patch costs the API server more.
    async fn write(&self, object: &Monitoring, id: &Identity, status: &MonitoringStatus) -> Result<Monitoring, Error> {
        let (writer, manager) = (&self.ctx.writer, marks::MONITORING_STATUS_MANAGER);
        match writer.replace_status(manager, id, status).await {
            Err(Error::Conflict(_)) => writer.patch_status(manager, &id.key, &patch(object, status)?).await,
            done => done,
        }
    }

    /// Writes the status if it is worth a write, and caches it in either case.
    async fn keep(
        &self,
        object: &Arc<Monitoring>,
        memory: &mut Memory,
        (status, write): (Arc<MonitoringStatus>, bool),
    ) -> Result<(), Error> {
        if !write {
            memory.status.keep(object, Some(status));
            return Ok(());
        }
        let id = object.id();
        let write = self.write(object, &id, &status);
        self.ctx.write_own::<Monitoring, Monitoring>("RecordMonitoring", &**object, write).await?;
        match self.ctx.store.read(|world| world.table::<Monitoring>().get(&id.key).cloned()) {
            Some(stored) => memory.status.keep(&stored, None),
            None => memory.status = StatusCache::default(),
        }
        Ok(())
    }
}

/// Returns the current values of all sources except pushed ones; None if no metric has such a source.
pub async fn answered(
    ctx: &Context,
    access: &NodeAccess,
    object: &Monitoring,
    before: &MonitoringStatus,
    polled: BTreeMap<String, SourceResult>,
) -> Option<Measurement> {
    merged(polled, nodes::asked(ctx, access, object).await.values, loops::asked(ctx, object, before))
}

fn merged(
    polled: BTreeMap<String, SourceResult>,
    nodes: BTreeMap<String, SourceResult>,
    loops: Option<Measurement>,
) -> Option<Measurement> {
    if polled.is_empty() && nodes.is_empty() {
        return loops;
    }
    let mut all = loops.unwrap_or_default();
    all.values.extend(polled);
    all.values.extend(nodes);
    Some(all)
}

/// Applies all triggers in order. Returns the resulting status and whether it is worth a write.
fn observe_all(
    rules: &MonitoringRules,
    before: Arc<MonitoringStatus>,
    triggers: &[ObserveTrigger],
    context: ObserveContext,
) -> (Arc<MonitoringStatus>, bool) {
    let mut seen: Option<Observation> = None;
    for trigger in triggers {
        let status = seen.as_ref().map_or(&*before, |seen| &seen.status);
        let next = rules.observe(status, *trigger, context);
        seen = Some(Observation { write: next.write || seen.is_some_and(|seen| seen.write), ..next });
    }
    seen.map_or((before, false), |seen| (Arc::new(seen.status), seen.write))
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

/// Returns the stored state of the loop's children that the stage depends on.
fn context<'a>(
    ctx: &'a Context,
    written: &'a MonitoringStatus,
    family: &'a Family,
    now: Timestamp,
) -> ObserveContext<'a> {
    let executor = family.execution.as_deref().and_then(Executor::of);
    let decided = family.decision.as_ref().and_then(|object| object.status.as_ref());
    let awaited = decided.is_some_and(|status| settlement::awaits_execution(status, executor));
    ObserveContext { last: last_tag(family), written, awaited, term: &ctx.term, now }
}

/// Returns the pushed sample if it was not accepted or refused before. After a restart the tags decide: a sample that
/// is not newer has been handled.
fn new_sample(
    memory: &Memory,
    object: &Monitoring,
    rules: &MonitoringRules,
    before: &MonitoringStatus,
    context: ObserveContext,
) -> Option<Sample> {
    let is_new = |sample: &&Sample| match &memory.sample {
        Some(known) => known != *sample,
        None => rules.may_be_news(before, sample, context),
    };
    object.spec.sample.as_ref().filter(is_new).cloned()
}

/// Adds the duration to the time. Returns `Timestamp::MIN`, which is always due, if there is no time.
fn later(time: Option<Timestamp>, duration: SignedDuration) -> Timestamp {
    time.and_then(|time| time.checked_add(duration).ok()).unwrap_or(Timestamp::MIN)
}

/// Returns the newest tag that a later stage of the loop has recorded.
fn last_tag(family: &Family) -> Option<&Tag> {
    let decided = family.decision.as_ref().and_then(|object| object.status.as_ref()?.tag.as_ref());
    let done = family.execution.as_ref().and_then(|object| object.status.as_ref()?.tag.as_ref());
    tag::latest([decided, done])
}
