//! Figures of loops that people watch over time, read off the world on request: a deleted loop has none. Knows no
//! metrics format.

use crate::world::LoopsWorld;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::decision::Counter;
use ganglion_api::monitoring::Reading;
use ganglion_core::facts::Key;
use ganglion_core::quantity;
use ganglion_core::world::World;

/// The figures of one loop.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopFigures {
    pub key: Key,
    pub ready: bool,
    /// Last value of each metric, from the status.
    pub values: Vec<(String, f64)>,
    /// The raised alarms: metric and side.
    pub alarms: Vec<(String, Side)>,
    /// Counters of the Decision, by metric.
    pub counters: Vec<Counter>,
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
        values: numbers(values),
        alarms: alarms.map(|alarm| (alarm.metric.clone(), alarm.side)).collect(),
        counters: decided.map(|status| status.counters.clone()).unwrap_or_default(),
    })
}

/// The readings that are numbers, by metric.
pub fn numbers<'a>(readings: impl IntoIterator<Item = &'a Reading>) -> Vec<(String, f64)> {
    let number = |one: &Reading| Some((one.metric.clone(), quantity::number(one.value.as_str()).ok()?));
    readings.into_iter().filter_map(number).collect()
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
        assert_eq!(figures[0].values, [("cpu".to_owned(), 2.5)]);
        assert_eq!(figures[0].alarms, [("cpu".to_owned(), Side::Low)]);
        let gone = world.table::<ClosedLoop>().get(&Key::new("shop", "a")).unwrap().as_ref();
        let id = Fact::id(gone);
        let _ = world.remove::<ClosedLoop>(&id);
        assert_eq!(of_loops(&world, 9).len(), 2);
        assert_eq!(of_loops(&world, 0), []);
    }
}
