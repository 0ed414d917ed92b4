//! Changes of conditions that are events.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::EventText;

/// A condition that has an event when it takes a status, or changes in it.
#[derive(Clone, Copy, Debug)]
pub struct ConditionEvent {
    condition: &'static str,
    /// `True` or `False`.
    status: &'static str,
    warning: bool,
    on: ConditionChange,
}

/// Which changes of a condition are events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionChange {
    /// It had another status before, or did not exist.
    Status,
    /// It had exactly the opposite status before. A new object that is Ready has no event, and neither has one that was
    /// Unknown.
    Opposite,
    /// It had another status or another reason before. Its message contains counts that change all the time.
    Reason,
    /// It had another status, reason or message before.
    Message,
}

impl ConditionEvent {
    pub const fn warning(condition: &'static str, status: &'static str, on: ConditionChange) -> Self {
        Self { condition, status, warning: true, on }
    }

    pub const fn normal(condition: &'static str, status: &'static str, on: ConditionChange) -> Self {
        Self { condition, status, warning: false, on }
    }

    fn is_event(&self, before: Option<&Condition>, after: &Condition) -> bool {
        let Some(before) = before else { return self.on != ConditionChange::Opposite };
        let same_status = before.status == after.status;
        let same_reason = same_status && before.reason == after.reason;
        match self.on {
            ConditionChange::Status => !same_status,
            ConditionChange::Opposite => !same_status && before.status != "Unknown",
            ConditionChange::Reason => !same_reason,
            ConditionChange::Message => !same_reason || before.message != after.message,
        }
    }
}

/// Events about the changes of these conditions between two statuses of an object.
pub fn condition_events(rules: &[ConditionEvent], before: &[Condition], after: &[Condition]) -> Vec<EventText> {
    let mut events = Vec::new();
    for rule in rules {
        let new = after.iter().find(|condition| condition.type_ == rule.condition && condition.status == rule.status);
        let old = before.iter().find(|condition| condition.type_ == rule.condition);
        if let Some(new) = new
            && rule.is_event(old, new)
        {
            events.push(EventText::of(new, rule.warning));
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use ganglion_core::conditions::{Stamp, condition};

    #[rstest]
    #[case(ConditionChange::Status, [true, true, true, false, false])]
    #[case(ConditionChange::Opposite, [false, true, false, false, false])]
    #[case(ConditionChange::Reason, [true, true, true, true, false])]
    #[case(ConditionChange::Message, [true, true, true, true, true])]
    fn a_change_of_a_condition_is_an_event(#[case] on: ConditionChange, #[case] expected: [bool; 5]) {
        let stamp = Stamp { generation: 1, now: jiff::Timestamp::UNIX_EPOCH };
        let ready = |status, reason, message| vec![condition(&[], "Ready", status, reason, message, stamp)];
        let rule = ConditionEvent::warning("Ready", "False", on);
        let after = ready("False", "Stale", "m");
        let before = [
            Vec::new(),
            ready("True", "Stale", "m"),
            ready("Unknown", "Stale", "m"),
            ready("False", "Unreachable", "m"),
            ready("False", "Stale", "n"),
        ];
        let is_event = before.map(|before| !condition_events(&[rule], &before, &after).is_empty());
        assert_eq!(is_event, expected);
        let event = EventText::warning("Stale", "m");
        assert_eq!(condition_events(&[rule], &ready("True", "Ok", ""), &after), [event]);
        assert!(condition_events(&[rule], &after, &after).is_empty());
        assert!(condition_events(&[rule], &after, &ready("True", "Ok", "")).is_empty());
    }
}
