//! Figures of all actions that people watch over time, read off the world on request. Knows no metrics format.

use std::collections::BTreeMap;

use jiff::Timestamp;

use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::Step;
use ganglion_core::world::World;

/// The figures of all actions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ActionFigures {
    /// The number of actions by state and reason.
    pub count: BTreeMap<(&'static str, &'static str), i64>,
    /// For how many seconds the action that has waited longest has waited; 0 if none waits.
    pub oldest_wait: f64,
    /// For how many seconds the running action without progress for longest has made none; 0 if none runs.
    pub longest_step: f64,
}

/// The figures of all actions.
pub fn of_actions(world: &World, now: Timestamp) -> ActionFigures {
    let mut figures = ActionFigures::default();
    for action in world.all::<WorkloadAction>() {
        let (state, reason) = (state(action), reason(action));
        *figures.count.entry((state, reason)).or_default() += 1;
        let since = action.status.as_ref().and_then(|status| status.queued_at.as_ref());
        if let Some(since) = since.filter(|_| state == "waiting") {
            figures.oldest_wait = figures.oldest_wait.max(now.duration_since(since.0).as_secs_f64());
        }
        if let Some(at) = last_progress(action).filter(|_| state == "running") {
            figures.longest_step = figures.longest_step.max(now.duration_since(at).as_secs_f64());
        }
    }
    figures
}

/// When a replica of the action last entered a step; None for an action that its author has suspended.
fn last_progress(action: &WorkloadAction) -> Option<Timestamp> {
    let status = action.status.as_ref().filter(|status| status.suspended_at.is_none())?;
    status.slots.iter().map(|slot| slot.since.0).max()
}

fn state(action: &WorkloadAction) -> &'static str {
    let Some(status) = &action.status else { return "waiting" };
    let is = |kind: &str| status.conditions.iter().any(|one| one.type_ == kind && one.status == "True");
    let at_work = status.slots.iter().any(|slot| !slot.step.is_end() && slot.step != Step::Queued);
    match (status.finished_at.is_some(), at_work) {
        (true, _) if is("Ready") => "succeeded",
        (true, _) => "failed",
        (false, true) => "running",
        (false, false) => "waiting",
    }
}

/// The reason of its state; while it works or waits, what it waits for.
fn reason(action: &WorkloadAction) -> &'static str {
    let conditions = action.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let find = |kind: &str| conditions.iter().find(|one| one.type_ == kind);
    let ready = find("Ready");
    let cause = find("Reconciling").filter(|_| ready.is_some_and(|ready| ready.status == "Unknown")).or(ready);
    let word = cause.map(|cause| serde_json::Value::String(cause.reason.clone()));
    // A closed set of words, whatever stands in the object.
    let reason: Option<Reason> = word.and_then(|word| serde_json::from_value(word).ok());
    reason.map_or("New", Reason::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ganglion_core::world::{Fact, Origin};

    fn put<F: Fact + serde::de::DeserializeOwned>(world: &mut World, object: serde_json::Value) {
        let _ = world.apply(serde_json::from_value::<F>(object).unwrap(), Origin::Watch);
    }

    #[test]
    fn actions_are_counted_by_state_and_reason() {
        let mut world = crate::world::registered();
        let action = |name: &str, status: serde_json::Value| {
            json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
                "metadata": {"namespace": "shop", "name": name, "uid": name, "resourceVersion": "1"},
                "spec": {"delete": {"pod": {"name": "p"}}}, "status": status,
            })
        };
        let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-11-21T10:00:00Z"});
        let waits = |since: &str| {
            json!({"queuedAt": since,
                "conditions": [condition("Ready", "Unknown", "Queued"), condition("Reconciling", "True", "LimitReached")]})
        };
        put::<WorkloadAction>(&mut world, action("new", json!({})));
        put::<WorkloadAction>(&mut world, action("one", waits("2026-11-21T10:00:00Z")));
        put::<WorkloadAction>(&mut world, action("two", waits("2026-11-21T10:00:20Z")));
        let done =
            json!({"finishedAt": "2026-11-21T10:00:00Z", "conditions": [condition("Ready", "True", "Succeeded")]});
        put::<WorkloadAction>(&mut world, action("done", done));
        let bad = json!({"finishedAt": "2026-11-21T10:00:00Z", "conditions": [condition("Ready", "False", "x-9.example/Made up")]});
        put::<WorkloadAction>(&mut world, action("bad", bad));
        let figures = of_actions(&world, "2026-11-21T10:01:00Z".parse().unwrap());
        let expected = [
            (("failed", "Unknown"), 1),
            (("succeeded", "Succeeded"), 1),
            (("waiting", "LimitReached"), 2),
            (("waiting", "New"), 1),
        ];
        assert_eq!(figures.count, BTreeMap::from(expected));
        assert!((figures.oldest_wait - 60.0).abs() < 1e-9);
    }
}
