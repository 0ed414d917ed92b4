//! The message and the conditions of a Monitoring.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::closed_loop::reasons::LoopReason;
use crate::api::monitoring::{AlarmState, MonitoringStatus};
use crate::logic::conditions::{self, Health, Stamp};

/// `Low cpu,Low memory`, or `No Event`.
pub(super) fn message(alarms: &[AlarmState]) -> String {
    if alarms.is_empty() {
        return "No Event".into();
    }
    let words: Vec<String> = alarms.iter().map(|alarm| format!("{} {}", alarm.side, alarm.metric)).collect();
    words.join(",")
}

/// The health of the hop; `known` is the number of metrics with a value.
pub(super) fn health(status: &MonitoringStatus, known: usize) -> Health<LoopReason> {
    let lost: Vec<String> =
        status.unknown.iter().map(|unknown| format!("{} ({})", unknown.metric, unknown.message)).collect();
    if lost.is_empty() {
        Health::Good(LoopReason::Watching, format!("{known} metrics have a value"))
    } else if status.values.is_empty() {
        Health::working(LoopReason::NoSample, format!("no value yet: {}", lost.join(", ")))
    } else {
        Health::Retrying(LoopReason::SomeUnknown, format!("unknown: {}", lost.join(", ")))
    }
}

/// The summary conditions, without a generation: see [`MonitoringStatus`].
pub(super) fn summary(before: &MonitoringStatus, health: &Health<LoopReason>, now: Timestamp) -> Vec<Condition> {
    let mut all = conditions::summary(&before.conditions, health, Stamp { generation: 0, now });
    all.iter_mut().for_each(|condition| condition.observed_generation = None);
    all
}
