//! Decides whether a status of a Monitoring is worth a write, and whether it needs a decision.

use jiff::SignedDuration;

use super::rules::{MonitoringRules, NO_MORE, NOT_YET, ObserveContext, SAMPLE_INTERVAL, is_postponed};
use crate::common::{HEARTBEAT, elapsed};
use ganglion_api::closed_loop::Trace;
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::monitoring::{MonitoringStatus, UnknownMetric};
use ganglion_core::conditions;

/// Minimum time between two writes that change only the reason of a missing value. A server may return a different text
/// each time.
const REASON_INTERVAL: SignedDuration = SignedDuration::from_secs(15);

impl MonitoringRules {
    /// Whether the status is worth a write.
    pub(super) fn worth_a_write(
        &self,
        before: &MonitoringStatus,
        after: &MonitoringStatus,
        fresh: bool,
        context: ObserveContext,
    ) -> bool {
        let now = context.now;
        let traced = match self.trace {
            Trace::EverySample => fresh,
            Trace::OnChange => false,
        };
        // A time in the future comes from before the clock was set back.
        let rested = |duration| {
            let since = before.heartbeat.as_ref().map(|last| elapsed(last, now));
            since.is_none_or(|since| !(SignedDuration::ZERO..duration).contains(&since))
        };
        traced
            || (context.written.term.as_deref() != Some(context.term) && (context.awaited || !after.alarms.is_empty()))
            || context.written.valid_until.as_ref().is_some_and(|until| until.0 <= now)
            || (is_postponed(after, context.written) && rested(SAMPLE_INTERVAL))
            || edges(before) != edges(after)
            || !conditions::alike(&before.conditions, &after.conditions)
            || ranks_found(before) != ranks_found(after)
            // Refused samples are reported at most once per interval, so that a flood of them causes no flood of
            // writes.
            || (before.refused != after.refused && rested(self.interval))
            || (reasons(before) != reasons(after) && (first_reason(before, after) || rested(REASON_INTERVAL)))
            || rested(HEARTBEAT)
    }
}

/// Returns the part of a status that is written as soon as it changes: alarms and missing values.
fn edges(status: &MonitoringStatus) -> impl PartialEq + '_ {
    let pending: Vec<(&str, Side)> = status.pending.iter().map(|alarm| (alarm.metric.as_str(), alarm.side)).collect();
    let unknown: Vec<&str> = status.unknown.iter().map(|unknown| unknown.metric.as_str()).collect();
    (alarm_states(status), pending, unknown, status.message.as_deref())
}

/// Returns the reason of each missing value.
fn reasons(status: &MonitoringStatus) -> Vec<&str> {
    status.unknown.iter().map(|unknown| unknown.message.as_str()).collect()
}

/// Whether a source now reports why a value is missing and none did before.
fn first_reason(before: &MonitoringStatus, after: &MonitoringStatus) -> bool {
    let has_reason = |unknown: &UnknownMetric| unknown.message != NOT_YET && unknown.message != NO_MORE;
    before.unknown.iter().filter(|old| !has_reason(old)).any(|old| {
        let mut all = after.unknown.iter();
        all.any(|new| new.metric == old.metric && has_reason(new))
    })
}

/// Returns the part of a status that a decision depends on.
pub(super) fn alarm_states(status: &MonitoringStatus) -> Vec<(&str, Side, bool, bool)> {
    let alarms = status.alarms.iter();
    alarms.map(|alarm| (alarm.metric.as_str(), alarm.side, alarm.unknown, alarm.held)).collect()
}

fn ranks_found(status: &MonitoringStatus) -> Vec<(&str, Option<&str>, &[String])> {
    status
        .last_served
        .iter()
        .map(|found| (found.metric.as_str(), found.least_served.as_deref(), found.rank.as_slice()))
        .collect()
}
