//! The first hop: samples that were pushed, and what other loops decided, become alarms.
//!
//! Reads the sample and writes the status; what counts is decided by the stage.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::objects::{self, Precondition};
use super::{ClosedLoops, Pass};
use crate::api::closed_loop::source::LoopHistory;
use crate::api::decision::DecisionStatus;
use crate::api::monitoring::{Monitoring, MonitoringStatus};
use crate::api::sample::{Sample, Tag};
use crate::controllers::error::Error;
use crate::logic::closed_loop::assessment::Assessment;
use crate::logic::closed_loop::decision::Executor;
use crate::logic::closed_loop::monitoring::{Around, Got, Measurement, News, Watch};
use crate::logic::closed_loop::{last_served, settlement, tag};
use crate::logic::facts::Key;
use crate::logic::world::loops::Family;

/// Takes what is new, and writes what is worth it.
///
/// # Errors
/// The write did not succeed; nothing is taken as seen then.
pub async fn hop(ctx: &ClosedLoops, pass: &mut Pass, assessment: &Assessment, watch: &Watch) -> Result<(), Error> {
    let Some(object) = pass.family.monitoring.clone() else { return Ok(()) };
    let now = ctx.now();
    let uid = object.uid().unwrap_or_default();
    let before = pass.memory.monitoring.of(&uid, object.status.as_ref());
    let next = pass.memory.looked.and_then(|looked| looked.checked_add(watch.interval).ok());
    let ticked = next.is_none_or(|next| next <= now);
    let anew = pass.memory.watched.as_ref() != Some(&assessment.children.monitoring);
    // What time alone lets through is looked at when it is due, so that nothing is done about what is stale by then.
    let due = [watch.ripe(&before), pass.memory.again].into_iter().flatten().min();
    let last = {
        let decided = pass.family.decision.as_ref().and_then(|object| object.status.as_ref()?.tag.as_ref());
        let done = pass.family.execution.as_ref().and_then(|object| object.status.as_ref()?.tag.as_ref());
        let remembered = pass.memory.decision.now().tag.as_ref();
        tag::latest([before.tag.as_ref(), decided, done, remembered]).cloned()
    };
    let sample = object.spec.sample.clone().filter(|sample| is_new(pass, last.as_ref(), sample));
    let measurement = match &sample {
        Some(sample) => Some(watch.pushed(sample)),
        None if ticked => asked(ctx, pass, &object, &before, now),
        None => None,
    };
    if measurement.is_none() && !ticked && !anew && due.is_none_or(|due| due > now) {
        pass.memory.monitoring.keep(&uid, object.status.as_ref(), before);
        pass.again(next.into_iter().chain(due).min().unwrap_or(now));
        return Ok(());
    }
    let news = measurement.as_ref().map_or(News::Time, News::Measured);
    let look = |generation| watch.observe(&before, news, Around { last: last.as_ref(), generation, now });
    // A sample is part of the spec, so that each is another generation: that alone is not worth a write, nor is a restart.
    let real = object.metadata.generation.unwrap_or(0);
    let other = anew && pass.memory.watched.is_some();
    let seen = look(before.observed_generation.filter(|seen| *seen > 0 && !other).unwrap_or(real));
    let status = if seen.write {
        objects::record(ctx, pass, &*object, json!(look(real).status), Precondition::Uid).await?;
        pass.family.monitoring.as_ref().and_then(|object| object.status.clone()).unwrap_or_default()
    } else {
        seen.status
    };
    let stored = pass.family.monitoring.as_ref().and_then(|object| object.status.as_ref());
    pass.memory.monitoring.keep(&uid, stored, status);
    pass.memory.watched = Some(assessment.children.monitoring.clone());
    if sample.is_some() {
        pass.memory.sample = sample;
    }
    if ticked || measurement.is_some() {
        pass.memory.looked = Some(now);
    }
    let looked = pass.memory.looked.unwrap_or(now);
    pass.again(looked.checked_add(watch.interval).unwrap_or(now));
    if let Some(ripe) = watch.ripe(pass.memory.monitoring.now()) {
        pass.again(ripe);
    }
    Ok(())
}

/// Whether this sample was not taken or refused before. After a restart only the last tag can tell: what is not younger has
/// been looked at.
fn is_new(pass: &Pass, last: Option<&Tag>, sample: &Sample) -> bool {
    match &pass.memory.sample {
        Some(known) => known != sample,
        None => {
            let time: Option<Timestamp> = sample.time.parse().ok();
            last.is_none_or(|last| time.is_none_or(|time| time > last.time.0))
        }
    }
}

/// What the other loops say of the metrics that ask for it; none where no metric does.
fn asked(
    ctx: &ClosedLoops,
    pass: &Pass,
    object: &Arc<Monitoring>,
    before: &MonitoringStatus,
    now: Timestamp,
) -> Option<Measurement> {
    let metrics = object.spec.metrics.iter();
    let sources: Vec<(&String, &LoopHistory)> =
        metrics.filter_map(|metric| Some((&metric.name, metric.source.loop_.as_ref()?))).collect();
    if sources.is_empty() {
        return None;
    }
    let target = object.spec.target.as_ref().map(|target| target.name.as_str()).unwrap_or_default();
    let mut values: BTreeMap<String, Got> = BTreeMap::new();
    let mut found = Vec::new();
    for (metric, source) in sources {
        let name = source.name.as_deref().unwrap_or(target);
        let key = Key::new(pass.key.namespace.clone(), name);
        let Some((rank, status)) = ctx.loops.read(|loops| loops.family(&key)).and_then(|one| decided(one, now)) else {
            values.insert(metric.clone(), Err(format!("there is no loop {name} that decides")));
            continue;
        };
        let known = before.last_served.iter().find(|known| &known.metric == metric);
        let window = source.window.map_or(last_served::DEFAULT_WINDOW, i64::from);
        let one = last_served::find(metric, known, &rank, &status, window);
        values.insert(metric.clone(), Ok(last_served::imbalance(&one).to_string()));
        found.push((metric.clone(), one));
    }
    Some(Measurement { time: now.to_string(), values, last_served: found })
}

/// What a loop decided, and by which rank.
fn decided(family: Family, now: Timestamp) -> Option<(Vec<String>, DecisionStatus)> {
    let family = family.own();
    let decision = family.decision?;
    let executor = family.execution.as_deref().and_then(Executor::of);
    Some((decision.spec.rank.clone(), settlement::told(decision.status.as_ref()?, executor, now)))
}
