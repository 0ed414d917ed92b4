//! The conditions of an object as entries: when each got its status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::model::{Draft, EventHint, Lane, TimelineEntry, Tone};

/// Conditions whose status `True` is bad news.
const BAD: [&str; 6] = ["Stalled", "Conflict", "ChangeUndone", "TimescaleOverlap", "UtilizationFeedback", "Inaccurate"];

/// Adds the conditions of an object. `shown`: whether a condition is shown. A condition with the time, reason and
/// message of another one is the same happening.
pub fn add_conditions(
    draft: &mut Draft,
    kind: &'static str,
    conditions: &[Condition],
    shown: impl Fn(&Condition) -> bool,
) {
    let mut told: Vec<&Condition> = Vec::new();
    for condition in conditions.iter().filter(|condition| shown(condition)) {
        let is_same = |other: &&&Condition| {
            other.last_transition_time == condition.last_transition_time
                && other.reason == condition.reason
                && other.message == condition.message
        };
        if told.iter().any(|other| is_same(&other)) {
            continue;
        }
        told.push(condition);
        draft.add(entry(kind, condition));
    }
}

fn entry(kind: &'static str, condition: &Condition) -> TimelineEntry {
    let Condition { type_, status, reason, message, .. } = condition;
    let at = condition.last_transition_time.0;
    let is_bad = BAD.contains(&type_.as_str());
    let tone = match (status.as_str(), is_bad) {
        ("True", false) | ("False", true) => Tone::Good,
        ("False", false) | ("True", true) => Tone::Warning,
        _ => Tone::Plain,
    };
    let short = format!("{kind} became {type_}={status}");
    let message = if message.is_empty() { String::new() } else { format!(": {message}") };
    let hint = EventHint {
        kind,
        reasons: vec![reason.clone()],
        note: Some(condition.message.clone()),
        short: Some(short.clone()),
        ..EventHint::default()
    };
    TimelineEntry::new(
        at,
        Lane::State,
        format!("condition/{kind}/{type_}/{status}/{at}"),
        format!("{short} ({reason}){message}"),
    )
    .tone(tone)
    .told_by(hint)
    .result()
}
