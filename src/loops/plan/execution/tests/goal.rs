//! Tests of the goals of rungs.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use crate::execution::goal::{field, quantities, replicas};
use crate::execution::types::NoPlan;
use ganglion_api::closed_loop::action::{PatchField, Resize, Scale};
use ganglion_api::execution::Quantities;

fn scale(value: Value) -> Scale {
    serde_json::from_value(value).unwrap()
}

#[rstest]
#[case(json!({"by": 1, "max": 10}), 3, Some(4))]
#[case(json!({"by": 5, "max": 10}), 8, Some(10))]
#[case(json!({"by": 1, "max": 10}), 10, None)]
#[case(json!({"by": 1, "max": 10}), 12, None)] // raising never lowers
#[case(json!({"by": 1, "min": 5, "max": 10}), 2, Some(5))]
#[case(json!({"by": 1}), 3, None)] // without max, the number does not rise
#[case(json!({"by": -1, "min": 2}), 3, Some(2))]
#[case(json!({"by": -5, "min": 2}), 3, Some(2))]
#[case(json!({"by": -1, "min": 2}), 1, None)] // lowering never raises
#[case(json!({"by": -1, "min": 0}), 0, None)]
#[case(json!({"factor": "1.5", "min": 1, "max": 10}), 3, Some(5))]
#[case(json!({"factor": "1.01", "min": 1, "max": 10}), 3, Some(4))]
#[case(json!({"factor": "0.5", "min": 1, "max": 10}), 3, Some(1))]
#[case(json!({"factor": "0.9", "min": 1, "max": 10}), 3, Some(2))]
#[case(json!({"factor": "1", "min": 1, "max": 10}), 3, None)]
#[case(json!({"factor": "0.58", "min": 1, "max": 100}), 50, Some(29))]
#[case(json!({"factor": "1.1", "min": 1, "max": 1000}), 100, Some(110))]
#[case(json!({"factor": "0.1", "min": 0, "max": 10}), 10, Some(1))] // the factor of a policy of 90 %
#[case(json!({"factor": "3", "min": 2, "max": 9}), 0, Some(2))]
#[case(json!({"factor": "3", "max": 9}), 0, None)] // 0 times 3
#[case(json!({"factor": "3", "min": 0, "max": 9}), 0, None)]
#[case(json!({"factor": "0.5", "min": 2, "max": 9}), 0, None)] // lowering never raises
fn gives_absolute_replicas(#[case] rung: Value, #[case] now: i32, #[case] expected: Option<i32>) {
    assert_eq!(replicas(&scale(rung), now, None).ok(), expected);
}

#[test]
fn an_unknown_value_only_raises() {
    assert!(matches!(replicas(&scale(json!({"by": -1, "min": 0})), 3, Some("why")), Err(NoPlan::Limited(_))));
    assert_eq!(replicas(&scale(json!({"by": 1, "max": 9})), 3, Some("why")), Ok(4));
}

#[rstest]
#[case("memory", "1.25", Some("1Gi"), Some("2Gi"), Some(("1280Mi", "2560Mi")))]
#[case("memory", "1.25", Some("1Gi"), None, Some(("1280Mi", "")))]
#[case("cpu", "1.5", Some("100m"), Some("1"), Some(("150m", "1500m")))]
#[case("cpu", "1.1", Some("100m"), Some("1"), Some(("110m", "1100m")))]
#[case("memory", "1.1", Some("100"), None, Some(("110", "")))]
#[case("memory", "1.25", Some("3Gi"), Some("3Gi"), None)]
#[case("memory", "1.25", None, None, None)]
#[case("memory", "0.5", Some("1Gi"), Some("1Gi"), None)] // no min
fn gives_absolute_quantities(
    #[case] resource: &str,
    #[case] factor: &str,
    #[case] request: Option<&str>,
    #[case] limit: Option<&str>,
    #[case] expected: Option<(&str, &str)>,
) {
    let resize: Resize =
        serde_json::from_value(json!({"container": "app", "resource": resource, "factor": factor, "max": "3Gi"}))
            .unwrap();
    let now = Quantities { request: request.map(Into::into), limit: limit.map(Into::into) };
    let text = |number: Option<ganglion_api::scalars::Number>| number.map(|number| number.0).unwrap_or_default();
    let goal = quantities(&resize, &now, false).ok().map(|goal| (text(goal.request), text(goal.limit)));
    assert_eq!(goal, expected.map(|(request, limit)| (request.to_owned(), limit.to_owned())));
}

#[rstest]
#[case(json!({"path": "spec.a", "by": "10", "min": "0", "max": "100"}), json!(95), Some(json!(100)))]
#[case(json!({"path": "spec.a", "by": "-0.5", "min": "0", "max": "100"}), json!(1.5), Some(json!(1.0)))]
#[case(json!({"path": "spec.a", "factor": "2", "min": "0", "max": "100"}), json!("8"), Some(json!("16")))]
#[case(json!({"path": "spec.a", "by": "0.1", "min": "0", "max": "100"}), json!(0.2), Some(json!(0.3)))]
#[case(json!({"path": "spec.a", "by": "0.1", "min": "0", "max": "100"}), json!("0.2"), Some(json!("0.3")))]
#[case(json!({"path": "spec.a", "factor": "0.5", "min": "0", "max": "100"}), json!("0.0005"), Some(json!("0.00025")))]
#[case(json!({"path": "spec.a", "factor": "1.1", "min": "0", "max": "1000"}), json!(100), Some(json!(110)))]
#[case(json!({"path": "spec.a", "factor": "2", "min": "4", "max": "100"}), json!(0), Some(json!(4)))]
#[case(json!({"path": "spec.a", "by": "1", "min": "0", "max": "100"}), json!(100), None)]
#[case(json!({"path": "spec.a", "by": "1", "min": "0", "max": "100"}), json!("fast"), None)]
#[case(json!({"path": "spec.a", "to": "\"fast\""}), json!("slow"), Some(json!("fast")))]
#[case(json!({"path": "spec.a", "to": "\"fast\""}), json!("fast"), None)]
#[case(json!({"path": "spec.a", "to": "fast"}), json!("slow"), None)]
fn gives_an_absolute_field(#[case] patch: Value, #[case] now: Value, #[case] expected: Option<Value>) {
    let patch: PatchField = serde_json::from_value(patch).unwrap();
    assert_eq!(field(&patch, Some(&now), None).ok(), expected);
}

#[rstest]
#[case(json!({"path": "spec.a", "to": "1"}), json!(5), None)]
#[case(json!({"path": "spec.a", "to": "\"500m\""}), json!("1"), None)]
#[case(json!({"path": "spec.a", "to": "9"}), json!(5), Some(json!(9)))]
#[case(json!({"path": "spec.a", "to": "\"slow\""}), json!("fast"), Some(json!("slow")))]
#[case(json!({"path": "spec.a", "by": "-1", "min": "0", "max": "9"}), json!(5), None)]
fn a_number_is_not_lowered_while_a_value_is_unknown(
    #[case] patch: Value,
    #[case] now: Value,
    #[case] expected: Option<Value>,
) {
    let patch: PatchField = serde_json::from_value(patch).unwrap();
    let found = field(&patch, Some(&now), Some("queue is unknown"));
    if let Err(NoPlan::Limited(message)) = &found {
        assert!(message.starts_with("queue is unknown: it is not lowered from "), "{message}");
    }
    assert_eq!(found.ok(), expected);
}

/// Case R3: max also bounds a limit, which stays where it is.
#[test]
fn a_limit_at_max_stays_while_the_request_grows() {
    let resize: Resize = serde_json::from_value(
        json!({"container": "app", "resource": "memory", "factor": "1.25", "max": "8Gi", "what": "Both"}),
    )
    .unwrap();
    let now = Quantities { request: Some("1Gi".into()), limit: Some("8Gi".into()) };
    let expected = Quantities { request: Some("1280Mi".into()), limit: Some("8Gi".into()) };
    assert_eq!(quantities(&resize, &now, false), Ok(expected));
}

proptest! {
    #[test]
    fn replicas_stay_within_what_the_rung_allows(
        by in prop::option::of(-1000..1000_i32), factor in "[0-9]{1,3}(\\.[0-9]{1,3})?|x",
        min in prop::option::of(0..100_000_i32), max in prop::option::of(0..100_000_i32),
        now in prop::num::i32::ANY, unknown: bool,
    ) {
        let rung = Scale { by, factor: by.is_none().then(|| factor.as_str().into()), min, max, ..Scale::default() };
        if let Ok(goal) = replicas(&rung, now, unknown.then_some("why")) {
            prop_assert!(goal >= 0);
            prop_assert_ne!(goal, now);
            if goal > now && now >= 0 {
                prop_assert!(max.is_some_and(|max| goal <= max));
                prop_assert!(by.is_none_or(|by| by > 0));
            } else if goal < now {
                prop_assert!(!unknown);
                prop_assert!(min.is_some_and(|min| goal >= min));
                prop_assert!(by.is_none_or(|by| by < 0));
            }
        }
    }

    #[test]
    fn quantities_never_panic_and_keep_to_max(
        factor in "[0-9]{1,4}(\\.[0-9]{1,3})?", now in "[0-9]{1,18}(m|Gi|Ei)?", max in "[0-9]{1,18}(Mi|Gi)?",
    ) {
        let resize: Resize = serde_json::from_value(
            json!({"container": "app", "resource": "memory", "factor": factor, "max": max})).unwrap();
        let now = Quantities { request: Some(now.as_str().into()), limit: None };
        if let Ok(goal) = quantities(&resize, &now, false) {
            let bytes = |text: &str| ganglion_core::quantity::bytes(text).unwrap();
            prop_assert!(bytes(goal.request.unwrap().as_str()) <= bytes(&max));
        }
    }
}
