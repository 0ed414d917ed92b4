//! Message and conditions of a Monitoring.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::common::number_text;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::monitoring::{AlarmState, MonitoringStatus};
use ganglion_core::conditions::{self, Health, Stamp};

/// Message that lists the alarms, such as `Low cpu,Low memory`, or `No Event`.
pub(super) fn message(alarms: &[AlarmState]) -> String {
    if alarms.is_empty() {
        return "No Event".into();
    }
    let words: Vec<String> = alarms.iter().map(|alarm| format!("{} {}", alarm.side, alarm.metric)).collect();
    words.join(",")
}

/// Value that the spec assumes for a metric without a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Assumption {
    Never,
    /// A value, once the last one is too old.
    Soon,
    /// This value.
    Now(f64),
}

/// Assumption for each metric, in the order of the spec.
pub(super) type Assumptions<'a> = Vec<(&'a str, Assumption)>;

/// Health of the stage. A missing value is no problem if the spec assumes one: as soon as the assumption is in effect,
/// or before that if the metric once had a value.
pub(super) fn health(status: &MonitoringStatus, assumptions: &Assumptions) -> Health<LoopReason> {
    let (mut lost, mut assumed) = (Vec::new(), Vec::new());
    for unknown in &status.unknown {
        let (metric, why) = (&unknown.metric, &unknown.message);
        let has_value = || status.values.iter().any(|reading| &reading.metric == metric);
        match assumptions.iter().find(|(name, _)| name == metric).map(|(_, assumption)| *assumption) {
            Some(Assumption::Now(value)) => assumed.push(format!("{metric} is {} ({why})", number_text(value).0)),
            Some(Assumption::Soon) if has_value() => assumed.push(format!("{metric}, soon ({why})")),
            Some(Assumption::Soon | Assumption::Never) | None => lost.push(format!("{metric} ({why})")),
        }
    }
    let all = assumptions.len();
    let known = all.saturating_sub(status.unknown.len());
    match (lost.is_empty(), assumed.is_empty()) {
        (true, true) => Health::Good(LoopReason::Watching, format!("{known} metrics have a value")),
        (true, false) => Health::Good(
            LoopReason::Watching,
            format!("{known} of {all} metrics have a value; assumed: {}", assumed.join(", ")),
        ),
        (false, _) if status.values.is_empty() => {
            Health::working(LoopReason::NoSample, format!("no value yet: {}", lost.join(", ")))
        }
        (false, _) => Health::Retrying(LoopReason::SomeUnknown, format!("unknown: {}", lost.join(", "))),
    }
}

/// Returns the summary conditions, without a generation: see [`MonitoringStatus`].
pub(super) fn summary(before: &MonitoringStatus, health: &Health<LoopReason>, now: Timestamp) -> Vec<Condition> {
    let mut all = conditions::summary(&before.conditions, health, Stamp { generation: 0, now });
    all.iter_mut().for_each(|condition| condition.observed_generation = None);
    all
}
