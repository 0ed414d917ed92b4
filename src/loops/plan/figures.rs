//! Figures of loops that people watch over time, read off the world on request: a deleted loop has none. Knows no
//! metrics format.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::world::LoopsWorld;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::Counter;
use ganglion_api::monitoring::Reading;
use ganglion_core::facts::Key;
use ganglion_core::quantity;
use ganglion_core::reading::MetricReading;
use ganglion_core::world::World;

/// Types of the conditions that have figures: the closed set of the field documentation.
pub const CONDITIONS: [&str; 11] = [
    "Ready",
    "Reconciling",
    "Stalled",
    "DataAvailable",
    "LastActionSucceeded",
    "Proposed",
    "ChangeUndone",
    "Preflight",
    "Conflict",
    "TimescaleOverlap",
    "UtilizationFeedback",
];

/// The figures of one loop.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopFigures {
    pub key: Key,
    pub ready: bool,
    /// The conditions of the ClosedLoop.
    pub conditions: Vec<ConditionFigure>,
    /// Last value of each metric, from the status.
    pub values: Vec<MetricReading>,
    /// The raised alarms: metric and side.
    pub alarms: Vec<(String, Side)>,
    /// Counters of the Decision, by metric.
    pub counters: Vec<Counter>,
}

/// A condition, in closed sets of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionFigure {
    pub condition: &'static str,
    pub status: &'static str,
    pub reason: LoopReason,
}

impl ConditionFigure {
    /// Reads a condition; None for a type or a status that this version does not know.
    fn of(condition: &Condition) -> Option<Self> {
        Some(Self {
            condition: CONDITIONS.into_iter().find(|word| *word == condition.type_)?,
            status: ["True", "False", "Unknown"].into_iter().find(|word| *word == condition.status)?,
            reason: LoopReason::of(&condition.reason),
        })
    }
}

/// The figures of the first loops by namespace and name; at most this number.
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
        conditions: conditions.iter().filter_map(ConditionFigure::of).collect(),
        values: numbers(values),
        alarms: alarms.map(|alarm| (alarm.metric.clone(), alarm.side)).collect(),
        counters: decided.map(|status| status.counters.clone()).unwrap_or_default(),
    })
}

/// The readings that are numbers, by metric.
pub fn numbers<'a>(readings: impl IntoIterator<Item = &'a Reading>) -> Vec<MetricReading> {
    readings.into_iter().filter_map(number).collect()
}

fn number(reading: &Reading) -> Option<MetricReading> {
    let value = quantity::number(reading.value.as_str()).ok()?;
    let at: Timestamp = reading.at.0;
    Some(MetricReading { metric: reading.metric.clone(), value, at })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ganglion_api::monitoring::Monitoring;
    use ganglion_core::world::{Fact, Origin};

    fn put<F: Fact + serde::de::DeserializeOwned>(world: &mut World, object: serde_json::Value) {
        let _ = world.apply(serde_json::from_value::<F>(object).unwrap(), Origin::Watch);
    }

    fn looped(world: &mut World, name: &str) {
        put::<ClosedLoop>(
            world,
            json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop",
                "metadata": {"namespace": "shop", "name": name, "uid": name, "resourceVersion": "1"},
                "spec": {"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "metrics": []},
                "status": {"conditions": [
                    {"type": "Ready", "status": "True", "reason": "Running", "message": "",
                        "lastTransitionTime": "2026-11-21T10:00:00Z"},
                    {"type": "DataAvailable", "status": "False", "reason": "x-9.example/Made up", "message": "",
                        "lastTransitionTime": "2026-11-21T10:00:00Z"},
                    {"type": "Invented", "status": "True", "reason": "Running", "message": "",
                        "lastTransitionTime": "2026-11-21T10:00:00Z"},
                ]},
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
                    "alarms": ["Low cpu since 2026-11-21T10:00:00.000000Z"],
                },
            }),
        );
    }

    #[test]
    fn the_figures_of_loops_are_bounded_and_go_with_them() {
        let mut world = crate::world::registered();
        for name in ["a", "b", "c"] {
            looped(&mut world, name);
        }
        let figures = of_loops(&world, 2);
        assert_eq!(figures.iter().map(|one| one.key.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(figures[0].ready);
        let at = "2026-11-21T10:00:00Z".parse().unwrap();
        assert_eq!(figures[0].values, [MetricReading { metric: "cpu".to_owned(), value: 2.5, at }]);
        // Words that others wrote into a status become no labels.
        let known = |condition, status, reason| ConditionFigure { condition, status, reason };
        let expected =
            [known("Ready", "True", LoopReason::Running), known("DataAvailable", "False", LoopReason::Unknown)];
        assert_eq!(figures[0].conditions, expected);
        assert_eq!(figures[0].alarms, [("cpu".to_owned(), Side::Low)]);
        let gone = world.table::<ClosedLoop>().get(&Key::new("shop", "a")).unwrap().as_ref();
        let id = Fact::id(gone);
        let _ = world.remove::<ClosedLoop>(&id);
        assert_eq!(of_loops(&world, 9).len(), 2);
        assert_eq!(of_loops(&world, 0), []);
    }
}
