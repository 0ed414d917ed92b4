//! Tests of trials: the result of a rung is known before there is a decision.

use rstest::rstest;
use serde_json::{Value, json};

use crate::execution::{
    ObjectVersion, PendingResize, PodResources, ResizeTarget, TargetState, Trial, TunedLoop, trial,
};
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::execution::Quantities;

fn tried(rung: Value, seen: &TargetState) -> Trial {
    let target = TargetRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name: "web".into() };
    trial("slow", &target, &serde_json::from_value(rung).unwrap(), seen)
}

fn possible(before: &str, after: &str) -> Trial {
    Trial::Possible { before: Some(before.into()), after: after.into() }
}

fn resources(request: Option<&str>, pods: usize) -> TargetState {
    let wants = Quantities { request: request.map(|text| text.into()), limit: None };
    let pod = PodResources { wants: wants.clone(), ..PodResources::default() };
    let template = request.map(|_| (Some(0), wants));
    TargetState::Resources(Box::new(ResizeTarget { template, pods: vec![pod; pods], ..ResizeTarget::default() }))
}

#[test]
fn a_scale_says_from_where_to_where_or_that_it_is_at_its_bound() {
    let at = |replicas| TargetState::Scale(ObjectVersion::default(), replicas);
    let up = json!({"scale": {"by": 1, "max": 4}});
    assert_eq!(tried(up.clone(), &at(3)), possible("3", "4"));
    assert!(matches!(tried(up, &at(4)), Trial::Limited(words) if words.contains("max is 4")));
}

#[rstest]
#[case(TargetState::NotFound("gone".into()), LoopReason::TargetNotFound)]
#[case(TargetState::Forbidden("no".into()), LoopReason::Forbidden)]
#[case(TargetState::Unfit(LoopReason::ReplicasOwnedElsewhere, "flux".into()), LoopReason::ReplicasOwnedElsewhere)]
#[case(TargetState::Nothing, LoopReason::SpecInvalid)]
fn what_a_decision_would_fail_of_is_known_before(#[case] seen: TargetState, #[case] expected: LoopReason) {
    let tried = tried(json!({"scale": {"by": 1, "max": 4}}), &seen);
    assert!(matches!(tried, Trial::Impossible(reason, _) if reason == expected), "{tried:?}");
}

#[test]
fn a_resize_without_pods_is_judged_by_the_template() {
    let resize = json!({"resize": {"container": "main", "resource": "memory", "factor": "2", "max": "1Gi"}});
    let doubled = possible("request 256Mi", "request 512Mi");
    assert_eq!(tried(resize.clone(), &resources(Some("256Mi"), 2)), doubled);
    assert_eq!(tried(resize.clone(), &resources(Some("256Mi"), 0)), doubled);
    let none = tried(resize.clone(), &resources(None, 0));
    assert!(matches!(none, Trial::Impossible(LoopReason::NotScalable, _)), "{none:?}");
    let unset = tried(resize, &resources(None, 1));
    assert!(matches!(unset, Trial::Impossible(LoopReason::SpecInvalid, _)), "{unset:?}");
}

/// A preflight of a loop must not fail because a pod is just starting or being resized.
#[test]
fn a_resize_that_is_pending_is_not_impossible() {
    let resize = json!({"container": "main", "resource": "memory", "factor": "2", "max": "1Gi", "template": true});
    let TargetState::Resources(mut target) = resources(Some("256Mi"), 1) else { panic!("no resources") };
    let tried =
        |target: &ResizeTarget| tried(json!({ "resize": resize }), &TargetState::Resources(Box::new(target.clone())));
    target.starting = Some("b".to_owned());
    assert!(matches!(tried(&target), Trial::Limited(words) if words.starts_with("pod b does not run yet")));
    target.starting = None;
    target.pods[0].pending = Some(PendingResize { reason: "Deferred".to_owned(), message: "node is full".to_owned() });
    assert!(matches!(tried(&target), Trial::Limited(words) if words.ends_with("Deferred: node is full")));
}

#[test]
fn a_field_that_is_no_number_cannot_be_raised() {
    let by = json!({"patch": {"path": "spec.paused", "by": "1", "min": "0", "max": "2"}});
    let field = |value| TargetState::Field(ObjectVersion::default(), Some(value));
    let tried_on = tried(by.clone(), &field(json!(true)));
    assert!(matches!(tried_on, Trial::Impossible(LoopReason::SpecInvalid, _)), "{tried_on:?}");
    assert_eq!(tried(by, &field(json!(0))), possible("0", "1"));
}

#[test]
fn a_loop_that_does_not_allow_the_tuning_is_not_tunable() {
    let tune = json!({"tune": {"raiseRank": "LeastServed"}});
    let open = TunedLoop {
        tunable: serde_json::from_value(json!({"by": ["slow"], "rank": true})).unwrap(),
        ..TunedLoop::default()
    };
    for (other, allowed) in [(open, true), (TunedLoop::default(), false)] {
        let tried = tried(tune.clone(), &TargetState::Loop(Box::new(other)));
        assert_eq!(!matches!(tried, Trial::Impossible(LoopReason::NotTunable, _)), allowed, "{tried:?}");
    }
}
