//! Numbers of objects by kind, state and reason, read off the world on request.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::de::DeserializeOwned;

use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_api::node_config::{NodeConfig, NodeConfigTemplate};
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_core::world::{Fact, World};

/// Kind, state and reason: words of closed sets.
pub type ObjectGroup = (&'static str, &'static str, &'static str);

/// Numbers of objects. Actions have figures of their own.
pub fn of_objects(world: &World) -> BTreeMap<ObjectGroup, i64> {
    let mut counts = ObjectCounts { world, counts: BTreeMap::new() };
    counts.add::<ClosedLoop, _>(|object| object.status.as_ref().map(|s| s.conditions.as_slice()), LoopReason::as_str);
    counts.add::<NodeConfig, _>(|object| object.status.as_ref().map(|s| s.conditions.as_slice()), NodeReason::as_str);
    counts.add::<NodeConfigTemplate, _>(
        |object| object.status.as_ref().map(|s| s.conditions.as_slice()),
        NodeReason::as_str,
    );
    counts.add::<SwarmPool, _>(|object| object.status.as_ref().map(|s| s.conditions.as_slice()), PoolReason::as_str);
    counts.add::<PlacementPolicy, _>(
        |object| object.status.as_ref().map(|s| s.conditions.as_slice()),
        PolicyReason::as_str,
    );
    counts.counts
}

struct ObjectCounts<'a> {
    world: &'a World,
    counts: BTreeMap<ObjectGroup, i64>,
}

impl ObjectCounts<'_> {
    /// Counts the objects of one kind, whose reasons are words of `R`.
    fn add<K: Fact, R: DeserializeOwned>(
        &mut self,
        conditions: impl Fn(&K) -> Option<&[Condition]>,
        word: fn(R) -> &'static str,
    ) {
        for object in self.world.all::<K>() {
            let conditions = conditions(object).unwrap_or_default();
            let ready = conditions.iter().find(|one| one.type_ == "Ready");
            let reason = ready.map_or("New", |ready| {
                // A closed set of words, whatever stands in the object.
                serde_json::from_value(ready.reason.as_str().into()).map_or("Unknown", word)
            });
            *self.counts.entry((K::KIND, state(conditions), reason)).or_default() += 1;
        }
    }
}

/// State in the words of the summary conditions.
fn state(conditions: &[Condition]) -> &'static str {
    let status = |kind: &str| conditions.iter().find(|one| one.type_ == kind).map(|one| one.status.as_str());
    match (status("Ready"), status("Reconciling"), status("Stalled")) {
        (None, _, _) => "New",
        (Some("True"), _, _) => "Ready",
        (Some(_), _, Some("True")) => "Stalled",
        (Some(_), Some("True"), _) => "Reconciling",
        (Some(_), _, _) => "NotReady",
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use ganglion_core::world::Origin;

    fn condition(kind: &str, status: &str, reason: &str) -> Condition {
        serde_json::from_value(json!({
            "type": kind, "status": status, "reason": reason, "message": "",
            "lastTransitionTime": "2026-11-21T10:00:00Z",
        }))
        .unwrap()
    }

    #[rstest]
    #[case::new(&[], "New")]
    #[case::ready(&[("Ready", "True")], "Ready")]
    #[case::working(&[("Ready", "Unknown"), ("Reconciling", "True")], "Reconciling")]
    #[case::retrying(&[("Ready", "False"), ("Reconciling", "True")], "Reconciling")]
    #[case::stalled(&[("Ready", "False"), ("Stalled", "True")], "Stalled")]
    #[case::suspended(&[("Ready", "Unknown")], "NotReady")]
    fn the_state_is_that_of_the_summary(#[case] all: &[(&str, &str)], #[case] expected: &str) {
        let conditions: Vec<Condition> = all.iter().map(|(kind, status)| condition(kind, status, "Running")).collect();
        assert_eq!(state(&conditions), expected);
    }

    #[test]
    fn objects_are_counted_by_kind_and_reason() {
        let mut world = crate::operator::world::world();
        let mut put = |name: &str, conditions: &[Condition]| {
            let object = json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy",
                "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
                "spec": {"agents": []}, "status": {"conditions": conditions},
            });
            let _ = world.apply(serde_json::from_value::<PlacementPolicy>(object).unwrap(), Origin::Watch);
        };
        put("a", &[condition("Ready", "True", "Serving")]);
        put("b", &[condition("Ready", "True", "Serving")]);
        put("c", &[]);
        put("d", &[condition("Ready", "False", "x-9.example/Made up"), condition("Stalled", "True", "Made up")]);
        let expected = [
            (("PlacementPolicy", "New", "New"), 1),
            (("PlacementPolicy", "Ready", "Serving"), 2),
            (("PlacementPolicy", "Stalled", "Unknown"), 1),
        ];
        assert_eq!(of_objects(&world), BTreeMap::from(expected));
    }
}
