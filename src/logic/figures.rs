//! Figures of loops and actions for monitoring over time.
//!
//! Computed from the world on each request, so figures disappear with their object. Independent of the metrics format.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::api::closed_loop::ClosedLoop;
use crate::api::closed_loop::metric::Side;
use crate::api::decision::Counter;
use crate::api::monitoring::Reading;
use crate::api::reasons::Reason;
use crate::api::workload_action::WorkloadAction;
use crate::api::workload_action::status::Step;
use crate::logic::facts::Key;
use crate::logic::quantity;
use crate::logic::world::World;

/// Figures of one loop.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopFigures {
    pub key: Key,
    pub ready: bool,
    /// Last value of each metric, from the status.
    pub values: Vec<(String, f64)>,
    /// Raised alarms: metric and side.
    pub alarms: Vec<(String, Side)>,
    /// Counters of the Decision, by metric.
    pub counters: Vec<Counter>,
}

/// Figures of all actions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ActionFigures {
    /// Number of actions by state and reason.
    pub count: BTreeMap<(&'static str, &'static str), i64>,
    /// Waiting time of the longest waiting action, in seconds; 0 if none waits.
    pub oldest_wait: f64,
}

/// Figures of the first loops by namespace and name, at most `most`.
#[must_use]
pub fn of_loops(world: &World, most: usize) -> Vec<LoopFigures> {
    let keys = world.table::<ClosedLoop>().keys().take(most);
    keys.filter_map(|key| of_loop(world, key)).collect()
}

fn of_loop(world: &World, key: &Key) -> Option<LoopFigures> {
    let family = world.family(key)?.own();
    let conditions = family.parent.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let watched = family.monitoring.as_ref().and_then(|object| object.status.as_ref());
    let values = watched.iter().flat_map(|status| &status.values);
    let alarms = watched.iter().flat_map(|status| &status.alarms);
    let decided = family.decision.as_ref().and_then(|object| object.status.as_ref());
    Some(LoopFigures {
        key: key.clone(),
        ready: conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True"),
        values: numbers(values),
        alarms: alarms.map(|alarm| (alarm.metric.clone(), alarm.side)).collect(),
        counters: decided.map(|status| status.counters.clone()).unwrap_or_default(),
    })
}

/// Readings that are numbers, by metric.
pub fn numbers<'a>(readings: impl IntoIterator<Item = &'a Reading>) -> Vec<(String, f64)> {
    let number = |one: &Reading| Some((one.metric.clone(), quantity::number(one.value.as_str()).ok()?));
    readings.into_iter().filter_map(number).collect()
}

/// Figures of all actions.
#[must_use]
pub fn of_actions(world: &World, now: Timestamp) -> ActionFigures {
    let mut figures = ActionFigures::default();
    for action in world.actions() {
        let (state, reason) = (state(action), reason(action));
        *figures.count.entry((state, reason)).or_default() += 1;
        let since = action.status.as_ref().and_then(|status| status.queued_at.as_ref());
        if let Some(since) = since.filter(|_| state == "waiting") {
            figures.oldest_wait = figures.oldest_wait.max(now.duration_since(since.0).as_secs_f64());
        }
    }
    figures
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

/// Reason of the state; for a running or waiting action, the reason why it is not further.
fn reason(action: &WorkloadAction) -> &'static str {
    let conditions = action.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let find = |kind: &str| conditions.iter().find(|one| one.type_ == kind);
    let ready = find("Ready");
    let cause = find("Reconciling").filter(|_| ready.is_some_and(|ready| ready.status == "Unknown")).or(ready);
    let word = cause.map(|cause| serde_json::Value::String(cause.reason.clone()));
    // Only known reasons, regardless of the text in the object.
    let reason: Option<Reason> = word.and_then(|word| serde_json::from_value(word).ok());
    reason.map_or("New", Reason::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::monitoring::Monitoring;
    use crate::logic::world::{Fact, Indexed, Origin};

    fn put<F: Indexed + serde::de::DeserializeOwned>(world: &mut World, object: serde_json::Value) {
        let _ = world.apply(serde_json::from_value::<F>(object).unwrap(), Origin::Watch);
    }

    fn looped(world: &mut World, name: &str) {
        put::<ClosedLoop>(
            world,
            json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop",
                "metadata": {"namespace": "shop", "name": name, "uid": name, "resourceVersion": "1"},
                "spec": {"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "metrics": []},
                "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Running", "message": "",
                    "lastTransitionTime": "2026-11-21T10:00:00Z"}]},
            }),
        );
        put::<Monitoring>(
            world,
            json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "Monitoring",
                "metadata": {"namespace": "shop", "name": name, "uid": "m", "resourceVersion": "2", "ownerReferences": [
                    {"apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "name": name, "uid": name, "controller": true}]},
                "spec": {"metrics": []},
                "status": {
                    "values": [{"metric": "cpu", "value": "2500m", "at": "2026-11-21T10:00:00.000000Z"},
                        {"metric": "bad", "value": "n/a", "at": "2026-11-21T10:00:00.000000Z"}],
                    "alarms": [{"metric": "cpu", "side": "Low", "since": "2026-11-21T10:00:00.000000Z"}],
                },
            }),
        );
    }

    #[test]
    fn the_figures_of_loops_are_bounded_and_go_with_them() {
        let mut world = World::default();
        for name in ["a", "b", "c"] {
            looped(&mut world, name);
        }
        let figures = of_loops(&world, 2);
        assert_eq!(figures.iter().map(|one| one.key.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(figures[0].ready);
        assert_eq!(figures[0].values, [("cpu".to_owned(), 2.5)]);
        assert_eq!(figures[0].alarms, [("cpu".to_owned(), Side::Low)]);
        let gone = world.table::<ClosedLoop>().get(&Key::new("shop", "a")).unwrap().as_ref();
        let id = Fact::id(gone);
        let _ = world.remove::<ClosedLoop>(&id);
        assert_eq!(of_loops(&world, 9).len(), 2);
        assert_eq!(of_loops(&world, 0), []);
    }

    #[test]
    fn actions_are_counted_by_state_and_reason() {
        let mut world = World::default();
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
