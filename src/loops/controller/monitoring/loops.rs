//! The source `loop`: reads another loop's decisions from its cached objects.

use std::collections::BTreeMap;

use jiff::Timestamp;

use ganglion_api::closed_loop::source::LoopHistory;
use ganglion_api::decision::DecisionStatus;
use ganglion_api::monitoring::{Monitoring, MonitoringStatus};
use ganglion_core::facts::Key;
use ganglion_core::world::Fact;
use ganglion_loops_plan::decision::{Executor, settlement};
use ganglion_loops_plan::monitoring::{Measurement, SourceResult};
use ganglion_loops_plan::tuning::{effective_policy, last_served};
use ganglion_loops_plan::world::{Family, LoopsWorld};
use ganglion_runtime::context::Context;

/// Evaluates the sources `loop` of the metrics; None if no metric has one.
pub fn values(ctx: &Context, object: &Monitoring, before: &MonitoringStatus) -> Option<Measurement> {
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
        let key = Key::new(object.id().key.namespace, name);
        let family = ctx.store.read(|world| world.family(&key));
        let Some((rank, status)) = family.and_then(|family| decided(family, ctx.now())) else {
            values.insert(metric.clone(), Err(format!("there is no loop {name} with a Decision")));
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

/// Returns the effective rank of a loop and the status of its Decision. The rank includes tuning that the loop may not
/// have applied yet.
fn decided(family: Family, now: Timestamp) -> Option<(Vec<String>, DecisionStatus)> {
    let family = family.own();
    let decision = family.decision?;
    let executor = family.execution.as_deref().and_then(Executor::of);
    let status = family.parent.status.clone().unwrap_or_default();
    let policy = effective_policy::effective(&family.parent.spec, &status.tuning, status.effective.as_ref(), now);
    let rank = policy.map_or_else(|_| decision.spec.rank.clone(), |policy| policy.rank);
    Some((rank, settlement::with_outcome(decision.status.as_ref()?, executor, now)))
}
