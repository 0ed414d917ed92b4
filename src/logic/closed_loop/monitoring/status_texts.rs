//! What the first hop says of itself: its words and conditions, and when a status is worth a write.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::observe::{NO_MORE, NOT_YET, Watch};
use crate::api::closed_loop::Trace;
use crate::api::closed_loop::metric::Side;
use crate::api::closed_loop::reasons::LoopReason;
use crate::api::monitoring::{AlarmState, MonitoringStatus, UnknownMetric};
use crate::logic::closed_loop::common::{HEARTBEAT, since};
use crate::logic::closed_loop::conditions::{self, Health, Stamp};

/// How often it is told that a value is unknown for another reason: a server's words may differ each time.
const WORDS: SignedDuration = SignedDuration::from_secs(15);

impl Watch {
    /// Whether others have to hear of it now.
    pub(super) fn worth_a_write(
        &self,
        before: &MonitoringStatus,
        after: &MonitoringStatus,
        fresh: bool,
        now: Timestamp,
    ) -> bool {
        let traced = match self.trace {
            Trace::EverySample => fresh,
            Trace::OnChange => false,
        };
        let rested = |span| before.heartbeat.as_ref().is_none_or(|last| since(last, now) >= span);
        traced
            || edges(before) != edges(after)
            || !conditions::alike(&before.conditions, &after.conditions)
            || finding(before) != finding(after)
            // A flood of bad samples is shown, but not at its own pace.
            || (before.refused != after.refused && rested(self.interval))
            || (reasons(before) != reasons(after) && (first_told(before, after) || rested(WORDS)))
            || rested(HEARTBEAT)
    }
}

/// What of a status is worth a write when it changes: which alarms stand and how, and what is unknown.
fn edges(status: &MonitoringStatus) -> impl PartialEq + '_ {
    let pending: Vec<(&str, Side)> = status.pending.iter().map(|alarm| (alarm.metric.as_str(), alarm.side)).collect();
    let unknown: Vec<&str> = status.unknown.iter().map(|unknown| unknown.metric.as_str()).collect();
    (standing(status), pending, unknown, status.message.as_deref())
}

/// Why each unknown metric is.
fn reasons(status: &MonitoringStatus) -> Vec<&str> {
    status.unknown.iter().map(|unknown| unknown.message.as_str()).collect()
}

/// Somebody says why a value is unknown, where before nobody did.
fn first_told(before: &MonitoringStatus, after: &MonitoringStatus) -> bool {
    let told = |unknown: &UnknownMetric| unknown.message != NOT_YET && unknown.message != NO_MORE;
    before.unknown.iter().filter(|old| !told(old)).any(|old| {
        let mut all = after.unknown.iter();
        all.any(|new| new.metric == old.metric && told(new))
    })
}

/// What of a status there is to decide about.
pub(super) fn standing(status: &MonitoringStatus) -> Vec<(&str, Side, bool, bool)> {
    let alarms = status.alarms.iter();
    alarms.map(|alarm| (alarm.metric.as_str(), alarm.side, alarm.unknown, alarm.held)).collect()
}

fn finding(status: &MonitoringStatus) -> Vec<(&str, Option<&str>, &[String])> {
    status
        .last_served
        .iter()
        .map(|found| (found.metric.as_str(), found.least_served.as_deref(), found.rank.as_slice()))
        .collect()
}

/// `Low cpu,Low memory`, or `No Event`.
pub(super) fn message(alarms: &[AlarmState]) -> String {
    if alarms.is_empty() {
        return "No Event".into();
    }
    let words: Vec<String> = alarms.iter().map(|alarm| format!("{} {}", alarm.side, alarm.metric)).collect();
    words.join(",")
}

/// How the hop is, where so many metrics have a value.
pub(super) fn health(status: &MonitoringStatus, known: usize) -> Health {
    let lost: Vec<String> =
        status.unknown.iter().map(|unknown| format!("{} ({})", unknown.metric, unknown.message)).collect();
    if lost.is_empty() {
        Health::Good(LoopReason::Watching, format!("{known} metrics have a value"))
    } else if status.values.is_empty() {
        Health::Working(LoopReason::NoSample, format!("no value yet: {}", lost.join(", ")))
    } else {
        Health::Retrying(LoopReason::SomeUnknown, format!("not known: {}", lost.join(", ")))
    }
}

/// The summary conditions, of no generation: see [`MonitoringStatus`].
pub(super) fn summary(before: &MonitoringStatus, health: &Health, now: Timestamp) -> Vec<Condition> {
    let mut all = conditions::summary(&before.conditions, health, Stamp { generation: 0, now });
    all.iter_mut().for_each(|condition| condition.observed_generation = None);
    all
}
