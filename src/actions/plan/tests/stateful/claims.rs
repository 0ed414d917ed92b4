//! Deletes, and undone creates, of replicas whose claims the StatefulSet deletes with them.

use super::*;

fn with_claims(deletes: bool, claims: &[&str]) -> Stage {
    let mut stage = Stage::stateful(Way::Neither);
    stage.put_stateful(3, Way::Neither, |set| {
        (set.claims, set.deletes_claims) = (vec!["data".into(), "log".into()], deletes);
    });
    for claim in claims {
        stage.put(|id| ClaimFact { id, ..ClaimFact::default() }, claim);
    }
    stage
}

#[rstest]
#[case::refused(true, &["data-db-2", "log-db-2"], json!({}), Some("would delete claims data-db-2, log-db-2 with the data"))]
#[case::one(true, &["data-db-2"], json!({"dataLoss": "Refuse"}), Some("would delete claim data-db-2 with the data"))]
#[case::accepted(true, &["data-db-2"], json!({"dataLoss": "Accept"}), None)]
#[case::retained(false, &["data-db-2"], json!({}), None)]
#[case::of_another_replica(true, &["data-db-1"], json!({}), None)]
fn data_is_deleted_only_if_that_is_accepted(
    #[case] deletes: bool,
    #[case] claims: &[&str],
    #[case] more: serde_json::Value,
    #[case] words: Option<&str>,
) {
    for subject in [json!({"workload": db()}), json!({"pod": {"name": "db-2"}})] {
        let mut stage = with_claims(deletes, claims);
        let mut spec = json!({"delete": subject});
        spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        stage.act("go", spec);
        let next = stage.settle("go");
        assert_eq!(matches!(next, NextStep::Do(Effect::Scale { .. })), words.is_none(), "{next:?}");
        let plan = stage.action("go").status.and_then(|status| status.plan).expect("a plan");
        let message = &plan.pods.iter().find(|pod| pod.chosen).expect("a pod").message;
        assert_eq!(
            message.contains("deleted with its data: claim"),
            deletes && claims[0].ends_with("db-2"),
            "{message}"
        );
        if let Some(words) = words {
            let (ready, reason, message) = stage.ready("go");
            assert_eq!((ready.as_str(), reason.as_str()), ("False", "DataWouldBeLost"), "{message}");
            assert!(message.contains(words) && message.contains("dataLoss: Accept"), "{message}");
        }
    }
}

#[test]
fn a_policy_that_changes_before_the_delete_undoes_it() {
    let mut stage = with_claims(false, &["data-db-2"]);
    stage.put_replica("db-0", "", |pod| (pod.node, pod.ready_since) = (Some("a".into()), None));
    stage.act("go", json!({"delete": {"workload": db()}}));
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "db-0 is not Ready");
    stage.put_stateful(3, Way::Neither, |set| (set.claims, set.deletes_claims) = (vec!["data".into()], true));
    stage.put_replica("db-0", "", |pod| pod.node = Some("a".into()));
    stage.settle("go");
    assert_eq!((stage.ready("go").1.as_str(), stage.slot("go").step), ("DataWouldBeLost", Step::RolledBack));
}

/// A StatefulSet of three whose fourth replica has an older claim.
fn with_older_claim(deletes: bool) -> Stage {
    let mut stage = with_claims(deletes, &[]);
    stage.put_stateful(3, Way::Gate, |set| (set.claims, set.deletes_claims) = (vec!["data".into()], deletes));
    let created = stage.now - SignedDuration::from_hours(2);
    stage.put(|id| ClaimFact { id, created, ..ClaimFact::default() }, "data-db-3");
    stage
}

fn create(more: serde_json::Value) -> serde_json::Value {
    let mut spec = json!({"create": {"workload": db(), "to": {"nodeName": "d"}}});
    json_patch::merge(&mut spec, &more);
    spec
}

/// Undoing a create deletes its replica's claims, with data that are older than the action.
#[rstest]
#[case::refused(true, json!({}), false)]
#[case::accepted(true, json!({"dataLoss": "Accept"}), true)]
#[case::retained(false, json!({}), true)]
fn a_create_with_older_data_is_refused_unless_its_undoing_may_delete_them(
    #[case] deletes: bool,
    #[case] more: serde_json::Value,
    #[case] begins: bool,
) {
    let mut stage = with_older_claim(deletes);
    stage.act("go", create(more));
    let next = stage.settle("go");
    assert_eq!(matches!(next, NextStep::Do(Effect::Scale { replicas: 4, .. })), begins, "{next:?}");
    let plan = stage.action("go").status.and_then(|status| status.plan).expect("a plan");
    assert_eq!(plan.pods.iter().any(|pod| pod.message.contains("claim data-db-3")), deletes, "{plan:?}");
    if !begins {
        let (ready, reason, message) = stage.ready("go");
        assert_eq!((ready.as_str(), reason.as_str()), ("False", "DataWouldBeLost"), "{message}");
        assert!(message.contains("claim data-db-3 with the data if the create is undone"), "{message}");
    }
}

/// `whenScaled` was Retain when the replica was created.
#[rstest]
#[case::older(-3600, false)]
#[case::of_the_replica(1, true)]
fn an_undoing_that_would_delete_older_data_leaves_the_replica(#[case] age: i64, #[case] is_undone: bool) {
    let mut stage = with_claims(false, &[]);
    stage.put_stateful(3, Way::Gate, |set| set.claims = vec!["data".into()]);
    stage.act("go", create(json!({})));
    let NextStep::Do(Effect::Scale { ledger, .. }) = stage.settle("go") else { panic!("one more replica") };
    let created = stage.now + SignedDuration::from_secs(age);
    stage.put(|id| ClaimFact { id, created, ..ClaimFact::default() }, "data-db-3");
    stage.put_stateful(4, Way::Gate, |set| {
        (set.claims, set.deletes_claims) = (vec!["data".into()], true);
        set.set.scale.ledger.clone_from(&ledger);
    });
    stage.settle("go");
    let mut action = stage.action("go");
    action.spec.abort = true;
    stage.put_action(action);
    let next = stage.settle("go");
    assert_eq!(matches!(next, NextStep::Do(Effect::Scale { replicas: 3, .. })), is_undone, "{next:?}");
    if !is_undone {
        let (ready, reason, message) = stage.ready("go");
        assert_eq!((ready.as_str(), reason.as_str()), ("False", "Aborted"), "{message}");
        assert!(message.contains("pod db-3 stays") && message.contains("claim data-db-3"), "{message}");
    }
}
