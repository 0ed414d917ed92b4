//! Requests to servers that need a login, a session or the header of a tenant, with Secrets of a simulated API server.

use std::time::Duration;

use http::{Request, Response};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use rstest::rstest;
use serde_json::json;
use testkit::servers::http::{Manner, Server};
use tokio_util::sync::CancellationToken;
use tower_test::mock;

use super::*;
use crate::address::{Names, Rules, system};
use crate::client::AnswerLimits;
use crate::redfish::{Bmc, Fetch};
use crate::web::Web;
use ganglion_core::world::World;
use ganglion_runtime::events;
use ganglion_runtime::fairness::FairLimit;
use ganglion_runtime::metrics::Metrics;
use ganglion_runtime::store::Store;
use ganglion_runtime::writer::Writer;

#[rstest]
#[case("https://10.0.0.1", "10.0.0.1:443")]
#[case("https://10.0.0.1:443/redfish/v1", "10.0.0.1:443")]
#[case("http://BMC.example:8000/", "bmc.example:8000")]
#[case("https://[fd00::1]", "[fd00::1]:443")]
#[case("no address", "no address")]
fn a_machine_has_one_name(#[case] url: &str, #[case] name: &str) {
    assert_eq!(host(url), name);
}

/// A context whose API server has the Secret `login`: user `me`, password `right`, tenant `shop`.
fn context() -> Context {
    let (service, mut handle) = mock::pair::<Request<Body>, Response<Body>>();
    tokio::spawn(async move {
        while let Some((request, send)) = handle.next_request().await {
            let is_known = request.uri().path() == "/api/v1/namespaces/a/secrets/login";
            let data = json!({"username": "bWU=", "password": "cmlnaHQ=", "tenant": "c2hvcA=="});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "data": data});
            let status = if is_known { 200 } else { 404 };
            let response = Response::builder().status(status).body(Body::from(secret.to_string().into_bytes()));
            send.send_response(response.unwrap());
        }
    });
    let metrics = Metrics::new();
    let client = Client::new(service, "a");
    Context {
        store: Store::new(World::default()),
        writer: Writer::new(client, Duration::from_secs(5), CancellationToken::new(), metrics.clone()),
        events: events::line(&metrics).0,
        metrics,
        clock: || Timestamp::UNIX_EPOCH,
        term: "term".into(),
        stop: CancellationToken::new(),
    }
}

fn outbound() -> OutboundClient {
    let rules = Rules { allowed_networks: vec!["127.0.0.0/8".parse().unwrap()], ..Rules::default() };
    let limit = || FairLimit::new(1 << 20, Counter::default());
    let web = Web::new(Names::new(rules, system), limit());
    let size = 64 << 10;
    let limits = AnswerLimits { sample: size, object: size, pods: size, node: size, nodes: size };
    OutboundClient::new(std::sync::Arc::new(web), Duration::from_secs(5), limit(), limits)
}

fn header(value: serde_json::Value) -> RequestHeader {
    serde_json::from_value(value).unwrap()
}

fn asked<'a>(url: &'a str, auth: Option<&'a Auth>, headers: &'a [RequestHeader]) -> AskedServer<'a> {
    let auth = auth.map(Cow::Borrowed);
    AskedServer { url, namespace: "a", auth, ca: None, insecure: false, headers, limit: 64 << 10 }
}

/// Prometheus for several tenants, as Mimir, Cortex and Thanos have it.
#[tokio::test]
async fn the_header_of_a_tenant_is_sent_with_each_request() {
    let (ctx, outbound) = (context(), outbound());
    let asker = Asker { ctx: &ctx, outbound: &outbound };
    let server = Server::start(Manner::Guarded("x-scope-orgid: shop\r\n", "{}".to_owned())).await;
    let url = server.url("/api/v1/query");
    let plain = header(json!({"name": "X-Scope-OrgID", "value": "shop"}));
    let secret = header(json!({"name": "X-Scope-OrgID", "secret": {"name": "login", "key": "tenant"}}));
    let other = header(json!({"name": "X-Scope-OrgID", "value": "other"}));
    for (headers, is_let_in) in [(vec![plain], true), (vec![secret], true), (vec![other], false), (vec![], false)] {
        let mut attempt = Attempt::prepare(asker, asked(&url, None, &headers)).await.unwrap();
        let answer = outbound.web().get(&attempt.call).await.unwrap();
        let error = answer.good().err();
        assert_eq!(error.is_none(), is_let_in, "{headers:?}: {error:?}");
        // Without a login, no refusal pauses the source.
        assert_eq!(attempt.repeats(error.as_ref()).await, Ok(false));
    }
    let unknown = [header(json!({"name": "X-Scope-OrgID", "secret": {"name": "other", "key": "tenant"}}))];
    let withheld = Attempt::prepare(asker, asked(&url, None, &unknown)).await.err().unwrap();
    assert_eq!(withheld.why, WithheldWhy::Unreadable);
    assert!(withheld.words.contains("other"), "{}", withheld.words);
}

/// Specs that are older than the rule of the schema may have such headers.
#[tokio::test]
async fn the_headers_of_a_signed_event_cannot_be_set() {
    let (ctx, outbound) = (context(), outbound());
    let asker = Asker { ctx: &ctx, outbound: &outbound };
    for name in ["Webhook-Id", "webhook-timestamp", "WEBHOOK-SIGNATURE", "Content-Type"] {
        let headers = [header(json!({"name": name, "value": "v1,forged"}))];
        let withheld = Attempt::prepare(asker, asked("http://127.0.0.1:1", None, &headers)).await.err().unwrap();
        assert_eq!(withheld.words, format!("header {name}: it cannot be set; use auth for credentials"));
    }
}

/// A BMC that refuses Basic authentication and accepts the token of a session.
fn bmc(token: &'static str) -> Manner {
    let created = format!("201 Created\nX-Auth-Token: {token}\r\nLocation: /redfish/v1/SessionService/Sessions/7\r\n");
    let guard: &str = format!("x-auth-token: {token}\r\n").leak();
    Manner::Paths(vec![
        ("/redfish/v1/SessionService/Sessions", Manner::Says(created.leak(), "{}".to_owned())),
        ("/redfish/v1/Systems", Manner::Guarded(guard, r#"{"Members": []}"#.to_owned())),
    ])
}

/// Reads the systems of a BMC as polls do. Returns whether they were read.
async fn reads_systems(asker: Asker<'_>, url: &str, auth: &Auth) -> bool {
    let mut attempt = Attempt::prepare(asker, asked(url, Some(auth), &[])).await.unwrap();
    for _ in 0..3 {
        let call = attempt.call.clone();
        let bmc = Bmc::new(asker.outbound.web(), call);
        let answer = bmc.get("/redfish/v1/Systems").await;
        if bmc.refuses_basic() && attempt.opens_session().await {
            continue;
        }
        let error = answer.as_ref().err();
        if !attempt.repeats(error).await.unwrap() {
            return error.is_none();
        }
    }
    false
}

#[tokio::test]
async fn a_bmc_that_accepts_only_tokens_is_read_by_one_session() {
    let (ctx, outbound) = (context(), outbound());
    let asker = Asker { ctx: &ctx, outbound: &outbound };
    let server = Server::start(bmc("first")).await;
    let url = server.url("");
    let auth: Auth = serde_json::from_value(json!({"basic": {"name": "login"}})).unwrap();
    let created = || server.heard().matches("POST /redfish/v1/SessionService/Sessions ").count();
    assert!(reads_systems(asker, &url, &auth).await);
    assert!(server.heard().contains(r#"{"Password":"right","UserName":"me"}"#), "{}", server.heard());
    for _ in 0..3 {
        assert!(reads_systems(asker, &url, &auth).await);
    }
    assert_eq!(created(), 1, "a BMC has only a few sessions");
    // The BMC has ended the session.
    server.turn(bmc("second"));
    assert!(reads_systems(asker, &url, &auth).await);
    assert_eq!(created(), 2);
}
