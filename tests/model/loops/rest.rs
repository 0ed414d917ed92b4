//! Rules that must hold when nothing is left to do.

use std::collections::BTreeMap;

use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::{Execution, ExecutionState};
use ganglion_api::monitoring::MonitoringStatus;
use ganglion_loops_plan::decision::Executor;
use ganglion_loops_plan::decision::settlement;
use serde_json::Value;

use super::api::{Api, Sort};
use super::driver::object;
use super::process::now;
use crate::check::{Violation, violation};

fn parsed<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("what is stored can be read")
}

/// The last sample, low in `a`, must have led to a decision or to a reported reason against one.
pub fn served(api: &Api) -> Result<(), Violation> {
    let decision: Decision = parsed(object(api, Sort::Decision, "web")?);
    let status = decision.status.unwrap_or_default();
    let chosen = status.chosen.as_ref().is_some_and(|chosen| chosen.metric == "a");
    let said = chosen || status.rejected.iter().any(|one| one.when.is_about("a"));
    let message = object(api, Sort::Monitoring, "web")?["status"]["message"].clone();
    if message != "Low a" || !said {
        return violation("NotDecided", format!("{message}, {:?} {:?}", status.message, status.rejected));
    }
    Ok(())
}

/// The values of the last sample, pushed at this time, must count from its arrival and not from the sender's time.
pub fn arrived(api: &Api, pushed: i64) -> Result<(), Violation> {
    let status: MonitoringStatus = parsed(&object(api, Sort::Monitoring, "web")?["status"]);
    match status.values.iter().find(|reading| reading.at.0.as_millisecond() < pushed) {
        Some(early) => violation("SenderTime", format!("{early:?}, but it was pushed at {pushed}")),
        None => Ok(()),
    }
}

/// The operator must write nothing but heartbeats.
pub fn calm(before: &BTreeMap<(Sort, String), u64>, after: &BTreeMap<(Sort, String), u64>) -> Result<(), Violation> {
    for (key, count) in after {
        let more = count - before.get(key).copied().unwrap_or(0);
        // Eleven minutes contain at most three heartbeats, one per five minutes.
        let most = if key.0 == Sort::Monitoring { 3 } else { 0 };
        if more > most {
            return violation("NoRest", format!("{more} writes of {key:?} in eleven minutes"));
        }
    }
    Ok(())
}

/// The statuses must be true.
pub fn truth(api: &Api) -> Result<(), Violation> {
    let parent: ClosedLoop = parsed(object(api, Sort::Loop, "web")?);
    let status = parent.status.clone().unwrap_or_default();
    let generation = parent.metadata.generation;
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    if status.observed_generation != generation || ready.is_none_or(|ready| ready.observed_generation != generation) {
        return violation("Untrue", format!("generation {generation:?}, and {status:?}"));
    }
    let execution: Execution = parsed(object(api, Sort::Execution, "web")?);
    let open = |state| matches!(state, Some(ExecutionState::Claimed | ExecutionState::Executing));
    if execution.status.as_ref().is_none_or(|status| status.claim.is_some() || open(status.state)) {
        return violation("Unfinished", format!("{:?}", execution.status));
    }
    let decision: Decision = parsed(object(api, Sort::Decision, "web")?);
    let stored = decision.status.unwrap_or_default();
    let settled = settlement::with_outcome(&stored, Executor::from_execution(&execution), now());
    if settled.chosen.as_ref().is_some_and(|chosen| chosen.outcome.is_none()) {
        return violation("Unfinished", format!("{:?}", settled.chosen));
    }
    if settled.counters != stored.counters || settled.history != stored.history {
        return violation("Untrue", format!("{:?} is not {:?}", stored.counters, settled.counters));
    }
    match unreported(api)? {
        Some(words) => violation("Untrue", words),
        None => Ok(()),
    }
}

/// Difference between the loop's own status and the last decision, if any. The status is written some seconds later.
pub fn unreported(api: &Api) -> Result<Option<String>, Violation> {
    let parent: ClosedLoop = parsed(object(api, Sort::Loop, "web")?);
    let decision: Decision = parsed(object(api, Sort::Decision, "web")?);
    let stored = decision.status.unwrap_or_default();
    let summary = parent.status.and_then(|status| status.summary);
    let shown = summary.map(|summary| (summary.decision, summary.decided_at)).unwrap_or_default();
    let decided = (stored.message, stored.chosen.map(|chosen| chosen.at));
    Ok((shown != decided).then(|| format!("the loop's status shows {shown:?}, but the decision is {decided:?}")))
}
