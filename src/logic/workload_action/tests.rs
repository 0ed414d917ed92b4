//! The planner on hand-made worlds: the protocol step by step, what is refused and why, whose turn it is.
//!
//! What only shows over time and under faults is the model's (`tests/model`).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use rstest::rstest;
use serde_json::json;

use super::effect::PodChange;
use super::*;
use crate::api::workload_action::{Disruption, WorkloadActionSpec};
use crate::logic::facts::{
    BudgetFact, DeploymentFact, Identity, Marks, NodeFact, Owner, PodFact, ReceiptFact, Requests, ScaleFact,
    ScalerFact, Selector, SetFact,
};
use crate::logic::world::{Object, Source};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const NAMESPACE: &str = "shop";
const HASH: &str = "h1";

/// A world in the making: a Deployment `web` of three replicas, on nodes a, b and c, each of which takes two pods more.
struct Stage {
    world: World,
    version: u64,
    now: Timestamp,
    limits: Limits,
}

fn labels(hash: bool) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    if hash {
        labels.insert(marks::POD_TEMPLATE_HASH.to_owned(), HASH.to_owned());
    }
    labels
}

fn budget(allowed: i32, healthy: i32) -> impl FnOnce(Identity) -> Object {
    let selector = Some(Selector { labels: labels(false), ..Selector::default() });
    move |id| Object::Budget(BudgetFact { id, selector, allowed, healthy, pods: Some(healthy) })
}

impl Stage {
    fn new() -> Self {
        let now = NOW + SignedDuration::from_hours(1000);
        let mut stage = Self { world: World::default(), version: 0, now, limits: Limits::default() };
        for node in ["a", "b", "c", "d"] {
            stage.put_node(node, |_| {});
        }
        stage.put(
            |id| {
                Object::Deployment(DeploymentFact {
                    id,
                    scale: ScaleFact { replicas: 3, ..ScaleFact::default() },
                    status_replicas: 3,
                    updated_replicas: 3,
                    revision: Some("1".into()),
                    ..DeploymentFact::default()
                })
            },
            "web",
        );
        stage.put_set(3);
        for (pod, node) in [("web-a", "a"), ("web-b", "b"), ("web-c", "c")] {
            stage.put_pod(pod, node, |_| {});
        }
        stage
    }

    fn id(&mut self, name: &str) -> Identity {
        self.version += 1;
        Identity { key: Key::new(NAMESPACE, name), uid: format!("uid-{name}"), version: self.version.to_string() }
    }

    fn put(&mut self, make: impl FnOnce(Identity) -> Object, name: &str) {
        let id = self.id(name);
        self.world.apply(make(id), Source::Watch);
    }

    fn put_node(&mut self, name: &str, change: impl FnOnce(&mut NodeFact)) {
        let mut id = self.id(name);
        id.key.namespace.clear();
        let allocatable = Requests { cpu: 4000, memory: 8 << 30 };
        let mut node = NodeFact { id, ready: true, allocatable, pod_capacity: 3, ..NodeFact::default() };
        node.labels.insert("disk".into(), if name == "d" { "ssd" } else { "hdd" }.into());
        change(&mut node);
        self.world.apply(Object::Node(node), Source::Watch);
    }

    fn put_set(&mut self, replicas: i32) {
        let template = PodTemplateSpec {
            metadata: Some(ObjectMeta { labels: Some(labels(true)), ..ObjectMeta::default() }),
            spec: Some(PodSpec::default()),
        };
        self.put(
            |id| {
                Object::Set(SetFact {
                    id,
                    scale: ScaleFact { replicas, ..ScaleFact::default() },
                    controller: Some(Owner { kind: "Deployment".into(), name: "web".into(), uid: "uid-web".into() }),
                    selector: Selector { labels: labels(true), ..Selector::default() },
                    revision: Some("1".into()),
                    template: Some(Arc::new(template)),
                    ..SetFact::default()
                })
            },
            "web-h1",
        );
    }

    fn put_pod(&mut self, name: &str, node: &str, change: impl FnOnce(&mut PodFact)) {
        let mut pod = PodFact {
            id: self.id(name),
            created: self.now - SignedDuration::from_mins(10),
            generated: true,
            labels: labels(true),
            controller: Some(Owner { kind: "ReplicaSet".into(), name: "web-h1".into(), uid: "uid-web-h1".into() }),
            node: Some(node.to_owned()),
            ready_since: Some(self.now),
            ..PodFact::default()
        };
        change(&mut pod);
        self.world.apply(Object::Pod(pod), Source::Watch);
    }

    fn change_pod(&mut self, name: &str, change: impl FnOnce(&mut PodFact)) {
        let mut pod = self.world.pod(&Key::new(NAMESPACE, name)).expect("the pod is there").clone();
        pod.id.version = self.id(name).version;
        change(&mut pod);
        self.world.apply(Object::Pod(pod), Source::Watch);
    }

    /// Puts an action with this spec (YAML as a user writes it).
    fn act(&mut self, name: &str, spec: serde_json::Value) {
        let spec: WorkloadActionSpec = serde_json::from_value(spec).expect("a valid spec");
        let mut action = WorkloadAction::new(name, spec);
        action.metadata.namespace = Some(NAMESPACE.into());
        action.metadata.uid = Some(format!("uid-{name}"));
        action.metadata.generation = Some(1);
        action.metadata.creation_timestamp = Some(Time(self.now - SignedDuration::from_secs(30)));
        self.put_action(action);
    }

    fn put_action(&mut self, mut action: WorkloadAction) {
        self.version += 1;
        action.metadata.resource_version = Some(self.version.to_string());
        self.world.apply(Object::Action(Box::new(action)), Source::Watch);
    }

    fn action(&self, name: &str) -> WorkloadAction {
        self.world.action(&Key::new(NAMESPACE, name)).expect("the action is there").as_ref().clone()
    }

    fn next(&self, name: &str) -> Next {
        next(&Key::new(NAMESPACE, name), &self.world, self.now, &self.limits)
    }

    fn effect(&self, name: &str) -> Effect {
        match self.next(name) {
            Next::Do(effect) => effect,
            Next::Wait { until, report } => panic!("waits until {until:?} with {report:#?}"),
        }
    }

    /// The status by which its slots would begin, not carried out; None where they may not.
    fn settle_until_admitted(&mut self, name: &str) -> Option<WorkloadActionStatus> {
        loop {
            match self.next(name) {
                Next::Do(Effect::Admit { status, .. }) => return Some(*status),
                Next::Do(Effect::AddFinalizer { finalizers, .. }) => {
                    let mut action = self.action(name);
                    action.metadata.finalizers = Some(finalizers);
                    self.put_action(action);
                }
                Next::Do(_) | Next::Wait { .. } => return None,
            }
        }
    }

    /// Carries out what concerns the action itself, as the API server would, until another effect is due or it waits.
    fn settle(&mut self, name: &str) -> Next {
        loop {
            let mut action = self.action(name);
            match self.next(name) {
                Next::Do(Effect::Record { status, .. } | Effect::Admit { status, .. }) => action.status = Some(*status),
                Next::Do(Effect::AddFinalizer { finalizers, .. } | Effect::RemoveFinalizer { finalizers, .. }) => {
                    action.metadata.finalizers = Some(finalizers);
                }
                Next::Do(Effect::WriteReceipt { receipt, spec }) => {
                    self.put(
                        |id| Object::Receipt(ReceiptFact { id, action_uid: spec.action_uid, outcome: None }),
                        &receipt.name,
                    );
                    continue;
                }
                Next::Wait { report: Some(status), .. } => action.status = Some(*status),
                other => return other,
            }
            self.put_action(action);
        }
    }

    fn ready(&self, name: &str) -> (String, String, String) {
        let status = self.action(name).status.expect("a status");
        let ready = status.conditions.iter().find(|one| one.type_ == "Ready").expect("Ready is always there");
        (ready.status.clone(), ready.reason.clone(), ready.message.clone())
    }
}

fn move_web(to: serde_json::Value) -> serde_json::Value {
    json!({"move": {"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "to": to}})
}

/// The protocol: what is asked for at each state of the world, in this order.
#[test]
fn a_move_goes_step_by_step() {
    let mut stage = Stage::new();
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}}));
    let Next::Do(Effect::CreatePod(new)) = stage.settle("go") else { panic!("first the new pod") };
    assert_eq!((new.node.as_str(), new.label.as_str()), ("d", marks::POD_TEMPLATE_HASH));
    let (newcomer, slot) = (new.key.name.clone(), new.slot.clone());
    let mark = |role: &str| Marks { slot: Some(slot.clone()), role: Some(role.into()), ..Marks::default() };

    stage.put_pod(&newcomer, "d", |pod| {
        (pod.node, pod.ready_since, pod.controller) = (None, None, None);
        (pod.labels, pod.generated, pod.marks) = (labels(false), false, mark(marks::ROLE_NEWCOMER));
    });
    assert!(matches!(stage.settle("go"), Next::Wait { .. }));
    assert_eq!(stage.ready("go").1, "Scheduling");
    stage.change_pod(&newcomer, |pod| pod.node = Some("d".into()));
    assert!(matches!(stage.settle("go"), Next::Wait { .. }));
    assert_eq!(stage.ready("go").1, "Readying");

    let now = stage.now;
    stage.change_pod(&newcomer, |pod| pod.ready_since = Some(now));
    let Effect::ChangePod { pod, change: PodChange::Detach { peers, .. } } = stage.effect("go") else {
        panic!("detach")
    };
    assert_eq!((pod.key.name.as_str(), peers.as_str()), ("web-a", ""), "no pod of the set is young");
    stage.change_pod("web-a", |pod| {
        (pod.labels, pod.controller, pod.marks) = (labels(false), None, mark(marks::ROLE_VICTIM));
    });
    assert!(matches!(stage.settle("go"), Next::Wait { .. }), "waits for the set's substitute");

    stage.put_pod("web-new", "b", |pod| (pod.created, pod.ready_since) = (now, None));
    let Effect::ChangePod { pod, change: PodChange::Mark { .. } } = stage.effect("go") else { panic!("mark") };
    assert_eq!(pod.key.name, "web-new");
    stage.change_pod("web-new", |pod| pod.marks = mark(marks::ROLE_SURPLUS));
    let Effect::ChangePod { pod, change: PodChange::Attach { .. } } = stage.effect("go") else { panic!("attach") };
    assert_eq!(pod.key.name, newcomer);
    stage.change_pod(&newcomer, |pod| {
        (pod.labels, pod.marks) = (labels(true), Marks::default());
        pod.controller = Some(Owner { kind: "ReplicaSet".into(), name: "web-h1".into(), uid: "uid-web-h1".into() });
    });

    assert!(matches!(stage.settle("go"), Next::Wait { until: Some(_), .. }), "waits until the surplus goes");
    assert!(stage.action("go").status.is_some_and(|status| status.slots[0].evicting), "recorded before it is sent");
    let gone = stage.id("web-new");
    stage.world.remove(crate::logic::world::Kind::Pod, &gone);
    stage.put(budget(1, 5), "budget");
    assert!(matches!(stage.settle("go"), Next::Wait { until: Some(_), .. }), "four pods serve, five are counted");
    stage.put(budget(1, 4), "budget");
    let Next::Do(Effect::Evict { pod }) = stage.settle("go") else { panic!("evict") };
    assert_eq!(pod.key.name, "web-a");
    stage.put(budget(1, 5), "budget");
    stage.now += SignedDuration::from_secs(3);
    assert!(matches!(stage.settle("go"), Next::Do(Effect::Evict { .. })), "does not wait for ever");
    let gone = stage.id("web-a");
    stage.world.remove(crate::logic::world::Kind::Pod, &gone);
    assert_eq!(stage.settle("go"), Next::Wait { until: None, report: None });
    assert_eq!(stage.ready("go").1, "Succeeded");
    assert_eq!(stage.action("go").metadata.finalizers, Some(vec![]));
}

#[rstest]
#[case::no_workload(json!({"move": {"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "wep"}, "to": {"nodeName": "d"}}}), Reason::WorkloadNotFound, "no Deployment wep")]
#[case::stateful(json!({"delete": {"workload": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}}}), Reason::NotSupported, "StatefulSet")]
#[case::no_pod(json!({"delete": {"pod": {"name": "web-z"}}}), Reason::PodNotFound, "web-z")]
#[case::bare_pod(json!({"delete": {"pod": {"name": "bare"}}}), Reason::NotSupported, "belongs to no workload")]
#[case::job(json!({"delete": {"pod": {"name": "job"}}}), Reason::NotSupported, "Job")]
#[case::static_pod(json!({"delete": {"pod": {"name": "static"}}}), Reason::NotSupported, "static")]
#[case::no_node(move_web(json!({"nodeName": "z"})), Reason::NodeNotFound, "no node z")]
#[case::cordoned(move_web(json!({"nodeName": "cordoned"})), Reason::NodeCordoned, "uncordon")]
#[case::full(move_web(json!({"nodeName": "full"})), Reason::NodeFull, "0 of 0 pods")]
#[case::down(move_web(json!({"nodeName": "down"})), Reason::NodeNotReady, "not Ready")]
#[case::there(json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "a"}}}), Reason::AlreadyOnTarget, "already")]
#[case::too_many(json!({"delete": {"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "count": 4}}), Reason::NotEnoughReplicas, "4 replicas asked for")]
#[case::expression(move_web(json!({"where": "node.pods <"})), Reason::ExpressionInvalid, "where")]
#[case::unknown_name(move_web(json!({"where": "node.podz < 3"})), Reason::ExpressionInvalid, "node.podz")]
#[case::nowhere(move_web(json!({"where": "node.pods > 90"})), Reason::NoCandidateNode, "none of")]
#[case::policy(move_web(json!({"policy": "green"})), Reason::NotSupported, "policy")]
fn what_cannot_be_done_is_refused_with_advice(
    #[case] spec: serde_json::Value,
    #[case] reason: Reason,
    #[case] words: &str,
) {
    let mut stage = Stage::new();
    stage.put_node("cordoned", |node| node.cordoned = true);
    stage.put_node("full", |node| node.pod_capacity = 0);
    stage.put_node("down", |node| node.ready = false);
    stage.put_pod("bare", "a", |pod| pod.controller = None);
    stage.put_pod("job", "a", |pod| {
        pod.controller = Some(Owner { kind: "Job".into(), name: "job".into(), uid: "uid-job".into() });
    });
    stage.put_pod("static", "a", |pod| (pod.controller, pod.mirror) = (None, true));
    stage.act("bad", spec);
    stage.settle("bad");
    let (ready, said, message) = stage.ready("bad");
    assert_eq!((ready.as_str(), said.as_str()), ("False", reason.as_str()), "{message}");
    assert!(message.contains(words), "{message}");
    let action = stage.action("bad");
    assert!(action.metadata.finalizers.is_none(), "nothing was begun");
    assert!(action.status.is_some_and(|status| status.conditions.iter().any(|one| one.type_ == "Stalled")));
}

#[rstest]
#[case::autoscaler(|stage: &mut Stage| stage.put(|id| Object::Scaler(ScalerFact { id, target_kind: "Deployment".into(), target_name: "web".into() }), "hpa"))]
fn replicas_that_somebody_owns_are_left_alone(#[case] own: fn(&mut Stage)) {
    let create = json!({"create": {"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "to": {"nodeName": "d"}}});
    let mut stage = Stage::new();
    own(&mut stage);
    stage.act("more", create.clone());
    stage.settle("more");
    assert_eq!(stage.ready("more").1, "ReplicasOwnedElsewhere");
    let mut forced = create;
    forced["onReplicaOwner"] = json!("Force");
    stage.act("forced", forced);
    assert!(matches!(stage.settle("forced"), Next::Do(Effect::CreatePod(_))));
}

#[test]
fn the_emptiest_node_is_chosen_and_what_is_under_way_counts() {
    let mut stage = Stage::new();
    let spread = json!({"create": {"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "to": {"nodeSelector": {"disk": "ssd"}}, "count": 3}, "mode": "Plan"});
    stage.put_node("e", |node| {
        node.labels.insert("disk".into(), "ssd".into());
        node.pod_capacity = 1;
    });
    stage.act("plan", spread);
    stage.settle("plan");
    let plan = stage.action("plan").status.and_then(|status| status.plan).expect("a plan");
    let chosen: Vec<(&str, i32)> = plan.nodes.iter().map(|node| (node.name.as_str(), node.replicas)).collect();
    assert_eq!(chosen[0], ("d", 3), "{chosen:?}: e has no room beside, a to c are not ssd");
    assert_eq!(plan.nodes_total, 5);
    assert!(stage.action("plan").metadata.finalizers.is_none() && stage.ready("plan").1 == "Planned");
}

#[test]
fn the_receipt_of_a_loops_action_goes_with_it_and_a_users_stays() {
    for (owner, goes) in [(Some("Execution"), true), (Some("ConfigMap"), false), (None, false)] {
        let mut stage = Stage::new();
        let mut spec = move_web(json!({"nodeName": "d"}));
        spec["ttlSecondsAfterFinished"] = json!(60);
        stage.act("go", spec);
        let mut action = stage.action("go");
        let owners = owner.map(|kind| json!([{"apiVersion": "v1", "kind": kind, "name": "web", "uid": "u"}]));
        action.metadata.owner_references = owners.map(|owners| serde_json::from_value(owners).unwrap());
        let finished = WorkloadActionStatus {
            observed_generation: Some(1),
            finished_at: Some(Time(stage.now)),
            ..WorkloadActionStatus::default()
        };
        action.status = Some(finished);
        let receipt = identity::receipt_name(&action);
        stage.put_action(action);
        stage.put(|id| Object::Receipt(ReceiptFact { id, action_uid: "uid-go".into(), outcome: None }), &receipt);
        assert!(matches!(stage.next("go"), Next::Wait { until: Some(_), .. }));
        stage.now += SignedDuration::from_secs(60);
        let effect = stage.effect("go");
        assert_eq!(matches!(effect, Effect::DeleteReceipt { .. }), goes, "{owner:?}: {effect:?}");
        assert_eq!(matches!(effect, Effect::DeleteAction { .. }), !goes, "{owner:?}: {effect:?}");
    }
}

#[test]
fn an_action_that_ran_before_does_nothing() {
    let mut stage = Stage::new();
    stage.act("go", move_web(json!({"nodeName": "d"})));
    let receipt = identity::receipt_name(&stage.action("go"));
    stage.put(|id| Object::Receipt(ReceiptFact { id, action_uid: "another".into(), outcome: None }), &receipt);
    assert_eq!(stage.settle("go"), Next::Wait { until: None, report: None });
    let (ready, reason, message) = stage.ready("go");
    assert_eq!((ready.as_str(), reason.as_str()), ("True", "AlreadyExecuted"));
    assert!(message.contains(&receipt), "{message}");
}

#[test]
fn limits_hold_and_the_rest_waits_in_order() {
    let mut stage = Stage::new();
    stage.limits.in_all = Some(1);
    for name in ["one", "two"] {
        stage.act(name, move_web(json!({"nodeName": "d"})));
    }
    assert!(matches!(stage.settle("one"), Next::Do(Effect::CreatePod(_))));
    assert!(matches!(stage.settle("two"), Next::Wait { until: Some(_), .. }));
    let (ready, reason, message) = stage.ready("two");
    assert_eq!((ready.as_str(), reason.as_str()), ("Unknown", "Queued"));
    assert!(message.contains("1 replicas in all"), "{message}");
    stage.now += SignedDuration::from_secs(601);
    stage.settle("two");
    assert_eq!(stage.ready("two").1, "QueueTimedOut");
}

#[test]
fn what_is_about_to_be_recorded_takes_up_place_and_pod() {
    let mut stage = Stage::new();
    for name in ["one", "two"] {
        let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        stage.act(name, json!({"move": {"workload": workload, "to": {"where": "node.pods < 1"}}}));
    }
    let begins = |stage: &mut Stage, name: &str| match stage.settle_until_admitted(name) {
        Some(status) => status.slots,
        None => panic!("{name} is not admitted"),
    };
    let one = begins(&mut stage, "one");
    stage.world.reserve(&Key::new(NAMESPACE, "one"), one.clone());
    assert_eq!(stage.settle_until_admitted("two"), None, "node d has room for one, by its condition");
    stage.put_node("e", |_| {});
    let two = begins(&mut stage, "two");
    assert_eq!(two[0].newcomer.as_ref().map(|pod| pod.node.as_str()), Some("e"));
    assert_ne!(two[0].victim, one[0].victim);
    stage.world.release(&Key::new(NAMESPACE, "one"));
    assert_eq!(begins(&mut stage, "two")[0].victim, one[0].victim);
}

#[test]
fn a_budget_without_room_holds_the_old_pod_back() {
    let mut stage = Stage::new();
    stage.act("less", json!({"delete": {"pod": {"name": "web-a"}}, "timeouts": {"drainSeconds": 5}}));
    stage.put(budget(0, 3), "budget");
    assert!(matches!(stage.settle("less"), Next::Wait { until: Some(_), .. }));
    assert_eq!(stage.ready("less").1, "Planned", "not worth a word yet");
    stage.now += SignedDuration::from_secs(2);
    assert!(matches!(stage.settle("less"), Next::Wait { until: Some(_), .. }));
    assert_eq!(stage.ready("less").1, "BudgetBlocked");
    stage.put(budget(1, 3), "budget");
    assert!(matches!(stage.settle("less"), Next::Do(Effect::ChangePod { change: PodChange::Detach { .. }, .. })));
    stage.put(budget(0, 3), "budget");
    stage.now += SignedDuration::from_secs(6);
    let Next::Do(Effect::DeleteReceipt { receipt }) = stage.settle("less") else {
        panic!("nothing ran: no receipt stays")
    };
    stage.world.remove(crate::logic::world::Kind::Receipt, &receipt);
    stage.settle("less");
    let (ready, reason, message) = stage.ready("less");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "BudgetBlocked"), "{message}");
}

/// The ReplicaSet controller hears of the lower number by one watch and of the mark by another: after an outage the number
/// may be first, and it would choose for itself.
#[test]
fn a_number_is_not_lowered_just_after_the_watches_broke_off() {
    let mut stage = Stage::new();
    stage.act("less", json!({"delete": {"pod": {"name": "web-a"}}, "timeouts": {"drainSeconds": 60}}));
    let Next::Do(Effect::ChangePod { change: PodChange::Detach { slot, .. }, .. }) = stage.settle("less") else {
        panic!("detach")
    };
    let mark = |role: &str| Marks { slot: Some(slot.clone()), role: Some(role.into()), ..Marks::default() };
    stage.change_pod("web-a", |pod| {
        (pod.labels, pod.controller, pod.marks) = (labels(false), None, mark(marks::ROLE_VICTIM));
    });
    stage.put_pod("web-new", "b", |pod| pod.marks = mark(marks::ROLE_SURPLUS));
    stage.settle("less");
    let broke = stage.now;
    stage.world.broke_off(broke);
    let Next::Wait { until, .. } = stage.settle("less") else { panic!("waits") };
    assert_eq!(until, Some(broke + SignedDuration::from_secs(15)));
    assert_eq!(stage.ready("less").1, "WatchesBroken");
    stage.now += SignedDuration::from_secs(10);
    stage.world.broke_off(stage.now);
    stage.now += SignedDuration::from_secs(10);
    assert!(matches!(stage.settle("less"), Next::Wait { .. }), "they broke again meanwhile");
    stage.now += SignedDuration::from_secs(5);
    assert!(matches!(stage.settle("less"), Next::Do(Effect::Scale { replicas: 2, .. })));
    stage.world.broke_off(stage.now);
    stage.now += SignedDuration::from_secs(50);
    stage.world.broke_off(stage.now);
    assert!(matches!(stage.settle("less"), Next::Do(Effect::Scale { .. })), "not for ever");
}

#[test]
fn suspended_clocks_stand_still() {
    let mut stage = Stage::new();
    stage.act("go", json!({"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "d"}}, "suspend": true}));
    assert_eq!(stage.settle("go"), Next::Wait { until: None, report: None });
    assert_eq!(stage.ready("go").1, "Suspended");
    stage.now += SignedDuration::from_hours(2);
    let mut action = stage.action("go");
    action.spec.suspend = false;
    stage.put_action(action);
    assert!(matches!(stage.settle("go"), Next::Do(Effect::CreatePod(_))));
}

#[test]
fn the_identity_is_that_of_the_decision() {
    let spec = |text: serde_json::Value| serde_json::from_value::<WorkloadActionSpec>(text).expect("a spec");
    let one = spec(move_web(json!({"nodeName": "d"})));
    let mut same = one.clone();
    (same.suspend, same.abort, same.ttl_seconds_after_finished) = (true, true, Some(5));
    assert_eq!(identity::spec_hash(&one, "x"), identity::spec_hash(&same, "y"));
    let mut other = one.clone();
    other.disruption = Disruption::Allowed;
    assert_ne!(identity::spec_hash(&one, "x"), identity::spec_hash(&other, "x"));
    let mut each = one;
    each.run_policy = crate::api::workload_action::RunPolicy::OncePerObject;
    assert_ne!(identity::spec_hash(&each, "x"), identity::spec_hash(&each, "y"));
}

fn as_of(pod: &PodFact, version: &str) -> PodFact {
    PodFact { id: Identity { version: version.to_owned(), ..pod.id.clone() }, ..pod.clone() }
}

#[test]
fn a_fact_that_did_not_change_wakes_nobody() {
    let mut stage = Stage::new();
    stage.act("go", move_web(json!({"nodeName": "d"})));
    stage.settle("go");
    let pod = stage.world.pod(&Key::new(NAMESPACE, "web-a")).expect("there").clone();
    let same = as_of(&pod, "1000000");
    assert!(stage.world.apply(Object::Pod(same), Source::Watch).is_empty());
    let older = as_of(&pod, "1");
    assert!(
        stage.world.apply(Object::Pod(PodFact { terminating: true, ..older }), Source::Own).is_empty(),
        "overtaken"
    );
    let worse = PodFact { ready_since: None, ..as_of(&pod, "1000001") };
    assert_eq!(stage.world.apply(Object::Pod(worse), Source::Watch).len(), 1);
}
