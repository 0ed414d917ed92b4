//! The controller against a scripted API server: the requests, their order, and the reaction to each response.

use ganglion_actions_plan::world::ActionsWorld;
pub mod scripted;

use serde_json::{Value, json};

use super::error::ActError;
use super::perform::MAX_CONFLICTS;
use super::reservation::{Reservation, replaced_slots};
use super::*;
use ganglion_actions_plan::effect::{Claimable, NewReceipt, PodChange, RefusalKind, Scalable, ScalableKind};
use ganglion_api::receipt::WorkloadActionReceiptSpec;
use ganglion_api::workload_action::status::SetRef;
use ganglion_core::facts::{DeploymentFact, Identity, ReceiptFact, ReplicaSet, ReplicaSetFact};
use ganglion_core::world::Unreadable;
use ganglion_runtime::error::Class;
use ganglion_runtime::guard::Guard;
use ganglion_runtime::run::Action;
use scripted::{action, ended, key, new_pod, pod_id, pod_json, scripted, status};

const STATUS: &str = "PUT /apis/ganglion.dev/v1alpha1/namespaces/shop/workloadactions/go/status?fieldManager=ganglion%2Fworkload-action%2Fstatus&fieldValidation=Ignore";

#[tokio::test]
async fn a_status_is_replaced_under_our_name_for_one_version_and_is_known_at_once() {
    let api = scripted([(200, ended("2"))]);
    api.knows_action(action("1"));
    assert_eq!(api.reconcile().await.unwrap(), Action::AwaitChange);
    assert_eq!(api.asked(), [STATUS]);
    let body = api.body(0);
    assert_eq!(body["metadata"], json!({"namespace": "shop", "name": "go", "uid": "u1", "resourceVersion": "1"}));
    assert_eq!(body["status"]["conditions"][0]["observedGeneration"], 1);
    let version =
        api.controller.ctx.store.read(|world| world.action(&key()).unwrap().metadata.resource_version.clone());
    assert_eq!(version.as_deref(), Some("2"));
}

#[tokio::test]
async fn after_a_conflict_the_object_is_read_and_planned_on_again() {
    let api = scripted([status(409, "Conflict", "modified"), (200, action("4")), (200, ended("5"))]);
    api.knows_action(action("1"));
    assert_eq!(api.reconcile().await.unwrap(), Action::AwaitChange);
    let read = "GET /apis/ganglion.dev/v1alpha1/namespaces/shop/workloadactions/go";
    assert_eq!(api.asked(), [STATUS, read, STATUS]);
    assert_eq!(api.body(2)["metadata"]["resourceVersion"], "4");
}

#[tokio::test]
async fn conflict_upon_conflict_ends_in_the_backoff() {
    let answers = (0..20).flat_map(|at| [status(409, "Conflict", "modified"), (200, action(&format!("{}", at + 2)))]);
    let api = scripted(answers);
    api.knows_action(action("1"));
    let error = api.reconcile().await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("Conflict", Class::Retry));
    assert_eq!(api.asked().len(), 2 * MAX_CONFLICTS + 1);
}

#[tokio::test]
async fn an_action_that_is_gone_is_left_alone() {
    let api = scripted([status(404, "NotFound", "gone")]);
    api.knows_action(action("1"));
    assert_eq!(api.reconcile().await.unwrap(), Action::AwaitChange);
    assert!(api.controller.ctx.store.read(|world| world.action(&key()).is_none()));
    assert_eq!(api.reconcile().await.unwrap(), Action::AwaitChange);
    assert_eq!(api.asked().len(), 1);
}

#[tokio::test]
async fn a_status_that_is_refused_is_not_sent_again_and_again() {
    let api = scripted([status(422, "Invalid", "status.slots: Too many")]);
    api.knows_action(action("1"));
    assert_eq!(api.reconcile().await.unwrap_err().class(), Class::Terminal);
    assert_eq!(api.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_is_not_waited_for() {
    let api = scripted([]);
    api.knows_action(action("1"));
    let error = api.reconcile().await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("Timeout", Class::Retry));
}

#[tokio::test]
async fn what_an_unanswered_request_did_is_looked_up_before_anything_else_is_planned() {
    let read = "GET /apis/ganglion.dev/v1alpha1/namespaces/shop/workloadactions/go";
    let lost = || status(504, "Timeout", "too slow");
    // Nothing is planned while the outcome is unknown.
    let api = scripted([lost(), lost(), (200, ended("2"))]);
    api.knows_action(action("1"));
    for _ in 0..2 {
        assert_eq!(api.reconcile().await.unwrap_err().class(), Class::Retry);
    }
    assert_eq!(api.reconcile().await.unwrap(), Action::AwaitChange);
    assert_eq!(api.asked(), [STATUS, read, read], "it had been done");
    assert_eq!(api.reconcile().await.unwrap(), Action::AwaitChange);
    assert_eq!(api.asked().len(), 3, "it is looked up once");
}

#[tokio::test]
async fn without_the_lease_nothing_is_sent() {
    let api = scripted([]);
    api.knows_action(action("1"));
    api.leader.cancel();
    assert_eq!(api.reconcile().await.unwrap(), Action::AwaitChange);
    assert_eq!(
        api.perform(&Effect::DeletePod { pod: pod_id(), grace_seconds: None }).await.unwrap_err().reason(),
        "NotLeader"
    );
    assert_eq!(api.asked().len(), 0);
}

#[tokio::test]
async fn once_stopped_no_step_begins() {
    let api = scripted([]);
    api.knows_action(action("1"));
    api.controller.ctx.stop.cancel();
    assert_eq!(api.reconcile().await.unwrap(), Action::AwaitChange);
    assert_eq!(api.asked().len(), 0);
}

#[tokio::test]
async fn an_evicted_pod_counts_as_on_its_way_out_before_the_watch_tells() {
    let api = scripted([(201, json!({"kind": "Status", "status": "Success"}))]);
    api.knows_pod();
    api.perform(&Effect::Evict { pod: pod_id(), grace_seconds: None }).await.unwrap();
    assert!(api.pod().unwrap().terminating);
    assert_eq!(api.asked(), ["POST /api/v1/namespaces/shop/pods/web-1/eviction?"]);
    assert_eq!(api.body(0)["deleteOptions"]["preconditions"], json!({"uid": "p1"}));
}

#[tokio::test]
async fn an_eviction_and_a_deletion_name_the_grace_period() {
    let grace_seconds = Some(7);
    let api = scripted([(201, json!({"kind": "Status", "status": "Success"})), (200, pod_json(None))]);
    api.knows_pod();
    api.perform(&Effect::Evict { pod: pod_id(), grace_seconds }).await.unwrap();
    api.perform(&Effect::DeletePod { pod: pod_id(), grace_seconds }).await.unwrap();
    assert_eq!(api.body(0)["deleteOptions"]["gracePeriodSeconds"], 7);
    assert_eq!(api.body(1)["gracePeriodSeconds"], 7);
}

#[tokio::test]
async fn what_is_gone_already_is_evicted_and_deleted() {
    let grace_seconds = None;
    for effect in [Effect::Evict { pod: pod_id(), grace_seconds }, Effect::DeletePod { pod: pod_id(), grace_seconds }] {
        let api = scripted([status(404, "NotFound", "gone")]);
        api.knows_pod();
        api.perform(&effect).await.unwrap();
        assert_eq!(api.pod(), None);
    }
}

#[tokio::test]
async fn a_deletion_insists_on_the_uid() {
    let api = scripted([(200, pod_json(None))]);
    api.knows_pod();
    api.perform(&Effect::DeletePod { pod: pod_id(), grace_seconds: None }).await.unwrap();
    assert_eq!(api.body(0)["preconditions"], json!({"uid": "p1"}));
    assert!(api.pod().unwrap().terminating);
}

#[tokio::test]
async fn a_pod_is_changed_for_one_version() {
    let api = scripted([(200, pod_json(Some("s1")))]);
    let change = PodChange::Unmark { cost: None };
    api.perform(&Effect::ChangePod { pod: pod_id(), change }).await.unwrap();
    let body = api.body(0);
    assert_eq!((&body["metadata"]["uid"], &body["metadata"]["resourceVersion"]), (&json!("p1"), &json!("5")));
    assert!(api.pod().unwrap().is_marked_by(&"s1".into()));
}

#[tokio::test]
async fn a_pod_is_marked_whatever_its_kubelet_writes_unless_what_counts_has_changed() {
    let refused = status(422, "Invalid", "the server rejected our request due to an error in our request");
    let api = scripted([(200, pod_json(Some("s1"))), refused]);
    let label = Some(("a/b".to_owned(), "c".to_owned()));
    let rests_on = Claimable { label, held_by: None, annotated: true };
    let change = PodChange::Mark { slot: "s1".into(), rests_on };
    let effect = Effect::ChangePod { pod: pod_id(), change };
    api.perform(&effect).await.unwrap();
    let test = |path: &str, value: Value| json!({"op": "test", "path": path, "value": value});
    let body = api.body(0);
    for condition in [
        test("/metadata/uid", json!("p1")),
        test("/metadata/deletionTimestamp", Value::Null),
        test("/metadata/labels/a~1b", json!("c")),
        test("/metadata/annotations/ganglion.dev~1slot", Value::Null),
    ] {
        assert!(body.as_array().unwrap().contains(&condition), "{condition} in {body}");
    }
    assert!(matches!(api.perform(&effect).await, Err(ActError::Request(Error::Conflict(_)))));
}

fn set() -> ReplicaSetFact {
    let id = Identity { key: Key::new("shop", "web"), uid: "r1".into(), version: "1".into() };
    ReplicaSetFact { id, template: Some(Arc::new(serde_json::from_str("{}").unwrap())), ..ReplicaSetFact::default() }
}

/// The answer where a webhook cannot be asked in a dry run.
fn no_dry_run() -> (u16, Value) {
    status(400, "BadRequest", "admission webhook \"audit.example\" does not support dry run")
}

/// Webhooks that look at the controller of a pod see one in the dry run.
#[tokio::test]
async fn a_replacement_has_what_admission_gives_to_a_pod_of_the_set() {
    let mut admitted = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "shop", "name": "web-x7k2p", "generateName": "web-", "uid": "dry", "labels": {"app": "web"},
            "annotations": {"vpaUpdates": "Pod resources updated by web"}},
        "spec": {"containers": [{"name": "web", "resources": {"requests": {"cpu": "3"}}}]},
    });
    let api = scripted([(201, admitted.clone()), (201, pod_json(Some("s1")))]);
    api.knows(set());
    api.perform(&Effect::CreatePod(new_pod())).await.unwrap();
    assert!(api.asked()[0].contains("dryRun=All"), "{:?}", api.asked());
    assert_eq!(api.body(0)["metadata"]["ownerReferences"][0]["controller"], true);
    assert!(!api.asked()[1].contains("dryRun"), "{:?}", api.asked());
    let created = api.body(1);
    assert_eq!(created["spec"]["containers"], admitted["spec"]["containers"].take());
    assert_eq!(created["metadata"]["annotations"]["vpaUpdates"], "Pod resources updated by web");
    let own = [&created["metadata"]["name"], &created["metadata"]["uid"], &created["metadata"]["generateName"]];
    assert_eq!(own, [&json!("web-1"), &Value::Null, &Value::Null]);

    let refused = scripted([status(403, "Forbidden", "exceeded quota: full")]);
    refused.knows(set());
    let error = refused.perform(&Effect::CreatePod(new_pod())).await.unwrap_err();
    assert!(matches!(&error, ActError::Refused(refusal) if refusal.message.contains("quota")), "{error}");
    assert_eq!(refused.asked().len(), 1, "the refusal counts for the pod itself");
}

#[tokio::test]
async fn a_replacement_that_exists_is_taken_if_it_is_ours_and_refused_if_not() {
    let exists = || status(409, "AlreadyExists", "pods \"web-1\" already exists");
    let ours = scripted([no_dry_run(), exists(), (200, pod_json(Some("s1")))]);
    ours.knows(set());
    ours.perform(&Effect::CreatePod(new_pod())).await.unwrap();
    assert!(ours.pod().unwrap().is_marked_by(&"s1".into()));

    for other in [Some("s2"), None] {
        let api = scripted([no_dry_run(), exists(), (200, pod_json(other))]);
        api.knows(set());
        let error = api.perform(&Effect::CreatePod(new_pod())).await.unwrap_err();
        assert!(matches!(&error, ActError::Refused(refusal) if refusal.kind == RefusalKind::Taken), "{error}");
        assert!(api.pod().is_some(), "the store contains it from now on");
    }
}

#[tokio::test]
async fn a_replacement_of_a_set_scaled_to_zero_is_made_from_the_template_that_the_api_server_has() {
    let web = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"namespace": "shop", "name": "web", "uid": "r1"},
        "spec": {"replicas": 0, "selector": {}, "template": {"metadata": {"labels": {"app": "web"}}}},
    });
    let answers = [(200, web), no_dry_run(), (201, pod_json(Some("s1"))), status(404, "NotFound", "gone")];
    let api = scripted(answers);
    let id = Identity { key: Key::new("shop", "web"), uid: "r1".into(), version: "1".into() };
    api.knows(ReplicaSetFact { id, ..ReplicaSetFact::default() });
    api.perform(&Effect::CreatePod(new_pod())).await.unwrap();
    assert_eq!(api.body(2)["metadata"]["labels"], json!({"app": "web", "ganglion.dev/role": "replacement"}));
    let error = api.perform(&Effect::CreatePod(new_pod())).await.unwrap_err();
    assert!(matches!(&error, ActError::Refused(refusal) if refusal.kind == RefusalKind::Gone), "{error}");
    assert_eq!(api.asked().len(), 4, "the second was read and not sent");
}

/// A ReplicaSet whose template has fields that this program does not know.
fn newer_set(replicas: i32) -> Value {
    let container = json!({"name": "web", "image": "web:1", "restartPolicyRules": [{"action": "Restart"}]});
    let term = json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}], "matchAges": [{"gt": 1}]});
    let required = json!({"nodeSelectorTerms": [term], "later": true});
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"namespace": "shop", "name": "web", "uid": "r1", "resourceVersion": "1"},
        "spec": {"replicas": replicas, "selector": {}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [container], "hostnameOverride": "web", "nodeName": "n9",
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}, "other": {}},
            },
        }},
    })
}

#[tokio::test]
async fn fields_of_the_template_that_are_newer_than_this_program_reach_the_new_pod() {
    for replicas in [0, 1] {
        let set = newer_set(replicas);
        let answers = [(200, set.clone()), no_dry_run(), (201, pod_json(Some("s1")))];
        let api = scripted(answers.into_iter().skip(if replicas == 0 { 0 } else { 1 }));
        api.knows(ReplicaSetFact::from(serde_json::from_str::<ReplicaSet>(&set.to_string()).unwrap()));
        api.perform(&Effect::CreatePod(new_pod())).await.unwrap();
        let pod = api.body(2 - usize::try_from(replicas).unwrap());
        let mut spec = set["spec"]["template"]["spec"].clone();
        spec.as_object_mut().unwrap().remove("nodeName");
        let pin = json!([{"key": "metadata.name", "operator": "In", "values": ["n"]}]);
        let required = &mut spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        required["nodeSelectorTerms"][0]["matchFields"] = pin;
        assert_eq!(pod["spec"], spec);
    }
}

#[tokio::test]
async fn a_pod_keeps_the_owners_that_others_gave_it() {
    let set = SetRef { name: "web-1".into(), uid: "r1".into() };
    let detach = PodChange::Detach { label: "a".into(), set: set.clone(), slot: "s1".into(), peers: String::new() };
    let attach = PodChange::Attach { label: "a".into(), value: "b".into(), set };
    for (change, controls) in [(detach, false), (attach, true)] {
        let api = scripted([(200, pod_json(Some("s1")))]);
        api.perform(&Effect::ChangePod { pod: pod_id(), change }).await.unwrap();
        let owners = api.body(0)["metadata"]["ownerReferences"].clone();
        let [owner] = owners.as_array().unwrap().as_slice() else { panic!("{owners}") };
        assert_eq!((&owner["uid"], &owner["controller"]), (&json!("r1"), &json!(controls)));
    }
}

#[tokio::test]
async fn no_replacement_of_an_unknown_set_and_none_in_a_vanished_namespace() {
    let api = scripted([status(404, "NotFound", "namespaces \"shop\" not found")]);
    for _ in 0..2 {
        let error = api.perform(&Effect::CreatePod(new_pod())).await.unwrap_err();
        assert!(matches!(&error, ActError::Refused(refusal) if refusal.kind == RefusalKind::Gone), "{error}");
        api.knows(set());
    }
    assert_eq!(api.asked().len(), 1, "the first was not even sent");
}

#[tokio::test]
async fn an_object_that_does_not_parse_is_told_so_once_and_nothing_else_is_done() {
    let odd = |conditions: &Value| -> Unreadable {
        let mut odd = action("1");
        odd["spec"]["notAfter"] = json!("2026-12-01T00:00:00+99:99");
        odd["status"] = json!({"conditions": conditions, "plan": {"later": 1}});
        serde_json::from_str::<Guard<WorkloadAction>>(&odd.to_string()).unwrap().0.unwrap_err()
    };
    let other = json!({"type": "TTLHonored", "status": "False", "reason": "x", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let working = json!({"type": "Reconciling", "status": "True", "reason": "Queued", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let api = scripted([(200, ended("2"))]);
    api.controller.ctx.store.put_unreadable::<WorkloadAction>(odd(&json!([working, other])));
    assert_eq!(api.reconcile().await.unwrap(), Action::AwaitChange);
    assert_eq!(api.asked(), [STATUS]);
    let body = api.body(0);
    assert_eq!((&body["metadata"]["resourceVersion"], &body["status"]["observedGeneration"]), (&json!("1"), &json!(1)));
    assert_eq!(body["status"]["plan"], json!({"later": 1}), "other members stay");
    let shown: Vec<(&str, &str, &str)> = body["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["type"].as_str().unwrap(), one["status"].as_str().unwrap(), one["reason"].as_str().unwrap()))
        .collect();
    let expected =
        [("Ready", "False", "InvalidObject"), ("Stalled", "True", "InvalidObject"), ("TTLHonored", "False", "x")];
    assert_eq!(shown, expected);
    let message = body["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(message.starts_with("spec.notAfter: "), "{message}");

    let api = scripted([]);
    api.controller.ctx.store.put_unreadable::<WorkloadAction>(odd(&body["status"]["conditions"]));
    assert_eq!(api.reconcile().await.unwrap(), Action::AwaitChange, "it says so already");
}

#[tokio::test]
async fn an_object_of_which_only_a_stub_is_kept_gets_its_condition_once() {
    let mut odd = action("1");
    odd["spec"]["notAfter"] = json!("2026-12-01T00:00:00+99:99");
    odd["status"] = json!({"plan": {"later": 1}});
    let stub = || serde_json::from_str::<Guard<WorkloadAction>>(&odd.to_string()).unwrap().0.unwrap_err().stub();
    let api = scripted([(200, odd.clone()), (200, ended("2"))]);
    api.controller.ctx.store.put_unreadable::<WorkloadAction>(stub());
    assert_eq!(api.reconcile().await.unwrap(), Action::AwaitChange);
    assert_eq!((api.asked().len(), api.asked()[1].as_str()), (2, STATUS), "the status is read, then written");
    let body = api.body(1);
    assert_eq!(body["status"]["plan"], json!({"later": 1}), "other members stay");
    assert_eq!(body["status"]["conditions"][0]["reason"], "InvalidObject");

    let mut reported = odd.clone();
    reported["status"] = body["status"].clone();
    let api = scripted([(200, reported)]);
    api.controller.ctx.store.put_unreadable::<WorkloadAction>(stub());
    assert_eq!(api.reconcile().await.unwrap(), Action::AwaitChange);
    assert_eq!(api.asked().len(), 1, "it says so already");
}

/// The receipt of the action of this uid.
fn receipt(uid: &str) -> Value {
    json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadActionReceipt",
        "metadata": {"namespace": "shop", "name": "go-1", "uid": "w1", "resourceVersion": "3"},
        "spec": {"actionName": "go", "actionUid": uid, "specHash": "1", "executedAt": "2026-01-01T00:00:00Z"},
    })
}

fn new_receipt() -> NewReceipt {
    let spec: WorkloadActionReceiptSpec = serde_json::from_value(receipt("u1")["spec"].clone()).unwrap();
    NewReceipt { key: Key::new("shop", "go-1"), spec, is_owned: false }
}

#[tokio::test]
async fn a_receipt_beside_an_admission_is_known_also_where_its_answer_was_lost() {
    let id = Identity { key: key(), uid: "u1".into(), version: "1".into() };
    let effect = Effect::Admit { action: id, status: Box::default(), receipt: Some(new_receipt()) };
    for answers in [vec![(201, receipt("u1"))], vec![status(504, "Timeout", "too slow"), (200, receipt("u1"))]] {
        let api = scripted(answers.clone());
        api.controller.write_receipt_of(&effect).await;
        assert_eq!(api.asked().len(), answers.len());
        assert!(api.controller.ctx.store.read(|world| world.get::<ReceiptFact>(&Key::new("shop", "go-1")).is_some()));
    }
}

#[tokio::test]
async fn a_receipt_of_one_object_is_deleted_with_it() {
    for is_owned in [false, true] {
        let api = scripted([(201, receipt("u1"))]);
        api.perform(&Effect::WriteReceipt(NewReceipt { is_owned, ..new_receipt() })).await.unwrap();
        let owners = api.body(0)["metadata"]["ownerReferences"].clone();
        let owner = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction", "name": "go", "uid": "u1"});
        assert_eq!(owners, if is_owned { json!([owner]) } else { Value::Null });
    }
}

#[tokio::test]
async fn a_receipt_that_exists_is_as_good_only_if_the_same_action_wrote_it() {
    let effect = Effect::WriteReceipt(new_receipt());
    for (uid, taken) in [("u1", false), ("u0", true)] {
        let api = scripted([status(409, "AlreadyExists", "exists"), (200, receipt(uid))]);
        let result = api.perform(&effect).await;
        assert_eq!(result.is_err(), taken);
        let known = api.controller.ctx.store.read(|world| world.get::<ReceiptFact>(&Key::new("shop", "go-1")).cloned());
        assert_eq!(known.unwrap().action_uid, uid, "the store contains the existing receipt in both cases");
    }
}

#[tokio::test]
async fn replicas_and_ledger_go_in_one_patch_for_one_version() {
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": "web", "uid": "d1", "resourceVersion": "9"},
        "spec": {"replicas": 4, "selector": {}, "template": {}},
    });
    let api = scripted([(200, web.clone()), (200, web)]);
    let id = Identity { key: Key::new("shop", "web"), uid: "d1".into(), version: "8".into() };
    let workload = Scalable { kind: ScalableKind::Deployment, id };
    let effect = Effect::Scale { workload: workload.clone(), replicas: 4, ledger: Some("words".into()) };
    api.perform(&effect).await.unwrap();
    assert_eq!(
        api.body(0),
        json!({
            "metadata": {"uid": "d1", "resourceVersion": "8", "annotations": {"ganglion.dev/ledger": "words"}},
            "spec": {"replicas": 4},
        })
    );
    api.perform(&Effect::ClearLedger { workload }).await.unwrap();
    assert_eq!(
        api.body(1),
        json!({"metadata": {"uid": "d1", "resourceVersion": "8", "annotations": {"ganglion.dev/ledger": null}}})
    );
    let known = api.controller.ctx.store.read(|world| world.get::<DeploymentFact>(&Key::new("shop", "web")).cloned());
    assert_eq!(known.unwrap().scale.replicas, 4);
}

#[tokio::test]
async fn an_answer_requeues_the_other_actions_that_it_concerns() {
    let api = scripted([(200, ended("2"))]);
    api.knows_action(action("1"));
    api.reconcile().await.unwrap();
    // Our own action is enqueued, too: for this queue, nobody is reconciling it.
    assert!(!api.controller.ctx.store.queue::<WorkloadAction>().is_empty());
}

#[tokio::test]
async fn a_reservation_ends_with_the_write_that_it_is_for() {
    let api = scripted([]);
    let store = &api.controller.ctx.store;
    store.write(|world| world.reserve(&key(), vec![]));
    let reservation = Reservation { store, key: &key(), open: false };
    assert!(store.read(|world| world.is_reserved(&key())));
    drop(reservation);
    assert!(!store.read(|world| world.is_reserved(&key())));
}

#[tokio::test]
async fn the_reservation_of_an_admission_without_an_answer_lasts_until_it_is_looked_up() {
    let api = scripted([status(504, "Timeout", "too slow"), (200, ended("2"))]);
    api.knows_action(action("1"));
    let store = &api.controller.ctx.store;
    store.write(|world| world.reserve(&key(), vec![]));
    drop(Reservation { store, key: &key(), open: true });
    let id = Identity { key: key(), uid: "u1".into(), version: "1".into() };
    let admission = Effect::Admit { action: id, status: Box::default(), receipt: None };
    let mut memory = ActionMemory { unanswered: vec![admission], ..ActionMemory::default() };
    api.controller.begin(&key(), &mut memory).await.unwrap_err();
    assert!(store.read(|world| world.is_reserved(&key())), "nobody knows yet");
    api.controller.begin(&key(), &mut memory).await.unwrap();
    assert!(!store.read(|world| world.is_reserved(&key())));
}

#[tokio::test]
async fn what_an_admission_gives_up_is_taken_until_it_is_carried_out() {
    let slot = |id: &str, step: &str, node: Option<&str>| {
        json!({
            "id": id, "index": 0, "attempt": 0, "step": step, "since": "2026-01-01T00:00:00Z", "label": "a",
            "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "replicaSet": {"name": "web-1", "uid": "r1"}, "replacement": node.map(|node| json!({"name": "n", "node": node})),
        })
    };
    let api = scripted([]);
    let mut known = action("1");
    known["status"] = json!({"slots": [slot("s1", "RollingBack", Some("a")), slot("s2", "Readying", Some("b"))]});
    api.knows_action(known);
    let next = json!({"slots": [slot("s1", "Queued", None), slot("s2", "Readying", Some("b"))]});
    let next: WorkloadActionStatus = serde_json::from_value(next).unwrap();
    let taken = api.controller.ctx.store.read(|world| replaced_slots(world, &key(), &next));
    let nodes: Vec<Option<&str>> =
        taken.iter().map(|slot| slot.replacement.as_ref().map(|replacement| replacement.node.as_str())).collect();
    assert_eq!(nodes, [Some("a"), None, Some("b")], "each place once, and the one that is left too");
}
