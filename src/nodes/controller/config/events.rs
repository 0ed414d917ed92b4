//! Events of a NodeConfig when it becomes Ready or not Ready.

use ganglion_api::node_config::NodeConfigStatus;
use ganglion_runtime::events::EventText;

/// Event for a status that is the first to report the NodeConfig as not Ready, or as Ready again.
pub fn transition_event(before: &NodeConfigStatus, after: &NodeConfigStatus) -> Option<EventText> {
    let ready = |status: &NodeConfigStatus| status.conditions.iter().find(|one| one.type_ == "Ready").cloned();
    let (old, new) = (ready(before).map(|old| old.status), ready(after)?);
    let warning = match (old.as_deref(), new.status.as_str()) {
        (Some("False"), "True") => false,
        (Some("False"), _) | (_, "True" | "Unknown") => return None,
        _ => true,
    };
    Some(EventText { warning, reason: new.reason, note: new.message, about: None })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use ganglion_api::node_config::reasons::NodeReason;
    use ganglion_core::conditions::{Stamp, condition};

    #[rstest]
    #[case(None, "True", None)]
    #[case(None, "False", Some(true))]
    #[case(Some("Unknown"), "True", None)]
    #[case(Some("True"), "False", Some(true))]
    #[case(Some("False"), "False", None)]
    #[case(Some("False"), "True", Some(false))]
    #[case(Some("True"), "Unknown", None)]
    fn only_a_change_is_an_event(#[case] before: Option<&str>, #[case] after: &str, #[case] warning: Option<bool>) {
        let status = |ready: Option<&str>| {
            let stamp = Stamp { generation: 1, now: jiff::Timestamp::UNIX_EPOCH };
            let ready = ready.map(|ready| condition(&[], "Ready", ready, NodeReason::Stale.as_str(), "m", stamp));
            NodeConfigStatus { conditions: ready.into_iter().collect(), ..NodeConfigStatus::default() }
        };
        let event = transition_event(&status(before), &status(Some(after)));
        assert_eq!(event.map(|event| event.warning), warning);
    }
}
