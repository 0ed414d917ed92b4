//! Deletes of replicas whose claims the StatefulSet deletes with them.

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
