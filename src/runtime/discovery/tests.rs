//! Requests of discovery, and what is cached of their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower_test::mock;

use super::*;
use crate::metrics::Metrics;
use ganglion_core::metrics_api::CUSTOM_METRICS;

/// A writer whose API server answers each request with this status and body, and the number of requests.
fn api_server(status: u16, body: String) -> (Writer, Arc<AtomicUsize>) {
    let (service, mut handle) = mock::pair::<Request<Body>, Response<Body>>();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Some((_, send)) = handle.next_request().await {
            counted.fetch_add(1, Ordering::Relaxed);
            let answer = Response::builder().status(status).body(Body::from(body.clone().into_bytes()));
            send.send_response(answer.unwrap());
        }
    });
    let client = Client::new(service, "default");
    (Writer::new(client, Duration::from_secs(10), CancellationToken::new(), Metrics::new()), count)
}

fn list(kinds: &[&str]) -> String {
    let resource = |kind: &&str| {
        json!({
        "name": kind.to_lowercase(), "kind": kind, "namespaced": true, "singularName": "", "verbs": []})
    };
    json!({"kind": "APIResourceList", "groupVersion": "a.b/v1",
        "resources": kinds.iter().map(resource).collect::<Vec<_>>()})
    .to_string()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[tokio::test]
async fn a_node_is_asked_once_for_the_features_that_it_declares() {
    for (status, expected) in [
        (json!([{"status": {"declaredFeatures": ["B", "A"]}}]), Some(true)),
        (json!([{"status": {"declaredFeatures": ["B"]}}]), Some(false)),
        (json!([{"status": {}}]), Some(false)),
        (json!([]), None),
    ] {
        let (writer, asked) = api_server(200, json!({"items": status}).to_string());
        let discovery = Discovery::default();
        for second in [0, 29] {
            let declares = discovery.declares_at(&writer, at(second), "n1", "A").await.unwrap();
            assert_eq!(declares, expected, "{status}");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn only_an_api_version_is_asked_about_and_each_kind_once() {
    let (writer, asked) = api_server(200, list(&["Thing"]));
    let discovery = Discovery::default();
    let find = async |version: &str, kind: &str, second: i64| {
        discovery.find_other(&writer, at(second), version, kind).await.unwrap().map(|found| found.plural)
    };
    for version in ["apps/v1/replicasets", "v1/pods/x", "../v1", "", "a.b/v1?limit=0"] {
        assert_eq!(find(version, "Thing", 0).await, None, "{version}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    for second in [0, 1, 299] {
        assert_eq!(find("a.b/v1", "Thing", second).await.as_deref(), Some("thing"));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    for second in [0, 1, 9] {
        assert_eq!(find("a.b/v1", "Other", second).await, None);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2, "an absent kind is remembered, too");
    assert_eq!(find("a.b/v1", "Other", 10).await, None);
    assert_eq!(asked.load(Ordering::Relaxed), 3, "but not for long");
    for other in 0..2 * MOST {
        assert_eq!(find("a.b/v1", &format!("Other{other}"), 11).await, None);
    }
    assert!(lock(&discovery.missing).0.len() <= MOST);
    let before = asked.load(Ordering::Relaxed);
    assert!(find("a.b/v1", "Thing", 12).await.is_some());
    assert_eq!(asked.load(Ordering::Relaxed), before, "absent kinds evict none that exist");
}

#[tokio::test]
async fn a_subresource_is_served_if_it_is_listed_and_asked_about_once() {
    let (writer, asked) = api_server(200, list(&["Pods", "Pods/Eviction"]));
    let discovery = Discovery::default();
    for (name, second, expected, requests) in [
        ("pods/eviction", 0, true, 1),
        ("pods/eviction", 299, true, 1),
        ("pods/resize", 0, false, 2),
        ("pods/resize", 299, false, 2),
        ("pods/resize", 300, false, 3),
    ] {
        assert_eq!(discovery.serves_at(&writer, at(second), "v1", name).await.unwrap(), expected, "{name}");
        assert_eq!(asked.load(Ordering::Relaxed), requests, "{name} {second}");
    }
}

fn group(versions: &[&str]) -> String {
    let version =
        |version: &&str| json!({"groupVersion": format!("custom.metrics.k8s.io/{version}"), "version": version});
    let versions: Vec<_> = versions.iter().map(version).collect();
    json!({"kind": "APIGroup", "name": "custom.metrics.k8s.io", "versions": versions}).to_string()
}

#[tokio::test]
async fn the_newer_version_of_an_api_with_metrics_is_used_if_it_is_served() {
    for (status, versions, expected) in [
        (200, &["v1beta1", "v1beta2"][..], Some("custom.metrics.k8s.io/v1beta2")),
        (200, &["v1beta1"], Some("custom.metrics.k8s.io/v1beta1")),
        (200, &["v2"], None),
        (404, &[], None),
    ] {
        let (writer, asked) = api_server(status, group(versions));
        let discovery = Discovery::default();
        for second in [0, 1, 9] {
            let found = discovery.metrics_version_at(&writer, at(second), &CUSTOM_METRICS).await.unwrap();
            assert_eq!(found, expected, "{versions:?}");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1, "{versions:?}");
        discovery.forget_metrics_version(&CUSTOM_METRICS);
        discovery.metrics_version_at(&writer, at(10), &CUSTOM_METRICS).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 2, "an absent API is looked up again soon: {versions:?}");
    }
}

/// A writer whose API server lists a kind Cache with a scale subresource, and answers requests for its definition
/// like this. Also returns the paths of the requests.
fn with_definition(status: u16, definition: serde_json::Value) -> (Writer, Arc<Mutex<Vec<String>>>) {
    let (service, mut handle) = mock::pair::<Request<Body>, Response<Body>>();
    let paths = Arc::new(Mutex::new(Vec::new()));
    let requested = Arc::clone(&paths);
    tokio::spawn(async move {
        let resource = |name: &str| {
            let kind = if name.contains('/') { "Scale" } else { "Cache" };
            json!({"name": name, "kind": kind, "namespaced": true, "singularName": "", "verbs": []})
        };
        let list = json!({"resources": [resource("caches"), resource("caches/scale")]});
        while let Some((request, send)) = handle.next_request().await {
            let path = request.uri().path().to_owned();
            let (status, answer) = if path == "/apis/shop.example/v1" { (200, &list) } else { (status, &definition) };
            lock(&requested).push(path);
            let body = Body::from(answer.to_string().into_bytes());
            send.send_response(Response::builder().status(status).body(body).unwrap());
        }
    });
    let client = Client::new(service, "default");
    (Writer::new(client, Duration::from_secs(10), CancellationToken::new(), Metrics::new()), paths)
}

fn definition(paths: &[(&str, Option<&str>)]) -> serde_json::Value {
    let version = |(name, path): &(&str, Option<&str>)| match path {
        Some(path) => json!({"name": name, "subresources": {"status": {}, "scale": {
            "specReplicasPath": path, "statusReplicasPath": ".status.size"}}}),
        None => json!({"name": name, "schema": {}}),
    };
    json!({"kind": "CustomResourceDefinition", "spec": {"versions": paths.iter().map(version).collect::<Vec<_>>()}})
}

#[tokio::test]
async fn the_path_of_the_replicas_is_that_of_the_definition() {
    type Versions = &'static [(&'static str, Option<&'static str>)];
    let cases: [(Versions, Option<&str>); 4] = [
        (&[("v1", Some(".spec.size"))], Some("spec.size")),
        (&[("v1beta1", Some(".spec.count")), ("v1", Some(".spec.pool.size"))], Some("spec.pool.size")),
        (&[("v1", None), ("v2", Some(".spec.size"))], None),
        (&[], None),
    ];
    for (versions, expected) in cases {
        let (writer, paths) = with_definition(200, definition(versions));
        let found = Discovery::default().find_other(&writer, at(0), "shop.example/v1", "Cache").await.unwrap().unwrap();
        assert_eq!((found.replicas_path.as_deref(), found.has_scale), (expected, true), "{versions:?}");
        let last = lock(&paths).last().cloned();
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/caches.shop.example";
        assert_eq!(last.as_deref(), Some(path));
    }
}

#[tokio::test]
async fn a_definition_that_may_not_be_read_is_requested_again_soon() {
    let message = "User \"o\" cannot get resource \"customresourcedefinitions\" in API group \"apiextensions.k8s.io\"";
    let refused =
        json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": message, "code": 403});
    let (writer, paths) = with_definition(403, refused);
    let discovery = Discovery::default();
    for (second, requests) in [(0, 2), (29, 2), (30, 4)] {
        let found = discovery.find_other(&writer, at(second), "shop.example/v1", "Cache").await.unwrap().unwrap();
        assert_eq!((found.replicas_path, lock(&paths).len()), (None, requests), "{second}");
    }
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_read() {
    let kinds: Vec<String> = (0..20_000).map(|kind| format!("Kind{kind}")).collect();
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    let (writer, _) = api_server(200, list(&kinds));
    let error = Discovery::default().find_other(&writer, at(0), "a.b/v1", "Kind1").await.unwrap_err();
    assert!(matches!(&error, Error::Malformed(words) if words.contains("more than 1048576 bytes")), "{error}");
}

#[tokio::test]
async fn a_refusal_is_no_answer_about_the_kind() {
    let message = "User \"o\" cannot get path \"/apis/a.b/v1\"";
    let status = json!({
        "kind": "Status", "status": "Failure", "reason": "Forbidden", "message": message, "code": 403,
    });
    let (writer, asked) = api_server(403, status.to_string());
    let discovery = Discovery::default();
    for _ in 0..2 {
        let error = discovery.find_other(&writer, at(0), "a.b/v1", "Thing").await.unwrap_err();
        assert!(matches!(error, Error::Forbidden(_) | Error::Doubtful(_)), "{error}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}
