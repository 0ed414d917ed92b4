//! One replica more and one replica fewer, at the highest ordinal.

use super::*;

#[test]
fn a_new_replica_has_its_node_before_the_set_grows() {
    let mut stage = Stage::stateful(Way::Policy);
    stage.put_stateful(3, Way::Policy, |set| set.first_ordinal = 0);
    stage.act("go", json!({"create": {"workload": db(), "to": {"nodeName": "d"}}}));
    let NextStep::Do(Effect::Scale { replicas, ledger, .. }) = stage.settle("go") else {
        panic!("no change of replicas")
    };
    assert_eq!(replicas, 4);
    assert_eq!(stage.slot("go").replacement.unwrap().name, "db-3");
    stage.put_stateful(4, Way::Policy, |set| set.set.scale.ledger = ledger);
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "scaled once");
    stage.put_replica("db-3", "", |pod| (pod.node, pod.pin) = (Some("d".into()), Some("d".into())));
    let next = stage.settle("go");
    assert!(matches!(next, NextStep::Do(Effect::ClearLedger { .. })), "{next:#?}");
    assert_eq!(stage.ready("go").1, "Succeeded");
}

#[test]
fn a_new_replica_that_no_node_takes_goes_again() {
    let mut stage = Stage::stateful(Way::Policy);
    stage.act("go", json!({"create": {"workload": db(), "to": {"nodeName": "d"}}}));
    let NextStep::Do(Effect::Scale { ledger, .. }) = stage.settle("go") else { panic!("no change of replicas") };
    stage.put_stateful(4, Way::Policy, |set| set.set.scale.ledger = ledger);
    stage.put_replica("db-3", "", |pod| {
        (pod.node, pod.ready_since, pod.unschedulable) = (None, None, Some("no room".into()));
        pod.pin = Some("d".into());
    });
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }));
    stage.now += SignedDuration::from_secs(121);
    let NextStep::Do(Effect::Scale { replicas, ledger, .. }) = stage.settle("go") else { panic!("not undone") };
    assert_eq!(replicas, 3);
    stage.put_stateful(3, Way::Policy, |set| set.set.scale.ledger = ledger);
    stage.lose_replica("db-3");
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "Unschedulable"), "{message}");
    assert_eq!(stage.slot("go").step, Step::RolledBack);
}

#[test]
fn a_delete_takes_the_highest_once() {
    let mut stage = Stage::stateful(Way::Policy);
    stage.act("go", json!({"delete": {"pod": {"name": "db-2"}}}));
    let NextStep::Do(Effect::Scale { replicas, ledger, .. }) = stage.settle("go") else {
        panic!("no change of replicas")
    };
    assert_eq!(replicas, 2);
    stage.put_stateful(2, Way::Policy, |set| set.set.scale.ledger = ledger);
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "scaled once");
    stage.lose_replica("db-2");
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "Succeeded");
}

#[test]
fn a_set_that_was_scaled_before_a_delete_is_left() {
    let mut stage = Stage::stateful(Way::Policy);
    stage.put(budget_of_db(0), "db");
    stage.act("go", json!({"delete": {"pod": {"name": "db-2"}}}));
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }), "the budget allows nothing");
    stage.put_stateful(4, Way::Policy, |_| {});
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "WorkloadScaled"), "{message}");
}
