//! Compares the face with real API servers, and its JSON with the watches.

use std::fmt::Debug;

use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_api::workload_action::{WorkloadAction, WorkloadActionSpec};
use ganglion_core::facts::{DeploymentFact, Key, PodFact, ReceiptFact, ReplicaSet, ReplicaSetFact, SlimPod};
use k8s_openapi::api::apps::v1 as apps;
use serde_json::{Value, json};

use super::asked::Asked;
use super::json::AsJson;
use super::{HttpAnswer, serve};
use crate::cluster::api::{Api, If};
use crate::cluster::build::{NAMESPACE, PodShape};
use crate::cluster::facts::AsFact;
use crate::cluster::object::{Action, Fate, Pod, Rule};
use crate::cluster::store::{Event, Store, Stored};
use crate::driver::Run;
use crate::operator::flaw::Flaw;
use crate::random::Rng;
use crate::setup::Setup;

/// Checks that each version of each object is the same in an answer and in a watch event.
fn check_read_alike<T: Stored + AsFact + AsJson>(store: &Store<T>, read: impl Fn(&str) -> T::Fact) -> usize
where
    T::Fact: PartialEq + Debug,
{
    for event in &store.log {
        let (Event::Put(object) | Event::Gone(object)) = event;
        let json = object.json();
        assert_eq!(read(&json), object.fact(), "{json}");
    }
    store.log.len()
}

fn parsed<T: serde::de::DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in {json}"))
}

#[test]
fn an_answer_tells_what_a_watch_tells() {
    let mut read_alike = [0; 5];
    for (seed, setup) in
        (0..15).map(|seed| (seed, Setup::random(seed))).chain((0..10).map(|seed| (seed, Setup::with_troubles(seed))))
    {
        let mut run = Run::new(&setup, Flaw::None, false);
        assert_eq!(run.all(), Ok(()), "seed {seed}");
        let api = &run.cluster.api;
        read_alike[0] += check_read_alike(&api.pods, |json| PodFact::from(parsed::<SlimPod>(json)));
        read_alike[1] += check_read_alike(&api.sets, |json| ReplicaSetFact::from(parsed::<ReplicaSet>(json)));
        read_alike[2] +=
            check_read_alike(&api.deployments, |json| DeploymentFact::from(parsed::<apps::Deployment>(json)));
        read_alike[3] +=
            check_read_alike(&api.receipts, |json| ReceiptFact::from(parsed::<WorkloadActionReceipt>(json)));
        read_alike[4] += check_read_alike(&api.actions, parsed::<WorkloadAction>);
    }
    assert!(read_alike.iter().all(|count| *count > 10), "{read_alike:?}");
}

/// A serving pod on a node, and an action.
fn api() -> (Api, Key, Key) {
    let mut api = Api::new(Rng::new(1));
    api.add_node("node-1", "a", 1000, 10, Fate::Good);
    api.add_set("web", 1, &PodShape { grace: 30, ..PodShape::default() });
    let set = api.sets.values().next().cloned().expect("a set");
    let mut pod = crate::cluster::replica_set::from_template(&set, "web-1");
    (pod.node, pod.ready_since) = (Some("node-1".into()), Some(api.seconds()));
    pod.phase = crate::cluster::object::Phase::Running;
    let pod = api.create_pod(pod).expect("a pod").meta.key.clone();
    let action = api.add_action("go", WorkloadActionSpec::default()).expect("an action").meta.key.clone();
    (api, pod, action)
}

const APPLY: &str = "application/apply-patch+yaml";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const STEPS: &str = "application/json-patch+json";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const ACTIONS: &str = "/apis/ganglion.dev/v1alpha1/namespaces/shop/workloadactions";

fn ask(api: &mut Api, method: &str, path: &str, content: &str, body: &Value) -> (u16, Value) {
    let asked = Asked::read(method, path, content, body.to_string().as_bytes());
    let (code, answer): HttpAnswer = serve(api, &asked);
    (code, parsed(&answer))
}

fn why(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["reason"].as_str().unwrap_or_default())
}

#[test]
fn a_status_is_written_for_one_version_applied_or_put() {
    for (method, content) in [("PATCH", APPLY), ("PUT", "application/json")] {
        let (mut api, _, key) = api();
        let path = format!("{ACTIONS}/go/status");
        let meta = api.actions.get(&key).expect("it").meta.clone();
        let version = meta.version.to_string();
        let mut write = |uid: Option<&str>, version: Option<&str>| {
            let head = json!({"name": "go", "uid": uid, "resourceVersion": version});
            ask(&mut api, method, &path, content, &json!({"metadata": head, "status": {"observedGeneration": 1}}))
        };
        assert_eq!(why(&write(Some("other"), Some(&version))), (409, "Conflict"));
        assert_eq!(why(&write(None, Some("1"))), (409, "Conflict"));
        let done = write(Some(&meta.uid), Some(&version));
        assert_eq!((done.0, &done.1["status"]["observedGeneration"]), (200, &json!(1)));
        assert_eq!(done.1["metadata"]["generation"], 1, "a status is not part of the spec");
        assert_eq!(why(&write(Some(&meta.uid), Some(&version))), (409, "Conflict"), "that version is outdated");
        let blind = write(None, None).0;
        assert_eq!(blind, if method == "PUT" { 422 } else { 200 }, "{method} without a version");
        api.delete::<Action>(&key, If::any()).expect("it goes");
        let gone = json!({"metadata": {"name": "go", "resourceVersion": "1"}, "status": {}});
        assert_eq!(why(&ask(&mut api, method, &path, content, &gone)), (404, "NotFound"));
    }
}

#[test]
fn a_merge_patch_insists_on_what_it_names_and_null_removes() {
    let (mut api, key, _) = api();
    let meta = api.pods.get(&key).expect("it").meta.clone();
    let path = format!("{PODS}/web-1");
    let patch = |uid: &str, version: u64| json!({"metadata": {"uid": uid, "resourceVersion": version.to_string(), "labels": {"track": null, "new": "1"}, "ownerReferences": [{"$patch": "delete", "uid": "u9"}]}});
    assert_eq!(why(&ask(&mut api, "PATCH", &path, STRATEGIC, &patch("other", meta.version))), (409, "Conflict"));
    assert_eq!(why(&ask(&mut api, "PATCH", &path, STRATEGIC, &patch(&meta.uid, 1))), (409, "Conflict"));
    let (code, pod) = ask(&mut api, "PATCH", &path, STRATEGIC, &patch(&meta.uid, meta.version));
    assert_eq!((code, &pod["metadata"]["labels"]), (200, &json!({"app": "web", "new": "1"})));
}

#[test]
fn a_json_patch_happens_only_while_its_tests_hold() {
    let (mut api, _, _) = api();
    let path = format!("{PODS}/web-1");
    let test = |path: &str, value: Value| json!({"op": "test", "path": path, "value": value});
    let add = json!({"op": "add", "path": "/metadata/annotations/a", "value": "b"});
    let mut patch = |test: Value| ask(&mut api, "PATCH", &path, STEPS, &json!([test, add]));
    for wrong in [
        test("/metadata/uid", json!("other")),
        test("/metadata/labels/app", json!("other")),
        test("/metadata/labels/app", Value::Null),
    ] {
        let (code, status) = patch(wrong.clone());
        assert_eq!((code, &status["details"]), (422, &Value::Null), "{wrong}");
        assert_eq!(status["message"], "the server rejected our request due to an error in our request");
    }
    let (code, pod) = patch(test("/metadata/deletionTimestamp", Value::Null));
    assert_eq!((code, &pod["metadata"]["annotations"]["a"]), (200, &json!("b")));
}

#[test]
fn a_name_is_taken_once_and_a_quota_is_told() {
    let (mut api, _, _) = api();
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": []}});
    assert_eq!(why(&ask(&mut api, "POST", PODS, "", &pod("web-1"))), (409, "AlreadyExists"));
    assert_eq!(ask(&mut api, "POST", PODS, "", &pod("web-2")).0, 201);
    api.quota = Some(2);
    let refused = ask(&mut api, "POST", PODS, "", &pod("web-3"));
    assert_eq!(why(&refused), (403, "Forbidden"));
    assert!(refused.1["message"].as_str().is_some_and(|words| words.contains("exceeded quota")), "{refused:?}");
}

#[test]
fn a_new_pod_is_read_as_it_was_sent() {
    let (mut api, _, _) = api();
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]});
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
    let sent = json!({
        "metadata": {"name": "new", "labels": {"app": "web"}, "annotations": {"a": "b"}, "ownerReferences": [
            {"apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction", "name": "go", "uid": "u"}]},
        "spec": {"affinity": affinity, "terminationGracePeriodSeconds": 7, "nodeSelector": {"zone": "a"},
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
    });
    assert_eq!(ask(&mut api, "POST", PODS, "", &sent).0, 201);
    let pod = api.pods.get(&Key::new(NAMESPACE, "new")).expect("it");
    assert_eq!((pod.pin.as_deref(), pod.node.as_deref(), pod.generated), (Some("node-1"), None, false));
    assert_eq!((pod.template.requests.cpu, pod.template.grace), (100, 7));
    assert_eq!(pod.template.node_selector.get("zone").map(String::as_str), Some("a"));
    assert_eq!((pod.app(), pod.meta.annotations.len(), pod.meta.controller()), ("web", 1, None));
    assert_eq!((pod.meta.owners[0].kind.as_str(), pod.meta.owners[0].uid.as_str()), ("WorkloadAction", "u"));
}

#[test]
fn an_eviction_says_why_not_in_the_words_of_the_api() {
    let (mut api, key, _) = api();
    let path = format!("{PODS}/web-1/eviction");
    let uid = api.pods.get(&key).expect("it").meta.uid.clone();
    let body = |uid: &str| json!({"metadata": {"name": "web-1"}, "deleteOptions": {"preconditions": {"uid": uid}}});
    assert_eq!(why(&ask(&mut api, "POST", &path, "", &body("other"))), (409, "Conflict"));
    api.add_budget("one", "web", Rule::MinAvailable(1));
    let (code, status) = ask(&mut api, "POST", &path, "", &body(&uid));
    assert_eq!((code, &status["details"]["causes"][0]["reason"]), (429, &json!("DisruptionBudget")));
    api.add_budget("two", "web", Rule::MinAvailable(1));
    let (code, status) = ask(&mut api, "POST", &path, "", &body(&uid));
    assert_eq!(code, 500);
    assert!(status["message"].as_str().is_some_and(|words| words.contains("more than one PodDisruptionBudget")));
    api.remove::<Pod>(&key, If::any()).expect("it goes");
    assert_eq!(why(&ask(&mut api, "POST", &path, "", &body(&uid))), (404, "NotFound"));
}

#[test]
fn a_deletion_insists_on_the_uid_and_a_finalizer_keeps_the_object() {
    let (mut api, pod, action) = api();
    let only = |uid: &str| json!({"preconditions": {"uid": uid}});
    let paths = [format!("{PODS}/web-1"), format!("{ACTIONS}/go")];
    for path in &paths {
        assert_eq!(why(&ask(&mut api, "DELETE", path, "", &only("other"))), (409, "Conflict"));
    }
    let uid = api.pods.get(&pod).expect("it").meta.uid.clone();
    let left = ask(&mut api, "DELETE", &paths[0], "", &only(&uid)).1;
    assert!(left["metadata"]["deletionTimestamp"].is_string(), "its kubelet ends it: {left}");
    api.update::<Action>(&action, If::any(), |one| one.meta.finalizers.push("a/b".into())).expect("a finalizer");
    let uid = api.actions.get(&action).expect("it").meta.uid.clone();
    let left = ask(&mut api, "DELETE", &paths[1], "", &only(&uid)).1;
    assert_eq!((&left["kind"], left["metadata"]["deletionTimestamp"].is_string()), (&json!("WorkloadAction"), true));
    api.update::<Action>(&action, If::any(), |one| one.meta.finalizers.clear()).expect("it goes");
    assert_eq!(ask(&mut api, "GET", &paths[1], "", &Value::Null).0, 404);
}
