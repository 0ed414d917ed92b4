//! Sources and targets with an API server in memory, and a server that users name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use rstest::rstest;
use serde_json::{Value, json};
use testkit::action::with;
use testkit::servers::http::{Manner, Server};
use tokio_util::sync::CancellationToken;
use tower_test::mock;

use super::monitoring::{PollRequest, Sources};
use super::target::{self, Actor, Targets};
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::action::{Rung, Webhook};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::status::SeenOwner;
use ganglion_api::monitoring::MonitoringSpec;
use ganglion_core::facts::{DeploymentFact, Key};
use ganglion_core::world::{Origin, World};
use ganglion_loops_plan::execution::TargetState;
use ganglion_loops_plan::world::register;
use ganglion_outbound::address::{self, Names, Rules};
use ganglion_outbound::client::{AnswerLimits, OutboundClient};
use ganglion_outbound::web::Web;
use ganglion_runtime::context::Context;
use ganglion_runtime::discovery::Discovery;
use ganglion_runtime::events;
use ganglion_runtime::fairness::FairLimit;
use ganglion_runtime::metrics::Metrics;
use ganglion_runtime::store::Store;
use ganglion_runtime::writer::Writer;

/// Answers of the API server by path: status and body. 404 for other paths.
type Answers = BTreeMap<&'static str, (u16, Value)>;

fn context(answers: Answers) -> Context {
    let (service, mut handle) = mock::pair::<Request<Body>, Response<Body>>();
    tokio::spawn(async move {
        while let Some((request, send)) = handle.next_request().await {
            let missing = (404, failure(404, "NotFound", "not found"));
            let (status, body) = answers.get(request.uri().path()).unwrap_or(&missing);
            let body = Body::from(body.to_string().into_bytes());
            send.send_response(Response::builder().status(*status).body(body).unwrap());
        }
    });
    let mut world = World::default();
    register(&mut world);
    let metrics = Metrics::new();
    let client = Client::new(service, "shop");
    Context {
        store: Store::new(world),
        writer: Writer::new(client, Duration::from_secs(10), CancellationToken::new(), metrics.clone()),
        events: events::line(&metrics).0,
        metrics,
        clock: Timestamp::now,
        term: "term".into(),
        stop: CancellationToken::new(),
    }
}

fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code})
}

fn sources(answers: Answers) -> Sources {
    let limit = || FairLimit::new(1 << 20, Counter::default());
    let rules = Rules { allowed_networks: vec!["127.0.0.0/8".parse().unwrap()], ..Rules::default() };
    let web = Arc::new(Web::new(Names::new(rules, address::system), limit()));
    let limits = AnswerLimits { sample: 65_536, object: 65_536, pods: 65_536, node: 1, nodes: 1 };
    let outbound = Arc::new(OutboundClient::new(web, Duration::from_secs(10), limit(), limits));
    Sources { ctx: context(answers), outbound, discovery: Arc::default() }
}

/// A server behind the header of a tenant, whose value is in the spec or in a Secret.
#[rstest]
#[case::value(json!({"name": "X-Scope-OrgID", "value": "blue"}))]
#[case::secret(json!({"name": "X-Scope-OrgID", "secret": {"name": "tenant", "key": "id"}}))]
#[tokio::test]
async fn headers_of_sources_reach_the_server(#[case] header: Value) {
    let now = Timestamp::now().as_second();
    let vector = json!({"status": "success", "data": {"resultType": "vector", "result": [
        {"metric": {}, "value": [now, "7"]}]}});
    let server = Server::start(Manner::Guarded("x-scope-orgid: blue\r\n", vector.to_string())).await;
    let secret = json!({"metadata": {"name": "tenant"}, "data": {"id": "Ymx1ZQ=="}});
    let sources = sources([("/api/v1/namespaces/shop/secrets/tenant", (200, secret))].into());
    let metrics = |headers: &Value| {
        json!([
            {"name": "prometheus", "low": {"raise": "5"},
                "source": {"prometheus": {"url": server.url("/"), "query": "up", "headers": headers}}},
            {"name": "http", "low": {"raise": "5"}, "source": {"http": {
                "url": server.url("/"), "path": "data.result[0].value[1]", "headers": headers}}},
        ])
    };
    for (headers, is_let_in) in [(json!([header]), true), (json!([]), false)] {
        let spec: MonitoringSpec = serde_json::from_value(json!({"metrics": metrics(&headers)})).unwrap();
        let request = PollRequest::new(Key::new("shop", "web"), &spec, SignedDuration::from_secs(10));
        for (metric, result) in sources.query(&request).await {
            match result {
                Ok(value) => assert!(is_let_in && value.value == "7", "{metric}: {value:?}"),
                Err(refused) => assert!(!is_let_in && refused.words.contains("401"), "{metric}: {}", refused.words),
            }
        }
    }
}

const CACHES: &str = "/apis/shop.example/v1";
const CACHE: &str = "/apis/shop.example/v1/namespaces/shop/caches/web";
const SCALE: &str = "/apis/shop.example/v1/namespaces/shop/caches/web/scale";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/caches.shop.example";

/// An API server with a kind Cache whose number of replicas is `spec.size`, and with one object of it. `definition`:
/// whether the operator may read the definition of the kind.
fn caches(definition: bool, size: Option<i32>, managers: Value) -> Answers {
    let resource = |name: &str| {
        let kind = if name.contains('/') { "Scale" } else { "Cache" };
        json!({"name": name, "kind": kind, "namespaced": true, "singularName": "", "verbs": []})
    };
    let refusal = "User \"o\" cannot get resource \"customresourcedefinitions\" in API group \"apiextensions.k8s.io\"";
    let definition = if definition {
        (
            200,
            json!({"spec": {"versions": [{"name": "v1", "subresources": {"scale": {"specReplicasPath": ".spec.size"}}}]}}),
        )
    } else {
        (403, failure(403, "Forbidden", refusal))
    };
    let meta = json!({"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 2,
        "managedFields": managers});
    let scale = match size {
        Some(size) => (200, json!({"metadata": {"resourceVersion": "7"}, "spec": {"replicas": size}})),
        None => {
            let message = "Internal error occurred: the spec replicas field \".spec.size\" does not exist";
            (500, failure(500, "InternalError", message))
        }
    };
    [
        (CACHES, (200, json!({"resources": [resource("caches"), resource("caches/scale")]}))),
        (DEFINITION, definition),
        (
            CACHE,
            (200, json!({"apiVersion": "shop.example/v1", "kind": "Cache", "metadata": meta, "spec": {"size": size}})),
        ),
        (SCALE, scale),
    ]
    .into()
}

fn targets(ctx: Context) -> Targets {
    Targets { ctx, discovery: Arc::new(Discovery::default()), patchable: ["shop.example/Cache".to_owned()].into() }
}

#[test]
fn a_webhook_is_sent_with_everything_that_its_rung_names() {
    let webhook: Webhook = serde_json::from_value(json!({
        "url": "http://a.b", "auth": {"bearer": {"name": "s", "key": "token"}}, "ca": {"secret": {"name": "s", "key": "ca"}},
        "headers": [{"name": "X-Scope-OrgID", "value": "shop"}, {"name": "X-Key", "secret": {"name": "s", "key": "key"}}],
    }))
    .unwrap();
    let request = target::webhook_request(&webhook, Duration::from_secs(1));
    assert_eq!((request.url, request.auth, request.ca), ("http://a.b", webhook.auth.as_ref(), webhook.ca.as_ref()));
    assert_eq!(Some(request.headers), webhook.headers.as_deref());
    assert_eq!(request.headers.len(), 2);
}

fn target(api_version: &str, kind: &str) -> TargetRef {
    TargetRef { api_version: api_version.into(), kind: kind.into(), name: "web".into() }
}

fn rung(value: Value) -> Rung {
    serde_json::from_value(value).unwrap()
}

async fn read_cache(answers: Answers, rung: &Rung) -> TargetState {
    let targets = targets(context(answers));
    let key = Key::new("shop", "loop");
    let mut actor = Actor::new(&targets, &key, &target("shop.example/v1", "Cache"), None);
    target::read(&targets, &mut actor, rung, None).await.unwrap()
}

fn scale() -> Rung {
    rung(json!({"scale": {"by": 1, "max": 9}}))
}

fn patch() -> Rung {
    rung(json!({"patch": {"path": "spec.size", "by": "1", "min": "1", "max": "9"}}))
}

fn manager(name: &str, operation: &str, subresource: &str) -> Value {
    json!({"manager": name, "operation": operation, "subresource": subresource, "time": "2026-11-26T10:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:size": {}}}})
}

#[rstest]
#[case(true)]
#[case(false)]
#[tokio::test]
async fn a_target_without_a_number_of_replicas_says_what_to_set(#[case] definition: bool) {
    let TargetState::Unfit(reason, message) = read_cache(caches(definition, None, json!([])), &scale()).await else {
        panic!("it is fit")
    };
    assert_eq!(reason, LoopReason::NotScalable);
    assert!(message.starts_with("Cache web sets no number of replicas: set spec.size, so that"), "{message}");
    let command = r#"`kubectl patch cache.shop.example web -n shop --type=merge -p '{"spec":{"size":1}}'`"#;
    assert!(message.ends_with(command), "{message}");
}

/// The definition of the kind names the path of the replicas, and so does an earlier write of the scale.
#[rstest]
#[case::definition(true, json!([manager("flux", "Apply", "")]))]
#[case::scaled_before(false, json!([manager("flux", "Apply", ""), manager("hpa", "Update", "scale")]))]
#[tokio::test]
async fn the_replicas_of_a_custom_resource_belong_to_who_applies_them(
    #[case] definition: bool,
    #[case] managers: Value,
) {
    for rung in [scale(), patch()] {
        let seen = read_cache(caches(definition, Some(5), managers.clone()), &rung).await;
        let (TargetState::Scale(object, 5) | TargetState::Field(object, Some(_))) = &seen else { panic!("{seen:?}") };
        assert_eq!(object.replicas_path.as_deref(), Some("spec.size"));
        assert_eq!(seen.dimension(&rung), "replicas");
        let owned = object.owned.as_ref().unwrap();
        assert_eq!((owned.owner.manager.as_str(), owned.path.as_str()), ("flux", "spec.size"));
        assert!(object.written_by.is_some());
    }
}

#[tokio::test]
async fn without_the_definition_the_path_is_unknown_until_somebody_scales() {
    let managers = json!([manager("flux", "Apply", "")]);
    let seen = read_cache(caches(false, Some(5), managers), &scale()).await;
    let TargetState::Scale(object, 5) = &seen else { panic!("{seen:?}") };
    assert_eq!((&object.replicas_path, &object.owned), (&None, &None));
}

/// A remembered owner is found although somebody else has changed the replicas since, with the operator's permissions.
#[tokio::test]
async fn the_remembered_owner_of_replicas_is_found_before_an_action_is_made() {
    let replicas = json!({"f:spec": {"f:replicas": {}}});
    let entry = |manager: &str, operation: &str, time: &str, fields: &Value| {
        let fields = json!({"fieldsType": "FieldsV1", "fieldsV1": fields});
        with(json!({"manager": manager, "operation": operation, "time": time}), fields)
    };
    let managers = json!([
        entry("flux", "Apply", "2026-11-26T10:00:00Z", &json!({"f:spec": {"f:template": {}}})),
        entry("kubectl", "Update", "2026-11-26T10:05:00Z", &replicas),
    ]);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "managedFields": managers},
        "spec": {"replicas": 4, "selector": {}, "template": {}}});
    let fact: k8s_openapi::api::apps::v1::Deployment = serde_json::from_value(deployment.clone()).unwrap();
    let path = "/apis/apps/v1/namespaces/shop/deployments/web";
    let targets = targets(context([(path, (200, deployment))].into()));
    targets.ctx.store.apply(DeploymentFact::from(fact), Origin::Watch);
    let owner = SeenOwner {
        dimension: "replicas".into(),
        paths: Vec::new(),
        manager: "flux".into(),
        uid: "u".into(),
        applied_at: serde_json::from_value(json!("2026-11-26T10:00:00.000000Z")).unwrap(),
    };
    for (template, is_read) in [
        (json!({"create": {"to": {"nodeName": "a"}}}), true),
        (json!({"delete": {}}), true),
        (json!({"move": {"to": {"nodeName": "a"}}}), false),
    ] {
        let rung = rung(json!({"workloadAction": template}));
        for remembered in [vec![], vec![owner.clone()]] {
            let actor = Actor::new(&targets, &Key::new("shop", "loop"), &target("apps/v1", "Deployment"), None);
            let mut actor = actor.remembering(&remembered);
            let seen = target::read(&targets, &mut actor, &rung, None).await.unwrap();
            let TargetState::Workload(object, 4) = &seen else {
                assert_eq!((seen, is_read), (TargetState::WorkloadAction(None), false));
                continue;
            };
            assert!(is_read);
            assert_eq!(object.written_by.as_deref(), Some("kubectl"));
            let taken_over_by = object.owned.as_ref().and_then(|owned| owned.taken_over_by.as_deref());
            assert_eq!(taken_over_by, (!remembered.is_empty()).then_some("kubectl"));
        }
    }
}
