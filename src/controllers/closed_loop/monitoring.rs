//! The first hop: samples that were pushed, what sources answered, and what other loops decided become alarms.
//!
//! Reads the sample and writes the status; what counts is decided by the stage.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::memory::StatusCache;
use super::objects::{self, Precondition};
use super::sources::{self, PollState};
use super::{ClosedLoopController, Pass};
use crate::api::closed_loop::source::LoopHistory;
use crate::api::decision::DecisionStatus;
use crate::api::monitoring::{Monitoring, MonitoringStatus};
use crate::api::sample::{Sample, Tag};
use crate::controllers::error::Error;
use crate::logic::closed_loop::decision::Executor;
use crate::logic::closed_loop::decision::settlement;
use crate::logic::closed_loop::monitoring::tag;
use crate::logic::closed_loop::monitoring::{
    Measurement, MonitoringRules, Observation, ObserveContext, ObserveTrigger, SourceResult,
};
use crate::logic::closed_loop::tuning::{effective_policy, last_served};
use crate::logic::closed_loop::validate::assessment::Assessment;
use crate::logic::facts::Key;
use crate::logic::world::loops::Family;

/// Takes what is new, and writes what is worth it. False as long as the sources have not answered for the first time, or while
/// there is no Monitoring: then there is nothing to decide on.
///
/// # Errors
/// The write did not succeed; nothing is taken as seen then.
pub async fn hop(
    ctx: &Arc<ClosedLoopController>,
    pass: &mut Pass,
    assessment: &Assessment,
    watch: &MonitoringRules,
) -> Result<bool, Error> {
    // The write insists on no version, since senders write beside it: it must not start from what an earlier one, whose
    // answer did not come, may have left behind.
    if pass.memory.unclear {
        objects::refresh::<Monitoring>(ctx, pass).await?;
        pass.memory.unclear = false;
    }
    let Some(object) = pass.family.monitoring.clone() else { return Ok(false) };
    let now = ctx.now();
    let put_back = pass.memory.monitoring.is_ahead_of(&object);
    let memory = &pass.memory.monitoring;
    let before = if put_back { Arc::clone(memory.now()) } else { memory.of(&object) };
    let anew = pass.memory.watched.as_ref() != Some(&assessment.children.monitoring);
    // What time alone lets through is looked at when it is due, so that nothing is done about what is stale by then.
    let due = [watch.raises_at(&before), pass.memory.again].into_iter().flatten().min().is_some_and(|due| due <= now);
    let last = last_tag(pass);
    let around = ObserveContext { last: last.as_ref(), now };
    let sample = new_sample(pass, &object, watch, &before, around);
    let (answer, pause) = match sources::turn(ctx, &pass.key, &assessment.children.monitoring, watch.interval) {
        PollState::Waits => {
            pass.memory.monitoring.keep(&object, Some(before));
            pass.again(later(Some(now), watch.interval));
            return Ok(false);
        }
        // An answer wakes the loop; the pause is for the case that none comes.
        PollState::Goes(answer) => (answer, watch.interval * 2),
        PollState::NoSources => {
            let ticked = later(pass.memory.looked, watch.interval) <= now;
            (ticked.then(BTreeMap::new), watch.interval)
        }
    };
    let ticked = answer.is_some();
    let answer = answer.and_then(|answer| answered(ctx, pass, &object, &before, answer));
    let pushed = sample.as_ref().map(|sample| watch.pushed(sample));
    let mut news: Vec<ObserveTrigger> = answer.iter().chain(&pushed).map(ObserveTrigger::Measured).collect();
    if news.is_empty() && (ticked || anew || due || put_back) {
        news.push(ObserveTrigger::Time);
    }
    let mut seen: Option<Observation> = None;
    for one in &news {
        let status = seen.as_ref().map_or(&*before, |seen| &seen.status);
        let next = watch.observe(status, *one, around);
        seen = Some(Observation { write: next.write || seen.is_some_and(|seen| seen.write), ..next });
    }
    let next = seen.map_or((before, false), |seen| (Arc::new(seen.status), seen.write || put_back));
    keep(ctx, pass, &object, next).await?;
    if anew {
        pass.memory.watched = Some(assessment.children.monitoring.clone());
    }
    pass.memory.sample = sample.or(pass.memory.sample.take());
    // A sample shows the levels as well as time does; but who is asked is asked in time, however many samples come.
    let only_pushed = object.spec.metrics.iter().all(|metric| metric.source.push.is_some());
    if ticked || (only_pushed && !news.is_empty()) || pass.memory.looked.is_none() {
        pass.memory.looked = Some(now);
    }
    pass.again(later(pass.memory.looked, pause).max(now));
    if let Some(ripe) = watch.raises_at(pass.memory.monitoring.now()) {
        pass.again(ripe);
    }
    Ok(true)
}

/// Writes the status where it is worth it, and keeps it either way.
async fn keep(
    ctx: &ClosedLoopController,
    pass: &mut Pass,
    object: &Monitoring,
    (status, write): (Arc<MonitoringStatus>, bool),
) -> Result<(), Error> {
    if write {
        pass.memory.unclear = true;
        objects::record(ctx, pass, object, &*status, Precondition::Uid).await?;
        pass.memory.unclear = false;
    }
    match &pass.family.monitoring {
        Some(stored) => pass.memory.monitoring.keep(stored, (!write).then_some(status)),
        None => pass.memory.monitoring = StatusCache::default(),
    }
    Ok(())
}

/// The sample that was pushed, where it was not taken or refused before. After a restart only the tags can tell: what is
/// not younger has been looked at.
fn new_sample(
    pass: &Pass,
    object: &Monitoring,
    watch: &MonitoringRules,
    before: &MonitoringStatus,
    around: ObserveContext,
) -> Option<Sample> {
    let is_new = |sample: &&Sample| match &pass.memory.sample {
        Some(known) => known != *sample,
        None => watch.may_be_news(before, sample, around),
    };
    object.spec.sample.as_ref().filter(is_new).cloned()
}

/// So much later than that; at once where there was nothing yet.
fn later(time: Option<Timestamp>, span: SignedDuration) -> Timestamp {
    time.and_then(|time| time.checked_add(span).ok()).unwrap_or(Timestamp::MIN)
}

/// The last tag that any later hop of the loop has seen.
fn last_tag(pass: &Pass) -> Option<Tag> {
    let decided = pass.family.decision.as_ref().and_then(|object| object.status.as_ref()?.tag.as_ref());
    let done = pass.family.execution.as_ref().and_then(|object| object.status.as_ref()?.tag.as_ref());
    let remembered = pass.memory.decision.now().tag.as_ref();
    tag::latest([decided, done, remembered]).cloned()
}

/// What was asked for, with what other loops say; none where nobody is asked.
fn answered(
    ctx: &ClosedLoopController,
    pass: &Pass,
    object: &Arc<Monitoring>,
    before: &MonitoringStatus,
    answer: BTreeMap<String, SourceResult>,
) -> Option<Measurement> {
    let loops = asked(ctx, pass, object, before);
    if answer.is_empty() {
        return loops;
    }
    let mut all = loops.unwrap_or_default();
    all.values.extend(answer);
    Some(all)
}

/// What the other loops say of the metrics that ask for it; none where no metric does.
fn asked(
    ctx: &ClosedLoopController,
    pass: &Pass,
    object: &Arc<Monitoring>,
    before: &MonitoringStatus,
) -> Option<Measurement> {
    let metrics = object.spec.metrics.iter();
    let sources: Vec<(&String, &LoopHistory)> =
        metrics.filter_map(|metric| Some((&metric.name, metric.source.loop_.as_ref()?))).collect();
    if sources.is_empty() {
        return None;
    }
    let target = object.spec.target.as_ref().map(|target| target.name.as_str()).unwrap_or_default();
    let mut values: BTreeMap<String, SourceResult> = BTreeMap::new();
    let mut found = Vec::new();
    for (metric, source) in sources {
        let name = source.name.as_deref().unwrap_or(target);
        let key = Key::new(pass.key.namespace.clone(), name);
        let family = ctx.loops.read(|loops| loops.family(&key));
        let Some((rank, status)) = family.and_then(|family| decided(family, ctx.now())) else {
            values.insert(metric.clone(), Err(format!("there is no loop {name} that decides")));
            continue;
        };
        let known = before.last_served.iter().find(|known| &known.metric == metric);
        let window = source.window.map_or(last_served::DEFAULT_WINDOW, i64::from);
        let one = last_served::find_least_served(metric, known, &rank, &status, window);
        values.insert(metric.clone(), Ok(last_served::imbalance(&one).to_string().into()));
        found.push((metric.clone(), one));
    }
    Some(Measurement { pushed: None, values, last_served: found })
}

/// What a loop decided, and by which rank: the one that holds with what it was told by others, though it may not have taken
/// that up yet.
fn decided(family: Family, now: Timestamp) -> Option<(Vec<String>, DecisionStatus)> {
    let family = family.own();
    let decision = family.decision?;
    let executor = family.execution.as_deref().and_then(Executor::of);
    let status = family.parent.status.clone().unwrap_or_default();
    let policy = effective_policy::effective(&family.parent.spec, &status.tuning, status.effective.as_ref(), now);
    let rank = policy.map_or_else(|_| decision.spec.rank.clone(), |policy| policy.rank);
    Some((rank, settlement::with_outcome(decision.status.as_ref()?, executor, now)))
}
