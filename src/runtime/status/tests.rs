//! Tests of statuses of objects that are not acted on, against a scripted API server.

use std::sync::Mutex;

use ganglion_api::monitoring::Monitoring;
use ganglion_core::definitions::DroppedField;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use tower_test::mock;

use super::*;

const WRITER: StatusWriter = StatusWriter {
    manager: "m",
    effect: "Record",
    invalid: "InvalidObject",
    method: StatusMethod::UpdateUnlessChanged { field: "tag" },
    observes_generation: false,
};

/// A context whose API server stores only `conditions` of a status, as the CRD of Monitorings does with one that has an
/// `observedGeneration`, too. Returns what was sent to it.
fn context() -> (Context, Arc<Mutex<Vec<Value>>>) {
    let (service, mut server) = mock::pair::<Request<Body>, Response<Body>>();
    let sent = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&sent);
    tokio::spawn(async move {
        while let Some((request, answer)) = server.next_request().await {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let sent: Value = serde_json::from_slice(&body).unwrap();
            heard.lock().unwrap().push(sent.clone());
            let mut stored = sent;
            let conditions = stored["status"]["conditions"].take();
            stored["status"] = json!({"conditions": conditions});
            stored["spec"] = json!({});
            answer.send_response(Response::new(Body::from(stored.to_string().into_bytes())));
        }
    });
    (Context::of_server(service), sent)
}

fn monitoring() -> Monitoring {
    serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "Monitoring",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1", "generation": 7},
        "spec": {},
    }))
    .unwrap()
}

#[tokio::test]
async fn a_kind_without_an_observed_generation_is_written_without_one() {
    let (ctx, sent) = context();
    ctx.store.apply(monitoring(), Origin::Watch);
    let dropped = DroppedField { path: "status.values".to_owned(), at: ctx.now() };
    let key = Key::new("shop", "web");
    let problem = GuardProblem::Definition(dropped);
    WRITER.report_unguarded::<Monitoring>(&ctx, &key, &problem).await.unwrap();
    let sent = sent.lock().unwrap();
    assert_eq!(sent.len(), 1);
    assert!(!sent[0].to_string().contains("observedGeneration"), "{}", sent[0]);
    assert!(sent[0].to_string().contains("DefinitionOutdated"), "{}", sent[0]);
}
