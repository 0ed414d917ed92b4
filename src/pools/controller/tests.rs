//! One pool on its way to published lists, with an API server in memory.

use std::sync::Mutex as StdMutex;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use tower_test::mock;

use super::*;
use ganglion_core::facts::{
    DeploymentFact, Identity, PodFact, ReplicaSet, ReplicaSetFact, SlimPod, StatefulSet, StatefulSetFact,
};
use ganglion_core::world::{Origin, World};
use ganglion_outbound::address::{self, Names, Rules};
use ganglion_outbound::client::AnswerLimits;
use ganglion_outbound::web::Web;
use ganglion_pools_plan::world::register;
use ganglion_runtime::events;
use ganglion_runtime::fairness::FairLimit;
use ganglion_runtime::frame::reconcile;
use ganglion_runtime::metrics::Metrics;
use ganglion_runtime::polls::PollLimits;
use ganglion_runtime::run::Action;
use ganglion_runtime::store::Store;
use ganglion_runtime::watch::namespaces::NamespaceWatch;
use ganglion_runtime::writer::Writer;

fn meta(name: &str, version: &str) -> Value {
    json!({"namespace": "n", "name": name, "uid": name, "resourceVersion": version, "generation": 1})
}

/// A Ready worker.
fn pod(name: &str, version: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": meta(name, version), "spec": {"nodeName": "node", "containers": []},
        "status": {"phase": "Running", "podIP": "127.0.0.1", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]},
    });
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w", "uid": "w", "controller": true}]);
    pod
}

fn pool() -> Value {
    json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "SwarmPool", "metadata": meta("p", "2"),
        "spec": {"replicas": 2,
            "workload": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w"},
            "jobs": {"inline": [{"name": "a"}, {"name": "b"}]}, "output": {"configMap": "lists"},
            "version": {"source": "Annotation"}, "refresh": {"policy": "HotReload"},
        },
    })
}

/// Answer of the API server; None if it does not answer.
fn answer(request: &str, body: Value) -> Option<Value> {
    let path = request.split(['?', ' ']).nth(1)?;
    let name = path.rsplit('/').next()?.to_owned();
    let mut answer = match request.split(' ').next()? {
        "GET" if request.contains("watch=true") => return None,
        "GET" if path.contains("/pods/") => {
            return Some(json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "it is gone"}));
        }
        "GET" if path.ends_with("/configmaps") => json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
            "metadata": {"resourceVersion": "1"}, "items": [],
        }),
        "PATCH" if path.contains("/configmaps/") => {
            let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(&name, "21")});
            map["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "SwarmPool", "name": "p", "uid": "p", "controller": true,
            }]);
            map
        }
        "PATCH" if path.contains("/statefulsets/") => stateful_set(2, "50"),
        "PATCH" => pod(&name, "30"),
        "POST" if path.ends_with("/events") => return Some(body),
        _ => body,
    };
    if request.starts_with("POST") {
        answer["metadata"]["uid"] = answer["metadata"]["name"].clone();
        answer["metadata"]["namespace"] = json!("n");
        answer["metadata"]["resourceVersion"] = json!("20");
    }
    Some(answer)
}

/// Requests in the order of their arrival, with their bodies.
type Requests = Arc<StdMutex<Vec<(String, Value)>>>;

fn serve() -> (Client, Requests) {
    serve_pool(pool(), None)
}

/// Code of a request that is never answered.
const NO_ANSWER: u16 = 0;

/// WriteRefusal of each request with this method whose path contains the text.
#[derive(Clone, Copy)]
struct RefusedRequest {
    method: &'static str,
    path: &'static str,
    code: u16,
    message: &'static str,
}

/// Serves this pool.
fn serve_pool(mut stored: Value, refusal: Option<RefusedRequest>) -> (Client, Requests) {
    let (service, mut handle) = mock::pair::<Request<Body>, Response<Body>>();
    let requests = Requests::default();
    let log = Arc::clone(&requests);
    tokio::spawn(async move {
        let mut unanswered = Vec::new();
        while let Some((request, send)) = handle.next_request().await {
            let (head, body) = request.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let request = format!("{} {}", head.method, head.uri);
            let is_refused =
                |refusal: &RefusedRequest| head.method == refusal.method && head.uri.path().contains(refusal.path);
            let refusal = refusal.filter(is_refused);
            if refusal.is_some_and(|refusal| refusal.code == NO_ANSWER) {
                unanswered.push(send);
            } else if let Some(RefusedRequest { code, message, .. }) = refusal {
                let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": message});
                let response = Response::builder().status(code).body(status.to_string().into_bytes().into());
                send.send_response(response.unwrap());
            } else if head.method == "PUT" {
                let version: u32 = stored["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
                stored["metadata"]["resourceVersion"] = json!((version + 1).to_string());
                stored["status"] = body["status"].clone();
                send.send_response(Response::new(stored.to_string().into_bytes().into()));
            } else {
                match answer(&request, body.clone()) {
                    Some(answer) => {
                        let code = answer["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(200);
                        let mut response: Response<Body> = Response::new(answer.to_string().into_bytes().into());
                        *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
                        send.send_response(response);
                    }
                    None => unanswered.push(send),
                }
            }
            if head.method != "GET" || head.uri.path().contains("/pods/") {
                let path = head.uri.path().rsplit('/').take(2).collect::<Vec<_>>();
                log.lock().unwrap().push((format!("{} {}/{}", head.method, path[1], path[0]), body));
            }
        }
    });
    (Client::new(service, "n"), requests)
}

fn controller(client: &Client) -> Arc<SwarmPoolController> {
    controller_within(client, Duration::from_secs(10))
}

/// A controller whose writes have this timeout.
fn controller_within(client: &Client, timeout: Duration) -> Arc<SwarmPoolController> {
    let metrics = Metrics::new();
    let mut world = World::default();
    register(&mut world);
    let store = Store::new(world);
    let ctx = Context {
        store: store.clone(),
        writer: Writer::new(client.clone(), timeout, CancellationToken::new(), metrics.clone()),
        events: events::line(&metrics).0,
        metrics: metrics.clone(),
        clock: Timestamp::now,
        term: "term".into(),
        stop: CancellationToken::new(),
    };
    let limit = || FairLimit::new(1 << 20, Counter::default());
    let rules = Rules { allowed_networks: vec!["127.0.0.0/8".parse().unwrap()], ..Rules::default() };
    let web = Arc::new(Web::new(Names::new(rules, address::system), limit()));
    let limits = AnswerLimits { sample: 65_536, object: 65_536, pods: 1, node: 1, nodes: 1 };
    Arc::new(SwarmPoolController {
        ctx,
        namespaces: Namespaces::default(),
        config_maps: NamespaceFeeds::new(client, Duration::from_secs(10), store, metrics),
        outbound: Arc::new(OutboundClient::new(web, Duration::from_secs(10), limit(), limits)),
        probes: WorkerProbes::default(),
        memories: Memories::default(),
        job_memory: FairMemory::default(),
        reads: FairLimit::new(READS, Counter::default()),
    })
}

fn stateful_set(replicas: u32, version: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta("w", version),
        "spec": {"replicas": replicas, "selector": {}, "serviceName": "w", "template": {}},
    })
}

fn observe_pool(controller: &SwarmPoolController, pool: Value) {
    controller.ctx.store.apply(serde_json::from_value::<SwarmPool>(pool).unwrap(), Origin::Watch);
}

fn observe_set(controller: &SwarmPoolController, replicas: u32, version: &str) {
    let set = serde_json::from_value::<StatefulSet>(stateful_set(replicas, version)).unwrap();
    controller.ctx.store.apply(StatefulSetFact::from(set), Origin::Watch);
}

fn observe_pod(controller: &SwarmPoolController, pod: Value) {
    controller.ctx.store.apply(PodFact::from(serde_json::from_value::<SlimPod>(pod).unwrap()), Origin::Watch);
}

/// A worker that reports this version of the file.
fn reporting(name: &str, version: &str, observed: i64) -> Value {
    let mut pod = pod(name, version);
    let versions = json!({"ganglion.dev/observed-version": observed.to_string(),
        "ganglion.dev/job-version": observed.to_string()});
    pod["metadata"]["annotations"] = versions;
    pod
}

/// Puts the workload, its pods and this pool into the caches, and waits for the watch on ConfigMaps.
async fn start(controller: &Arc<SwarmPoolController>, pool: Value) {
    observe_pool(controller, pool);
    observe_set(controller, 2, "3");
    for name in ["w-0", "w-1"] {
        observe_pod(controller, pod(name, "4"));
    }
    while controller.config_maps.state("n") != NamespaceWatch::Ready {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Workers of a pool that is suspended or refused are not probed.
#[tokio::test]
async fn a_pool_that_is_not_reconciled_makes_no_requests() {
    let (client, _) = serve();
    let controller = controller(&client);
    let probing = |version: &str, changed: Value| {
        let mut whole = pool();
        whole["metadata"]["resourceVersion"] = json!(version);
        whole["spec"]["version"] = json!({"probe": {"port": 9}});
        whole["spec"].as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
        whole
    };
    start(&controller, probing("100", json!({}))).await;
    let key = Key::new("n", "p");
    let probed = async |changed: Value, version: &str| {
        observe_pool(&controller, probing(version, changed));
        reconcile(Arc::clone(&controller), key.clone()).await.unwrap();
        controller.probes.count(&key)
    };
    assert_eq!(probed(json!({}), "101").await, 2);
    assert_eq!(probed(json!({"suspend": true}), "102").await, 0);
    assert_eq!(probed(json!({"suspend": false}), "103").await, 2);
    controller.ctx.store.remove::<StatefulSetFact>(&Identity {
        key: Key::new("n", "w"),
        uid: "w".into(),
        version: String::new(),
    });
    assert_eq!(probed(json!({"suspend": false}), "104").await, 0);
}

#[tokio::test]
async fn lists_are_published_then_workers_are_told_then_the_status_is_written() {
    let (client, requests) = serve();
    let controller = controller(&client);
    start(&controller, pool()).await;
    let action = reconcile(Arc::clone(&controller), Key::new("n", "p")).await.unwrap();
    assert!(matches!(action, Action::RequeueAfter(_)), "the annotations are repeated unless the workers report");
    let requests = requests.lock().unwrap();
    let mut names: Vec<&str> = requests.iter().map(|(request, _)| request.as_str()).collect();
    names[1..3].sort_unstable();
    assert_eq!(names, ["POST n/configmaps", "PATCH pods/w-0", "PATCH pods/w-1", "PUT p/status"]);
    let lists = requests[0].1["data"]["config.yml"].as_str().unwrap();
    assert!(lists.starts_with("workloads:\n  w-0:\n    jobs:\n      - ") && lists.ends_with("version: 1\n"), "{lists}");
    let status = &requests[3].1["status"];
    assert_eq!((&status["version"], &status["conditions"][0]["reason"]), (&json!(1), &json!("Refreshing")));
}

/// A pool without replicas, whose operator may not write its scale: an image without the roles of its version, or a
/// policy of the cluster.
#[tokio::test]
async fn a_pool_that_may_not_follow_its_workload_hands_over_its_jobs() {
    let forbidden = "swarmpools.ganglion.dev \"p\" is forbidden: User \"system:serviceaccount:s:g\" cannot patch resource \
                     \"swarmpools/scale\" in API group \"ganglion.dev\" in the namespace \"n\"";
    let denied =
        "swarmpools.ganglion.dev \"p\" is forbidden: ValidatingAdmissionPolicy 'no' with binding 'no' denied request";
    for (code, message, condition) in [
        (403, forbidden, None),
        (403, denied, Some("WriteFailed")),
        (422, "SwarmPool \"p\" is invalid: spec.replicas: Invalid value", Some("WriteFailed")),
        (404, "the server could not find the requested resource", Some("WriteFailed")),
    ] {
        let mut whole = pool();
        whole["spec"].as_object_mut().unwrap().remove("replicas");
        let refusal = RefusedRequest { method: "PATCH", path: "/swarmpools/p/scale", code, message };
        let (client, requests) = serve_pool(whole.clone(), Some(refusal));
        let controller = controller(&client);
        start(&controller, whole).await;
        for _ in 0..5 {
            reconcile(Arc::clone(&controller), Key::new("n", "p")).await.unwrap();
        }
        let requests = requests.lock().unwrap();
        let count = |name: &str| requests.iter().filter(|(request, _)| request == name).count();
        assert_eq!((count("PATCH p/scale"), count("POST n/configmaps")), (1, 1), "{message}: {requests:?}");
        let last = &requests.iter().rfind(|(request, _)| request == "PUT p/status").unwrap().1["status"];
        let conditions = last["conditions"].as_array().unwrap();
        assert_eq!(conditions[0]["reason"], "Refreshing", "{message}: {last}");
        let follows = conditions.iter().find(|one| one["type"] == "FollowsWorkload");
        assert_eq!(follows.map(|one| one["reason"].as_str().unwrap()), condition, "{message}: {last}");
        assert_eq!(last.get("followed"), None, "{message}: {last}");
    }
}

#[tokio::test]
async fn a_pool_whose_pods_may_not_be_annotated_reports_its_workers() {
    let message = "pods \"w-0\" is forbidden: ValidatingAdmissionPolicy 'no' with binding 'no' denied request";
    let (client, requests) =
        serve_pool(pool(), Some(RefusedRequest { method: "PATCH", path: "/pods/", code: 403, message }));
    let controller = controller(&client);
    start(&controller, pool()).await;
    let action = reconcile(Arc::clone(&controller), Key::new("n", "p")).await.unwrap();
    assert!(matches!(action, Action::RequeueAfter(_)), "the annotations are repeated");
    let requests = requests.lock().unwrap();
    let status = &requests.iter().rfind(|(request, _)| request == "PUT p/status").unwrap().1["status"];
    assert_eq!(status["workers"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!(status["conditions"][0]["reason"], "WriteFailed", "{status}");
    let said = status["conditions"][0]["message"].as_str().unwrap();
    assert!(
        said.starts_with("pods cannot be annotated with ganglion.dev/job-version") && said.ends_with(message),
        "{said}"
    );
}

/// A policy refuses the annotation: it is tried again after ten minutes, and named until the workers run their lists.
#[tokio::test]
async fn a_refused_annotation_of_a_version_is_not_repeated_in_each_reconcile() {
    let message = "pods \"w-0\" is forbidden: ValidatingAdmissionPolicy 'no' with binding 'no' denied request";
    let refusal = RefusedRequest { method: "PATCH", path: "/pods/", code: 403, message };
    let (client, requests) = serve_pool(pool(), Some(refusal));
    let controller = controller(&client);
    start(&controller, pool()).await;
    let key = Key::new("n", "p");
    let mut action = Action::AwaitChange;
    for version in ["40", "41", "42"] {
        observe_pod(&controller, pod("w-0", version));
        action = reconcile(Arc::clone(&controller), key.clone()).await.unwrap();
        let (status, ready) = last_status(&requests, "Ready");
        assert_eq!(ready["reason"], "WriteFailed", "{status}");
    }
    assert!(matches!(action, Action::RequeueAfter(_)), "it is tried again by itself");
    assert_eq!((count(&requests, "PATCH pods/w-0"), count(&requests, "PATCH pods/w-1")), (1, 1));
    for name in ["w-0", "w-1"] {
        let mut worker = pod(name, "50");
        worker["metadata"]["annotations"] = json!({"ganglion.dev/observed-version": "1"});
        observe_pod(&controller, worker);
    }
    reconcile(Arc::clone(&controller), key).await.unwrap();
    assert_eq!(last_status(&requests, "Ready").1["reason"], "Converged");
}

/// An admission webhook for ConfigMaps hangs.
#[tokio::test]
async fn a_pool_whose_lists_cannot_be_written_in_time_says_that_a_webhook_may_not_answer() {
    let refusal = RefusedRequest { method: "POST", path: "/configmaps", code: NO_ANSWER, message: "" };
    let (client, requests) = serve_pool(pool(), Some(refusal));
    let controller = controller_within(&client, Duration::from_millis(500));
    start(&controller, pool()).await;
    assert!(matches!(reconcile(Arc::clone(&controller), Key::new("n", "p")).await, Err(Error::Timeout(_))));
    let (status, ready) = last_status(&requests, "Ready");
    assert_eq!(ready["reason"], "WriteFailed", "{status}");
    let expected = "a request about ConfigMaps or pods failed: no answer from the API server within 0.5 s; an admission \
                    webhook may not answer";
    assert_eq!(ready["message"], expected, "{status}");
}

/// An admission webhook for pods hangs: the lists are published, and the workers may read them all the same.
#[tokio::test]
async fn a_pool_whose_pods_cannot_be_annotated_in_time_hands_over_its_jobs() {
    let refusal = RefusedRequest { method: "PATCH", path: "/pods/", code: NO_ANSWER, message: "" };
    let (client, requests) = serve_pool(pool(), Some(refusal));
    let controller = controller_within(&client, Duration::from_millis(500));
    start(&controller, pool()).await;
    let key = Key::new("n", "p");
    for version in ["40", "41"] {
        observe_pod(&controller, pod("w-0", version));
        reconcile(Arc::clone(&controller), key.clone()).await.unwrap();
    }
    let (status, ready) = last_status(&requests, "Ready");
    assert_eq!(status["workers"].as_array().map(Vec::len), Some(2), "{status}");
    let said = ready["message"].as_str().unwrap();
    assert!(
        said.contains("ganglion.dev/job-version") && said.ends_with("an admission webhook may not answer"),
        "{said}"
    );
    assert_eq!(count(&requests, "PATCH pods/w-0"), 1, "it is tried again after ten seconds");
    for name in ["w-0", "w-1"] {
        observe_pod(&controller, reporting(name, "50", 1));
    }
    reconcile(Arc::clone(&controller), key).await.unwrap();
    assert_eq!(last_status(&requests, "Ready").1["reason"], "Converged");
}

/// Names of the requests about ConfigMaps, pods and workloads since the last call.
fn taken(requests: &Requests) -> Vec<String> {
    let all = std::mem::take(&mut *requests.lock().unwrap());
    all.into_iter().map(|(request, _)| request).filter(|request| !request.ends_with("/status")).collect()
}

/// A worker was removed, and its pod is gone: its jobs are given in the reconcile that finds out.
#[tokio::test]
async fn jobs_of_a_worker_that_has_stopped_are_given_at_once() {
    let (client, requests) = serve();
    let controller = controller(&client);
    start(&controller, pool()).await;
    let key = Key::new("n", "p");
    reconcile(Arc::clone(&controller), key.clone()).await.unwrap();
    for name in ["w-0", "w-1"] {
        observe_pod(&controller, reporting(name, "40", 1));
    }
    taken(&requests);
    let mut smaller = pool();
    smaller["metadata"]["resourceVersion"] = json!("101");
    smaller["spec"]["replicas"] = json!(1);
    observe_pool(&controller, smaller);
    observe_set(&controller, 1, "60");
    let gone = Identity { key: Key::new("n", "w-1"), uid: "w-1".into(), version: String::new() };
    controller.ctx.store.remove::<PodFact>(&gone);
    reconcile(Arc::clone(&controller), key).await.unwrap();
    let steps = ["PATCH configmaps/lists", "GET pods/w-1", "PATCH configmaps/lists", "PATCH pods/w-0"];
    assert_eq!(taken(&requests), steps);
}

/// The last written status, and its condition of this type.
fn last_status(requests: &Requests, condition: &str) -> (Value, Value) {
    let requests = requests.lock().unwrap();
    let status = requests.iter().rfind(|(request, _)| request == "PUT p/status").unwrap().1["status"].clone();
    let conditions = status["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|one| one["type"] == condition).cloned().unwrap_or_default();
    (status, found)
}

fn count(requests: &Requests, name: &str) -> usize {
    requests.lock().unwrap().iter().filter(|(request, _)| request == name).count()
}

/// The file of a worker that is gone stays, without jobs: they are with another worker.
#[tokio::test]
async fn a_pool_that_may_not_delete_a_surplus_config_map_hands_over_its_jobs() {
    let message = "admission webhook \"no\" denied the request: keep it";
    let refusal = RefusedRequest { method: "DELETE", path: "/configmaps/", code: 403, message };
    // Strict: the first version after the assignment empties the list of the worker that is gone.
    for (policy, latest) in [("Strict", 3), ("Immediate", 2)] {
        let mut whole = pool();
        whole["spec"]["output"]["layout"] = json!("PerWorker");
        whole["spec"]["handover"] = json!({"policy": policy});
        let (client, requests) = serve_pool(whole.clone(), Some(refusal));
        let controller = controller(&client);
        start(&controller, whole.clone()).await;
        let key = Key::new("n", "p");
        reconcile(Arc::clone(&controller), key.clone()).await.unwrap();
        for name in ["w-0", "w-1"] {
            observe_pod(&controller, reporting(name, "40", 1));
        }
        reconcile(Arc::clone(&controller), key.clone()).await.unwrap();
        whole["metadata"]["resourceVersion"] = json!("101");
        whole["spec"]["replicas"] = json!(1);
        observe_pool(&controller, whole);
        observe_set(&controller, 1, "60");
        let gone = Identity { key: Key::new("n", "w-1"), uid: "w-1".into(), version: String::new() };
        controller.ctx.store.remove::<PodFact>(&gone);
        for version in ["70", "71", "72", "73"] {
            // A refused pool comes back with an error, or waits.
            let _ = reconcile(Arc::clone(&controller), key.clone()).await;
            observe_pod(&controller, reporting("w-0", version, latest));
        }
        let (status, condition) = last_status(&requests, "SurplusDeleted");
        assert_eq!(status["conditions"][0]["reason"], "Converged", "{policy}: {status}");
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("WriteFailed")), "{status}");
        let said = condition["message"].as_str().unwrap();
        assert!(said.starts_with("1 ConfigMap of workers") && said.contains("such as lists-w-1"), "{said}");
        assert!(said.ends_with(message), "{said}");
        assert_eq!(count(&requests, "DELETE configmaps/lists-w-1"), 1, "it is tried again after ten minutes");
        let requests = requests.lock().unwrap();
        let patch = &requests.iter().rfind(|(request, _)| request == "PATCH configmaps/lists-w-1").unwrap().1;
        let file = patch.as_array().unwrap().iter().find(|one| one["path"] == "/data/config.yml");
        let text = file.map_or_else(|| patch.to_string(), |one| one["value"].to_string());
        assert!(!text.contains("- a") && !text.contains("- b"), "{policy}: {text}");
    }
}

/// Pods of a Deployment keep their slots while this process runs.
#[tokio::test]
async fn a_pool_that_may_not_annotate_slots_hands_over_its_jobs() {
    let message = "admission webhook \"no\" denied the request: pods stay as they are";
    let mut whole = pool();
    whole["spec"]["workload"]["kind"] = json!("Deployment");
    let refusal = RefusedRequest { method: "PATCH", path: "/pods/", code: 403, message };
    let (client, requests) = serve_pool(whole.clone(), Some(refusal));
    let controller = controller(&client);
    let template = json!({"metadata": {}, "spec": {"containers": []}});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("w", "3"),
        "spec": {"replicas": 2, "selector": {}, "template": template},
    });
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta("s", "3"),
        "spec": {"replicas": 2, "selector": {}, "template": template},
    });
    let owner = |kind: &str, name: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true}]);
    set["metadata"]["ownerReferences"] = owner("Deployment", "w");
    let store = &controller.ctx.store;
    store.apply(DeploymentFact::from(serde_json::from_value::<Deployment>(deployment).unwrap()), Origin::Watch);
    store.apply(ReplicaSetFact::from(serde_json::from_value::<ReplicaSet>(set).unwrap()), Origin::Watch);
    start(&controller, whole).await;
    for version in ["50", "51", "52"] {
        for name in ["w-0", "w-1"] {
            let mut pod = if version == "50" { pod(name, version) } else { reporting(name, version, 1) };
            pod["metadata"]["ownerReferences"] = owner("ReplicaSet", "s");
            observe_pod(&controller, pod);
        }
        let _ = reconcile(Arc::clone(&controller), Key::new("n", "p")).await;
    }
    assert_eq!(count(&requests, "POST n/configmaps"), 1);
    let (status, condition) = last_status(&requests, "SlotsRecorded");
    assert_eq!(status["conditions"][0]["reason"], "Converged", "{status}");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("WriteFailed")), "{status}");
    let said = condition["message"].as_str().unwrap();
    assert!(said.contains("ganglion.dev/worker") && said.ends_with(message), "{said}");
    let slots = |(request, body): &&(String, Value)| {
        request.starts_with("PATCH pods/") && body.to_string().contains("ganglion.dev/worker\"")
    };
    assert_eq!(requests.lock().unwrap().iter().filter(slots).count(), 2, "it is tried again after ten minutes");
}

/// Somebody reverts the replicas again and again, and then nothing happens any more: the pool tries again by itself.
#[tokio::test]
async fn reverted_replicas_are_written_again_without_an_event() {
    let (client, requests) = serve();
    let controller = controller(&client);
    let mut idle = pool();
    idle["spec"]["jobs"]["inline"] = json!([]);
    start(&controller, idle).await;
    let key = Key::new("n", "p");
    let mut action = Action::AwaitChange;
    for version in ["60", "61", "62", "63"] {
        observe_set(&controller, 1, version);
        action = reconcile(Arc::clone(&controller), key.clone()).await.unwrap();
    }
    let scaled = taken(&requests).iter().filter(|request| *request == "PATCH statefulsets/w").count();
    assert_eq!(scaled, 3);
    let Action::RequeueAfter(pause) = action else { panic!("the pool waits for an event") };
    assert!(pause > Duration::from_secs(500) && pause < Duration::from_secs(601), "{pause:?}");
}

/// A worker hangs, its probes fail, and the pause between them grows. It recovers in the same pod, which turns Ready.
#[tokio::test]
async fn a_worker_that_turns_ready_is_probed_at_once() {
    let (client, _) = serve();
    let controller = controller(&client);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let mut probing = pool();
    probing["spec"]["version"] = json!({"probe": {"port": address.port()}});
    start(&controller, probing).await;
    let probes = tokio::spawn(run_probes(Arc::clone(&controller), PollLimits { polls: 10 }));
    let mut memory = PoolMemory::default();
    let key = Key::new("n", "p");
    let mut look = || {
        let observed = controller.observe_pool(&key).unwrap();
        memory.output.end_read(&observed.pool);
        let PoolStep::HandOver(handover) = next_step(&observed, &mut memory) else { panic!("no handover") };
        controller.probes.update(&observed, &handover, &memory.workers);
        observed
    };
    // After a failure, the next probe is half a minute away.
    while !look().unprobed.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut hung = pod("w-0", "40");
    hung["status"]["conditions"] = json!([]);
    observe_pod(&controller, hung);
    assert!(look().probed.is_empty());
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let worker = serve_version(listener);
    observe_pod(&controller, pod("w-0", "41"));
    look();
    let seen = async {
        while !look().probed.contains_key("w-0") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), seen).await.expect("the worker is probed when its pod turns Ready");
    probes.abort();
    worker.abort();
}

/// Answers every request with version 1.
fn serve_version(listener: tokio::net::TcpListener) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let body = r#"{"version": 1}"#;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
        }
    })
}
