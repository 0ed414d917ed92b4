//! Workloads of other kinds that own ReplicaSets, such as Argo Rollouts.

use super::*;
use crate::world::OwnerReading;
use ganglion_core::facts::{FieldOwner, Ledger, OtherKind, OwnerFact};

const ROLLOUT: &str = "argoproj.io/v1alpha1";

fn rollout() -> serde_json::Value {
    json!({"apiVersion": ROLLOUT, "kind": "Rollout", "name": "web"})
}

fn more() -> serde_json::Value {
    json!({"create": {"workload": rollout(), "to": {"nodeName": "d"}}})
}

/// The stage with a Rollout in place of the Deployment.
fn stage() -> Stage {
    let mut stage = Stage::new();
    let gone = stage.id("web");
    stage.world.remove::<DeploymentFact>(&gone);
    stage.put_rolled("web-h1", 3);
    stage
}

impl Stage {
    /// Puts a ReplicaSet of the Rollout.
    fn put_rolled(&mut self, name: &str, replicas: i32) {
        let set = self.world.get::<ReplicaSetFact>(&Key::new(NAMESPACE, "web-h1")).expect("a set").clone();
        let make = |id| ReplicaSetFact {
            id,
            scale: ScaleFact { replicas, ..ScaleFact::default() },
            controller: Some(Owner { kind: "Rollout".into(), name: "web".into(), uid: "uid-rollout".into() }),
            controller_version: ROLLOUT.into(),
            revision: None,
            ..set
        };
        self.put(make, name);
    }

    /// Puts the reading of the Rollout.
    fn read_rollout(&mut self, change: impl FnOnce(&mut OwnerFact)) {
        let kind = OtherKind { api_version: ROLLOUT.into(), kind: "Rollout".into(), plural: "rollouts".into() };
        let mut fact = OwnerFact {
            id: Identity { uid: "uid-rollout".into(), ..self.id("web") },
            kind,
            scale: ScaleFact { replicas: 3, ..ScaleFact::default() },
            generation: 1,
            observed_generation: 1,
            terminating: false,
        };
        change(&mut fact);
        self.world.put_owner(&"uid-rollout".into(), OwnerReading::Known(Box::new(fact)), self.now);
    }
}

#[test]
fn a_move_needs_nothing_of_the_owner() {
    let mut stage = stage();
    let from = json!({"nodeName": "a"});
    stage.act("go", json!({"move": {"workload": rollout(), "from": from, "to": {"nodeName": "d"}}}));
    assert_eq!(needed_owner(&stage.world, &stage.action("go")), None);
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("first the new pod") };
    assert_eq!((new.node().as_str(), new.set.name.as_str()), ("d", "web-h1"));
    let slot = stage.action("go").status.unwrap_or_default().slots.remove(0);
    assert_eq!(slot.workload, serde_json::from_value(rollout()).unwrap());
    // For a pod, the owner is found by its ReplicaSet.
    stage.act("pod", json!({"move": {"pod": {"name": "web-b"}, "to": {"nodeName": "d"}}}));
    assert!(matches!(stage.settle("pod"), NextStep::Do(Effect::CreatePod(_))));
}

#[test]
fn a_label_that_services_select_by_is_not_taken_off() {
    let mut stage = stage();
    let selector = labels(true);
    let service = |id| ganglion_core::facts::ServiceFact { id, selector, reduced: false };
    stage.put(service, "web");
    stage.act("go", json!({"move": {"workload": rollout(), "to": {"nodeName": "d"}}}));
    stage.settle("go");
    assert_eq!(stage.ready("go").1, "NoDetachLabel");
}

#[test]
fn a_rollout_in_flight_is_waited_for_and_one_that_begins_turns_it_back() {
    let mut stage = stage();
    stage.put_rolled("web-h2", 1);
    stage.act("go", json!({"move": {"workload": rollout(), "to": {"nodeName": "d"}}}));
    stage.settle("go");
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("Unknown", "Queued"));
    assert!(message.contains("web-h1 and web-h2 both have replicas"), "{message}");
    stage.put_rolled("web-h2", 0);
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("it goes on") };
    assert_eq!(new.set.name, "web-h1");
    stage.put_rolled("web-h2", 1);
    stage.settle("go");
    let slot = stage.action("go").status.unwrap_or_default().slots.remove(0);
    assert_eq!((slot.step, slot.attempt), (Step::Queued, 1), "{:?}", slot.message);
}

#[rstest]
#[case::none(json!({"move": {"workload": {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "web"}}}), "WorkloadNotFound", "makes its pods without ReplicaSets is not supported")]
#[case::other_group(json!({"move": {"workload": {"apiVersion": "other.io/v1", "kind": "Rollout", "name": "web"}}}), "WorkloadNotFound", "no ReplicaSet in namespace shop belongs to Rollout web")]
#[case::by_pod(json!({"delete": {"pod": {"name": "web-a"}}}), "NotSupported", "name the workload instead")]
#[case::by_set(json!({"delete": {"workload": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-h1"}}}), "NotSupported", "name Rollout web instead")]
fn what_cannot_be_done_to_another_kind_is_refused_with_advice(
    #[case] spec: serde_json::Value,
    #[case] reason: &str,
    #[case] words: &str,
) {
    let mut stage = stage();
    stage.read_rollout(|_| {});
    stage.act("bad", spec);
    stage.settle("bad");
    let (ready, said, message) = stage.ready("bad");
    assert_eq!((ready.as_str(), said.as_str()), ("False", reason), "{message}");
    assert!(message.contains(words), "{message}");
}

#[test]
fn which_of_several_empty_sets_would_get_a_replica_is_not_guessed() {
    let mut stage = stage();
    stage.put_rolled("web-h1", 0);
    stage.put_rolled("web-h2", 0);
    stage.read_rollout(|rollout| rollout.scale.replicas = 0);
    stage.act("bad", more());
    stage.settle("bad");
    let (_, reason, message) = stage.ready("bad");
    assert_eq!(reason, "NotEnoughReplicas");
    assert!(message.contains("2 ReplicaSets") && message.contains("scale it"), "{message}");
}

#[test]
fn a_create_waits_until_its_owner_is_read_and_writes_replicas_and_ledger_to_it() {
    let mut stage = stage();
    stage.act("go", more());
    let needed = needed_owner(&stage.world, &stage.action("go")).expect("the Rollout is read");
    assert_eq!((needed.workload.kind.as_str(), needed.uid.as_str(), needed.working), ("Rollout", "uid-rollout", false));
    stage.settle("go");
    assert_eq!(stage.ready("go").0, "Unknown", "{:?}", stage.ready("go"));
    stage.read_rollout(|_| {});
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("first the new pod") };
    let slot = new.slot.clone();
    stage.put_pod(&new.key.name, "d", |pod| {
        (pod.controller, pod.labels, pod.generated) = (None, labels(false), false);
        let role = Some(marks::ROLE_REPLACEMENT.into());
        pod.marks = Marks { slot: Some(slot.clone()), role, ..Marks::default() };
    });
    assert!(needed_owner(&stage.world, &stage.action("go")).is_some_and(|needed| needed.working));
    let NextStep::Do(Effect::Scale { workload, replicas, ledger }) = stage.settle("go") else {
        panic!("then the replicas")
    };
    let ScalableKind::Other(kind) = &workload.kind else { panic!("{workload:?}") };
    assert_eq!((kind.plural.as_str(), workload.id.key.name.as_str(), replicas), ("rollouts", "web", 4));

    // The Rollout has the new number, and its controller has not changed the set yet.
    stage.read_rollout(|rollout| {
        (rollout.scale.replicas, rollout.scale.ledger, rollout.generation) = (4, ledger.clone(), 2);
    });
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }));
    stage.put_rolled("web-h1", 4);
    let now = stage.now;
    stage.put_pod("web-more", "b", |pod| (pod.created, pod.ready_since) = (now, None));
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::ChangePod { change: PodChange::Mark { .. }, .. })));
    stage.change_pod("web-more", |pod| {
        pod.marks = Marks { slot: Some(slot), role: Some(marks::ROLE_SURPLUS.into()), ..Marks::default() };
    });
    // For all that is known, it may still be about to undo another change.
    assert!(
        matches!(stage.settle("go"), NextStep::Wait { .. }),
        "the controller has not said that it has seen the change"
    );
    stage.read_rollout(|rollout| {
        (rollout.scale.replicas, rollout.scale.ledger) = (4, ledger);
        (rollout.generation, rollout.observed_generation) = (2, 2);
    });
    assert!(matches!(stage.settle("go"), NextStep::Do(Effect::ChangePod { change: PodChange::Attach { .. }, .. })));
}

#[test]
fn a_ledger_of_an_action_that_has_ended_is_taken_off_the_owner() {
    let mut stage = stage();
    stage.read_rollout(|_| {});
    stage.act("go", more());
    stage.settle("go");
    let mut action = stage.action("go");
    let mut status = action.status.clone().unwrap_or_default();
    let slot = status.slots[0].id.clone();
    status.slots[0].step = Step::Succeeded;
    status.finished_at = Some(Time(stage.now));
    action.status = Some(status);
    stage.put_action(action);
    let ledger = Ledger { slot, undone: false, from: 3, to: 4, peers: vec![] };
    assert!(needed_owner(&stage.world, &stage.action("go")).is_some(), "it is read for this, too");
    stage.read_rollout(|rollout| (rollout.scale.replicas, rollout.scale.ledger) = (4, Some(ledger.render())));
    let NextStep::Do(Effect::ClearLedger { workload }) = stage.settle("go") else { panic!("the ledger stays") };
    assert!(matches!(workload.kind, ScalableKind::Other(_)));
    stage.read_rollout(|rollout| rollout.scale.replicas = 4);
    assert_eq!(stage.settle("go"), NextStep::Wait { until: None, report: None });
    assert_eq!(needed_owner(&stage.world, &stage.action("go")), None);
}

#[test]
fn replicas_that_cannot_be_changed_are_refused_in_the_words_of_the_reading() {
    let mut stage = stage();
    let unfit = OwnerReading::Unfit { reason: Reason::Forbidden, message: "cannot get rollouts".into() };
    stage.world.put_owner(&"uid-rollout".into(), unfit, stage.now);
    stage.act("bad", more());
    stage.settle("bad");
    let (ready, reason, message) = stage.ready("bad");
    assert_eq!((ready.as_str(), reason.as_str(), message.as_str()), ("False", "Forbidden", "cannot get rollouts"));
    let mut owned = self::stage();
    owned.read_rollout(|rollout| rollout.scale.owned_by = Some(FieldOwner::server_side("flux", None)));
    owned.act("bad", more());
    owned.settle("bad");
    assert_eq!(owned.ready("bad").1, "ReplicasOwnedElsewhere");
}

#[test]
fn a_slot_at_work_waits_while_its_owner_cannot_be_read() {
    let mut stage = stage();
    stage.read_rollout(|_| {});
    stage.act("go", more());
    stage.settle("go");
    let unfit = OwnerReading::Unfit { reason: Reason::Forbidden, message: "cannot get rollouts".into() };
    stage.world.put_owner(&"uid-rollout".into(), unfit, stage.now);
    assert!(matches!(stage.settle("go"), NextStep::Wait { until: Some(_), .. }));
    assert!(stage.ready("go").2.contains("cannot get rollouts"), "{:?}", stage.ready("go"));
}

/// Whoever may patch ReplicaSets may give one an owner, and needs no right to scale that owner.
#[test]
fn an_owner_that_the_set_gets_after_the_action_began_is_not_scaled() {
    let mut stage = Stage::new();
    let set = stage.world.get::<ReplicaSetFact>(&Key::new(NAMESPACE, "web-h1")).expect("a set").clone();
    let bare = ReplicaSetFact { controller: None, ..set.clone() };
    stage.put(|id| ReplicaSetFact { id, ..bare }, "web-h1");
    let workload = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-h1"});
    stage.act("go", json!({"create": {"workload": workload, "to": {"nodeName": "d"}}}));
    let NextStep::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("first the new pod") };
    let marks = Marks { slot: Some(new.slot), role: Some(marks::ROLE_REPLACEMENT.into()), ..Marks::default() };
    stage.put_pod(&new.key.name, "d", |pod| (pod.labels, pod.controller, pod.marks) = (labels(false), None, marks));
    let NextStep::Do(Effect::Scale { workload, .. }) = stage.settle("go") else { panic!("scales the set") };
    assert_eq!(workload.kind, effect::ScalableKind::ReplicaSet);
    stage.put(|id| ReplicaSetFact { id, ..set }, "web-h1");
    assert!(matches!(stage.settle("go"), NextStep::Wait { .. }));
    stage.now += SignedDuration::from_secs(3);
    stage.settle("go");
    let (_, _, message) = stage.ready("go");
    assert!(message.contains("belongs to Deployment web since the action began"), "{message}");
}
