//! Tests of the assessment: invalid fields and conflicting objects are named, also by the children.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use rstest::rstest;
use serde_json::{Value, json};

use crate::common::time_text;
use crate::proposal;
use crate::tests::bench::{at, demo, spec};
use crate::validate::assessment::{
    Assessment, AssessmentInput, ChildStatuses, LoopProblem, NamespaceAccess, assess, status, status_change,
    undone_until,
};
use crate::validate::chain::LoopLink;
use crate::validate::conflict::{Claimant, ClaimantKind, dimensions};
use crate::validate::preflight::Preflight;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::{ClosedLoopSpec, ClosedLoopStatus};
use ganglion_api::decision::DecisionStatus;
use ganglion_api::execution::{ExecutionState, ExecutionStatus, Undone};
use ganglion_api::monitoring::MonitoringStatus;
use ganglion_core::conditions;
use ganglion_core::status::StatusChange;

fn claimant(name: &str, spec: &ClosedLoopSpec) -> Claimant {
    Claimant {
        kind: ClaimantKind::ClosedLoop,
        name: name.into(),
        uid: name.into(),
        created: at(0),
        target: spec.target.clone(),
        dimensions: dimensions(spec, None),
        keeps: None,
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
    judged_at(spec, others, hops, access, at(1))
}

/// The same, at this time.
fn judged_at(
    spec: &ClosedLoopSpec,
    others: &[Claimant],
    hops: ChildStatuses,
    access: &NamespaceAccess,
    now: Timestamp,
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
        now,
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
#[case(
    "/actions/1/ladder",
    json!([{"scale": {"by": 1, "max": 5}}, {"patch": {"path": "spec.a[0", "to": "1"}}]),
    "actions[Low memory].ladder[1].patch.path: spec.a[0: a bracket has no end"
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

/// Conditions by type, status, reason and message.
fn conditions_of(all: &[(&str, &str, &str, &str)]) -> Value {
    let condition = |(kind, status, reason, message): &(&str, &str, &str, &str)| {
        json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({"conditions": all.iter().map(condition).collect::<Vec<_>>()})
}

/// A Monitoring that its controller watches, with this condition DataAvailable.
fn watched(status: &str, reason: &str, message: &str) -> MonitoringStatus {
    let data = ("DataAvailable", status, reason, message);
    serde_json::from_value(conditions_of(&[("Ready", "True", "Watching", ""), data])).unwrap()
}

/// An Execution with this condition LastActionSucceeded.
fn executed(status: &str, reason: &str, message: &str) -> ExecutionStatus {
    let last = ("LastActionSucceeded", status, reason, message);
    serde_json::from_value(conditions_of(&[("Ready", "True", "Running", ""), last])).unwrap()
}

/// The status of a loop in Auto whose preflight has passed, with these children.
fn running(monitoring: &MonitoringStatus, execution: &ExecutionStatus) -> ClosedLoopStatus {
    running_at(monitoring, execution, at(1))
}

fn running_at(monitoring: &MonitoringStatus, execution: &ExecutionStatus, now: Timestamp) -> ClosedLoopStatus {
    let (decision, passed) = (DecisionStatus::default(), Preflight::Passed);
    let hops = ChildStatuses {
        monitoring: Some(monitoring),
        decision: Some(&decision),
        execution: Some(execution),
        preflight: Some(&passed),
        ..ChildStatuses::default()
    };
    judged_at(&demo(json!({})), &[], hops, &NamespaceAccess::Granted, now).1
}

fn message<'a>(status: &'a ClosedLoopStatus, kind: &str) -> &'a str {
    conditions::find(&status.conditions, kind).map_or("", |condition| condition.message.as_str())
}

const RUNNING: (&str, &str, &str) = ("Ready", "True", "Running");
const PASSED: (&str, &str, &str) = ("Preflight", "True", "Passed");

#[rstest]
#[case::before_the_first_sample(
    "Unknown",
    "NoSample",
    "waiting for the first sample: ganglion push web cpu=NUMBER memory=NUMBER"
)]
#[case::without_a_value("False", "SomeUnknown", "why")]
#[case::with_all("True", "AllKnown", "why")]
fn data_are_no_matter_of_ready(#[case] status: &str, #[case] reason: &str, #[case] expected: &str) {
    let idle = ExecutionStatus { state: Some(ExecutionState::Idle), ..ExecutionStatus::default() };
    let found = running(&watched(status, reason, "why"), &idle);
    assert_eq!(words(&found), [RUNNING, ("DataAvailable", status, reason), PASSED]);
    assert_eq!(message(&found, "DataAvailable"), expected);
}

/// The reason of a missing value is shown, unless a pushed sample is awaited.
#[rstest]
#[case::both_awaited(
    &[("cpu", "no value has been received yet"), ("memory", "no value has been received yet")],
    "waiting for the first sample: ganglion push web cpu=NUMBER memory=NUMBER"
)]
#[case::refused(&[("cpu", "the clock is fast"), ("memory", "the clock is fast")], "why")]
#[case::one_awaited(
    &[("cpu", "the server answers 401"), ("memory", "no value has been received yet")],
    "why; to send a sample: ganglion push web memory=NUMBER"
)]
fn a_reason_is_shown_before_the_first_value(#[case] unknown: &[(&str, &str)], #[case] expected: &str) {
    let unknown: Vec<Value> = unknown
        .iter()
        .map(|(metric, message)| json!({"metric": metric, "since": "2026-01-01T00:00:00Z", "message": message}))
        .collect();
    let unknown = serde_json::from_value(json!(unknown)).unwrap();
    let monitoring = MonitoringStatus { unknown, ..watched("Unknown", "NoSample", "why") };
    let found = running(&monitoring, &ExecutionStatus::default());
    assert_eq!(message(&found, "DataAvailable"), expected);
}

#[rstest]
#[case("False", "Failed", "why")]
#[case("False", "Lost", "why")]
#[case("True", "Limited", "nothing was changed: the target was at its min or max, or there was no replica to move")]
#[case("True", "Done", "the last action was carried out")]
fn the_end_of_an_action_is_no_matter_of_ready(#[case] status: &str, #[case] reason: &str, #[case] expected: &str) {
    let data = watched("True", "AllKnown", "2 metrics have a value");
    let execution = ExecutionStatus {
        state: Some(if status == "True" { ExecutionState::Done } else { ExecutionState::Failed }),
        reason: Some(LoopReason::of(reason)),
        ..executed(status, reason, "why")
    };
    let found = running(&data, &execution);
    let last = ("LastActionSucceeded", status, reason);
    assert_eq!(words(&found), [RUNNING, ("DataAvailable", "True", "AllKnown"), last, PASSED]);
    assert_eq!(message(&found, "LastActionSucceeded"), expected);
}

#[test]
fn a_loop_whose_changes_are_undone_has_stopped() {
    let execution = ExecutionStatus {
        state: Some(ExecutionState::Failed),
        reason: Some(LoopReason::FieldConflict),
        message: Some("somebody undid it".into()),
        ..ExecutionStatus::default()
    };
    let found = running(&watched("True", "AllKnown", ""), &execution);
    assert_eq!(words(&found)[0], ("Ready", "False", "FieldConflict"));
    assert_eq!(message(&found, "Ready"), "somebody undid it");
}

#[test]
fn a_loop_with_a_child_that_is_not_acted_on_says_so() {
    let outdated = json!([{"type": "Stalled", "status": "True", "reason": "DefinitionOutdated", "message": "no tag",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let execution =
        ExecutionStatus { conditions: serde_json::from_value(outdated).unwrap(), ..ExecutionStatus::default() };
    let found = running(&watched("True", "AllKnown", ""), &execution);
    assert_eq!(words(&found)[0], ("Ready", "False", "DefinitionOutdated"));
    assert_eq!(message(&found, "Ready"), "the Execution of the loop: no tag");
}

/// Status of an Execution whose changes of these fields somebody has undone at these seconds.
fn undone(changes: &[(i64, &str, &str)]) -> ExecutionStatus {
    let undone = |&(second, by, dimension): &(i64, &str, &str)| Undone {
        at: MicroTime(at(second)),
        by: by.to_owned(),
        dimension: dimension.to_owned(),
    };
    ExecutionStatus { undone: changes.iter().map(undone).collect(), ..ExecutionStatus::default() }
}

#[test]
fn each_field_with_undone_changes_is_named() {
    let execution = undone(&[(0, "flux", "/spec/color"), (1, "kubectl", "replicas"), (1, "flux", "replicas")]);
    let found = running(&watched("True", "AllKnown", ""), &execution);
    assert!(words(&found).contains(&("Ready", "True", "Running")), "{found:?}");
    assert!(words(&found).contains(&("ChangeUndone", "True", "FieldConflict")), "{found:?}");
    let expected = format!(
        "flux undid 2 of 3 changes of replicas in a row; flux undid 1 of 3 changes of /spec/color in a row; after 3 of \
         one field, the loop stops: configure the client to leave the field alone, or remove this loop's rung. This \
         condition ends at {} unless another change is undone",
        time_text(at(3601))
    );
    assert_eq!(message(&found, "ChangeUndone"), expected);
    let long = "x".repeat(400);
    let many = undone(&[(0, "flux", &long), (0, &long, "replicas"), (0, "flux", "/spec/color")]);
    let found = running(&watched("True", "AllKnown", ""), &many);
    let said = message(&found, "ChangeUndone");
    assert!(said.starts_with("flux undid 1 of 3 changes of /spec/color") && said.contains("x…; after 3"), "{said}");
    assert!(said.ends_with("unless another change is undone"), "{said}");
}

#[test]
fn the_condition_about_undone_changes_ends_an_hour_after_the_last_one() {
    let execution = undone(&[(0, "flux", "replicas"), (600, "flux", "/spec/color")]);
    let named = |second| {
        let found = running_at(&watched("True", "AllKnown", ""), &execution, at(second));
        let said = message(&found, "ChangeUndone").to_owned();
        (said.contains("replicas"), said.contains("/spec/color"))
    };
    let until = |second| undone_until(Some(&execution), at(second));
    assert_eq!((named(3599), until(3599)), ((true, true), Some(at(3600))));
    assert_eq!((named(3600), until(3600)), ((false, true), Some(at(4200))));
    assert_eq!((named(4199), until(4199)), ((false, true), Some(at(4200))));
    assert_eq!((named(4200), until(4200)), ((false, false), None));
    assert_eq!(undone_until(None, at(0)), None);
}

#[test]
fn a_proposal_has_a_condition_until_it_is_approved() {
    let spec = demo(json!({}));
    let decision: DecisionStatus = serde_json::from_value(json!({"seq": 4, "chosen": {
        "seq": 4, "metric": "cpu", "side": "Low", "rung": 0, "do": {"scale": {"by": 1, "max": 5}},
        "at": "2026-11-22T00:00:00Z", "executor": "exe", "mode": "Approve",
    }}))
    .unwrap();
    let digest = proposal::digest_of(decision.chosen.as_ref().unwrap(), &spec.target);
    let (monitoring, idle) = (watched("True", "AllKnown", ""), ExecutionStatus::default());
    let hops = ChildStatuses {
        monitoring: Some(&monitoring),
        decision: Some(&decision),
        execution: Some(&idle),
        preflight: Some(&Preflight::Passed),
        ..ChildStatuses::default()
    };
    let (_, found) = judged(&spec, &[], hops);
    assert!(words(&found).contains(&("Proposed", "True", "AwaitsApproval")), "{found:?}");
    assert_eq!(
        words(&found)[0],
        ("Ready", "True", "AwaitsApproval"),
        "the table shows that somebody has to approve it"
    );
    let expected = format!(
        "decision 4: scale by 1, at most 5 of Deployment/web, against Low cpu; to approve it: ganglion approve web {digest}"
    );
    assert_eq!((message(&found, "Proposed"), message(&found, "Ready")), (&*expected, &*expected));
    let begun = ExecutionStatus { seq: Some(4), ..ExecutionStatus::default() };
    let (_, found) = judged(&spec, &[], ChildStatuses { execution: Some(&begun), ..hops });
    assert_eq!((message(&found, "Proposed"), words(&found)[0]), ("", ("Ready", "True", "Running")));
}

#[test]
fn a_loop_is_starting_until_its_children_exist() {
    let data = watched("True", "AllKnown", "2 metrics have a value");
    let (spec, decision) = (demo(json!({})), DecisionStatus::default());
    let hops = ChildStatuses { monitoring: Some(&data), decision: Some(&decision), ..ChildStatuses::default() };
    let (_, missing) = judged(&spec, &[], hops);
    let expected = [("Ready", "Unknown", "Starting"), ("Reconciling", "True", "Starting")];
    assert_eq!(words(&missing)[..2], expected);
    assert_eq!(missing.summary.as_ref().map(|summary| summary.target.as_str()), Some("Deployment/web"));
    let complete = running(&data, &ExecutionStatus::default());
    assert_eq!(status_change(&missing, &complete), StatusChange::Edge);
    assert_eq!(status_change(&complete, &complete), StatusChange::None);
}

#[test]
fn a_loop_is_not_ready_before_its_preflight_has_passed() {
    let mut monitoring = watched("True", "AllKnown", "");
    monitoring.conditions.truncate(1);
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
fn an_unusual_path_of_the_replicas_is_remembered() {
    let spec = demo(json!({}));
    let path = |hops: ChildStatuses| judged(&spec, &[], hops).1.replicas_path;
    let found = |replicas_path| ChildStatuses { replicas_path: Some(replicas_path), ..ChildStatuses::default() };
    assert_eq!(path(ChildStatuses::default()), None);
    assert_eq!(path(found("spec.replicas")), None);
    assert_eq!(path(found("spec.size")).as_deref(), Some("spec.size"));
    let (old, new) = (judged(&spec, &[], ChildStatuses::default()).1, judged(&spec, &[], found("spec.size")).1);
    assert_eq!(status_change(&old, &new), StatusChange::Edge);
}

#[test]
fn the_decision_knows_the_path_of_the_replicas() {
    let (spec, access, links) = (demo(json!({})), NamespaceAccess::Granted, BTreeMap::new());
    let me = claimant("web", &spec);
    for path in [None, Some("spec.size".to_owned())] {
        let status = ClosedLoopStatus { replicas_path: path.clone(), ..ClosedLoopStatus::default() };
        let (status, links, me, access) = (&status, &links, &me, &access);
        let (name, spec, approval, others, now) = ("web", &spec, None, &[], at(1));
        let case = AssessmentInput { name, spec, approval, status, links, me, others, access, now };
        assert_eq!(assess(&case).children.decision.replicas_path, path);
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
