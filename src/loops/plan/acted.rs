//! Texts about an action that was carried out: its change, and the alarm that caused it. For columns and events.

use crate::rung;
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::metric::{Metric, Side};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::when::{Alarm, When};
use ganglion_api::decision::{DecisionStatus, Entry};
use ganglion_api::execution::{ExecutionState, ExecutionStatus};
use ganglion_api::scalars::Number;

/// Describes the last change, such as `replicas 3 → 4`; None unless the Execution's last decision was carried out.
pub fn change(execution: &ExecutionStatus, decision: &DecisionStatus) -> Option<String> {
    let after = execution.after.as_deref().filter(|_| execution.state == Some(ExecutionState::Done))?;
    let Some(before) = &execution.before else { return Some(after.to_owned()) };
    let dimension = dimension(execution, decision).map(|dimension| format!("{dimension} ")).unwrap_or_default();
    Some(format!("{dimension}{before} → {after}"))
}

/// Returns the field or quantity that the Execution's last decision changed.
fn dimension(execution: &ExecutionStatus, decision: &DecisionStatus) -> Option<String> {
    let chosen = decision.chosen.as_ref().filter(|chosen| Some(chosen.seq) == execution.seq);
    let act = decision.acts.iter().find(|act| Some(act.seq) == execution.seq);
    chosen.map(|chosen| rung::dimension(&chosen.action)).or_else(|| Some(act?.dimension.clone()))
}

/// Describes the alarm that the Execution's last decision serves, such as `cpu 2 is below 5`.
pub fn cause(execution: &ExecutionStatus, decision: &DecisionStatus, metrics: &[Metric]) -> Option<String> {
    let Entry { when, value, .. } = decision.history.iter().rfind(|entry| Some(entry.seq) == execution.seq)?;
    when_words(when, |_| value.as_ref().map(Number::as_str), metrics)
}

/// Describes the alarm or the combination of alarms, such as `queue is above 100 and errors is below 1`; None if the
/// metrics do not define one of the alarms.
pub fn when_words<'a>(when: &When, value: impl Fn(&Alarm) -> Option<&'a str>, metrics: &[Metric]) -> Option<String> {
    let words = |alarm: &Alarm| alarm_words(&alarm.metric, alarm.side, value(alarm), metrics);
    let words: Vec<String> = when.alarms().iter().map(words).collect::<Option<_>>()?;
    let joint = if matches!(when, When::Any(_)) { " or " } else { " and " };
    Some(words.join(joint))
}

/// Describes an alarm with its value and level, such as `cpu 2 is below 5`; None if the metrics do not define the
/// alarm.
pub fn alarm_words(metric: &str, side: Side, value: Option<&str>, metrics: &[Metric]) -> Option<String> {
    let levels = metrics.iter().find(|known| known.name == metric)?;
    let level = match side {
        Side::Low => format!("is below {}", levels.low.as_ref()?.raise.as_str()),
        Side::High => format!("is above {}", levels.high.as_ref()?.raise.as_str()),
        Side::Equal => format!("is {}", levels.equal.as_ref()?.to.as_str()),
        Side::Missing => return Some(format!("{metric} is missing")),
        Side::Target => {
            let value = value.map(|value| format!(" ({value})")).unwrap_or_default();
            return Some(format!("the target of {metric}{value}"));
        }
    };
    let value = value.filter(|_| side != Side::Equal).map(|value| format!(" {value}")).unwrap_or_default();
    Some(format!("{metric}{value} {level}"))
}

/// Reason of the event for a rung that was carried out.
pub fn event_reason(rung: &Rung) -> LoopReason {
    if rung.scale.is_some() {
        LoopReason::Scaled
    } else if rung.resize.is_some() {
        LoopReason::Resized
    } else if rung.patch.is_some() {
        LoopReason::Patched
    } else if rung.workload_action.is_some() {
        LoopReason::ActionSucceeded
    } else if rung.tune.is_some() {
        LoopReason::Tuned
    } else {
        LoopReason::Sent
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn decision(side: &str, value: Value) -> DecisionStatus {
        let mut status = DecisionStatus::default();
        let entry = json!({"seq": 2, "at": "2026-11-21T10:00:01.000000Z", "metric": "cpu", "side": side, "value": value,
            "rung": 0, "action": "scale by 1"});
        status.history.push(Entry {
            seq: 2,
            at: serde_json::from_value(entry["at"].clone()).unwrap(),
            when: serde_json::from_value(json!({"metric": "cpu", "side": side})).unwrap(),
            value: serde_json::from_value(entry["value"].clone()).unwrap(),
            rung: 0,
            action: "scale by 1".into(),
            outcome: None,
            ended: None,
            effect: None,
            repeated: None,
        });
        status.acts.push(ganglion_api::decision::Act {
            seq: 2,
            at: serde_json::from_value(entry["at"].clone()).unwrap(),
            dry_run: false,
            direction: ganglion_api::decision::Direction::Raise,
            dimension: "replicas".into(),
        });
        status
    }

    fn execution(status: Value) -> ExecutionStatus {
        serde_json::from_value(status).unwrap()
    }

    #[rstest]
    #[case("Low", json!("2"), Some("cpu 2 is below 5"))]
    #[case("High", json!("95"), Some("cpu 95 is above 80"))]
    #[case("Missing", json!(null), Some("cpu is missing"))]
    #[case("Equal", json!("1"), None)]
    fn the_alarm_is_named_with_its_value_and_level(
        #[case] side: &str,
        #[case] value: Value,
        #[case] text: Option<&str>,
    ) {
        let metrics: Vec<Metric> = serde_json::from_value(json!([
            {"name": "cpu", "source": {"push": {}}, "low": {"raise": "5"}, "high": {"raise": "80"}},
        ]))
        .unwrap();
        let done = execution(json!({"seq": 2, "state": "Done"}));
        assert_eq!(cause(&done, &decision(side, value), &metrics).as_deref(), text);
        assert_eq!(cause(&execution(json!({"seq": 3})), &decision(side, json!("2")), &metrics), None);
    }

    #[rstest]
    #[case(json!({"seq": 2, "state": "Done", "before": "3", "after": "4"}), Some("replicas 3 → 4"))]
    #[case(json!({"seq": 3, "state": "Done", "before": "3", "after": "4"}), Some("3 → 4"))]
    #[case(json!({"seq": 2, "state": "Done", "after": "WorkloadAction web-1"}), Some("WorkloadAction web-1"))]
    #[case(json!({"seq": 2, "state": "Failed", "before": "3", "after": "4"}), None)]
    #[case(json!({"seq": 2, "state": "Claimed", "before": "3", "after": "4"}), None)]
    fn only_what_was_done_is_a_change(#[case] status: Value, #[case] text: Option<&str>) {
        assert_eq!(change(&execution(status), &decision("Low", json!("2"))).as_deref(), text);
    }
}
