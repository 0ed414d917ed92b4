//! Tests of the assessment: invalid fields and conflicting objects are named, also by the children.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};

use crate::tests::bench::{at, demo, spec};
use crate::validate::assessment::{
    Assessment, AssessmentInput, ChildStatuses, LoopProblem, NamespaceAccess, assess, status, status_change,
};
use crate::validate::chain::LoopLink;
use crate::validate::conflict::{Claimant, ClaimantKind, dimensions};
use crate::validate::preflight::Preflight;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::{ClosedLoopSpec, ClosedLoopStatus};
use ganglion_api::execution::{ExecutionState, ExecutionStatus};
use ganglion_api::monitoring::MonitoringStatus;
use ganglion_core::status::StatusChange;

fn claimant(name: &str, spec: &ClosedLoopSpec) -> Claimant {
    Claimant {
        kind: ClaimantKind::ClosedLoop,
        name: name.into(),
        uid: name.into(),
        created: at(0),
        target: spec.target.clone(),
        dimensions: dimensions(spec),
    }
}

/// Assesses the loop `web`, and returns its status with these children.
fn judged(spec: &ClosedLoopSpec, others: &[Claimant], hops: ChildStatuses) -> (Assessment, ClosedLoopStatus) {
    judged_where(spec, others, hops, &NamespaceAccess::Granted)
}

/// The same, with this access of the operator to the namespace.
fn judged_where(
    spec: &ClosedLoopSpec,
    others: &[Claimant],
    hops: ChildStatuses,
    access: &NamespaceAccess,
) -> (Assessment, ClosedLoopStatus) {
    let (old, me) = (ClosedLoopStatus::default(), claimant("web", spec));
    let links: BTreeMap<String, LoopLink> =
        LoopLink::parse(spec).into_iter().map(|link| ("web".to_owned(), link)).collect();
    let case = AssessmentInput {
        name: "web",
        spec,
        approval: None,
        status: &old,
        links: &links,
        me: &me,
        others,
        access,
        now: at(1),
    };
    let assessment = assess(&case);
    let status = status(&case, &assessment, hops, 3);
    (assessment, status)
}

fn words(status: &ClosedLoopStatus) -> Vec<(&str, &str, &str)> {
    let conditions = status.conditions.iter();
    conditions.map(|one| (one.type_.as_str(), one.status.as_str(), one.reason.as_str())).collect()
}

/// Fields that the schema accepts and the operator cannot use. The second item of each list is wrong.
#[rstest]
#[case("/metrics/1/low/for", json!("999999h"), "metrics[memory].low.for: \"999999h\" is longer")]
#[case("/metrics/1/missing", json!({"after": "999999h"}), "metrics[memory].missing.after: \"999999h\" is longer")]
#[case("/policy/dwell", json!("999999h"), "policy.dwell: \"999999h\" is longer")]
#[case("/policy/budget", json!({"max": 1, "per": "999999h"}), "policy.budget.per: \"999999h\" is longer")]
#[case("/policy/oscillation", json!({"reversals": 1, "per": "999999h"}), "policy.oscillation.per: \"999999h\" is longer")]
#[case("/policy/expression", json!("metric.exces"), "policy.expression: unknown name \"metric.exces\"")]
#[case(
    "/policy/limits",
    json!([
        {"name": "night", "dwell": "1h", "during": [{"cron": "0 8 * * *", "duration": "1h"}]},
        {"name": "day", "dwell": "999999h", "during": [{"cron": "0 8 * * *", "duration": "1h"}]},
    ]),
    "policy.limits[day].dwell: \"999999h\" is longer"
)]
#[case(
    "/policy/limits",
    json!([{"name": "day", "dwell": "1h", "during": [
        {"cron": "0 8 * * *", "duration": "1h"}, {"cron": "0 8 * * MUN", "duration": "1h"}
    ]}]),
    "policy.limits[day].during[1].cron: \"0 8 * * MUN\" is not a cron pattern"
)]
#[case("/actions/1/settle", json!("999999h"), "actions[Low memory].settle: \"999999h\" is longer")]
#[case(
    "/actions/1/during",
    json!([{"cron": "0 8 * * *", "duration": "1h"}, {"cron": "0 8 * * *", "duration": "1h", "timeZone": "Europe/Bonn"}]),
    "actions[Low memory].during[1].timeZone: \"Europe/Bonn\" is not a time zone"
)]
#[case("/tunable", json!({"by": ["slow"], "ttl": "999999h"}), "tunable.ttl: \"999999h\" is longer")]
fn a_value_that_cannot_be_used_is_named(#[case] pointer: &str, #[case] value: Value, #[case] expected: &str) {
    let mut object = serde_json::to_value(demo(json!({"select": "Expression", "expression": "1.0"}))).unwrap();
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[member] = value;
    let (assessment, status) = judged(&spec(object), &[], ChildStatuses::default());
    let Some(LoopProblem::Spec(LoopReason::SpecInvalid, said)) = &assessment.problem else {
        panic!("{:?}", assessment.problem)
    };
    assert!(said.starts_with(expected), "{said}");
    assert_eq!(words(&status), [("Ready", "False", "SpecInvalid"), ("Stalled", "True", "SpecInvalid")]);
    assert!(status.conditions.iter().all(|one| &one.message == said), "{status:?}");
}

#[rstest]
#[case("/target/name", "../../secrets/s", "spec.target.name")]
#[case("/target/name", "..", "spec.target.name")]
#[case("/target/apiVersion", "apps/v1/../x", "spec.target.apiVersion")]
#[case("/serviceAccountName", "a/b", "spec.serviceAccountName")]
fn a_name_that_leads_elsewhere_is_refused(#[case] pointer: &str, #[case] name: &str, #[case] field: &str) {
    let mut value = serde_json::to_value(demo(json!({}))).unwrap();
    value["serviceAccountName"] = json!("x");
    *value.pointer_mut(pointer).unwrap() = json!(name);
    let (assessment, _) = judged(&spec(value), &[], ChildStatuses::default());
    let Some(LoopProblem::Spec(LoopReason::SpecInvalid, words)) = &assessment.problem else {
        panic!("{:?}", assessment.problem)
    };
    assert!(words.starts_with(field), "{words}");
}

#[test]
fn an_autoscaler_is_in_the_way_and_named() {
    let spec = demo(json!({}));
    let scaler = Claimant { kind: ClaimantKind::HorizontalPodAutoscaler, uid: "h".into(), ..claimant("hpa", &spec) };
    let (assessment, status) = judged(&spec, &[scaler], ChildStatuses::default());
    let why = assessment.children.execution.blocked.clone().unwrap();
    assert!(why.contains("HorizontalPodAutoscaler hpa acts on replicas"), "{why}");
    assert!(words(&status).contains(&("Conflict", "True", "AutoscalerConflict")), "{status:?}");
    assert!(assessment.stages.is_some(), "monitoring continues");
}

#[test]
fn a_child_that_failed_shows_in_the_parent() {
    let spec = demo(json!({}));
    let (monitoring, decision) = Default::default();
    let execution = ExecutionStatus {
        state: Some(ExecutionState::Failed),
        reason: Some(LoopReason::Forbidden),
        message: Some("grant it".into()),
        ..ExecutionStatus::default()
    };
    let hops = ChildStatuses {
        monitoring: Some(&monitoring),
        decision: Some(&decision),
        execution: Some(&execution),
        ..ChildStatuses::default()
    };
    let (_, failed) = judged(&spec, &[], hops);
    assert_eq!(words(&failed), [("Ready", "False", "Forbidden"), ("Reconciling", "True", "ProgressingWithRetry")]);
    assert_eq!(failed.summary.as_ref().map(|summary| summary.target.as_str()), Some("Deployment/web"));
    let (_, missing) = judged(&spec, &[], ChildStatuses { execution: None, ..hops });
    assert_eq!(words(&missing), [("Ready", "Unknown", "Starting"), ("Reconciling", "True", "Starting")]);
    assert_eq!(status_change(&failed, &missing), StatusChange::Edge);
    assert_eq!(status_change(&failed, &failed), StatusChange::None);
}

#[test]
fn a_loop_is_not_ready_before_its_preflight_has_passed() {
    let monitoring: MonitoringStatus =
        serde_json::from_value(json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Watching",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}))
        .unwrap();
    let (decision, execution) = Default::default();
    let hops = ChildStatuses {
        monitoring: Some(&monitoring),
        decision: Some(&decision),
        execution: Some(&execution),
        ..ChildStatuses::default()
    };
    for mode in ["Auto", "DryRun", "Approve"] {
        let spec = demo(json!({"mode": mode}));
        let said = |preflight: Preflight| judged(&spec, &[], ChildStatuses { preflight: Some(&preflight), ..hops }).1;
        let starting = [("Ready", "Unknown", "Starting"), ("Reconciling", "True", "Starting")];
        assert_eq!(words(&judged(&spec, &[], hops).1), starting);
        let pending = said(Preflight::Pending(Some("no answer within 10 s".into())));
        assert_eq!(words(&pending), starting);
        assert_eq!(pending.conditions[0].message, "checking the target and the rights: no answer within 10 s");
        let passed = said(Preflight::Passed);
        assert_eq!(words(&passed), [("Ready", "True", "Running"), ("Preflight", "True", "Passed")]);
        let failed = said(Preflight::Failed(LoopReason::TargetNotFound, "there is no Deployment web".into()));
        let expected = [
            ("Ready", "False", "TargetNotFound"),
            ("Reconciling", "True", "ProgressingWithRetry"),
            ("Preflight", "False", "TargetNotFound"),
        ];
        assert_eq!(words(&failed), expected);
        assert!(failed.conditions.iter().all(|one| one.message == "there is no Deployment web"), "{failed:?}");
    }
}

#[test]
fn a_loop_in_a_refused_namespace_neither_watches_nor_acts() {
    let access = NamespaceAccess::Refused("the operator does not act in namespace kube-system".into());
    let (assessment, status) = judged_where(&demo(json!({})), &[], ChildStatuses::default(), &access);
    assert_eq!(words(&status), [("Ready", "False", "NamespaceRefused"), ("Stalled", "True", "NamespaceRefused")]);
    assert!(assessment.children.monitoring.paused && assessment.children.execution.paused);
    assert!(assessment.children.decision.blocked.is_some() && !assessment.creates_children());
}

#[test]
fn a_loop_as_whose_account_the_operator_may_not_act_waits_for_the_binding() {
    let access = NamespaceAccess::NotBound("run `kubectl create rolebinding`".into());
    let (assessment, status) = judged_where(&demo(json!({})), &[], ChildStatuses::default(), &access);
    let expected = [("Ready", "False", "NamespaceNotBound"), ("Reconciling", "True", "ProgressingWithRetry")];
    assert_eq!(words(&status), expected);
    assert!(status.conditions[0].message.contains("kubectl create rolebinding"), "{:?}", status.conditions);
    assert!(assessment.children.execution.blocked.is_some() && assessment.creates_children());
}
