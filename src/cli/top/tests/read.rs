//! Objects of any form and of other versions are read as far as possible.

use proptest::prelude::*;

use super::*;
use crate::cli::top::facts::TopDetail;
use crate::cli::top::trend::TopLevels;

fn web(kind: TopKind, spec: Value, status: Value) -> TopObject {
    object(kind, "web", spec, status)
}

/// Any JSON of limited size.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,9}".prop_map(Value::from)
    ];
    let keys = "conditions|slots|step|values|metrics|metric|value|name|low|raise|history|summary|done|workers|type";
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::hash_map(keys, inner, 0..6)
                .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into())
        ]
    })
}

proptest! {
    #[test]
    fn an_object_of_any_form_is_shown(spec in json_value(), status in json_value()) {
        for kind in TopKind::watched(&TopKind::SHOWN) {
            prop_assert_eq!(web(kind, spec.clone(), status.clone()).id.name, "web");
        }
    }
}

#[test]
fn a_monitoring_has_levels_values_and_alarms() {
    let metrics = json!([
        {"name": "cpu", "low": {"raise": "5"}, "high": {"raise": "80"}},
        {"name": "load", "equal": {"to": "1500m", "within": "500m"}},
        {"name": 7}, "none"
    ]);
    let values = json!([
        {"metric": "cpu", "value": "93", "at": "2026-11-21T10:00:03.000000Z", "unknownField": {}},
        {"metric": "load", "value": 2},
        {"metric": "broken"}
    ]);
    let alarms = json!(["High cpu since 2026-11-21T10:00:03.000000Z", 3, {"of": "another version"}]);
    let found = web(TopKind::Monitoring, json!({"metrics": metrics}), json!({"values": values, "alarms": alarms}));
    let TopDetail::Monitoring { levels, readings, alarms } = found.detail else { panic!("{found:?}") };
    let both = |low, high| TopLevels { low: Some(low), high: Some(high) };
    let expected = [("cpu", both(5.0, 80.0)), ("load", both(1.0, 2.0)), ("7", TopLevels::default())];
    assert_eq!(levels, expected.map(|(name, level)| (name.to_owned(), level)));
    assert_eq!(readings.iter().map(|one| one.value.as_str()).collect::<Vec<_>>(), ["93", "2"]);
    assert!(readings[0].at.is_some() && readings[1].at.is_none());
    assert_eq!(alarms, ["High cpu since 2026-11-21T10:00:03.000000Z", "3"]);
}

#[test]
fn the_history_of_a_decision_has_values() {
    let line = "3 2026-11-21T10:00:03.000000Z Low cpu 2 rung 0 | scale by 1, at most 10 | Served | 3 -> 4";
    let found = web(TopKind::Decision, json!({}), json!({"history": [line, "of another version", 4]}));
    let TopDetail::Decision { past, .. } = found.detail else { panic!("{found:?}") };
    assert_eq!(past.len(), 1);
    assert_eq!((past[0].metric.as_str(), past[0].value), ("cpu", 2.0));
}

#[test]
fn an_object_without_status_has_no_conditions() {
    let found = web(TopKind::Action, json!({"suspend": true}), Value::Null);
    assert!(found.conditions.is_empty() && found.is_suspended);
    assert_eq!(found.id.words(), "WorkloadAction shop/web");
}
