//! Tests of requests from schedulers and other clients, over the routes and over real sockets.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::delays::MAX_DELAY;
use super::*;
use ganglion_core::facts::{Identity, Key, NodeFact, NodeName, PodFact};
use ganglion_core::world::{Origin, World};
use ganglion_placement_plan::world::register;
use ganglion_runtime::server::{self, Peer, ServerLimits, UNREAD};
use ganglion_runtime::store::Store;

const MAX_BODY: usize = 1 << 20;

/// Three nodes, two of them congested, and a policy that prefers less congested nodes and rejects the first.
fn extender(ready: Readiness) -> (Extender, Store, Metrics) {
    let mut world = World::default();
    register(&mut world);
    let (store, metrics) = (Store::new(world), Metrics::new());
    for (at, factor) in ["0", "90", "50"].into_iter().enumerate() {
        let id = Identity { key: Key::new("", format!("n{at}")), uid: at.to_string().into(), version: "1".into() };
        let published = [(ganglion_core::facts::CONGESTION, factor.to_owned())].into();
        let node = NodeFact { id, ready: true, pod_capacity: 110, published, ..NodeFact::default() };
        store.apply(node, Origin::Watch);
    }
    let spec = json!({"agents": [
        {"name": "calm", "congestion": {}},
        {"name": "mine", "expression": {"filter": "node.name != 'n0'"}},
    ]});
    put_policy(&store, "green", &spec);
    let placement = PlacementCache::new(store.clone());
    (Extender::new(ready, placement, metrics.clone(), MAX_BODY), store, metrics)
}

fn parsed(name: &str, spec: &Value) -> ganglion_api::placement_policy::PlacementPolicy {
    let policy = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy",
        "metadata": {"name": name, "uid": name, "generation": 1, "resourceVersion": "1"}, "spec": spec,
    });
    serde_json::from_value(policy).unwrap()
}

fn put_policy(store: &Store, name: &str, spec: &Value) {
    store.apply(parsed(name, spec), Origin::Watch);
}

fn ready() -> Readiness {
    // Ready at once, since it waits for no watch.
    Readiness::default()
}

fn pod() -> Value {
    json!({"metadata": {"namespace": "a", "name": "p", "uid": "u"}, "spec": {"schedulerName": "default-scheduler", "containers": []}})
}

fn names(names: &[&str]) -> Value {
    json!({"Pod": pod(), "Nodes": null, "NodeNames": names})
}

async fn ask(extender: &Extender, path: &str, body: impl Into<String>) -> (StatusCode, String) {
    let body = body.into();
    let request = Request::post(path).header(header::CONTENT_LENGTH, body.len()).body(Body::from(body)).unwrap();
    let answer = extender.clone().router().oneshot(request).await.unwrap();
    let status = answer.status();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&bytes).into_owned())
}

async fn asked(extender: &Extender, path: &str, body: &Value) -> Value {
    let (status, text) = ask(extender, path, body.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn nodes_are_rejected_with_a_reason_and_scored() {
    let (extender, ..) = extender(ready());
    let found = asked(&extender, "/policies/green/filter", &names(&["n0", "n1", "unknown"])).await;
    assert_eq!(found["NodeNames"], json!(["n1", "unknown"]), "{found}");
    assert_eq!(found["FailedAndUnresolvableNodes"], json!({"n0": "mine: node.name != 'n0' is false"}));
    let found = asked(&extender, "/policies/green/prioritize", &names(&["n0", "n1", "n2", "unknown"])).await;
    let scores = [("n0", 10), ("n1", 1), ("n2", 5), ("unknown", 0)];
    assert_eq!(found, json!(scores.map(|(host, score)| json!({"Host": host, "Score": score}))));
}

#[tokio::test]
async fn full_nodes_are_answered_with_full_nodes() {
    let (extender, ..) = extender(ready());
    let node = |name: &str| json!({"metadata": {"name": name}, "status": {"later": [1.50]}});
    let body = json!({"pod": pod(), "nodes": {"items": [node("n0"), node("n1")]}});
    let found = asked(&extender, "/policies/green/filter", &body).await;
    assert_eq!((&found["Nodes"]["items"], &found["NodeNames"]), (&json!([node("n1")]), &Value::Null));
}

#[rstest]
#[case::empty("")]
#[case::no_json("nodes, please")]
#[case::a_list("[]")]
#[case::no_pod(r#"{"NodeNames": []}"#)]
#[case::both(r#"{"Pod": {}, "Nodes": {"items": []}, "NodeNames": []}"#)]
#[case::neither(r#"{"Pod": {}, "Nodes": null}"#)]
#[case::bytes("{\"Pod\": {}, \"NodeNames\": [\"\u{0}\"")]
#[tokio::test]
async fn what_is_no_request_is_refused_with_words(#[case] body: &str) {
    let (extender, _, metrics) = extender(ready());
    for verb in ["filter", "prioritize"] {
        let (status, text) = ask(&extender, &format!("/policies/green/{verb}"), body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(text.starts_with("the request"), "{text}");
        let counted = metrics.extender_requests.get_or_create(&ExtenderLabels { verb, outcome: "invalid" }).get();
        assert_eq!(counted, 1);
    }
}

#[tokio::test]
async fn whoever_cannot_be_served_gets_no_opinion() {
    let (extender, store, _) = extender(ready());
    put_policy(&store, "broken", &json!({"agents": [{"name": "a", "expression": {"filter": "node.nothing"}}]}));
    put_policy(
        &store,
        "others",
        &json!({"schedulerNames": ["x"], "agents": [{"name": "a", "expression": {"filter": "false"}}]}),
    );
    put_policy(
        &store,
        "shadow",
        &json!({"mode": "Shadow", "agents": [{"name": "a", "expression": {"filter": "node.pods < 0", "score": "3"}}]}),
    );
    for policy in ["unknown", "broken", "others", "shadow"] {
        let found = asked(&extender, &format!("/policies/{policy}/filter"), &names(&["n0", "n1"])).await;
        assert_eq!((&found["NodeNames"], &found["Error"]), (&json!(["n0", "n1"]), &json!("")), "{policy}");
        assert_eq!(found["FailedNodes"], json!({}), "{policy}");
        let found = asked(&extender, &format!("/policies/{policy}/prioritize"), &names(&["n0"])).await;
        assert_eq!(found, json!([{"Host": "n0", "Score": 0}]), "{policy}");
    }
    let mut daemon = names(&["n0"]);
    daemon["Pod"]["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]);
    assert_eq!(asked(&extender, "/policies/green/filter", &daemon).await["NodeNames"], json!(["n0"]));
}

#[tokio::test]
async fn a_cold_cache_has_no_opinion() {
    let cold = ready();
    let _awaited = cold.expect_one();
    let (extender, _, metrics) = extender(cold);
    let found = asked(&extender, "/policies/green/filter", &names(&["n0"])).await;
    assert_eq!(found["NodeNames"], json!(["n0"]));
    let labels = ExtenderLabels { verb: "filter", outcome: "cold" };
    assert_eq!(metrics.extender_requests.get_or_create(&labels).get(), 1);
}

/// A pod in the cache, bound to a node if there is one.
fn put_pod(store: &Store, name: &str, version: u64, node: Option<&str>) {
    let id = Identity { key: Key::new("a", name), uid: name.into(), version: version.to_string() };
    store.apply(PodFact { id, node: node.map(NodeName::from), ..PodFact::default() }, Origin::Watch);
}

/// A request about the pod of this name.
fn about(name: &str, mut request: Value) -> Value {
    request["Pod"]["metadata"]["name"] = json!(name);
    request["Pod"]["metadata"]["uid"] = json!(name);
    request
}

fn put_limit(store: &Store, pods: usize) {
    let filter = format!("node.pods < {pods}");
    put_policy(store, "few", &json!({"agents": [{"name": "few", "expression": {"filter": filter}}]}));
}

#[tokio::test]
async fn pods_that_were_answered_for_count_until_they_are_bound() {
    let (extender, store, _) = extender(ready());
    put_limit(&store, 1);
    let filter = async |pod: &str| asked(&extender, "/policies/few/filter", &about(pod, names(&["n0", "n1"]))).await;
    assert_eq!(filter("p").await["NodeNames"], json!(["n0", "n1"]));
    let found = filter("q").await;
    assert_eq!(found["NodeNames"], json!([]));
    let reason = "few: node.pods < 1 is false, with 1 pod on the way";
    assert_eq!(found["FailedAndUnresolvableNodes"], json!({"n0": reason, "n1": reason}));
    assert_eq!(filter("p").await["NodeNames"], json!(["n0", "n1"]), "the same pod again");
    // Only one node is left once other extenders have filtered.
    let body = about("p", names(&["n1"]));
    asked(&extender, "/policies/few/prioritize", &body).await;
    assert_eq!(filter("q").await["NodeNames"], json!(["n0"]));
    put_pod(&store, "p", 7, Some("n0"));
    put_pod(&store, "q", 8, Some("n1"));
    assert_eq!(filter("r").await["NodeNames"], json!([]));
}

#[tokio::test]
async fn a_pod_waits_for_the_bindings_of_others_before_it_is_rejected() {
    let (extender, store, _) = extender(ready());
    put_limit(&store, 1);
    let body = |pod: &str| about(pod, names(&["n0", "n1"]));
    asked(&extender, "/policies/few/filter", &body("p")).await;
    let second = body("q");
    // The first evaluation comes before the binding.
    let (found, ()) = tokio::join!(asked(&extender, "/policies/few/filter", &second), async {
        put_pod(&store, "p", 7, Some("n0"));
    });
    assert_eq!(found["NodeNames"], json!(["n1"]));
    put_pod(&store, "q", 8, Some("n1"));
    let begun = std::time::Instant::now();
    asked(&extender, "/policies/few/filter", &body("r")).await;
    assert!(begun.elapsed() < MAX_DELAY, "waited although the nodes are full");
}

fn in_namespace(namespace: &str, mut request: Value) -> Value {
    request["Pod"]["metadata"]["namespace"] = json!(namespace);
    request
}

#[tokio::test]
async fn pods_that_are_never_bound_leave_other_namespaces_their_delays() {
    let (extender, store, _) = extender(ready());
    put_limit(&store, 1);
    let filter = async |body: &Value| asked(&extender, "/policies/few/filter", body).await;
    let stuck = ["stuck".to_owned()].into();
    while extender.0.delays.spend(&stuck, SETTLING_PAUSE, Instant::now()) {}
    filter(&in_namespace("stuck", about("p", names(&["n0"])))).await;
    let begun = Instant::now();
    assert_eq!(filter(&about("q", names(&["n0"]))).await["NodeNames"], json!([]));
    assert!(begun.elapsed() < MAX_DELAY, "its namespace has no delay left");
    filter(&about("r", names(&["n1"]))).await;
    let last = about("s", names(&["n1"]));
    let (found, ()) = tokio::join!(filter(&last), async { put_pod(&store, "r", 7, Some("n2")) });
    assert_eq!(found["NodeNames"], json!(["n1"]));
}

#[tokio::test]
async fn a_delay_counts_even_if_the_scheduler_gives_up() {
    let (extender, store, _) = extender(ready());
    put_limit(&store, 1);
    asked(&extender, "/policies/few/filter", &about("p", names(&["n0"]))).await;
    let body = about("q", names(&["n0"]));
    let reply = tokio::time::timeout(SETTLING_PAUSE * 2, asked(&extender, "/policies/few/filter", &body)).await;
    assert!(reply.is_err());
    let (all, here) = (Duration::from_millis(2500), ["a".to_owned()].into());
    assert!(DelayBudget::default().spend(&here, all, Instant::now()));
    assert!(!extender.0.delays.spend(&here, all, Instant::now()));
}

#[tokio::test]
async fn pods_in_shadow_do_not_count() {
    let (extender, store, _) = extender(ready());
    let agent = json!({"name": "few", "expression": {"filter": "node.pods < 1"}});
    put_policy(&store, "few", &json!({"mode": "Shadow", "agents": [agent]}));
    for verb in ["filter", "prioritize"] {
        asked(&extender, &format!("/policies/few/{verb}"), &about("p", names(&["n0"]))).await;
    }
    store.remove::<ganglion_api::placement_policy::PlacementPolicy>(&Identity {
        key: Key::new("", "few"),
        uid: "few".into(),
        version: "2".into(),
    });
    put_limit(&store, 1);
    let found = asked(&extender, "/policies/few/filter", &about("q", names(&["n0"]))).await;
    assert_eq!(found["NodeNames"], json!(["n0"]));
}

#[tokio::test]
async fn pods_on_the_way_are_bounded_by_namespace() {
    let (_, store, _) = extender(ready());
    put_limit(&store, 1);
    let placement = PlacementCache::new(store);
    let policy = placement.policy("few").unwrap().unwrap();
    let passes = |namespace: &str, name: &str, node: &str| {
        let pod = PlacedPod { key: Key::new(namespace, name), uid: name.into(), ..PlacedPod::default() };
        placement.filter(&policy, &pod, &[node], Timestamp::UNIX_EPOCH).0[0].is_none()
    };
    assert!(passes("calm", "first", "n0"));
    let many =
        CompiledPolicy::compile(&parsed("many", &json!({"agents": [{"name": "all", "congestion": {}}]}))).unwrap();
    for at in 0..1100 {
        let pod = PlacedPod { key: Key::new("busy", "p"), uid: at.to_string().into(), ..PlacedPod::default() };
        placement.filter(&many, &pod, &["n1"], Timestamp::UNIX_EPOCH);
    }
    assert!(!passes("calm", "second", "n0"), "the first still counts");
}

fn meta(victims: &[(&str, &[&str])]) -> Value {
    let pods = |uids: &[&str]| uids.iter().map(|uid| json!({"UID": uid})).collect::<Vec<_>>();
    let nodes = victims.iter().map(|(node, uids)| {
        let victims = json!({"Pods": pods(uids), "NumPDBViolations": 1});
        ((*node).to_owned(), victims)
    });
    let nodes: serde_json::Map<String, Value> = nodes.collect();
    json!({"Pod": pod(), "NodeNameToVictims": null, "NodeNameToMetaVictims": nodes})
}

#[tokio::test]
async fn preemption_is_left_to_nodes_that_pass_without_the_victims() {
    let (extender, store, _) = extender(ready());
    put_limit(&store, 2);
    for (at, (name, node)) in [("a", "n0"), ("b", "n0"), ("c", "n1"), ("d", "n1"), ("e", "n1")].iter().enumerate() {
        put_pod(&store, name, at as u64 + 2, Some(node));
    }
    let kept = meta(&[("n0", &["a"]), ("unknown", &["x"])]);
    let mut all = meta(&[("n0", &["a"]), ("n1", &["c"]), ("unknown", &["x"]), ("empty", &[])]);
    // Go writes an empty list like this.
    all["NodeNameToMetaVictims"]["nil"] = json!({"Pods": null, "NumPDBViolations": 0});
    let found = asked(&extender, "/policies/few/preempt", &all).await;
    assert_eq!(found, json!({"NodeNameToMetaVictims": kept["NodeNameToMetaVictims"]}));
    // The form with whole pods is answered in the short form.
    let whole =
        |uid: &str| json!({"metadata": {"name": uid, "uid": uid}, "spec": {"uid": "other", "metadata": {"uid": "x"}}});
    let body = json!({"Pod": pod(), "NodeNameToMetaVictims": null, "NodeNameToVictims": {
        "n0": {"Pods": [whole("a")], "NumPDBViolations": 0}, "n1": {"Pods": [whole("c"), whole("d")]}}});
    let found = asked(&extender, "/policies/few/preempt", &body).await;
    let expected = json!({
        "n0": {"Pods": [{"UID": "a"}], "NumPDBViolations": 0},
        "n1": {"Pods": [{"UID": "c"}, {"UID": "d"}], "NumPDBViolations": 0},
    });
    assert_eq!(found, json!({ "NodeNameToMetaVictims": expected }));
}

/// The scheduler's watch may be ahead: its victim is gone, while the cache still has it.
#[tokio::test]
async fn a_nominated_node_is_filtered_without_the_victims() {
    let (extender, store, _) = extender(ready());
    put_limit(&store, 1);
    put_pod(&store, "low", 2, Some("n0"));
    put_pod(&store, "other", 3, Some("n1"));
    put_pod(&store, "p", 4, None);
    let victims = about("p", meta(&[("n0", &["low"]), ("n1", &["other"])]));
    let found = asked(&extender, "/policies/few/preempt", &victims).await;
    assert_eq!(found["NodeNameToMetaVictims"].as_object().unwrap().len(), 2);
    let filter = async |body: &Value| asked(&extender, "/policies/few/filter", body).await["NodeNames"].clone();
    let mut nominated = about("p", names(&["n0", "n1"]));
    nominated["Pod"]["status"] = json!({"nominatedNodeName": "n0"});
    assert_eq!(filter(&nominated).await, json!(["n0"]));
    assert_eq!(filter(&about("p", names(&["n0"]))).await, json!([]), "not nominated");
    assert_eq!(filter(&about("q", names(&["n0"]))).await, json!([]), "another pod");
}

#[tokio::test]
async fn preemption_is_not_limited_without_an_opinion() {
    let (extender, store, metrics) = extender(ready());
    let agent = json!({"name": "none", "expression": {"filter": "false"}});
    put_policy(&store, "others", &json!({"schedulerNames": ["x"], "agents": [agent]}));
    put_policy(&store, "shadow", &json!({"mode": "Shadow", "agents": [agent]}));
    let all = meta(&[("n0", &["a", "b"]), ("n1", &["c"])]);
    for (policy, outcome) in [("unknown", "unknown_policy"), ("others", "other_pod"), ("shadow", "shadow")] {
        let found = asked(&extender, &format!("/policies/{policy}/preempt"), &all).await;
        assert_eq!(found["NodeNameToMetaVictims"], all["NodeNameToMetaVictims"], "{policy}");
        let labels = ExtenderLabels { verb: "preempt", outcome };
        assert_eq!(metrics.extender_requests.get_or_create(&labels).get(), 1);
    }
}

#[rstest]
#[case("")]
#[case("[]")]
#[case(r#"{"NodeNameToMetaVictims": {}}"#)]
#[case(r#"{"Pod": {}}"#)]
#[case(r#"{"Pod": {}, "NodeNameToMetaVictims": []}"#)]
#[case(r#"{"Pod": {}, "NodeNameToMetaVictims": {"a": 1}}"#)]
#[case(r#"{"Pod": {}, "NodeNameToMetaVictims": {"a": {"Pods": [{}]}}}"#)]
#[case(r#"{"Pod": {}, "NodeNameToMetaVictims": {"a": {"Pods": [null]}}}"#)]
#[tokio::test]
async fn what_is_no_preemption_request_is_refused(#[case] body: &str) {
    let (extender, ..) = extender(ready());
    let (status, text) = ask(&extender, "/policies/green/preempt", body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    assert!(text.starts_with("the request"), "{text}");
}

#[tokio::test]
async fn a_policy_may_go_and_come_at_any_time() {
    let (extender, store, _) = extender(ready());
    let filter = async || asked(&extender, "/policies/green/filter", &names(&["n0"])).await["NodeNames"].clone();
    assert_eq!(filter().await, json!([]));
    let id = Identity { key: Key::new("", "green"), uid: "green".into(), version: "2".into() };
    store.remove::<ganglion_api::placement_policy::PlacementPolicy>(&id);
    assert_eq!(filter().await, json!(["n0"]));
    put_policy(&store, "green", &json!({"agents": [{"name": "a", "expression": {"filter": "node.pods < 0"}}]}));
    assert_eq!(filter().await, json!([]), "the new one, though of the same generation");
}

#[tokio::test]
async fn large_requests_are_refused_with_advice_and_those_without_a_length() {
    let (extender, ..) = extender(ready());
    let (status, text) = ask(&extender, "/policies/green/filter", " ".repeat(MAX_BODY + 1)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(text.contains("nodeCacheCapable: true") && text.contains("maxBodyBytes"), "{text}");
    let request = Request::post("/policies/green/filter").body(Body::from("{}")).unwrap();
    assert_eq!(extender.clone().router().oneshot(request).await.unwrap().status(), StatusCode::LENGTH_REQUIRED);
    let request = Request::get("/policies/green/filter").body(Body::empty()).unwrap();
    assert_eq!(extender.router().oneshot(request).await.unwrap().status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_is_given_up() {
    let (extender, ..) = extender(ready());
    let body = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
    let request = Request::post("/policies/green/filter").header(header::CONTENT_LENGTH, 100).body(body).unwrap();
    let answer = extender.router().oneshot(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test]
async fn many_candidates_are_answered_whole() {
    let (extender, ..) = extender(ready());
    let all: Vec<String> = (0..5000).map(|at| format!("n{at}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let found = asked(&extender, "/policies/green/filter", &names(&all)).await;
    assert_eq!(found["NodeNames"].as_array().unwrap().len(), 4999);
    let found = asked(&extender, "/policies/green/prioritize", &names(&all)).await;
    assert_eq!(found.as_array().unwrap().len(), 5000);
}

/// More clients than any scheduler, most of which keep their connection open and send nothing.
#[tokio::test]
async fn two_hundred_connections_keep_nobody_out() {
    let (extender, ..) = extender(ready());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let limits = ServerLimits { connections: 100, unread: UNREAD };
    let server = tokio::spawn(server::serve(listener, extender.router(), limits, None, stop.clone()));
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = names(&["n1"]).to_string();
    let head = format!(
        "POST /policies/green/filter HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(10), stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("content-length"), "{answer}");
    stop.cancel();
    server.await.unwrap();
}

#[rstest]
#[case::of_nobody("nobody", "x")]
#[case::long("a", "annotations of any text \u{1f525} NaN 1e999")]
#[tokio::test]
async fn annotations_of_any_text_do_no_harm(#[case] name: &str, #[case] text: &str) {
    let (extender, store, _) = extender(ready());
    let id = Identity { key: Key::new("", name), uid: "x".into(), version: "9".into() };
    let published = ganglion_core::facts::PUBLISHED.map(|key| (key, text.to_owned())).into();
    store.apply(NodeFact { id, published, ready: true, ..NodeFact::default() }, Origin::Watch);
    put_policy(
        &store,
        "all",
        &json!({"agents": [{"name": "s", "safe": {}}, {"name": "c", "congestion": {}}, {"name": "p", "pigeon": {}}]}),
    );
    let found = asked(&extender, "/policies/all/filter", &names(&[name])).await;
    assert_eq!(found["NodeNames"], json!([name]));
    let found = asked(&extender, "/policies/all/prioritize", &names(&[name])).await;
    assert!((0..=10).contains(&found[0]["Score"].as_i64().unwrap()), "{found}");
}

#[tokio::test]
async fn a_request_keeps_its_place_until_its_reply_is_read() {
    let bodies = Bodies::new(4 << 20);
    let large = async || {
        let body = vec![b' '; 3 << 20];
        let request = Request::post("/").header(header::CONTENT_LENGTH, body.len()).body(Body::from(body)).unwrap();
        bodies.read(request).await
    };
    let reply = large().await.unwrap().answered(json(vec![b' '; 200 << 10]));
    let _second = large().await.unwrap();
    let third = async || large().await.err().map(|refused| refused.status());
    assert_eq!(third().await, Some(StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(http_body::Body::size_hint(reply.body()).exact(), Some(200 << 10));
    let mut body = reply.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.len() < 100 << 10, "{} bytes at once", first.len());
    assert_eq!(third().await, Some(StatusCode::SERVICE_UNAVAILABLE), "a part of the reply is read");
    let rest = body.collect().await.unwrap().to_bytes();
    assert_eq!(first.len() + rest.len(), 200 << 10);
    assert_eq!(third().await, None);
}

fn peer(last: u8) -> Peer {
    Peer([10, 0, 0, last].into())
}

/// A request of this peer with this body, of which all but the last byte arrive.
fn slow(from: Peer, length: usize) -> Request<Body> {
    let sent = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![b' '; length - 1]))]);
    let body = Body::from_stream(futures::StreamExt::chain(sent, futures::stream::pending()));
    let mut request = Request::post("/").header(header::CONTENT_LENGTH, length).body(body).unwrap();
    request.extensions_mut().insert(from);
    request
}

/// A request of this peer with a whole body.
fn whole(from: Peer, length: usize) -> Request<Body> {
    let body = Body::from(vec![b' '; length]);
    let mut request = Request::post("/").header(header::CONTENT_LENGTH, length).body(body).unwrap();
    request.extensions_mut().insert(from);
    request
}

#[tokio::test(start_paused = true)]
async fn slow_bodies_of_one_peer_never_refuse_another() {
    let bodies = Arc::new(Bodies::new(MAX_BODY));
    let spawn = |request| {
        let bodies = Arc::clone(&bodies);
        tokio::spawn(async move { bodies.read(request).await.err().map(|refused| refused.status()) })
    };
    let mut slow_ones: Vec<_> = (0..64).map(|_| spawn(slow(peer(1), 1 << 20))).collect();
    tokio::task::yield_now().await;
    assert_eq!(spawn(whole(peer(1), 1 << 20)).await.unwrap(), Some(StatusCode::SERVICE_UNAVAILABLE), "its own share");
    for _ in 0..100 {
        assert!(bodies.read(whole(peer(2), 1 << 20)).await.is_ok());
    }
    // The first of them was given up at once, the others time out.
    assert_eq!(slow_ones.remove(0).await.unwrap(), Some(StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(slow_ones.pop().unwrap().await.unwrap(), Some(StatusCode::REQUEST_TIMEOUT));
    // Also while others hold their replies unread.
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(bodies.read(whole(peer(1), 1 << 20)).await.unwrap().answered(json(vec![b' '; 1 << 20])));
    }
    assert!(bodies.read(whole(peer(2), 1 << 20)).await.is_ok());
    assert!(held.remove(0).into_body().collect().await.is_err(), "its place went to the other peer");
    assert!(held.remove(0).into_body().collect().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn many_peers_share_the_room_and_candidates_count() {
    let bodies = Bodies::new(MAX_BODY);
    let mut held = Vec::new();
    for last in 0..64 {
        held.push(bodies.read(whole(peer(last), 1 << 20)).await.unwrap());
    }
    let mut small = bodies.read(whole(peer(100), 20 << 10)).await.unwrap();
    assert!(small.occupy(100));
    // 100,000 candidates need more than is left for a peer beside 64 others.
    assert!(!small.occupy(100_000));
}

#[tokio::test]
async fn a_client_that_does_not_read_its_reply_is_cut_off() {
    // More than the socket buffers hold.
    let router = Router::new().route("/", get(async || vec![b'x'; 64 << 20]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let limits = ServerLimits { connections: 10, unread: Duration::from_millis(100) };
    let server = tokio::spawn(server::serve(listener, router, limits, None, stop.clone()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await.unwrap();
    assert!(read.is_err() || answer.len() < 64 << 20, "{} bytes were sent to nobody", answer.len());
    stop.cancel();
    server.await.unwrap();
}
