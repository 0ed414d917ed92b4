//! External scalers: a server that is made with KEDA's own package, and that misbehaves on request.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ganglion_outbound::Error;
use ganglion_outbound::address::{Names, Rules};
use ganglion_outbound::external_scaler::wire::ScaledObjectRef;
use ganglion_outbound::external_scaler::{ExternalScaler, ScalerQuestion, server_url};
use ganglion_outbound::trust::Distrust;
use ganglion_outbound::web::grpc::GrpcCall;
use ganglion_outbound::web::{Call, Credentials, Web};
use ganglion_runtime::fairness::FairLimit;
use prometheus_client::metrics::counter::Counter;
use rstest::rstest;
use serde_json::{Value, json};
use testkit::servers::http::{Authority, Manner, Server};
use testkit::servers::scaler::{ScalerProcess, TOKEN, queue};
use testkit::{TIMEOUT, block_on};

use crate::client::{call, web};

use ScalerQuestion::{Active, Metric, Target};

/// Timeout of questions that a server does not answer.
const SOON: Duration = Duration::from_millis(1500);

/// Call of the server at this address.
fn grpc(address: &str) -> GrpcCall {
    GrpcCall { call: Call { limit: 64 << 10, ..call(server_url(address, false).unwrap()) }, identity: None }
}

/// The loop `shop/web`, with this metadata.
fn object(metadata: &[(&str, &str)]) -> ScaledObjectRef {
    let metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ScaledObjectRef { name: "web".to_owned(), namespace: "shop".to_owned(), scaler_metadata: metadata.collect() }
}

async fn ask(web: &Web, call: &GrpcCall, of: &ScaledObjectRef, question: ScalerQuestion<'_>) -> Result<String, Error> {
    ExternalScaler { web, call, object: of }.ask(question).await
}

/// Answers without and with these values of the metric `queue`.
fn answers(values: &Value) -> Value {
    json!({"": {
        "active": true,
        "spec": {"metricSpecs": [{"metricName": "queue", "targetSize": 10}]},
        "metrics": {"metricValues": values},
    }})
}

#[rstest]
#[case::float(json!([{"metricName": "queue", "metricValue": 0, "metricValueFloat": 0.5}]), Ok("0.5"))]
#[case::whole(json!([{"metricName": "queue", "metricValue": 5, "metricValueFloat": 0}]), Ok("5"))]
#[case::negative(json!([{"metricName": "queue", "metricValue": 5, "metricValueFloat": -2.5}]), Ok("5"))]
#[case::nan(json!([{"metricName": "queue", "metricValueFloat": "NaN"}]), Err("queue is NaN, which is not a number"))]
#[case::empty(json!([]), Err("the answer has no value of queue"))]
#[case::other(json!([{"metricName": "lag", "metricValue": 5}]), Err("the answer has no value of queue, but of lag"))]
fn a_value_means_what_it_means_to_keda(#[case] values: Value, #[case] expected: Result<&str, &str>) {
    block_on(async {
        let server = ScalerProcess::start(&answers(&values)).await.unwrap();
        let (web, call, of) = (web(), grpc(&server.address()), object(&[("region", "north")]));
        let found = ask(&web, &call, &of, Metric(None)).await;
        assert_eq!(found, expected.map(str::to_owned).map_err(|words| Error::Answer(words.to_owned())));
        let asked = &server.calls("GetMetrics")[0];
        assert_eq!((&asked["name"], &asked["namespace"]), (&json!("web"), &json!("shop")));
        assert_eq!((&asked["metric"], &asked["metadata"]), (&json!("queue"), &json!({"region": "north"})));
        assert_eq!(ask(&web, &call, &of, Active).await.as_deref(), Ok("1"));
    });
}

#[test]
fn a_new_target_counts_at_the_next_question() {
    block_on(async {
        let server = ScalerProcess::start(&json!({"": queue(5.0, 10.0, false)})).await.unwrap();
        let (web, call, of) = (web(), grpc(&server.address()), object(&[]));
        assert_eq!(ask(&web, &call, &of, Target(None)).await.as_deref(), Ok("10"));
        server.set(&json!({"": queue(5.0, 20.0, false)})).unwrap();
        assert_eq!(ask(&web, &call, &of, Target(Some("queue"))).await.as_deref(), Ok("20"));
        assert_eq!(ask(&web, &call, &of, Active).await.as_deref(), Ok("0"));
        let wrong = ask(&web, &call, &of, Target(Some("s0-queue"))).await.unwrap_err().to_string();
        assert!(wrong.contains("it offers queue, not s0-queue") && wrong.ends_with("write queue"), "{wrong}");
    });
}

#[test]
fn a_scaler_that_starts_late_or_again_is_asked_again() {
    block_on(async {
        let mut server = ScalerProcess::stopped(&json!({"": queue(5.0, 10.0, true)})).unwrap();
        let (web, call, of) = (web(), grpc(&server.address()), object(&[]));
        let absent = ask(&web, &call, &of, Metric(None)).await;
        assert!(matches!(absent, Err(Error::Unreachable(_))), "{absent:?}");
        for _ in 0..3 {
            server.restart().await.unwrap();
            // A connection to the former process may only be found to be closed now.
            let begun = Instant::now();
            while ask(&web, &call, &of, Metric(None)).await.as_deref() != Ok("5") {
                assert!(begun.elapsed() < TIMEOUT);
            }
        }
    });
}

#[rstest]
#[case("hang", "no answer within 1.5 s")]
#[case("garbage", "the server does not speak gRPC: its message cannot be decoded")]
#[case("large", "the answer has more than 65536 bytes (setting outbound.maxBytes)")]
#[case("UNAVAILABLE", "the server answers Unavailable, a status of gRPC")]
#[case("UNIMPLEMENTED", "the server answers Unimplemented, a status of gRPC")]
#[case("OUT_OF_RANGE", "the server answers OutOfRange, a status of gRPC")]
fn what_goes_wrong_is_said_and_stops_nothing_else(#[case] mode: &str, #[case] words: &str) {
    block_on(async {
        let server = ScalerProcess::start(&json!({"": queue(5.0, 10.0, true)})).await.unwrap();
        let (web, mut call) = (web(), grpc(&server.address()));
        call.call.within = SOON;
        let questions = [("GetMetrics", Metric(Some("queue"))), ("GetMetricSpec", Target(None)), ("IsActive", Active)];
        for (method, question) in questions {
            let (bad, good, slow) = (object(&[(method, mode)]), object(&[]), object(&[(method, "slow")]));
            let (bad, good, slow) = tokio::join!(
                ask(&web, &call, &bad, question),
                ask(&web, &call, &good, question),
                ask(&web, &call, &slow, question),
            );
            assert_eq!(bad.unwrap_err().to_string(), words, "{method}");
            assert!(good.is_ok() && slow == good, "{method}: {good:?}, {slow:?}");
        }
        let calls = ["GetMetrics", "GetMetricSpec", "IsActive"].map(|method| server.calls(method)).concat();
        let connections: BTreeSet<String> = calls.iter().map(|call| call["peer"].to_string()).collect();
        assert_eq!((calls.len(), connections.len()), (9, 1), "all calls share a connection");
    });
}

#[test]
fn a_scaler_that_is_stopped_is_no_answer_and_goes_on() {
    block_on(async {
        let server = ScalerProcess::start(&json!({"": queue(5.0, 10.0, true)})).await.unwrap();
        let (web, mut call, of) = (web(), grpc(&server.address()), object(&[]));
        call.call.within = SOON;
        assert_eq!(ask(&web, &call, &of, Metric(None)).await.as_deref(), Ok("5"));
        server.pause().unwrap();
        assert_eq!(ask(&web, &call, &of, Metric(None)).await, Err(Error::Timeout(SOON)));
        server.resume().unwrap();
        assert_eq!(ask(&web, &call, &of, Metric(None)).await.as_deref(), Ok("5"));
    });
}

#[test]
fn a_server_of_something_else_is_no_scaler() {
    block_on(async {
        let server = Server::start(Manner::Says("200 OK", "5".to_owned())).await;
        let mut call = grpc(&format!("127.0.0.1:{}", server.address.port()));
        call.call.within = SOON;
        let found = ask(&web(), &call, &object(&[]), Active).await;
        assert!(matches!(found, Err(Error::Broken(_) | Error::Timeout(_))), "{found:?}");
    });
}

#[test]
fn namespaces_do_not_share_a_connection() {
    block_on(async {
        let server = ScalerProcess::start(&json!({"": queue(5.0, 10.0, true)})).await.unwrap();
        let web = web();
        for tenant in ["a", "b", "a", "b"] {
            let mut call = grpc(&server.address());
            call.call.tenant = tenant.to_owned();
            ask(&web, &call, &object(&[]), Active).await.unwrap();
        }
        let peers: BTreeMap<String, usize> =
            server.calls("IsActive").iter().fold(BTreeMap::new(), |mut peers, call| {
                *peers.entry(call["peer"].to_string()).or_default() += 1;
                peers
            });
        assert_eq!(peers.into_values().collect::<Vec<_>>(), [2, 2]);
    });
}

#[test]
fn certificates_and_tokens_are_checked_on_both_sides() {
    block_on(async {
        let (authority, clients) = (Authority::create(), Authority::create());
        clients.issue_for_client();
        let (certificate, key) = clients.files();
        let identity = [std::fs::read(certificate).unwrap(), std::fs::read(key).unwrap()].concat();
        let answers = json!({"": queue(5.0, 10.0, true)});
        let server = ScalerProcess::guarded(&answers, &authority, Some(&clients)).await.unwrap();
        let good = GrpcCall {
            call: Call {
                ca: Some(authority.pem().into()),
                auth: Some(Credentials::Bearer(TOKEN.to_owned())),
                ..call(server_url(&server.address(), true).unwrap())
            },
            identity: Some(identity.into()),
        };
        let (web, of) = (web(), object(&[]));
        assert_eq!(ask(&web, &good, &of, Metric(None)).await.as_deref(), Ok("5"));
        let wrong = GrpcCall { call: Call { ca: Some(clients.pem().into()), ..good.call.clone() }, ..good.clone() };
        assert_eq!(ask(&web, &wrong, &of, Active).await, Err(Error::Certificate(Distrust::Issuer)));
        let public = GrpcCall { call: Call { ca: None, ..good.call.clone() }, ..good.clone() };
        assert!(matches!(ask(&web, &public, &of, Active).await, Err(Error::Certificate(_))));
        let anonymous = GrpcCall { identity: None, ..good.clone() };
        let refused = ask(&web, &anonymous, &of, Active).await;
        assert!(matches!(refused, Err(Error::Unreachable(_) | Error::Broken(_))), "{refused:?}");
        let useless = GrpcCall { identity: Some(b"-".as_slice().into()), ..good.clone() };
        let words = ask(&web, &useless, &of, Active).await.unwrap_err().to_string();
        assert_eq!(words, "certificate: there is no usable certificate with its key in PEM");
        let other = Some(Credentials::Bearer("other".to_owned()));
        let guest = GrpcCall { call: Call { auth: other, ..good.call.clone() }, ..good.clone() };
        let refused = ask(&web, &guest, &of, Active).await.unwrap_err();
        assert!(refused.is_refusal(), "{refused}");
        let plain = grpc(&server.address());
        assert!(ask(&web, &plain, &of, Active).await.is_err(), "the server speaks TLS");
    });
}

#[test]
fn a_stream_says_when_there_is_work_and_its_end_says_nothing() {
    block_on(async {
        let mut server = ScalerProcess::start(&json!({"": queue(0.0, 10.0, false)})).await.unwrap();
        let (web, call) = (web(), grpc(&server.address()));
        let open = async |metadata: &[(&str, &str)]| {
            ExternalScaler { web: &web, call: &call, object: &object(metadata) }.open_activity().await.unwrap()
        };
        let mut quiet = open(&[]).await;
        assert!(!quiet.message().await.unwrap().unwrap().result);
        let silence = tokio::time::timeout(Duration::from_millis(300), quiet.message()).await;
        assert!(silence.is_err(), "the stream stays open");
        server.set(&json!({"": queue(5.0, 10.0, true)})).unwrap();
        assert!(quiet.message().await.unwrap().unwrap().result);
        assert_eq!(open(&[("StreamIsActive", "end")]).await.message().await, Ok(None));
        let mut breaking = open(&[("StreamIsActive", "break")]).await;
        assert!(breaking.message().await.unwrap().unwrap().result);
        let words = breaking.message().await.unwrap_err().to_string();
        assert_eq!(words, "the server answers Unavailable, a status of gRPC");
        let garbage = open(&[("StreamIsActive", "garbage")]).await.message().await.unwrap_err().to_string();
        assert!(garbage.ends_with("its message cannot be decoded"), "{garbage}");
        server.end();
        let broken = quiet.message().await;
        assert!(matches!(broken, Err(Error::Broken(_))), "{broken:?}");
    });
}

#[test]
fn addresses_are_checked_and_causes_hidden_as_for_other_requests() {
    block_on(async {
        let server = ScalerProcess::start(&json!({"": queue(5.0, 10.0, true)})).await.unwrap();
        let names = |_: &str| Ok(vec![IpAddr::from([127, 0, 0, 1])]);
        let with = |rules| Web::new(Names::new(rules, names), FairLimit::new(1 << 20, Counter::default()));
        let address = server.address();
        let (_, port) = address.rsplit_once(':').unwrap();
        let (mut named, of) = (grpc(&format!("scaler.example:{port}")), object(&[]));
        named.call.within = SOON;
        for refused in [grpc(&server.address()), named.clone()] {
            let found = ask(&with(Rules::default()), &refused, &of, Active).await;
            assert!(matches!(found, Err(Error::Refused(_))), "{found:?}");
        }
        assert!(server.calls("IsActive").is_empty(), "no request was sent");
        let loopback = || Rules { allowed_networks: vec!["127.0.0.0/8".parse().unwrap()], ..Rules::default() };
        let web = with(loopback());
        assert_eq!(ask(&web, &named, &of, Active).await.as_deref(), Ok("1"));
        drop(server);
        let begun = Instant::now();
        let found = ask(&web, &named, &of, Active).await;
        assert_eq!(found, Err(Error::NoAnswer(format!("scaler.example:{port}"))));
        assert!(begun.elapsed() >= SOON, "the time does not tell a closed port from an open one");
    });
}
